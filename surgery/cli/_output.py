"""Writing answers: data on stdout, everything else on stderr.

All text passes here, and text of models (names, metadata, doc strings, what native code says of them) may hold what a
terminal obeys: escape sequences, or marks that reverse the order of letters. Here they become visible.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from surgery.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and newline, marks of direction, and halves of surrogate pairs."""


def visible(text: str) -> str:
    """Write what a terminal would obey, rather than show, as its code; and the names of dims as the model has them."""
    return _OBEYED.sub(lambda found: _code(ord(found[0])), _named(text))


def _named(text: str) -> str:
    if "dim_x" not in text:
        return text
    from surgery.shapes.symbols import shown  # it imports onnx-ir

    return shown(text)


def _code(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def say(text: str) -> None:
    """Write text to stderr, and end the line."""
    sys.stderr.write(f"{visible(text)}\n")


def write_text(text: str) -> None:
    """Write text to stdout as it is, but for what a terminal would obey."""
    with _full():
        sys.stdout.write(visible(text))


@contextmanager
def _full() -> Iterator[None]:
    """Raise OutputError if stdout cannot be written. A closed pipe is no error: its reader has stopped."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error


def flush() -> None:
    """Have all that was written arrive."""
    with _full():
        sys.stdout.flush()


def add_format(parser: argparse.ArgumentParser, default: str = "text") -> None:
    """Add the flag for the output format."""
    parser.add_argument("--format", choices=["text", "json"], default=default, help="output format (default: text)")


def write_json(data: Any) -> None:
    """Write one JSON document to stdout."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(data, indent=2, ensure_ascii=plain)
    # Within a string, which is where such characters are, this is how JSON writes them.
    with _full():
        sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def write(renderable: RenderableType, *, wrap: bool = True) -> None:
    """Write tables and text to stdout: to the width of a terminal, else wide and without trailing blanks.

    Without `wrap` each line stays one line.
    """
    # No markup: a shape such as float[batch] is text, not a style.
    console = _console()(highlight=False, markup=False)
    with _full():
        if console.is_terminal:
            console.print(renderable, soft_wrap=not wrap)
            return
        console = _console()(highlight=False, markup=False, width=160, file=io.StringIO())
        with console.capture() as captured:
            console.print(renderable, soft_wrap=not wrap)
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def messages() -> Console:
    """Return the console for progress and remarks, on stderr."""
    return _console()(stderr=True, highlight=False, markup=False)


@cache
def _console() -> type[Console]:
    """Return the class of consoles that show what a terminal would obey. It is made late: rich takes its time."""
    from rich import console, segment

    class Showing(console.Console):
        def render(
            self, renderable: RenderableType, options: console.ConsoleOptions | None = None
        ) -> Iterator[segment.Segment]:
            for part in super().render(renderable, options):
                # What rich itself says to a terminal is marked as such.
                yield part if part.control else segment.Segment(visible(part.text), part.style)

    return Showing
