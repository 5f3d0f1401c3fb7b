"""Output: data on stdout, everything else on stderr.

All text is written here, with terminal control characters escaped, see `surgery.interface.report.formats.visible`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from surgery.base.errors import OutputError
from surgery.interface.command_line import _log
from surgery.interface.report.formats.visible import OBEYED, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN = ("text", "json")

FORMAT_VERSION = 1
"""The version of JSON reports. It changes when a key is removed, renamed or gets another meaning, not for new keys."""

_DUMB = ("", "dumb", "unknown")
"""Kinds of terminals that cannot erase what they show."""


_WIDE = 4000
"""The number of columns of output that is not a terminal."""


class _OutputState:
    """The output settings of the command line, and the state of the terminal."""

    quiet = False
    sign = ""


def begin(*, quiet: bool) -> None:
    """Begin a command. On a terminal, show an indicator before anything is imported; the next output erases it.

    With `quiet`, only results and errors are written.
    """
    _OutputState.quiet = quiet
    if is_interactive():
        _OutputState.sign = "loading"
        sys.stderr.write(_OutputState.sign)
        sys.stderr.flush()


def is_interactive() -> bool:
    """Return whether the output is interactive: stderr is a terminal that can erase, and this is not a CI run."""
    return not _OutputState.quiet and _is_watched(sys.stderr) and os.environ.get("TERM", "") not in _DUMB


def _is_watched(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("CI", "") in ("", "0", "false")


def height(*below: str) -> int | None:
    """Return the number of lines of the terminal that are left for output; None if it is not interactive.

    The texts `below` the output, which the terminal wraps, and the prompt have lines of their own.
    """
    if not _is_watched(sys.stdout):
        return None
    from rich.cells import cell_len

    size = shutil.get_terminal_size()
    taken = sum(-(-cell_len(text) // size.columns) for text in below) + 1
    return max(size.lines - taken, 1)


def erase_sign() -> None:
    """Erase the indicator, if it is shown."""
    if _OutputState.sign:
        _OutputState.sign = ""
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def say(text: str) -> None:
    """Write text and a line end to stderr. It is a warning, or the error that ends the command."""
    erase_sign()
    shown = _renamed(text)
    _log.note(shown, "WARNING" if shown.startswith("surgery: warning: ") else "ERROR")
    sys.stderr.write(f"{visible(shown)}\n")


def write_text(text: str) -> None:
    """Write text to stdout, with terminal control characters escaped."""
    shown = _renamed(text)
    _log.note(shown)
    with _full():
        sys.stdout.write(visible(shown))


def _renamed(text: str, escaped: Callable[[str], str] = str) -> str:
    """Replace paths of local copies of URLs and standard input by the given names."""
    staging = sys.modules.get("surgery.model.storage.staging")
    return text if staging is None else str(staging.shown(text, escaped))


@contextmanager
def _full() -> Iterator[None]:
    """Raise OutputError if stdout cannot be written. A closed pipe is not an error: its reader has stopped."""
    erase_sign()
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error


def flush() -> None:
    """Flush stdout."""
    with _full():
        sys.stdout.flush()


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = PLAIN) -> None:
    """Add the flag for the output format."""
    parser.add_argument("--format", choices=formats, default="text", help="output format (default: text)")


def write_json(data: Mapping[str, Any]) -> None:
    """Write a report as a JSON document to stdout; it begins with the version of its format."""
    write_document({"format_version": FORMAT_VERSION, **data})


def write_document(data: Any) -> None:
    """Write a JSON document to stdout that has no format version: a recipe, a schema, or another tool's format."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(data, indent=2, ensure_ascii=plain)
    text = _renamed(text, lambda name: json.dumps(name, ensure_ascii=plain)[1:-1])
    # Such characters only occur in strings, where JSON escapes them like this.
    with _full():
        sys.stdout.write(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def write(renderable: RenderableType, *, wrap: bool = True) -> None:
    """Write tables and text to stdout: with the width of a terminal, else not wrapped and without trailing blanks.

    Without `wrap`, lines are not wrapped.
    """
    # No markup: a shape such as float[batch] is text, not a style.
    console = _console()(highlight=False, markup=False)
    with _full():
        if sys.stdout.isatty() and console.is_terminal:
            console.print(renderable, soft_wrap=not wrap)
            _log.note(_plain(renderable, wrap=wrap))
            return
        forced = console.is_terminal  # FORCE_COLOR is set
        # What reads a pipe, such as grep, wants whole lines.
        console = _console()(highlight=False, markup=False, width=_WIDE, file=io.StringIO(), force_terminal=forced)
        with console.capture() as captured:
            console.print(renderable, soft_wrap=not wrap)
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in _renamed(captured.get()).splitlines())
        _log.note(_renamed(_plain(renderable, wrap=wrap) if forced else captured.get()))


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table without lines, of which only the last column is wrapped; empty titles are not shown."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(titles))
    for number, title in enumerate(titles, start=1):
        table.add_column(title, no_wrap=number < len(titles))
    for row in rows:
        table.add_row(*row)
    return table


def _plain(renderable: RenderableType, *, wrap: bool) -> str:
    """Return the printed text without colors."""
    console = _console()(highlight=False, markup=False, width=160, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(renderable, soft_wrap=not wrap)
    return captured.get()


def messages() -> Console:
    """Return the console for progress and remarks, on stderr; with `--quiet` it shows nothing."""
    erase_sign()
    if _OutputState.quiet:
        return _telling()(file=io.StringIO(), force_terminal=False, highlight=False, markup=False)
    return _telling()(stderr=True, highlight=False, markup=False)


@cache
def _console() -> type[Console]:
    """Return the console class that escapes terminal control characters. Created lazily: rich is slow to import."""
    from rich import console, segment

    class Showing(console.Console):
        def render(
            self, renderable: RenderableType, options: console.ConsoleOptions | None = None
        ) -> Iterator[segment.Segment]:
            for part in super().render(renderable, options):
                # rich marks its own control codes.
                yield part if part.control else segment.Segment(visible(_renamed(part.text)), part.style)

    return Showing


@cache
def _telling() -> type[Console]:
    """Return the console class whose text is also logged."""

    class Telling(_console()):  # type: ignore[misc]
        def print(self, *objects: Any, **options: Any) -> None:
            _log.note(" ".join(one for one in objects if isinstance(one, str)))
            super().print(*objects, **options)

    return Telling
