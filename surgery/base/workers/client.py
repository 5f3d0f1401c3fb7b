"""The client side of the fork server, which is started on first use, once per process, and ended with the process."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from surgery.base.errors import WorkerError

_MESSAGE_LIMIT = 1 << 16


class Process(Protocol):
    """The part of `subprocess.Popen` that a server needs."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code or negative signal number, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raise `subprocess.TimeoutExpired` after `timeout` seconds."""

    def kill(self) -> None:
        """Kill it, unless it has ended."""


Launch = Callable[[socket.socket, Mapping[str, str]], Process]
"""Starts a server that serves on a socket, in an environment."""


class ForkServer:
    """A running fork server: a new interpreter, or what `launch` returns. Requests may come from any thread."""

    def __init__(self, launch: Launch | None = None) -> None:
        self.owner = os.getpid()
        self._workers: set[int] = set()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = (launch or _new_interpreter)(theirs, _environment())

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def processes(self) -> tuple[int, ...]:
        """The process ids of the server and of the workers that have not been ended."""
        return self.pid, *self._workers.copy()

    @property
    def usable(self) -> bool:
        """Whether this process started it (and is not a fork of its owner), and it is still running."""
        return self.owner == os.getpid() and self._control.fileno() >= 0 and self._process.poll() is None

    def fork(self, channel: socket.socket, log: IO[bytes], memory: int, preload: tuple[str, ...] = ()) -> int:
        """Fork a worker that communicates on `channel` and writes its output to `log`; return its process id."""
        request = json.dumps({"op": "fork", "memory": memory, "preload": preload}).encode()
        answer = self._ask(request, [channel.fileno(), log.fileno()])
        if "pid" not in answer:
            problem = answer.get("error", "the fork server has ended")
            raise WorkerError(f"no worker process can be started: {problem}", stage=WorkerError.START)
        pid = int(answer["pid"])
        self._workers.add(pid)
        return pid

    def end(self, pid: int, kill: bool) -> int | None:
        """Wait for a worker to end, or kill it; return its exit code or negative signal number."""
        self._workers.discard(pid)
        answer = self._ask(json.dumps({"op": "end", "pid": pid, "kill": kill}).encode(), [])
        status = answer.get("status")
        return None if status is None else int(status)

    def close(self) -> None:
        """End the server and all workers. In a fork of its owner, only close the connection."""
        self._control.close()
        if self.owner != os.getpid():
            self._process.returncode = 0
            return
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: bytes, descriptors: list[int]) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [request], descriptors)
                answer = self._control.recv(_MESSAGE_LIMIT)
            except OSError:
                return {}
            except BaseException:
                # An unread answer would be mistaken for the answer to the next request.
                self._control.close()
                raise
        loaded: dict[str, Any] = json.loads(answer) if answer else {}
        return loaded


def _new_interpreter(control: socket.socket, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "surgery.base.workers", str(control.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[control.fileno()],
        env=environment,
        start_new_session=True,
    )


_current: ForkServer | None = None
_starting = threading.Lock()
_may_fork = False


def allow_fork() -> None:
    """Let `start` fork the server from this process, which runs nothing but surgery."""
    global _may_fork
    _may_fork = True


def start(fork: Launch) -> None:
    """Start the fork server, if there is none, without waiting for it.

    It is forked from this process if that is allowed and no other thread may hold locks, which the fork would not
    release.
    """
    global _current, _may_fork
    forked = _may_fork and _current is None and threading.active_count() == 1
    _may_fork = False
    if forked:
        _current = ForkServer(fork)
    else:
        forkserver()


def forkserver() -> ForkServer:
    """Return the fork server of this process; start it if there is none."""
    global _current
    with _starting:
        if _current is not None and not _current.usable:
            _current.close()
            _current = None
        if _current is None:
            _current = ForkServer()
        return _current


def processes() -> tuple[int, ...]:
    """Return the process ids of the fork server and its workers, without starting any."""
    server = _current
    return server.processes if server is not None and server.usable else ()


def shutdown() -> None:
    """End the fork server and all workers; the next call of a worker starts a new server."""
    global _current
    with _starting:
        if _current is not None:
            _current.close()
            _current = None


def _environment() -> dict[str, str]:
    """Return an environment in which the server finds the same modules as this process."""
    paths = [str(Path(entry).absolute()) for entry in sys.path if entry]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(_with_home(paths)),
        # Threads of a linear algebra library would be lost in each fork, and their buffers copied.
        "OPENBLAS_NUM_THREADS": "1",
        # ONNX Runtime starts a telemetry thread on import, which is bad for forks, and not requested.
        "ORT_DISABLE_TELEMETRY": "1",
    }


def _with_home(paths: list[str]) -> list[str]:
    """Add the folder of this package, before any folder with another copy of it.

    This process may have imported the package from the current folder, although another one is installed.
    """
    home = Path(__file__).resolve().parents[3]
    first = next((place for place, path in enumerate(paths) if Path(path, "surgery").is_dir()), len(paths))
    return [*paths[:first], str(home), *paths[first:]]


atexit.register(shutdown)
