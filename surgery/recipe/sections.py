"""The parts of a recipe beside its steps and inputs: verify, expect, when, output."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from surgery.recipe.comparison import Comparison
from surgery.recipe.draft import Draft
from surgery.recipe.nodes import Node, Scalar, plain, quoted
from surgery.recipe.plugins import read_local
from surgery.recipe.reader import Reader, nearest
from surgery.recipe.schema import OUTPUT_FIELDS, Expect, FrozenDict, VerifySpec, When


def read_verify(draft: Draft, node: Node) -> VerifySpec:
    """Read `verify`."""
    known = {
        "rtol": draft.number("rtol"),
        "atol": draft.number("atol"),
        "seed": draft.whole("seed"),
        "mode": draft.choice("mode", ("each", "end", "off")),
        "unverified": draft.choice("unverified", ("refuse", "accept")),
        "timeout": draft.number("timeout", zero=False, unit=" of seconds"),
        "memory": lambda value: _memory(draft, value),
        "custom_op_library": lambda value: _libraries(draft, value),
        "cosine": lambda value: _least(draft, value, "cosine"),
        "snr": lambda value: _least(draft, value, "snr"),
    }
    return VerifySpec(**draft.fields(node, "verify", known, example="{rtol: 1e-4, atol: 1e-5}"))


def _libraries(draft: Draft, node: Node) -> tuple[Path, ...]:
    """Read the paths of shared libraries. Loading one runs it, so that they need the caller's trust as Python does."""
    read = draft.text("custom_op_library", "the paths of shared libraries")
    texts = [(item, read(item)) for item in draft.items(node)]
    found = [read_local(draft, item, text, "load") for item, text in texts if text is not None]
    return tuple(path for path in found if path is not None)


def _least(reader: Reader, node: Node, name: str) -> float | None:
    """Read the least value that something may have: a number, or a text such as ">= 0.999"."""
    value = plain(node) if isinstance(node, Scalar) else None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*>=\s*([0-9]*\.?[0-9]+)\s*", value)
        value = float(found.group(1)) if found is not None else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        if name != "cosine" or value <= 1:
            return float(value)
        reader.problem(node, f"'cosine' is at most 1, not {value:g}")
        return None
    reader.wrong(node, name, "the least that is accepted, such as " + ("0.999" if name == "cosine" else "30 (in dB)"))
    return None


def _memory(reader: Reader, node: Node) -> int | None:
    from surgery.registry import parse_size

    value = plain(node) if isinstance(node, Scalar) else None
    try:
        size = parse_size(value)
    except (ValueError, OverflowError):
        size = None
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    reader.wrong(node, "memory", "a size such as 512MB or 2GiB")
    return None


def read_expect(reader: Reader, node: Node, *, of_step: bool) -> Expect:
    """Read `expect`, of the recipe or of a step."""
    known = _counts(reader)
    if of_step:
        known["sites"] = lambda value: _comparison(reader, value, "sites")
    known["signature"] = reader.choice("signature", ("unchanged",))
    return Expect(**reader.fields(node, "expect", known, example='{ops: {Dropout: 0}, nodes: "<= 500"}'))


def read_when(reader: Reader, node: Node) -> When:
    """Read `when`."""
    return When(**reader.fields(node, "when", _counts(reader), example='{ops: {Softmax: ">= 1"}}'))


def _counts(reader: Reader) -> dict[str, Any]:
    def ops(node: Node) -> Any:
        read = reader.entries(node, "ops", lambda value, name: _comparison(reader, value, name), "{Dropout: 0}")
        return FrozenDict(read)

    return {
        "ops": ops,
        "nodes": lambda value: _comparison(reader, value, "nodes"),
        "opset": lambda value: _comparison(reader, value, "opset"),
    }


def _comparison(reader: Reader, node: Node, name: str) -> Comparison | None:
    if isinstance(node, Scalar) and node.styled and not node.text:
        # YAML reads an unquoted `>1` or `>` as the start of a text on the lines below.
        reader.problem(node, f"{quoted(name)} has an empty text here; put the comparison in quotes: '>= 1'")
        return None
    if not isinstance(node, Scalar) or isinstance(node.value, float | bool | None):
        reader.wrong(node, name, "a number or a comparison such as '>= 1'")
        return None
    try:
        return Comparison.parse(node.value)
    except ValueError as error:
        reader.problem(node, str(error))
        return None


def read_output(reader: Reader, node: Node) -> str | None:
    """Read `output`, a file name with `{stem}` for the model's."""
    text: str | None = reader.text("output", "a file name such as '{stem}.opt.onnx'")(node)
    if text is None:
        return None
    wrong = next((field for field in re.findall(r"\{[^{}]*\}", text) if field[1:-1] not in OUTPUT_FIELDS), None)
    if wrong is not None:
        near = nearest(wrong[1:-1], OUTPUT_FIELDS) or OUTPUT_FIELDS[0]
        reader.problem(node, f"'output' knows no {quoted(wrong)}; did you mean '{{{near}}}'?")
        return None
    return text
