"""Operators with packed weights, and what they are turned back into, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.calibrated import outputs, run_passes

DOMAIN = "com.microsoft"


def made_float(node: onnx.NodeProto, feed: dict[str, np.ndarray], constants: dict[str, Any], results: int = 1) -> None:
    """Check that the kernel of a node computes what is computed after `dequantize`, and that the node is gone."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    tensors = [
        array if isinstance(array, TensorProto) else numpy_helper.from_array(array, name)
        for name, array in constants.items()
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output[:results]]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "g", inputs, given, tensors)
    model = helper.make_model(graph, ir_version=10, opset_imports=imports)
    changed, session = run_passes(model, ("dequantize", {}))
    assert [refused.reason for refused in session.refusals] == []
    assert not any(one.domain for one in changed.graph.node)
    for wanted, got in zip(outputs(model, [feed])[0], outputs(changed, [feed])[0]):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


SIZES = [(4, 48, 16), (4, 40, 32), (8, 48, 16), (8, 37, 32), (2, 80, 32)]


# The kernel has no zero points of floats for 8 bits.
@pytest.mark.parametrize(
    ("bits", "rows", "block", "zero"),
    [(*size, zero) for size in SIZES for zero in ("none", "packed", "float") if (size[0], zero) != (8, "float")],
)
def test_a_product_with_blocks(bits: int, rows: int, block: int, zero: str) -> None:
    generator = np.random.default_rng(bits + rows)
    columns, blocks = 6, -(-rows // block)
    constants: dict[str, Any] = {
        "b": generator.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": generator.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32),
        "bias": generator.normal(size=columns).astype(np.float32),
    }
    if zero == "packed":
        constants["z"] = generator.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
    if zero == "float":
        constants["z"] = generator.uniform(0, 1 << bits, (columns, blocks)).astype(np.float32)
    names = ["x", "b", "s", "" if zero == "none" else "z", "", "bias"]
    node = helper.make_node("MatMulNBits", names, ["y"], domain=DOMAIN, K=rows, N=columns, bits=bits, block_size=block)
    made_float(node, {"x": generator.normal(size=(2, 3, rows)).astype(np.float32)}, constants)


@pytest.mark.parametrize("kind", ["uint8 4", "uint8 8", "uint4", "int4"])
@pytest.mark.parametrize("with_zero", [False, True])
def test_rows_of_a_table(kind: str, with_zero: bool) -> None:
    generator = np.random.default_rng(1)
    bits = 8 if kind.endswith("8") else 4
    rows, width, block = 5, 64, 32
    scales = generator.uniform(0.01, 0.1, (rows, width // block)).astype(np.float32)
    constants: dict[str, Any] = {"s": scales}
    if kind.startswith("uint8"):
        constants["t"] = generator.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8)
        zero: Any = generator.integers(0, 256, (rows, width // block * bits // 8)).astype(np.uint8)
    else:
        of = TensorProto.UINT4 if kind == "uint4" else TensorProto.INT4
        low = 0 if kind == "uint4" else -8
        constants["t"] = helper.make_tensor("t", of, (rows, width), generator.integers(low, low + 16, rows * width))
        zero = helper.make_tensor("z", of, scales.shape, generator.integers(low, low + 16, scales.size))
    if with_zero:
        constants["z"] = zero
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": block}
    attributes |= {"bits": bits} if kind.startswith("uint8") else {}
    node = helper.make_node(
        "GatherBlockQuantized", ["t", "i", "s", *(["z"] if with_zero else [])], ["y"], domain=DOMAIN, **attributes
    )
    made_float(node, {"i": np.array([[0, 4], [2, 1]], np.int64)}, constants)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_recurrent_layer(direction: str, per_channel: bool, kind: type) -> None:
    generator = np.random.default_rng(2)
    ways, hidden, width = 2 if direction == "bidirectional" else 1, 4, 3
    # Seven bits: on a CPU without VNNI sums of two products of uint8 and int8 saturate.
    low, high = (-64, 64) if kind is np.int8 else (0, 256)
    constants: dict[str, Any] = {"bias": generator.normal(size=(ways, 8 * hidden)).astype(np.float32)}
    shape = (ways, 4 * hidden) if per_channel else (ways,)
    for name, rows in (("w", width), ("r", hidden)):
        constants[name] = generator.integers(low, high, (ways, rows, 4 * hidden)).astype(kind)
        constants[f"{name}s"] = generator.uniform(0.002, 0.004, shape).astype(np.float32)
        # ONNX Runtime takes one zero point for all channels.
        constants[f"{name}z"] = np.full(shape, 0 if low < 0 else 128, kind)
    names = ["x", "w", "r", "bias", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "h", "c"], domain=DOMAIN, direction=direction, hidden_size=hidden
    )
    # Data that 8 bits hold exactly, and one step, so that nothing is rounded at run time.
    data = (np.arange(6).reshape(1, 2, 3) / np.float32(5)).astype(np.float32)
    made_float(node, {"x": data}, constants, results=3)
