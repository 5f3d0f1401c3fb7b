"""A chain of residual blocks of any length, with the redundant nodes that exporters write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

WIDTH = 16
LEFT = {"MatMul": 1, "Add": 2, "Relu": 1}
"""The nodes of a block that must stay."""


def build(nodes: int, path: Path) -> int:
    """Write a chain of at most `nodes` nodes; return the number of blocks.

    Each block adds a term to its input that shrinks with the number of blocks, so values neither vanish nor overflow in
    a chain of any length.
    """
    blocks = nodes // len(list(_block(0, 1)))
    made = [node for number in range(blocks) for node in _block(number, blocks)]
    shape: list[str | int | None] = ["batch", "sequence", WIDTH]
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"x{blocks}", onnx.TensorProto.FLOAT, shape)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return blocks


def _block(number: int, blocks: int) -> Iterator[NodeProto]:
    """Yield the nodes of one block: x + Relu(x @ w + b), with a Reshape to the shape that the value already has."""
    random = np.random.default_rng(number)
    names = {"x": f"x{number}", "y": f"x{number + 1}"}

    def node(op: str, result: str, *operands: str, **attributes: Any) -> NodeProto:
        inputs = [names.get(operand, f"{operand}_{number}") for operand in operands]
        return helper.make_node(op, inputs, [names.get(result, f"{result}_{number}")], **attributes)

    def constant(result: str, value: object, dtype: str = "int64") -> NodeProto:
        return node("Constant", result, value=numpy_helper.from_array(np.asarray(value, dtype)))

    yield constant("w", random.standard_normal((WIDTH, WIDTH)) / blocks, "float32")
    yield constant("b", random.standard_normal(WIDTH) / blocks, "float32")
    yield node("MatMul", "m", "x", "w")
    yield node("Add", "a", "m", "b")
    yield node("Relu", "r", "a")
    yield node("Dropout", "d", "r")
    yield node("Identity", "i", "d")
    yield node("Transpose", "t", "i", perm=[0, 2, 1])
    yield node("Transpose", "tt", "t", perm=[0, 2, 1])
    yield node("Shape", "s", "tt")
    for axis, name in enumerate(("batch", "sequence")):
        yield constant(f"{name}_index", axis)
        yield node("Gather", name, "s", f"{name}_index")
        yield constant(f"{name}_axes", [0])
        yield node("Unsqueeze", f"{name}_dim", name, f"{name}_axes")
    yield constant("width", [WIDTH])
    yield node("Concat", "shape", "batch_dim", "sequence_dim", "width", axis=0)
    yield node("Reshape", "v", "tt", "shape")
    yield node("Add", "y", "x", "v")
