"""Third-party viewers: Netron and Model Explorer, opened on a model in place, with its external data."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from surgery.base.errors import SurgeryError, UsageError
from surgery.interface.command_line import _output


class _Viewer(NamedTuple):
    """A viewer: its executable, its Python package, the command to install it, and its arguments."""

    executable: str
    package: str
    install: str
    arguments: Callable[[str], list[str]]


def _netron(model: str) -> list[str]:
    # The desktop version has no such flag and always opens a window.
    return ["--browse", model]


def _model_explorer(model: str) -> list[str]:
    return [model, "--extensions=model_explorer_onnx"]


_VIEWERS = {
    "netron": _Viewer("netron", "netron", "pip install netron", _netron),
    "model-explorer": _Viewer(
        "model-explorer", "model_explorer", "pip install ai-edge-model-explorer model-explorer-onnx", _model_explorer
    ),
}
VIEWERS = tuple(_VIEWERS)
"""The names of the viewers."""


def open_with(name: str, model: Path) -> int:
    """Open a model in a viewer, wait until it ends, and return the exit code; it usually ends by Ctrl-C.

    The viewer reads the file itself, next to its external data. UsageError if the file is missing, the viewer is not
    installed or cannot open such a path; SurgeryError if it fails.
    """
    viewer = _VIEWERS[name]
    if not model.is_file():
        raise UsageError("is a directory" if model.is_dir() else "no such file", where=str(model))
    path = str(model.resolve())
    if name == "model-explorer" and "," in path:
        raise UsageError("model-explorer takes a comma for the end of a path", where=path, todo="rename the file")
    command = [*_command(name, viewer), *viewer.arguments(path)]
    _output.messages().print(f"{name} shows {model}; Ctrl-C ends it", soft_wrap=True)
    return _run(name, command)


def _command(name: str, viewer: _Viewer) -> list[str]:
    """Find the viewer next to this Python, on the PATH, or as a package."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(viewer.executable, path=places)
    if found is not None:
        return [found]
    if importlib.util.find_spec(viewer.package) is not None:
        return [sys.executable, "-m", viewer.package]
    raise UsageError(f"{name} is not installed", todo=f"install it: {viewer.install}")


def _run(name: str, command: list[str]) -> int:
    # Its output must not mix with the data on stdout.
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    except OSError as error:
        raise SurgeryError(f"{name} cannot be started: {error.strerror or error}", where=command[0]) from error
    try:
        code = process.wait()
    except KeyboardInterrupt as interrupt:
        # In a terminal, the viewer receives the signal too.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if type(interrupt) is not KeyboardInterrupt:
            raise
        return 0
    if code:
        raise SurgeryError(f"{name} ended with exit code {code}", todo=f"run it yourself: {' '.join(command)}")
    return 0
