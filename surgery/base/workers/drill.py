"""Ways to crash a worker, for testing the containment: `worker.call("surgery.base.workers.drill:abort")`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from surgery.base.workers.server import after_call, note, stage


def perform(job: dict[str, Any]) -> object:
    """Call the function of this module given in a batch job, with its arguments."""
    return globals()[job["drill"]](**job.get("arguments", {}))


def echo(value: object) -> object:
    """Return the argument."""
    return value


def complain(text: str) -> None:
    """Raise an ordinary exception."""
    raise ValueError(text)


def leave(code: int) -> None:
    """Call `sys.exit`, which raises an exception."""
    sys.exit(code)


def vanish(code: int) -> None:
    """End the process without any message."""
    os._exit(code)


def abort() -> None:
    """Abort like native code with a failed assertion, with a message on stderr."""
    stage("drill")
    os.write(2, b"something native went wrong\n")
    os.abort()


def segfault() -> None:
    """Read from address zero."""
    stage("drill")
    ctypes.string_at(0)


def kill() -> None:
    """Kill the process like the out-of-memory killer of the kernel."""
    stage("drill")
    os.kill(os.getpid(), 9)


def last_words(value: object) -> None:
    """Send a note and abort."""
    note(value)
    abort()


def spin() -> None:
    """Never return."""
    stage("drill")
    while True:
        pass


def allocate(size: int) -> int:
    """Allocate and touch memory; return its size."""
    stage("drill")
    return len(bytearray(size))


def hold(size: int, seconds: float) -> int:
    """Allocate and touch memory, and hold it for some time."""
    taken = bytearray(b"x") * size
    time.sleep(seconds)
    return len(taken)


def grow(size: int) -> bytearray:
    """Return much memory, and send a note when free memory of this process is to be released."""
    after_call(_tell)
    return bytearray(b"x") * size


def _tell() -> None:
    note("released")


def family(count: int, size: int) -> None:
    """Start processes that allocate memory, and wait for them."""
    text = f"import time; taken = bytearray(b'x') * {size}; time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(count)]
    for child in children:
        child.wait()


def nested(memory: int) -> object:
    """Start a worker and a fork from this worker, with this memory limit each; return the results of both."""
    from surgery.base.workers import Worker
    from surgery.base.workers.fork import call_in_fork

    with Worker(memory=memory) as inner:
        called = inner.call("surgery.base.workers.drill:echo", value="called")
    return [called, call_in_fork(lambda: "forked", stage="nested", timeout=60, memory=memory)[0]]


def spawn() -> int:
    """Start a separate process and leave it running; return its process id."""
    return subprocess.Popen(["sleep", "1000"]).pid


def sleep(seconds: float) -> None:
    """Sleep for some time."""
    time.sleep(seconds)


def steps(count: int, seconds: float) -> None:
    """Sleep for some time in each of several stages."""
    for number in range(count):
        stage(f"step {number}")
        time.sleep(seconds)


def environment(names: list[str]) -> dict[str, str | None]:
    """Return environment variables of the process."""
    return {name: os.environ.get(name) for name in names}


def threads_of_a_product() -> int:
    """Multiply matrices, which a linear algebra library may do in several threads; return the number of threads."""
    square = np.ones((800, 800))
    square @ square
    return len(list(Path("/proc/self/task").iterdir()))


def facts() -> dict[str, object]:
    """Return facts about the process: its folder, its open files, and its standard input."""
    files = len(list(Path("/proc/self/fd").iterdir()))
    return {"cwd": str(Path.cwd()), "files": files, "stdin": os.read(0, 10), "pid": os.getpid()}
