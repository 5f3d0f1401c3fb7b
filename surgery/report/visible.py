"""Text from models in reports: control characters of terminals and viewers are escaped.

Names, metadata, doc strings and what native code says of them may hold escape sequences, or marks that reverse the
order of letters.
"""

from __future__ import annotations

import re

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and newline, marks of direction, and halves of surrogate pairs."""


def visible(text: str) -> str:
    """Write what a terminal would obey, rather than show, as its code; and the names of dims as the model has them."""
    return OBEYED.sub(lambda found: code(ord(found[0])), _named(text))


def one_line(text: str) -> str:
    """Make a text visible and put it on one line, with single blanks."""
    return " ".join(visible(text).split())


def _named(text: str) -> str:
    if "dim_x" not in text:
        return text
    from surgery.shapes.symbols import shown  # it imports onnx-ir

    return shown(text)


def code(number: int) -> str:
    """Write a character as its code."""
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
