"""Text from models in reports: control characters of terminals and viewers are escaped.

Names, metadata, doc strings and messages of native code may contain escape sequences, or marks that reverse the order
of letters.
"""

from __future__ import annotations

import re

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, direction marks, and lone surrogates."""


def visible(text: str) -> str:
    """Replace characters that a terminal would interpret by their codes, and internal names of dims."""
    return OBEYED.sub(lambda found: code(ord(found[0])), _named(text))


def one_line(text: str) -> str:
    """Make a text visible and put it on one line, with single spaces."""
    return " ".join(visible(text).split())


def _named(text: str) -> str:
    if "dim_x" not in text:
        return text
    from surgery.model.shapes.symbols import shown  # imports onnx-ir

    return shown(text)


def code(number: int) -> str:
    """Return the escaped code of a character."""
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
