"""Text in pages: escaped control characters, and human-readable numbers."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Control characters except tab and newline, direction marks, zero-width characters, and lone surrogates."""

_MOST = 240
"""Maximum number of characters of a name that are shown; the middle of longer ones is left out."""

_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_COUNTS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_MINUS = "\u2212"
_POWER = re.compile(r"\*\*(\d+)(?![\w.])")
_PRODUCT = re.compile(r"(?<!\*)\*(?!\*)")
_LARGE = re.compile(r"(?<![\w.])\d{4,}(?![\w.])")
_RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
MISSING = "\u2013"
"""The text for a missing value: a dash."""


def visible(text: str) -> str:
    """Replace characters that a browser would interpret by their code, such as \\u202e."""
    return _OBEYED.sub(lambda found: _code(ord(found[0])), text)


def _code(number: int) -> str:
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def clip(text: object, most: int = _MOST) -> str:
    """Make text visible, and shorten the middle of a long text, with its length in parentheses."""
    shown = visible(str(text))
    if len(shown) <= most:
        return shown
    head = most * 2 // 3
    return f"{shown[:head]}\u2026{shown[-(most - head) :]} ({len(shown):,} characters)"


def integer(number: int | None) -> str:
    """Format a count with separators: "12,345"."""
    return MISSING if number is None else f"{number:,}".replace("-", _MINUS)


def signed(number: int) -> str:
    """Format a change of a count: "+12", "-3" with a proper minus sign, "0"."""
    return f"+{integer(number)}" if number > 0 else integer(number)


def amount(number: float | str | None) -> str:
    """Format a large number with a prefix: "1.25 G"; an expression likewise: "1.03 G × batch"."""
    if number is None or isinstance(number, str):
        return expression(number) if number else MISSING
    for factor, prefix in _COUNTS:
        if abs(number) >= factor:
            return f"{number / factor:.3g}\u00a0{prefix}"
    return integer(round(number))


def expression(text: str) -> str:
    """Format an expression in dims, such as "1025171456*batch**2 + 24": "1.03 G × batch² + 24"."""
    shown = _POWER.sub(lambda found: found[1].translate(_RAISED), text)
    shown = _PRODUCT.sub("\u00a0\u00d7\u00a0", shown)
    return _LARGE.sub(lambda found: amount(int(found[0])), shown)


def size(number: float | str | None) -> str:
    """Format a number of bytes: "2.5 MB"; an expression gets the unit: "1.03 G × batch B"."""
    if number is None or isinstance(number, str):
        return f"{expression(number)}\u00a0B" if number else MISSING
    for factor, unit in _BYTES:
        if abs(number) >= factor:
            return f"{number / factor:.3g}\u00a0{unit}".replace("-", _MINUS)
    return f"{number:.0f}\u00a0B".replace("-", _MINUS)


def seconds(number: float | None) -> str:
    """Format a time: "0.82 ms", "12.4 s", "3 min 20 s"."""
    if number is None:
        return MISSING
    if number >= 90:
        minutes, rest = divmod(round(number), 60)
        return f"{minutes}\u00a0min {rest}\u00a0s"
    if number >= 0.1:
        return f"{number:.3g}\u00a0s"
    return f"{number * 1e3:.3g}\u00a0ms" if number >= 1e-4 or number == 0 else f"{number * 1e6:.3g}\u00a0\u00b5s"


def scientific(number: float | str | None) -> str:
    """Format a small number: "1.2e-07"; zero, infinity and None are distinguished."""
    if number is None:
        return MISSING
    if isinstance(number, str):
        return number
    return "0" if number == 0 else f"{number:.2g}".replace("-", _MINUS)


def plain_number(value: object) -> str:
    """Format an element of a tensor with enough digits to distinguish float32 values."""
    if isinstance(value, float):
        return f"{value:.9g}".replace("-", _MINUS)
    return clip(value)


def change(before: float | None, after: float | None) -> str:
    """Format the change of a number in percent of the old value; empty if that is meaningless."""
    if not before or after is None or not math.isfinite(before) or before == after:
        return ""
    share = (after - before) / before
    if abs(share) < 0.001:
        return "<0.1\u00a0%" if share > 0 else f">{_MINUS}0.1\u00a0%"
    digits = 1 if abs(share) < 0.1 else 0
    return f"{share * 100:+.{digits}f}\u00a0%".replace("-", _MINUS)


def dims(values: object) -> str:
    """Format sizes of dims: "batch=2, sequence=37"."""
    return (
        ", ".join(f"{clip(name, 60)}={size}" for name, size in dict(values).items()) if isinstance(values, dict) else ""
    )


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: "1 site", "12 sites"."""
    return f"{integer(count)} {one if count == 1 else many or one + 's'}"


def command(words: Sequence[str]) -> str:
    """Format the words of a command as a shell reads them."""
    return shlex.join(words)
