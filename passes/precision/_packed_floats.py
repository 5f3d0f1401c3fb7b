"""Operators of com.microsoft that contain weights as integers, and the operators on floats that they represent.

Codes of fewer than 8 bits are packed along the rows of a byte array, the first one in the lowest bits. A missing zero
point is the middle code, 2^(bits - 1), or 0 for signed integers. Read from the schemas of ONNX Runtime 1.32, and
compared with its kernels (tests/passes/test_packed_floats.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from surgery import Builder, Node, Value, data_type, unpacked_codes

from ._integers import Array, wide

_COLUMNS = 1 << 22
"""Elements of a weight that are processed at once, so that little more than the result is in memory."""


def convert_packed(node: Node, new: Builder) -> None:
    """Replace a node with operators on the floats that its packed integers represent."""
    made = PACKED[node.op](node, new)
    for old, result in zip(node.outputs, made):
        new.replace(old, result)


def _matmul_n_bits(node: Node, new: Builder) -> tuple[Value, ...]:
    rows, columns, block = (int(node.attr(name)) for name in ("K", "N", "block_size"))
    bits, blocks = int(node.attr("bits", 4)), -(-rows // block)
    new.require(bits in (2, 4, 8), "the weight is not of 2, 4 or 8 bits")
    new.require(node.input(4) is None, "the rows of the weight are reordered by g_idx")
    new.require(not node.attr("weight_prepacked", 0), "the weight is packed for the kernels of one GPU")
    codes, scales = _constant(node, 1, new), _constant(node, 2, new)
    new.require(codes.size == columns * blocks * (block * bits // 8), "the product has no weight")
    zero = None if node.input(3) is None else _constant(node, 3, new)
    matrix = _blocks(
        codes.reshape(columns, -1), scales.reshape(columns, blocks), _zeros(zero, columns, bits), bits, block
    )
    weight = new.constant(np.ascontiguousarray(matrix[:, :rows].T), f"{node.required_input(1).name}_float")
    made, bias = new.node("MatMul", node.required_input(0), weight), node.input(5)
    return (made if bias is None else new.node("Add", made, bias),)


def _gather(node: Node, new: Builder) -> tuple[Value, ...]:
    table, scales = node.required_input(0), _constant(node, 2, new)
    rank, block = table.rank or 0, int(node.attr("block_size", 128))
    axes = int(node.attr("gather_axis", 0)) % max(rank, 1), int(node.attr("quantize_axis", 1)) % max(rank, 1)
    new.require(rank == 2 and axes == (0, 1), "the gathered values are not rows of a matrix in blocks")
    array = _constant(node, 0, new)
    zero = None if node.input(3) is None else _constant(node, 3, new)
    if table.dtype == data_type("uint8"):
        bits = int(node.attr("bits", 4))
        made = _blocks(array, scales, _zeros(zero, len(array), bits), bits, block)
    else:
        made = _blocks(array, scales, np.zeros(1) if zero is None else zero, 8, block)
    gathered = new.node("Gather", new.constant(made, f"{table.name}_float"), node.required_input(1), axis=0)
    return (gathered,)


def _lstm(node: Node, new: Builder) -> tuple[Value, ...]:
    weights = [_turned(node, 1, 8, new), _turned(node, 2, 10, new)]
    operands = [node.required_input(0), *weights, *(node.input(position) for position in range(3, 8))]
    return new.nodes("LSTM", *operands, outputs=len(node.outputs), attributes=node.attributes)


def _turned(node: Node, position: int, scale: int, new: Builder) -> Value:
    """Return the weight of a recurrent layer as [directions, gates, columns] of floats."""
    integers, scales, zeros = (_constant(node, place, new) for place in (position, scale, scale + 1))
    factors, offsets = (wide(each).reshape(len(integers), 1, -1) for each in (scales, zeros))
    made = ((wide(integers) - offsets) * factors).astype(scales.dtype)
    return new.constant(np.ascontiguousarray(made.swapaxes(1, 2)), f"{node.required_input(position).name}_float")


def _constant(node: Node, position: int, new: Builder) -> Array:
    array = node.required_input(position).constant
    new.require(array is not None, "a packed weight, its scale or zero point is not constant")
    assert array is not None
    return array


def _zeros(zero: Array | None, columns: int, bits: int) -> Array:
    """Return zero points [columns, blocks or more], or a single one for all if they are missing."""
    if zero is None:
        return np.full((1, 1), 1 << (bits - 1))
    return unpacked_codes(zero.reshape(columns, -1), bits) if zero.dtype == np.uint8 else zero.reshape(columns, -1)


def _blocks(packed: Array, scales: Array, zeros: Array, bits: int, block: int) -> Array:
    """Return the floats of codes that are packed along the last axis, in blocks with one scale each."""
    width = packed.shape[1] * 8 // bits
    made = np.empty((len(packed), width), scales.dtype)
    step = max(_COLUMNS // max(width, 1), 1)
    for start in range(0, len(packed), step):
        part = slice(start, start + step)
        codes = packed[part] if bits == 8 else unpacked_codes(packed[part], bits)
        scale, zero = (
            np.repeat(wide(each[part] if len(each) > 1 else each), block if each.size > 1 else 1, axis=-1)
            for each in (scales, zeros)
        )
        made[part] = (wide(codes) - zero[..., :width]) * scale[..., :width]
    return made


PACKED: dict[str, Callable[[Node, Builder], tuple[Value, ...]]] = {
    "com.microsoft::DynamicQuantizeLSTM": _lstm,
    "com.microsoft::GatherBlockQuantized": _gather,
    "com.microsoft::MatMulNBits": _matmul_n_bits,
}
