"""The flag `--log-file`: a log of the command, one line per event, written while it runs.

Everything is logged with `logging` below the logger "surgery"; this attaches a file to it. The terminal output does not
change.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from surgery import __version__
from surgery.base.errors import OutputError
from surgery.model.remote.urls import scrubbed

if TYPE_CHECKING:
    import logging

_JSON = (".jsonl", ".ndjson", ".json")
_BEGINS = (b'{"format_version": ', b"20")
"""The beginnings of log files: JSON, or the year."""


class _LogState:
    handler: logging.Handler | None = None
    began = 0.0


def add_argument(parser: argparse._ActionsContainer) -> None:
    """Add the flag."""
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="append a log of the command to FILE, with time and level; as JSON lines if it ends in .jsonl",
    )


def begin(file: str | None, given: Sequence[str]) -> None:
    """Open the file, if one is named. OutputError if it cannot be written, or is not a log."""
    if file is None:
        return
    import logging

    path = Path(file)
    if file == "-":
        raise OutputError("standard output is for results, not for the log", todo="name a file for --log-file")
    _require_log(path)
    try:
        handler = _handler(path)
    except OSError as error:
        raise OutputError(f"the log cannot be written: {error.strerror or error}", where=file) from error
    logger = logging.getLogger("surgery")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    _LogState.handler, _LogState.began = handler, time.monotonic()
    python = ".".join(map(str, sys.version_info[:3]))
    # URLs are logged without possible credentials.
    command = " ".join(["surgery", *map(scrubbed, given)])
    logger.info("%s (surgery %s, Python %s, in %s)", command, __version__, python, Path.cwd())


def end(code: int) -> None:
    """Log the exit code, and close the file."""
    if _LogState.handler is None:
        return
    import logging

    logger = logging.getLogger("surgery")
    logger.info("exit code %d after %.2f s", code, time.monotonic() - _LogState.began)
    logger.removeHandler(_LogState.handler)
    logger.setLevel(logging.NOTSET)
    _LogState.handler.close()
    _LogState.handler = None


def note(text: str, level: str = "INFO") -> None:
    """Log printed text, one record per line."""
    if _LogState.handler is None:
        return
    import logging

    logger = logging.getLogger("surgery.terminal")
    for line in text.splitlines():
        if line.strip():
            logger.log(logging.getLevelNamesMapping()[level], "%s", line.rstrip())


def _require_log(path: Path) -> None:
    """Refuse a file that is not a log: a mistyped name must not damage a model."""
    if path.is_dir():
        raise OutputError("this is a directory", where=str(path), todo="name a file")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            begins = file.read(32)
        if not begins.startswith(_BEGINS):
            raise OutputError("the file exists and is no log", where=str(path), todo="name another file")


def _ends_with_line(path: Path) -> bool:
    """Return whether a file is empty, or its last line is complete."""
    if not path.is_file() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _handler(path: Path) -> logging.Handler:
    import json
    import logging

    class Lines(logging.Formatter):
        """A record as a line of text, with the time in UTC."""

        def format(self, record: logging.LogRecord) -> str:
            text = record.getMessage().replace("\n", "\\n")
            return f"{_time(record.created)} {record.levelname:<7} {record.name}: {text}"

    class Json(logging.Formatter):
        """A record as a JSON object on a line."""

        def format(self, record: logging.LogRecord) -> str:
            fields = getattr(record, "fields", {})
            common = {"format_version": 1, "time": _time(record.created), "level": record.levelname.lower()}
            return json.dumps({**common, "logger": record.name, "message": record.getMessage(), **fields})

    class File(logging.FileHandler):
        """A file for which the first write error is reported and later ones are ignored."""

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is that of the base class
            error = sys.exc_info()[1]
            logging.getLogger("surgery").removeHandler(self)
            os.write(2, f"surgery: warning: {path}: the log cannot be written: {error}\n".encode())

    is_complete = _ends_with_line(path)
    handler = File(path, mode="a", encoding="utf-8", errors="backslashreplace")
    if not is_complete and handler.stream is not None:
        handler.stream.write("\n")  # a killed command left a part of a line
    handler.setFormatter(Json() if path.suffix in _JSON else Lines())
    return handler


def _time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03}Z"
