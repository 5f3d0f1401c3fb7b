"""Codes, scales and zero points as operators read them: along the columns of a weight, or along its rows.

`ColumnLayout` is the layout of com.microsoft MatMulNBits and GatherBlockQuantized: the blocks of a column in sequence,
each packed separately, with the first code in the lowest bits. `RowLayout` is the layout of a weight that
DequantizeLinear reads, packed in the order of its elements, as ONNX packs tensors of 4 and 2 bits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from surgery import data_type, packed_tensor

from ._nbits_blocks import Array, Scheme


class Layout(Protocol):
    """Collects the parts of a quantized weight, in any order, and returns its tensors."""

    def put(self, block: int, column: int, codes: Array, scale: Array, zero: Array) -> None:
        """Store codes [blocks, block, columns], scales and zero points [blocks, columns] at a block and a column.

        Codes beyond the last row of the weight are dropped.
        """

    def tensors(self) -> tuple[Any, ...]:
        """Return codes and scales, and zero points unless the weight is symmetric."""


def pack(codes: Array, bits: int) -> Array:
    """Pack codes of fewer than 8 bits along the second axis, a multiple of 8 / bits long; the first code is lowest.

    [blocks, block, columns] becomes [blocks, block · bits / 8, columns].
    """
    packed = codes
    while bits < 8:
        packed = packed[:, 0::2] | (packed[:, 1::2] << np.uint8(bits))
        bits *= 2
    return packed


def pack_rows(codes: Array, bits: int) -> Array:
    """Pack codes along the last axis, padded with 0 at the end."""
    missing = -codes.shape[-1] % (8 // bits)
    if missing:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], missing), np.uint8)], axis=-1)
    while bits < 8:
        # Two neighbors are read as one wider number, so that NumPy works on consecutive elements.
        pairs = np.ascontiguousarray(codes).view(np.dtype("<u2"))
        codes = (pairs | (pairs >> np.uint16(8 - bits))).astype(np.uint8)
        bits *= 2
        if bits < 8:
            codes &= np.uint8((1 << bits) - 1)
    return codes


class ColumnLayout:
    """B [N, blocks, bytes of a block], scales [N, blocks], zero points [N, bytes of all blocks]."""

    def __init__(self, scheme: Scheme, rows: int, columns: int) -> None:
        blocks = -(-rows // scheme.block)
        padded = blocks + -blocks % (8 // scheme.bits)
        self._scheme = scheme
        self._codes = np.empty((columns, blocks, scheme.block * scheme.bits // 8), np.uint8)
        self._scale = np.empty((columns, blocks), scheme.scale_type)
        self._zero = np.zeros((columns, padded), np.uint8)

    def put(self, block: int, column: int, codes: Array, scale: Array, zero: Array) -> None:
        """Store a part."""
        bits, (blocks, _, columns) = self._scheme.bits, codes.shape
        place = slice(column, column + columns), slice(block, block + blocks)
        self._codes[place] = pack(codes, bits).transpose(2, 0, 1)
        self._scale[place] = scale.T
        self._zero[place] = zero.T

    def tensors(self) -> tuple[Any, ...]:
        """Return codes and scales, and zero points unless the weight is symmetric."""
        found = [self._packed(), packed_tensor(self._scale)]
        if not self._scheme.symmetric:
            found.append(packed_tensor(pack_rows(self._zero, self._scheme.bits)))
        return tuple(found)

    def _packed(self) -> Any:
        return packed_tensor(self._codes)


class TableLayout(ColumnLayout):
    """A table whose rows are gathered, as GatherBlockQuantized reads it: codes [N, bytes of all blocks]."""

    def _packed(self) -> Any:
        return packed_tensor(self._codes.reshape(len(self._codes), -1))


class SignedTableLayout(ColumnLayout):
    """A table whose rows DequantizeLinear reads, in 8 bits: symmetric codes are signed, and have no zero points."""

    def _packed(self) -> Any:
        codes = self._codes.reshape(len(self._codes), -1)
        if not self._scheme.symmetric:
            return packed_tensor(codes)
        return packed_tensor(np.bitwise_xor(codes, np.uint8(self._scheme.middle), out=codes).view(np.int8))


class RowLayout:
    """Codes [K, N], scales and zero points [blocks, N]; vectors [N] if a block is a whole column.

    Symmetric codes are signed, and have no zero points.
    """

    def __init__(self, scheme: Scheme, rows: int, columns: int) -> None:
        blocks = -(-rows // scheme.block)
        self._scheme = scheme
        self._shape = (rows, columns)
        self._form = (columns,) if blocks == 1 and scheme.block == rows else (blocks, columns)
        self._codes = np.empty(self._shape, np.uint8)
        self._scale = np.empty((blocks, columns), scheme.scale_type)
        self._zero = np.empty((blocks, columns), np.uint8)

    def put(self, block: int, column: int, codes: Array, scale: Array, zero: Array) -> None:
        """Store a part."""
        blocks, _, columns = codes.shape
        part = slice(column, column + columns)
        place = slice(block * self._scheme.block, (block + blocks) * self._scheme.block), part
        there = self._codes[place]
        if self._scheme.symmetric:
            # Subtract the middle, in two's complement.
            np.bitwise_xor(codes.reshape(-1, columns)[: there.shape[0]], np.uint8(self._scheme.middle), out=there)
        else:
            there[...] = codes.reshape(-1, columns)[: there.shape[0]]
        self._scale[block : block + blocks, part] = scale
        self._zero[block : block + blocks, part] = zero

    def tensors(self) -> tuple[Any, ...]:
        """Return codes and scales, and zero points unless the weight is symmetric."""
        name = f"{'int' if self._scheme.symmetric else 'uint'}{self._scheme.bits}"
        found = [self._tensor(self._codes, self._shape, name), packed_tensor(self._scale.reshape(self._form))]
        if not self._scheme.symmetric:
            found.append(self._tensor(self._zero, self._form, name))
        return tuple(found)

    def _tensor(self, codes: Array, shape: tuple[int, ...], name: str) -> Any:
        packed = pack_rows(codes.reshape(-1), self._scheme.bits)
        return packed_tensor(packed, data_type(name), shape)
