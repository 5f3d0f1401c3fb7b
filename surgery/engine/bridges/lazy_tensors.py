"""Lazy tensor data for onnx-graphsurgeon: mapped until a pass reads it, and reused if it did not change."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_graphsurgeon.ir.tensor import Constant, LazyValues, SparseValues

from surgery.engine.bridges.weight_reuse import KnownWeights
from surgery.model import storage
from surgery.model.wire.same_elements import same_bytes
from surgery.model.wire.weights import array_of

if TYPE_CHECKING:
    from surgery.model.storage import Weights

# Types that NumPy lacks are written here: onnx-graphsurgeon maps two of them incorrectly, and packs none.
_OWN_KINDS = frozenset(
    kind for kind in ir.DataType if kind.name not in ("UNDEFINED", "STRING") and kind.numpy().isbuiltin != 1
)


class Lender:
    """Lends the tensors of one model. While `inside` is set, tensors that the pass itself exports include data."""

    def __init__(self, skeleton: onnx.ModelProto, weights: Weights) -> None:
        self.weights = weights
        self.inside = False
        self._known = KnownWeights(skeleton, weights)
        self._lent: dict[int, tuple[Constant, onnx.TensorProto]] = {}

    def lend(self, constants: Iterable[Constant]) -> None:
        """Make the constants of an imported graph read from the mapped files."""
        for constant in constants:
            if isinstance(constant._values, LazyValues) and not isinstance(constant._values, SparseValues):
                self._lent[id(constant)] = constant, constant._values.tensor
                constant._values = self._values(constant._values.tensor)
                # It would outlive the data that it describes.
                constant.data_location = None

    def settle(self, constants: Iterable[Constant]) -> None:
        """Move data of constants out of memory: unchanged data is referenced, and new data goes to the scratch file."""
        for constant in constants:
            array = constant._values
            if isinstance(array, np.ndarray) and array.dtype.kind not in "OSU" and constant._export_dtype is None:
                constant._values = self._settled(constant, array)

    def _settled(self, constant: Constant, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | LazyValues:
        _, lent = self._lent.get(id(constant), (None, None))
        kind = ir.DataType.from_numpy(array.dtype)
        data = _raw(array, kind)
        same = lent is not None and (kind, array.shape) == (lent.data_type, tuple(lent.dims))
        if lent is not None and same and same_bytes(self._data(lent, kind), data):
            return self._values(lent)
        if len(data) < storage.INLINE_LIMIT and kind not in _OWN_KINDS:
            return array
        tensor = onnx.TensorProto(name=constant.name, data_type=int(kind), dims=array.shape)
        if len(data) < storage.INLINE_LIMIT:
            tensor.raw_data = bytes(data)
        else:
            reference = self._known.find(tensor.data_type, tensor.dims, data) or self.weights.spill(data)
            storage.refer(tensor, reference)
        return self._values(tensor)

    def _data(self, tensor: onnx.TensorProto, kind: ir.DataType) -> memoryview:
        if storage.is_external(tensor):
            return self.weights.view(storage.external_reference(tensor))
        return _raw(self.weights.read(tensor), kind)

    def _values(self, tensor: onnx.TensorProto) -> LazyValues:
        return _Mapped(tensor, self) if storage.is_external(tensor) else LazyValues(tensor)


class _Mapped(LazyValues):  # type: ignore[misc]
    """Values stored in a file."""

    def __init__(self, tensor: onnx.TensorProto, lender: Lender) -> None:
        self._lender = lender
        self._stored = tensor
        inside, lender.inside = lender.inside, False
        super().__init__(tensor)
        lender.inside = inside

    @property
    def tensor(self) -> onnx.TensorProto:
        """The tensor; with its data while the pass runs, because the pass may export it."""
        if not self._lender.inside:
            return self._stored
        whole = onnx.TensorProto(name=self._stored.name, data_type=self._stored.data_type, dims=self._stored.dims)
        whole.raw_data = bytes(self._lender.weights.view(storage.external_reference(self._stored)))
        return whole

    @tensor.setter
    def tensor(self, tensor: onnx.TensorProto) -> None:
        self._stored = tensor

    def load(self) -> np.ndarray[Any, Any]:
        """Map the file copy-on-write, so that the array is writable and only modified pages take memory."""
        location, offset, length = storage.external_reference(self._stored)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        file = self._lender.weights.source(location).fd
        mapped = mmap.mmap(file, offset + length - start, access=mmap.ACCESS_COPY, offset=start)
        view = memoryview(mapped)[offset - start :]
        return array_of(view, self._stored.data_type, tuple(self._stored.dims))


def _raw(array: np.ndarray[Any, Any], kind: ir.DataType) -> memoryview:
    """Return the bytes of an array as in `raw_data`, without copying if it has this layout already."""
    if kind in _OWN_KINDS:
        return memoryview(ir.tensor(array).tobytes())
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
