"""Termination signals: the process cleans up as after Ctrl-C, and its exit code indicates the signal."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

_AGAIN: Final = 5.0
"""Seconds after which an interrupt is raised again, because Python only reports one raised in a callback."""

_DEFERRED: Final = 0.02
"""Seconds until the next look whether an import or a fork is over. They defer an interrupt by `_AGAIN` at most."""

_FORKING: Final = "forking"
"""The function of `surgery.base.workers.fork` that forks, which is not imported here because it takes time."""

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
    _receive(Ended(number), frame)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _receive(KeyboardInterrupt(), frame)


def _receive(error: KeyboardInterrupt, frame: FrameType | None) -> None:
    """Raise an interrupt: now, or if a module is being imported or the process forks, after that."""
    _received.append(error)
    latest = time.monotonic() + _AGAIN

    def again(number: int, frame: FrameType | None) -> None:
        # Native modules abort the process when Python code that they call at their import raises. What raises in a
        # callback of a fork is printed with a traceback.
        is_early = time.monotonic() < latest and _is_deferred(frame)
        # Again and again, since a signal that another thread receives does not end a sleep of this one.
        signal.setitimer(signal.ITIMER_REAL, _DEFERRED if is_early else _AGAIN, _AGAIN)
        if not is_early:
            raise _received[0]

    signal.signal(signal.SIGALRM, again)
    again(signal.SIGALRM, frame)


def _is_deferred(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" or frame.f_code.co_name == _FORKING:
            return True
        frame = frame.f_back
    return False


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
    files = sys.modules.get("surgery.model.storage.files")
    written = ", ".join(map(str, files.written())) if files is not None else ""
    return f"{what}; {'nothing was' if not written else f'{written} had been'} written", 128 + number
