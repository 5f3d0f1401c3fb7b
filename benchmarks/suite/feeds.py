"""Draw inputs for a model of the zoo, independently of surgery: sizes, valid ids, masks of zeros and ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Feed = dict[str, np.ndarray[Any, Any]]

BINDINGS = (
    {"batch": 1, "sequence": 9, "height": 96, "width": 64},
    {"batch": 3, "sequence": 22, "height": 97, "width": 131},
)
USUAL = {"batch": 1, "sequence": 128, "height": 224, "width": 224}
_OTHER = 5
"""The size of a dim with another name, plus two for each dim name before it."""


def compared(path: Path) -> list[tuple[str, Feed]]:
    """Return the inputs for parity with a description of each: every binding, with full and with ragged masks."""
    model = onnx.load(path, load_external_data=False)
    drawn = []
    for seed, sizes in enumerate(BINDINGS):
        for ragged in (False, True) if any("mask" in value.name for value in inputs(model)) else (False,):
            named = {name: size for name, size in sizes.items() if name in set(_names(model))}
            text = ", ".join(f"{name}={size}" for name, size in named.items())
            drawn.append((text + (", ragged mask" if ragged else ""), draw(model, sizes, ragged=ragged, seed=seed)))
    return drawn


def usual(path: Path) -> Feed:
    """Draw inputs of a usual size, for timing."""
    return draw(onnx.load(path, load_external_data=False), USUAL, ragged=False, seed=7)


def inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the required inputs: those without an initializer."""
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]


def draw(model: onnx.ModelProto, sizes: dict[str, int], *, ragged: bool, seed: int) -> Feed:
    """Draw every input: floats are normal, integers are valid indices, masks end early in each row if `ragged`."""
    random = np.random.default_rng(seed)
    other = {name: _OTHER + 2 * place for place, name in enumerate(dict.fromkeys(_names(model)))}
    feed = {}
    for value in inputs(model):
        tensor = value.type.tensor_type
        shape = [dim.dim_value or sizes.get(dim.dim_param, other.get(dim.dim_param, 1)) for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if "mask" in value.name:
            feed[value.name] = _mask(shape, ragged).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            feed[value.name] = random.integers(0, _extent(model, value.name), shape).astype(dtype)
        else:
            feed[value.name] = random.standard_normal(shape).astype(dtype)
    return feed


def _names(model: onnx.ModelProto) -> Iterator[str]:
    for value in inputs(model):
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param)


def _mask(shape: list[int], ragged: bool) -> np.ndarray[Any, Any]:
    mask = np.ones(shape, np.int64)
    for row in range(shape[0] if ragged else 0):
        mask[row, max(1, shape[1] - 2 - 3 * row) :] = 0
    return mask


def _extent(model: onnx.ModelProto, name: str) -> int:
    """Return the number of valid ids: the rows of the smallest table that the input indexes; 2 if there is none."""
    tables = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    same, extents = {name}, []
    for node in model.graph.node:
        if node.op_type in ("Identity", "Cast", "Reshape") and node.input[0] in same:
            same.add(node.output[0])
        if node.op_type == "Gather" and node.input[1] in same and node.input[0] in tables:
            extents.append(tables[node.input[0]][0])
    return min(extents, default=2)
