"""The part of a recipe that says what to feed: extents, single inputs, whole sets, a generator."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from surgery.recipe.draft import Draft
from surgery.recipe.nodes import Listing, Node, Scalar, describe, plain, quoted
from surgery.recipe.plugins import read_local
from surgery.recipe.reader import Field, below, defined, is_file, listed, mode
from surgery.verification.inputs.spec import DataSpec, FrozenDict, GeneratorSpec, InputsSpec, Place, TensorSpec

TENSOR_FILES = (".npy", ".npz", ".pb")
SET_FILES = (".npz", ".npy", ".pb")


def inputs_fields(draft: Draft) -> dict[str, Field]:
    """Say what `inputs` takes."""

    def dims(node: Node) -> Any:
        found = draft.entries(node, "dims", lambda value, name: _extents(draft, value, name), "{batch: [1, 3]}")
        return FrozenDict(found)

    def tensors(node: Node) -> Any:
        example = "{mask: {values: [0, 1]}}"
        return FrozenDict(draft.entries(node, "tensors", lambda value, name: _tensor(draft, value, name), example))

    def data(node: Node) -> Any:
        return tuple(found for item in draft.items(node) if (found := _data(draft, item)) is not None)

    extent = {"type": "integer", "minimum": 1}
    extents = {"anyOf": [extent, {"type": "array", "items": extent, "minItems": 1}]}
    return {
        "dims": Field(
            dims,
            "The sizes to try of each dynamic dim, by its name.",
            {"type": "object", "additionalProperties": extents},
        ),
        "tensors": Field(
            tensors,
            "How to fill single inputs, by their names.",
            {"type": "object", "additionalProperties": defined("tensor")},
        ),
        "data": Field(
            data,
            "Whole sets of inputs: .npz files, folders with input_0.pb, or folders of such.",
            listed({"type": "string", "pattern": r"\S"}),
        ),
        "generator": Field(
            lambda node: _generator(draft, node),
            "A function of a Python file that makes inputs, such as inputs.py:make. It is code and needs trust.",
            {"type": "string", "pattern": r"\.py:[^\W\d]\w*$"},
        ),
        "only_given": draft.flag("only_given", about="Add no inputs of surgery's own making."),
    }


def read_inputs(draft: Draft, node: Node) -> InputsSpec:
    """Read `inputs`."""
    return InputsSpec(**draft.fields(node, "inputs", inputs_fields(draft), example="{dims: {batch: 1}}"))


def _place(draft: Draft, node: Node) -> Place:
    return Place(draft.path, node.line, node.column)


def _extents(draft: Draft, node: Node, name: str) -> tuple[int, ...] | None:
    wanted = "a whole number or a list of them"
    items = draft.items(node)
    if not items:
        draft.problem(node, f"dim {quoted(name)} lists no extent")
    read = draft.whole(name, least=1, wanted=wanted)
    extents = [read(item) for item in items]
    return tuple(extents) if extents and None not in extents else None


def tensor_fields(draft: Draft) -> dict[str, Field]:
    """Say what may fill an input; one of these is given."""
    number = {"type": "number"}
    values = {"type": "array", "minItems": 1, "items": {"type": ["number", "boolean", "string"]}}
    suffixes = "|".join(suffix[1:] for suffix in TENSOR_FILES)
    return {
        "values": Field(lambda value: _values(draft, value), "The values to choose among.", values),
        "range": Field(
            lambda value: _range(draft, value),
            "The least and the greatest value, both included for integers.",
            {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
        ),
        "file": Field(
            lambda value: _file(draft, value),
            "A .npy, .npz or .pb file with the values.",
            {"type": "string", "pattern": rf"\.({suffixes})$"},
        ),
    }


def _tensor(draft: Draft, node: Node, name: str) -> TensorSpec | None:
    before = len(draft.problems)
    found = draft.fields(node, name, tensor_fields(draft), example="{values: [0, 1]} or {range: [0, 9]}")
    if len(draft.problems) > before or node.open:
        return None
    if len(found) != 1:
        draft.problem(node, f"input {quoted(name)} takes one of values, range, file; here are {len(found)}")
        return None
    return TensorSpec(**found, place=_place(draft, node))


def _values(draft: Draft, node: Node) -> tuple[Any, ...] | None:
    if not isinstance(node, Listing) or not node.items:
        draft.wrong(node, "values", "a list such as [0, 1]")
        return None
    for item in node.items:
        if not isinstance(item, Scalar) or item.value is None:
            draft.problem(item, f"'values' lists numbers, bools or texts, not {describe(item)}")
            return None
    return tuple(plain(item) for item in node.items)


def _range(draft: Draft, node: Node) -> tuple[float, float] | None:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else []
    if len(values) != 2 or not all(_is_number(value) for value in values):
        draft.wrong(node, "range", "the least and the greatest value, such as [0, 9]")
        return None
    if values[0] > values[1]:
        draft.problem(node, f"'range' starts above its end; did you mean [{values[1]}, {values[0]}]?")
        return None
    return values[0], values[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _file(draft: Draft, node: Node) -> Path | None:
    wanted = "the path of a .npy, .npz or .pb file"
    text = draft.text("file", wanted)(node)
    if text is None:
        return None
    path = below(draft.folder, text)
    if path.suffix not in TENSOR_FILES:
        draft.problem(node, f"'file' takes {wanted}, not {quoted(text)}")
    elif not is_file(path):
        draft.problem(node, f"no file {quoted(text)} in the recipe's folder")
    else:
        return path
    return None


def _data(draft: Draft, node: Node) -> DataSpec | None:
    wanted = "the paths of .npz files and of folders with input_0.pb or test_data_set_0 in them"
    text = draft.text("data", wanted)(node)
    if text is None:
        return None
    path = below(draft.folder, text)
    if not mode(path):
        draft.problem(node, f"no file or folder {quoted(text)} in the recipe's folder")
    elif is_file(path) and path.suffix not in SET_FILES:
        draft.problem(node, f"'data' takes {wanted}, not {quoted(text)}")
    else:
        return DataSpec(path, place=_place(draft, node))
    return None


def _generator(draft: Draft, node: Node) -> GeneratorSpec | None:
    wanted = "the path of a Python file and the name of a function in it, such as inputs.py:make"
    text = draft.text("generator", wanted)(node)
    if text is None:
        return None
    file, colon, function = text.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        draft.problem(node, f"'generator' takes {wanted}, not {quoted(text)}")
        return None
    path = read_local(draft, node, file, "run")
    return None if path is None else GeneratorSpec(path, function, _place(draft, node))
