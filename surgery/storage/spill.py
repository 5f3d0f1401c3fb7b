"""Tensors of the IR that live in files: mapped when read, and large new ones written to scratch once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from surgery.storage.export import tensor_reference
from surgery.storage.residue import KEY
from surgery.storage.tensors import PAYLOAD_FIELDS, payload_size
from surgery.storage.weights import Weights, array_of, source_at
from surgery.storage.wire import Reference

# In the `meta` of a tensor that was written to a scratch file
_SPILLED: Final = "surgery.spilled"


class StoredTensor(ir.ExternalTensor):
    """An external tensor that reads through the one mapping that its file has.

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
        """Where the bytes lie."""
        return tensor_reference(self)

    def view(self) -> memoryview:
        """Return the raw bytes, mapped and not read. Raises ModelFileError when the file is gone."""
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


def stored(tensor: ir.ExternalTensor, weights: Weights | None) -> StoredTensor:
    """Return the same tensor, mapped."""
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


def rewrite_tensors(
    model: ir.Model,
    tensor: Callable[[ir.TensorProtocol], ir.TensorProtocol | None],
    graph: Callable[[ir.Graph], None] | None = None,
    attribute: Callable[[ir.Attr], ir.Attr | None] | None = None,
) -> None:
    """Visit all of a model once, and put what the callbacks return in the place of what they were given.

    None keeps the thing. Every initializer and every tensor in an attribute is shown to `tensor`, every graph
    to `graph` before its contents, and every attribute that holds text to `attribute`.
    """
    waiting: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while waiting:
        here = waiting.pop()
        if isinstance(here, ir.Graph):
            if graph is not None:
                graph(here)
            for value in here.initializers.values():
                new = None if value.const_value is None else tensor(value.const_value)
                if new is not None:
                    value.const_value = new
        else:
            _rewrite_attributes(here.attributes, tensor, attribute, waiting)
        for node in here:
            if node.attributes:
                _rewrite_attributes(node.attributes, tensor, attribute, waiting)


def _rewrite_attributes(attributes: Any, tensor: Any, attribute: Any, waiting: list[Any]) -> None:
    for held in list(attributes.values()):
        kind, value = held.type, held.value
        new: Any = None
        if value is None:
            continue
        if kind == ir.AttributeType.TENSOR:
            new = tensor(value)
        elif kind == ir.AttributeType.TENSORS:
            several = [(tensor(item), item) for item in value]
            if any(made is not None for made, _ in several):
                new = [old if made is None else made for made, old in several]
        elif kind == ir.AttributeType.GRAPH:
            waiting.append(value)
        elif kind == ir.AttributeType.GRAPHS:
            waiting.extend(value)
        elif kind == ir.AttributeType.STRING and attribute is not None:
            other = attribute(held)
            if other is not None:
                attributes[held.name] = other
        if new is not None:
            attributes[held.name] = ir.Attr(held.name, kind, new, doc_string=held.doc_string)


def spill_large_tensors(model: ir.Model, weights: Weights, limit: int) -> None:
    """Write each large tensor in memory to the scratch file and put a mapped one in its place."""

    def spill(tensor: ir.TensorProtocol) -> StoredTensor | None:
        if isinstance(tensor, ir.ExternalTensor):
            return None if isinstance(tensor, StoredTensor) else stored(tensor, None)
        return _spilled(tensor, weights) if _is_large(tensor, max(limit, 1)) else None

    rewrite_tensors(model, spill)


def _is_large(tensor: ir.TensorProtocol, limit: int) -> bool:
    if isinstance(tensor, serde.TensorProtoTensor):
        return _is_large_proto(tensor.raw, limit)
    return tensor.dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED) and tensor.nbytes >= limit


def _is_large_proto(proto: onnx.TensorProto, limit: int) -> bool:
    """Judge as loading does: numbers may be shorter on the wire than in memory, and both must be large."""
    if proto.ByteSize() < limit or (payload_size(proto.data_type, proto.dims) or 0) < limit:
        return False
    rest = onnx.TensorProto()
    rest.CopyFrom(proto)
    for field in PAYLOAD_FIELDS:
        rest.ClearField(field)
    return bool(proto.ByteSize() - rest.ByteSize() >= limit)


def _spilled(tensor: ir.TensorProtocol, weights: Weights) -> StoredTensor | None:
    """Write a tensor to scratch, once: it may stand in several places. None when its size is wrong."""
    meta: dict[str, Any] = getattr(tensor, "meta", {})
    known = meta.get(_SPILLED)
    if known is not None and known[0] is weights:
        reference = known[1]
    else:
        # A large tensor protocol object need not have `tofile`.
        data: Any = tensor if hasattr(tensor, "tofile") else tensor.tobytes()
        reference = weights.spill(data)
        meta[_SPILLED] = (weights, reference)
    dims = tuple(tensor.shape.numpy())
    if reference.length != payload_size(int(tensor.dtype), dims):
        return None
    new = StoredTensor(
        reference,
        tensor.dtype,
        ir.Shape(dims),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
        weights=weights,
    )
    if KEY in meta:
        new.meta[KEY] = meta[KEY]
    return new
