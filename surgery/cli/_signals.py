"""Signals that ask the process to end: it cleans up as after Ctrl-C, and says by its exit code which one it was."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

_AGAIN: Final = 5.0
"""Seconds after which an interrupt is raised again: within a callback Python reports it, and goes on."""

_received: list[KeyboardInterrupt] = []


class Ended(KeyboardInterrupt):
    """What KeyboardInterrupt is to Ctrl-C, this is to other signals: what cleans up after that does so after these."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def install() -> None:
    """Have each signal that asks to end this process raise `Ended`, but for those that its parent has turned off."""
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
    """Return the first interrupt that came, whatever became of it: raised within an import, it is an ImportError."""
    return _received[0] if _received else None


def finish() -> None:
    """Let no further signal disturb what is done at the very end."""
    for number in (signal.SIGINT, signal.SIGALRM, *_ENDING):
        signal.signal(number, signal.SIG_IGN)


def account(error: KeyboardInterrupt) -> tuple[str, int]:
    """Return what an interrupt has ended, and with which exit code: 128 and the number of the signal, as shells do."""
    number = signal.Signals(error.number if isinstance(error, Ended) else signal.SIGINT)
    what = "interrupted" if number is signal.SIGINT else f"ended by {number.name}"
    files = sys.modules.get("surgery.storage.files")
    written = ", ".join(map(str, files.written())) if files is not None else ""
    return f"{what}; {'nothing was' if not written else f'{written} had been'} written", 128 + number
