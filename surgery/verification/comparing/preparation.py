"""Work that is done once, on demand or in a thread of its own that begins earlier."""

from __future__ import annotations

import threading
from collections.abc import Callable

from surgery.verification.comparing.probing import SearchEnded


class Preparation:
    """Work whose effects are there when `finish` returns, in whatever thread it is called. The work waits for others.

    `kill` ends a process that the work waits for, if there is one.
    """

    def __init__(self, work: Callable[[], None], kill: Callable[[], None]) -> None:
        self.is_abandoned = False
        self._work = work
        self._kill = kill
        self._lock = threading.RLock()
        self._has_begun = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the work in a thread, unless it has begun."""
        if not self._has_begun and self._thread is None:
            self._thread = threading.Thread(target=self._once, daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for the thread that `begin` started."""
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Stop the thread that `begin` started, whatever it is doing."""
        while self._thread is not None and self._thread.is_alive():
            self.is_abandoned = True
            self._kill()
            self._thread.join(0.02)

    def finish(self) -> None:
        """Do the work; a second call does nothing, or raises the error of the first."""
        self.join()
        self._once()
        if self._error is not None:
            raise self._error

    def _once(self) -> None:
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
            try:
                self._work()
            except Exception as error:
                self._error = SearchEnded() if self.is_abandoned else error  # a run that was killed blames its inputs
