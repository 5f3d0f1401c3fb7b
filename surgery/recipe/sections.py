"""The parts of a recipe beside its steps: inputs, verify, expect, when, output."""

from __future__ import annotations

import math
import re
from typing import Any

from surgery.recipe.comparison import Comparison
from surgery.recipe.nodes import Listing, Node, Scalar, describe, plain, quoted
from surgery.recipe.reader import Reader, below, is_file, nearest
from surgery.recipe.schema import OUTPUT_FIELDS, Expect, FrozenDict, InputsSpec, TensorSpec, VerifySpec, When


def read_inputs(reader: Reader, node: Node) -> InputsSpec:
    """Read `inputs`."""

    def dims(node: Node) -> Any:
        found = reader.entries(node, "dims", lambda value, name: _extents(reader, value, name), "{batch: [1, 3]}")
        return FrozenDict(found)

    def tensors(node: Node) -> Any:
        example = "{mask: {values: [0, 1]}}"
        return FrozenDict(reader.entries(node, "tensors", lambda value, name: _tensor(reader, value, name), example))

    return InputsSpec(**reader.fields(node, "inputs", {"dims": dims, "tensors": tensors}, example="{dims: {batch: 1}}"))


def _extents(reader: Reader, node: Node, name: str) -> tuple[int, ...] | None:
    wanted = "a whole number or a list of them"
    items = reader.items(node)
    if not items:
        reader.problem(node, f"dim {quoted(name)} lists no extent")
    read = reader.whole(name, least=1, wanted=wanted)
    extents = [read(item) for item in items]
    return tuple(extents) if extents and None not in extents else None


def _tensor(reader: Reader, node: Node, name: str) -> TensorSpec | None:
    known = {
        "values": lambda value: _values(reader, value),
        "range": lambda value: _range(reader, value),
        "file": lambda value: _file(reader, value),
    }
    before = len(reader.problems)
    found = reader.fields(node, name, known, example="{values: [0, 1]} or {range: [0, 9]}")
    if len(reader.problems) > before or node.open:
        return None
    if len(found) != 1:
        reader.problem(node, f"input {quoted(name)} takes one of values, range, file; here are {len(found)}")
        return None
    return TensorSpec(**found)


def _values(reader: Reader, node: Node) -> tuple[Any, ...] | None:
    if not isinstance(node, Listing) or not node.items:
        reader.wrong(node, "values", "a list such as [0, 1]")
        return None
    for item in node.items:
        if not isinstance(item, Scalar) or item.value is None:
            reader.problem(item, f"'values' lists numbers, bools or texts, not {describe(item)}")
            return None
    return tuple(plain(item) for item in node.items)


def _range(reader: Reader, node: Node) -> tuple[float, float] | None:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else []
    if len(values) != 2 or not all(_is_number(value) for value in values):
        reader.wrong(node, "range", "the least and the greatest value, such as [0, 9]")
        return None
    if values[0] > values[1]:
        reader.problem(node, f"'range' starts above its end; did you mean [{values[1]}, {values[0]}]?")
        return None
    return values[0], values[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _file(reader: Reader, node: Node) -> Any:
    text = reader.text("file", "the path of a .npy or .npz file")(node)
    if text is None:
        return None
    path = below(reader.folder, text)
    if path.suffix not in (".npy", ".npz"):
        reader.problem(node, f"'file' takes the path of a .npy or .npz file, not {quoted(text)}")
    elif not is_file(path):
        reader.problem(node, f"no file {quoted(text)} in the recipe's folder")
    else:
        return path
    return None


def read_verify(reader: Reader, node: Node) -> VerifySpec:
    """Read `verify`."""
    known = {
        "rtol": reader.number("rtol"),
        "atol": reader.number("atol"),
        "seed": reader.whole("seed"),
        "mode": reader.choice("mode", ("each", "end", "off")),
        "unverified": reader.choice("unverified", ("refuse", "accept")),
        "timeout": reader.number("timeout", zero=False, unit=" of seconds"),
        "memory": lambda value: _memory(reader, value),
    }
    return VerifySpec(**reader.fields(node, "verify", known, example="{rtol: 1e-4, atol: 1e-5}"))


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
