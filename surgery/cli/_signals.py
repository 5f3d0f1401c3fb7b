"""Termination signals: the process cleans up as after Ctrl-C, and its exit code indicates the signal."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

_AGAIN: Final = 5.0
"""Seconds after which an interrupt is raised again, because Python only reports one raised in a callback."""

_received: list[KeyboardInterrupt] = []


class Ended(KeyboardInterrupt):
    """The counterpart of KeyboardInterrupt for other signals, so that the same cleanup runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def install() -> None:
    """Make each termination signal raise `Ended`, except those that the parent process ignores."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    _raise(Ended(number))


def _interrupt(number: int, frame: FrameType | None) -> None:
    _raise(KeyboardInterrupt())


def _raise(error: KeyboardInterrupt) -> None:
    _received.append(error)
    signal.signal(signal.SIGALRM, _again)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
    raise _received[0]


def _again(number: int, frame: FrameType | None) -> None:
    raise _received[0]


def received() -> KeyboardInterrupt | None:
    """Return the first interrupt, even if it was converted: raised during an import, it becomes an ImportError."""
    return _received[0] if _received else None


def finish() -> None:
    """Ignore further signals during the final cleanup."""
    for number in (signal.SIGINT, signal.SIGALRM, *_ENDING):
        signal.signal(number, signal.SIG_IGN)


def account(error: KeyboardInterrupt) -> tuple[str, int]:
    """Return the message and the exit code for an interrupt: 128 plus the number of the signal, as in shells."""
    number = signal.Signals(error.number if isinstance(error, Ended) else signal.SIGINT)
    what = "interrupted" if number is signal.SIGINT else f"ended by {number.name}"
    files = sys.modules.get("surgery.storage.files")
    written = ", ".join(map(str, files.written())) if files is not None else ""
    return f"{what}; {'nothing was' if not written else f'{written} had been'} written", 128 + number
