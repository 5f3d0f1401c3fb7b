"""Tensors of the IR that live in files: mapped when read, and large new ones written to scratch once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx_ir import serde

from surgery.storage.export import tensor_reference
from surgery.storage.residue import KEY
from surgery.storage.tensors import STRING
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
            name=name,  # type: ignore[arg-type]
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
        tensor.shape,  # type: ignore[arg-type]
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
        weights=weights,
    )
    new.meta.update(tensor.meta)
    return new


def nodes_of(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node of a model: of the graph, its functions and all subgraphs."""
    for graph in graphs_of(model):
        yield from graph


def graphs_of(model: ir.Model) -> Iterator[ir.Graph | ir.Function]:
    """Yield the graph of a model, its functions and all subgraphs."""
    waiting: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.GRAPH:
                    waiting.append(attribute.value)
                elif attribute.type == ir.AttributeType.GRAPHS:
                    waiting.extend(attribute.value)


def replace_tensors(model: ir.Model, replace: Any) -> None:
    """Put `replace(tensor)` in the place of every tensor for which it is not None."""
    for graph in graphs_of(model):
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                new = None if value.const_value is None else replace(value.const_value)
                if new is not None:
                    value.const_value = new
        for node in graph:
            _replace_in(node.attributes, replace)
    for function in model.functions.values():
        _replace_in(function.attributes, replace)


def _replace_in(attributes: Any, replace: Any) -> None:
    for attribute in list(attributes.values()):
        if attribute.is_ref() or attribute.value is None:
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            new = replace(attribute.value)
        elif attribute.type == ir.AttributeType.TENSORS:
            several = [(replace(tensor), tensor) for tensor in attribute.value]
            changed = any(made is not None for made, _ in several)
            new = [old if made is None else made for made, old in several] if changed else None
        else:
            continue
        if new is not None:
            attributes[attribute.name] = ir.Attr(
                attribute.name, attribute.type, new, doc_string=attribute.doc_string
            )


def spill_large_tensors(model: ir.Model, weights: Weights, limit: int) -> None:
    """Write each large tensor in memory to the scratch file and put a mapped one in its place."""

    def spill(tensor: ir.TensorProtocol) -> StoredTensor | None:
        if isinstance(tensor, ir.ExternalTensor):
            return None if isinstance(tensor, StoredTensor) else stored(tensor, None)
        return _spilled(tensor, weights) if _is_large(tensor, max(limit, 1)) else None

    replace_tensors(model, spill)


def _is_large(tensor: ir.TensorProtocol, limit: int) -> bool:
    if tensor.dtype in (STRING, ir.DataType.UNDEFINED) or tensor.nbytes < limit:
        return False
    if isinstance(tensor, serde.TensorProtoTensor):
        # What loading leaves inline stays inline: numbers may be shorter on the wire than in memory.
        proto = tensor.raw
        rest = type(proto)()
        rest.CopyFrom(proto)
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            rest.ClearField(field)
        return proto.ByteSize() - rest.ByteSize() >= limit
    return True


def _spilled(tensor: ir.TensorProtocol, weights: Weights) -> StoredTensor:
    """Write a tensor to scratch, once: it may stand in several places."""
    meta: dict[str, Any] = getattr(tensor, "meta", {})
    known = meta.get(_SPILLED)
    if known is not None and known[0] is weights:
        reference = known[1]
    else:
        reference = weights.spill(tensor if hasattr(tensor, "tofile") else tensor.tobytes())
        meta[_SPILLED] = (weights, reference)
    new = StoredTensor(
        reference,
        tensor.dtype,
        ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
        weights=weights,
    )
    if KEY in meta:
        new.meta[KEY] = meta[KEY]
    return new

