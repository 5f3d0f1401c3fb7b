"""Values -> readable YAML: mappings on one line if they fit, texts of several lines as blocks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.schema import Share
from surgery.engine.yaml.yaml_nodes import resolve

STEPS = "steps"
_PLAIN = re.compile(r"[A-Za-z0-9_/][\w./+-]*( [\w./+,;()=-]+)*", re.ASCII)
_WIDTH = 100


@dataclass(frozen=True)
class Remarked:
    """A value with a comment next to it."""

    value: Any
    remark: str


def written(values: Mapping[str, Any], head: str = "") -> str:
    """Return a mapping as YAML, without None and empty values, below a comment."""
    comment = [f"# {line}" for line in head.splitlines()]
    return "\n".join([*comment, *_block(given(values))]) + "\n"


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without None, empty texts and empty collections, including in nested mappings."""
    kept = {name: given(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: value for name, value in kept.items() if value is not None and value not in ("", (), [], {})}


def bare(value: Any) -> Any:
    """Return a value in JSON form, with absolute paths."""
    if isinstance(value, Remarked):
        return bare(value.value)
    if isinstance(value, Mapping):
        return {name: bare(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bare(one) for one in value]
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, CountCondition):
        return value.number if value.op == "==" else str(value)
    if isinstance(value, Share):
        return str(value)
    return value


def _block(value: Any) -> list[str]:
    """Return a value on separate lines."""
    if isinstance(value, Remarked):
        first, *rest = _block(value.value)
        return [f"{first}  # {value.remark}", *rest]
    if isinstance(value, Mapping):
        return [line for name, one in value.items() for line in _entry(name, one)]
    if isinstance(value, list | tuple):
        return [line for one in value for line in _item(one)]
    return [flow(value)]


def _entry(name: str, value: Any) -> list[str]:
    key = f"{_scalar(name)}:"
    if _is_literal(value):
        return [f"{key} {_mark(value)}", *_indented(value.splitlines())]
    flat = f"{key} {flow(value)}"
    is_short = len(flat) <= _WIDTH or not isinstance(value, Mapping | list | tuple)
    return [flat] if is_short and name != STEPS and not _needs_lines(value) else [key, *_indented(_block(value))]


def _item(value: Any) -> list[str]:
    if _is_literal(value):
        return [f"- {_mark(value)}", *_indented(value.splitlines())]
    first, *rest = _block(value)
    return [f"- {first}", *_indented(rest)]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" if line else line for line in lines]


def _needs_lines(value: Any) -> bool:
    """Return whether something in a value cannot, or should not, be inside braces and brackets."""
    if isinstance(value, Mapping):
        return STEPS in value or _needs_lines([*value.values()])
    if isinstance(value, list | tuple):
        return any(_needs_lines(one) for one in value)
    return isinstance(value, Remarked) or _is_literal(value)


def _is_literal(value: Any) -> bool:
    """Return whether a text is written as a block: it has several lines, and a block would not change it."""
    if not isinstance(value, str) or "\n" not in value:
        return False
    lines = value.removesuffix("\n").split("\n")
    return not value.startswith((" ", "\n")) and all(line.isprintable() and line == line.rstrip() for line in lines)


def _mark(text: str) -> str:
    return "|" if text.endswith("\n") else "|-"


def flow(value: Any) -> str:
    """Return a value on one line."""
    value = bare(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(name)}: {flow(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _is_plain(value) else _in_quotes(value)


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes, on its own line or between brackets."""
    return _PLAIN.fullmatch(text) is not None and "," not in text and isinstance(resolve(text), str)


def _in_quotes(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
