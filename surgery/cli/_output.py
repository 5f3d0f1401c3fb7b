"""Writing answers: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def write_json(data: Any) -> None:
    """Write one JSON document to stdout."""
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def write(renderable: RenderableType) -> None:
    """Write tables and text to stdout, as wide as they need to be when it is no terminal."""
    from rich.console import Console

    # No markup: a shape such as float[batch] is text, not a style.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    console.print(renderable)


def messages() -> Console:
    """Return the console for progress and remarks, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)
