"""IR tensors whose data is in files or sparse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from surgery.model.wire.weights import Weights, array_of, source_at
from surgery.model.wire.wire import Reference

T = TypeVar("T")

_PIECE: Final = 1 << 22  # bytes that are concatenated at once

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


class JoinedTensor(ir.LazyTensor):
    """The concatenation of arrays along an axis, which is written to a file some rows at a time."""

    __slots__ = ("_arrays", "_axis")

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]], axis: int) -> None:
        self._arrays, self._axis = arrays, axis % arrays[0].ndim
        shape = list(arrays[0].shape)
        shape[self._axis] = sum(array.shape[self._axis] for array in arrays)
        super().__init__(
            lambda: ir.Tensor(np.concatenate(arrays, axis)),
            ir.DataType.from_numpy(arrays[0].dtype),
            ir.Shape(shape, frozen=True),
        )

    def tofile(self, file: Any) -> None:
        """Write the raw bytes to a file."""
        if self.dtype.bitwidth < 8:  # a row may end within a byte
            file.write(self.tobytes())
            return
        parts = [[array] for array in self._arrays] if self._axis == 0 else [self._arrays]
        for arrays in parts:
            count = max(1, _PIECE // max(1, sum(array[:1].nbytes for array in arrays)))
            for start in range(0, len(arrays[0]), count):
                rows = np.concatenate([array[start : start + count] for array in arrays], self._axis)
                ir.Tensor(rows).tofile(file)


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
