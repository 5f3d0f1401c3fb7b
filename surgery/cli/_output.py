"""Writing answers: data on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import io
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def add_format(parser: argparse.ArgumentParser, default: str = "text") -> None:
    """Declare the flag that says in which form to answer."""
    parser.add_argument(
        "--format", choices=["text", "json"], default=default, help="how to write the answer (default: text)"
    )


def write_json(data: Any) -> None:
    """Write one JSON document to stdout."""
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def write(renderable: RenderableType, *, wrap: bool = True) -> None:
    """Write tables and text to stdout: to the width of a terminal, else wide and without trailing blanks.

    Without `wrap` each line stays one line.
    """
    from rich.console import Console

    # No markup: a shape such as float[batch] is text, not a style.
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(renderable, soft_wrap=not wrap)
        return
    console = Console(highlight=False, markup=False, width=160, file=io.StringIO())
    with console.capture() as captured:
        console.print(renderable, soft_wrap=not wrap)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def messages() -> Console:
    """Return the console for progress and remarks, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)
