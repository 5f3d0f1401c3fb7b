"""Writing and opening HTML pages."""

from __future__ import annotations

import argparse
import tempfile
import webbrowser
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _places
from surgery.model import storage


def target(arguments: argparse.Namespace, model: Path) -> Path:
    """Return the path of the page of a model. OutputError, before anything is computed, if it may not be written there.

    Without --output, this is the name of the model in the current folder, or a temporary file that is only opened.
    """
    if arguments.output is None and arguments.open:
        with tempfile.NamedTemporaryFile(prefix=f"{_stem(model)}-", suffix=".html", delete=False) as file:
            return Path(file.name)
    named = Path(arguments.output if arguments.output is not None else f"{_stem(model)}.html")
    storage.check_target(named, force=arguments.force)
    return named


def _stem(model: Path) -> str:
    return model.name.removesuffix(".onnx") or "model"


def write(path: Path, text: str) -> None:
    """Write a page atomically."""
    storage.write_texts({path: text})


def show(path: Path) -> None:
    """Open a page in the browser. UsageError, with the path of the page, if no browser can be started."""
    try:
        opened = webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        raise UsageError("no browser can be started", where=str(path), todo="open the file in one")


def added(arguments: argparse.ArgumentParser, *, what: str) -> None:
    """Add the flags for the output of a page."""
    arguments.add_argument("-o", "--output", metavar="OUT.html", type=_places.page, help=f"write {what} to this file")
    arguments.add_argument("--open", action="store_true", help="open it in the browser")
    arguments.add_argument("--force", action="store_true", help="overwrite an existing file")


def say(path: Path) -> None:
    """Print the name of the written file to stdout."""
    _output.write_text(f"{path}\n")
