"""A fork server that is a fork of this process, and so has the modules that both need without importing them again.

Only for a process that is surgery's alone and has one thread: it starts with the memory of its parent. `start` in
`client` decides. It saves 0.11 s of processor time of each command that verifies (`benchmarks/small_models.py`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from surgery.base.workers import server
from surgery.base.workers.fork import forking

_SHARED = ("numpy", "ml_dtypes", "onnx")
"""The modules of `server.PRELOAD` that this process needs, too."""

_CONTROL = 3
_THRESHOLDS = (700, 10, 10)
"""How often Python collects garbage by default; commands do it less often."""

_SET_THREADS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")


class ForkedServer:
    """A forked server, with those methods of `subprocess.Popen` that its owner calls."""

    def __init__(self, control: socket.socket, environment: Mapping[str, str]) -> None:
        server.import_all(_SHARED)
        self.returncode: int | None = None
        self.pid = forking()
        if self.pid == 0:
            _serve(control.fileno(), environment)

    def poll(self) -> int | None:
        """Return the exit code or negative signal number, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raise `subprocess.TimeoutExpired` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            time.sleep(0.001)
        return code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _serve(control: int, environment: Mapping[str, str]) -> NoReturn:
    """Serve in the child, which keeps the modules of its parent and the control socket, but none of its files."""
    try:
        os.setsid()
        # An object of the parent that is freed later would close a file that has got its number.
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((control, _CONTROL), (null, 0), (null, 1), (null, 2)):
            os.dup2(source, target)
        os.closerange(_CONTROL + 1, server.MANY_FILES)
        os.environ.update(environment)
        sys.path[:] = [str(Path(entry).absolute()) for entry in sys.path if entry]
        _use_one_thread()
        server.main(_CONTROL)
    finally:
        os._exit(1)


def _use_one_thread() -> None:
    """Have the linear algebra library of NumPy, which was loaded before the environment said so, use one thread."""
    # The library is found through the module that is linked with it.
    linked = sys.modules["numpy._core._multiarray_umath"].__file__
    with suppress(OSError):
        library = ctypes.CDLL(linked)
        for set_threads in filter(None, (getattr(library, name, None) for name in _SET_THREADS)):
            set_threads(1)
