"""Run `python -m MODULE ...` in a fork of a server that has imported the common modules.

Otherwise a campaign of hundreds of runs spends most of its time on imports. Each run is still a separate process with a
time limit, so it may crash, hang or print anything.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from suite import process
from suite.process import Ran

_PRELOADED = [
    "numpy",
    "onnx",
    "onnxruntime",
    "onnx_ir",
    "onnxsim",
    "onnxslim",
    "sympy",
    "rich",
    "surgery.interface.commands",
]
_INTERVAL = 0.05


def run(command: list[str], *, timeout: float, folder: Path) -> Ran:
    """Run a command that begins with a Python and `-m`, like `process.run`.

    `private` leaves out what the server imported.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    out, err = folder / "stdout", folder / "stderr"
    child = context.Process(target=_be, args=(command[2:], str(folder)))
    begin = time.perf_counter()
    child.start()
    watched, pid = process.Watched(), child.pid or 0
    while child.exitcode is None and time.perf_counter() - begin < timeout:
        watched.sample(process.tree(pid))
        child.join(_INTERVAL)
    expired = child.exitcode is None
    if expired:
        for each in reversed(process.tree(pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        child.join()
    seconds = time.perf_counter() - begin
    printed, messages = (file.read_text(errors="replace") if file.is_file() else "" for file in (out, err))
    failure = f"not done in {timeout:.0f} s" if expired else ""
    if child.exitcode and not failure:
        failure = process.reason(child.exitcode, messages or printed)
    return Ran(seconds, watched.cpu, watched.peak, failure, printed)


def _be(arguments: list[str], folder: str) -> None:
    """Act as `python -m arguments...`, with its output redirected to files in the folder."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(folder)
    sys.argv = [arguments[0], *arguments[1:]]
    code = 0
    try:
        if arguments[0] == "surgery":
            from surgery.interface import commands as cli

            code = cli.main(arguments[1:])
        else:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(end.code)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
