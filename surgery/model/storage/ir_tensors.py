"""IR tensors whose data is in files or sparse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from surgery.model.wire.weights import Weights, array_of, source_at
from surgery.model.wire.wire import Reference

T = TypeVar("T")

Array = np.ndarray[Any, Any]

_PIECE: Final = 1 << 22  # bytes that are computed at once

_is_derived: Callable[[Any, Any], bool] = cache(issubclass)


def is_a(tensor: object, kind: type[T]) -> TypeGuard[T]:
    """Return whether a tensor is of a class; `isinstance` is slow for classes that implement a protocol."""
    return _is_derived(type(tensor), kind)


class StoredTensor(ir.ExternalTensor):
    """An external tensor that reads through the shared mapping of its file.

    The base class maps the whole file again for each tensor, and refuses files with several hard links.
    """

    __slots__ = ("_weights",)

    def __init__(
        self,
        reference: Reference,
        dtype: ir.DataType,
        shape: ir.Shape,
        *,
        name: str | None,
        doc_string: str | None = None,
        metadata_props: dict[str, str] | None = None,
        weights: Weights | None = None,
    ) -> None:
        location, offset, length = reference
        super().__init__(
            location,
            offset,
            length,
            dtype,
            shape=shape,
            name=name or "",
            doc_string=doc_string,
            metadata_props=metadata_props,
            base_dir="/",
        )
        self._weights = weights

    @property
    def reference(self) -> Reference:
        """The location of the bytes."""
        return tensor_reference(self)

    def view(self) -> memoryview:
        """Return the raw bytes, mapped and not read. Raises ModelFileError if the file no longer exists."""
        location, offset, length = self.reference
        source = source_at(location) if self._weights is None else self._weights.source(location)
        return source.view(offset, length)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the tensor as a read-only array over the mapped file; packed types are unpacked."""
        return array_of(self.view(), int(self.dtype), tuple(self.shape.numpy()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def tobytes(self) -> bytes:
        """Return a copy of the raw bytes."""
        return bytes(self.view())

    def tofile(self, file: Any) -> None:
        """Write the raw bytes to a file."""
        file.write(self.view())

    def release(self) -> None:
        """Do nothing: the mapping belongs to the file."""


class SparseTensor(ir.LazyTensor):
    """The value of a sparse initializer, which is dense when read.

    onnx_ir has no sparse initializers. An initializer with such a value has its name, type and dims in the graph, can
    be renamed, cloned, folded and dropped, and is exported unchanged.
    """

    __slots__ = ("proto",)

    def __init__(self, proto: onnx.SparseTensorProto, weights: Weights | None) -> None:
        self.proto = proto
        dtype = ir.DataType(proto.values.data_type)
        super().__init__(
            lambda: ir.Tensor(dense(proto, weights or Weights()), dtype=dtype),
            dtype,
            ir.Shape(proto.dims, frozen=True),
            name=proto.values.name,
        )


class PiecewiseTensor(ir.LazyTensor):
    """A tensor that is computed when it is read, and written to a file piece by piece, without being held in memory.

    `pieces` computes its elements in order, each piece in C order.
    """

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Callable[[], Iterator[Array]], dtype: np.dtype[Any], dims: Sequence[int]) -> None:
        self._pieces = pieces
        super().__init__(
            lambda: ir.Tensor(np.concatenate([piece.reshape(-1) for piece in pieces()]).reshape(dims)),
            ir.DataType.from_numpy(dtype),
            ir.Shape(dims, frozen=True),
            cache=True,
        )

    def tofile(self, file: Any) -> None:
        """Write the raw bytes to a file."""
        if self.dtype.bitwidth < 8:  # a piece may end within a byte
            file.write(self.tobytes())
            return
        for piece in self._pieces():
            ir.Tensor(piece).tofile(file)


def joined(arrays: Sequence[Array], axis: int) -> PiecewiseTensor:
    """Return the concatenation of arrays of one type along an axis."""
    axis %= arrays[0].ndim
    dims = list(arrays[0].shape)
    dims[axis] = sum(array.shape[axis] for array in arrays)

    def pieces() -> Iterator[Array]:
        for together in [[array] for array in arrays] if axis == 0 else [arrays]:
            for rows in _rows(together):
                yield np.concatenate([array[rows] for array in together], axis)

    return PiecewiseTensor(pieces, arrays[0].dtype, dims)


def converted(array: Array, convert: Callable[[Array], Array]) -> PiecewiseTensor:
    """Return an array whose elements a function converts, each without regard to the others."""
    flat = array.reshape(-1) if array.flags.c_contiguous else np.atleast_1d(array)

    def pieces() -> Iterator[Array]:
        return (convert(flat[rows]) for rows in _rows([flat]))

    return PiecewiseTensor(pieces, convert(flat[:0]).dtype, array.shape)


def _rows(arrays: Sequence[Array]) -> Iterator[slice]:
    """Cut arrays into pieces along their first axis."""
    count = max(1, _PIECE // max(1, sum(array[:1].nbytes for array in arrays)))
    return (slice(start, start + count) for start in range(0, max(1, len(arrays[0])), count))


def dense(proto: onnx.SparseTensorProto, weights: Weights) -> np.ndarray[Any, Any]:
    """Return the dense array of a sparse tensor. Indices are flat, [count], or one row per value, [count, rank]."""
    values, indices = weights.read(proto.values), weights.read(proto.indices)
    made = np.zeros(tuple(proto.dims), values.dtype)
    if indices.ndim == 1:
        made.reshape(-1)[indices] = values
    else:
        made[tuple(indices.T)] = values
    return made


def tensor_reference(tensor: ir.ExternalTensor) -> Reference:
    """Return the location of the data of an external tensor, relative to the root folder."""
    length = tensor.nbytes if tensor.length is None else tensor.length
    return Reference(str(tensor.path).lstrip("/"), tensor.offset or 0, length)


def stored(tensor: ir.ExternalTensor, weights: Weights | None) -> StoredTensor:
    """Return the same tensor as a `StoredTensor`."""
    new = StoredTensor(
        tensor_reference(tensor),
        tensor.dtype,
        tensor.shape,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
        weights=weights,
    )
    new.meta.update(tensor.meta)
    return new
