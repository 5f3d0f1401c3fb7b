"""The fork server, and the loop of a worker forked from it.

The server is a fresh interpreter that imports the slow modules and then only forks: a worker starts in milliseconds,
without the caller's threads, locks and open files. The server stays single-threaded, because a fork of a threaded
process may hang.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from surgery.base.workers import messages
from surgery.base.workers.ending import end_for_lack_of_memory, reap
from surgery.base.workers.limits import end_with_parent, limit_memory
from surgery.base.workers.process_memory import private_bytes, return_free, return_large

PRELOAD = ("numpy", "ml_dtypes", "onnx", "onnx.shape_inference", "onnx.checker", "onnxruntime")
ALLOWED = "surgery."

_MESSAGE_LIMIT = 1 << 16
MANY_FILES = 1 << 16
_LARGE = 8 << 20
"""Number of bytes by which a worker may grow in a call before its free memory is returned to the system."""

_TRIVIAL = '<ir_version: 8, opset_import: ["": 13]> trivial (float[1] x) => (float[1] y) { y = Identity(x) }'

_released: list[Callable[[], object]] = []
_channel: socket.socket | None = None
_timeout: float | None = None


def stage(name: str) -> None:
    """Report the next native call: a crash is attributed to it, and its time starts. Does nothing outside a worker."""
    if _channel is not None:
        messages.send(_channel, messages.pack({"stage": name}))
        _limit_cpu()


def note(value: object) -> None:
    """Send plain data to the caller, which keeps it even if this process dies. Does nothing outside a worker."""
    if _channel is not None:
        messages.send(_channel, messages.pack({"note": value}))


def after_call(release: Callable[[], object]) -> None:
    """Register a function that releases memory of a worker after a call that took much."""
    if release not in _released:
        _released.append(release)


def main(descriptor: int) -> None:
    """Serve fork requests on a socket until the process at its other end has ended."""
    control = socket.socket(fileno=descriptor)
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return_large()
    _preload(PRELOAD)
    _fill_registries()
    try:
        _Server(control).run()
    finally:
        # Skip the interpreter shutdown, which is slow with all these modules.
        os._exit(0)


def _preload(names: Sequence[str]) -> None:
    """Import modules that later workers will need."""
    if all(name in sys.modules for name in names):
        return
    import_all(names)
    gc.collect()
    gc.freeze()


def import_all(names: Sequence[str]) -> None:
    """Import modules, as far as possible: the worker that needs one will report the failure."""
    for name in names:
        with suppress(Exception, SystemExit):
            importlib.import_module(name)


def _fill_registries() -> None:
    """Have onnx and ONNX Runtime register their operators here, which takes 12 ms, not once in each worker."""
    with suppress(Exception):
        import onnxruntime
        from onnx import defs, parser

        defs.has("Identity")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a fork of a process with threads may hang
        onnxruntime.InferenceSession(parser.parse_model(_TRIVIAL).SerializeToString(), options)


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.parent = os.getppid()
        self.living: set[int] = set()

    def run(self) -> None:
        try:
            while self._serve():
                pass
        finally:
            for pid in list(self.living):
                self._end(pid, kill=True)

    def _serve(self) -> bool:
        """Answer one request; return False if there will be no more requests."""
        ready, _, _ = select.select([self.control], [], [], 1.0)
        if not ready:
            # A forked child of the owner may keep the socket open after the owner has ended.
            return os.getppid() == self.parent
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, _MESSAGE_LIMIT, 2)
        except ConnectionResetError:
            return False
        if not data:
            return False
        request = json.loads(data)
        if request["op"] == "fork":
            answer = self._fork(request, descriptors)
        else:
            answer = self._end(request["pid"], kill=request["kill"])
        with suppress(BrokenPipeError):
            self.control.send(json.dumps(answer).encode())
        return True

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        server = os.getpid()
        _preload(request["preload"])
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            failure = str(error)
        if pid == 0:
            try:
                _become_worker(server, descriptors, request["memory"])
            except MemoryError:
                # Not within a call, which reports it itself: the arguments or the result are too large.
                end_for_lack_of_memory(2)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid < 0:
            return {"error": failure}
        self.living.add(pid)
        return {"pid": pid}

    def _end(self, pid: int, kill: bool) -> dict[str, Any]:
        """Wait for a worker to end, kill it if requested or if it does not end; then kill its remaining processes."""
        if pid not in self.living:
            return {"status": None}
        self.living.discard(pid)
        return {"status": reap(pid, kill)}


def _become_worker(server: int, descriptors: list[int], memory: int | None) -> None:
    """Turn the forked child into a worker and serve its calls; never returns normally."""
    global _channel
    os.setsid()
    end_with_parent()
    if os.getppid() != server:
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    connection, log = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2), (connection, 3)):
        os.dup2(source, target)
    os.closerange(4, MANY_FILES)
    _channel = socket.socket(fileno=3)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        limit_memory(memory)
    held = _private()
    while True:
        try:
            request = messages.receive(_channel)
        except messages.ClosedError:
            os._exit(0)
        answer = _answer(request)
        del request
        _release(held)  # the caller has a copy of the answer before it is freed here
        messages.send(_channel, answer)
        del answer
        if _release(held):
            held = _private()


def _release(held: int) -> bool:
    """Return free memory to the system if this process has many bytes more than it `held`; return whether it had."""
    if _private() <= held + _LARGE:
        return False
    for release in _released:
        release()
    return_free()
    return True


def _private() -> int:
    """Return the private memory of this process in bytes; 0 where the system does not tell."""
    try:
        return private_bytes(os.getpid())
    except (OSError, ValueError):
        return 0


def _answer(request: dict[str, Any]) -> list[bytes | memoryview]:
    """Run one call, and return its packed result or exception."""
    global _timeout
    _timeout = request["timeout"]
    _limit_cpu()
    try:
        return messages.pack({"result": _resolve(request["function"])(**request["arguments"])})
    except BaseException as error:
        return messages.pack({"raised": type(error).__name__, "message": str(error)})


def _resolve(name: str) -> Any:
    module, _, function = name.partition(":")
    if not module.startswith(ALLOWED):
        raise PermissionError(f"workers run functions of {ALLOWED}* only, not {name}")
    return getattr(importlib.import_module(module), function)


def _limit_cpu() -> None:
    """Limit the processor time of a stage, as a fallback if no process is left to enforce the time limit."""
    if _timeout is None:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + _timeout * (os.cpu_count() or 1)) + 10
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
