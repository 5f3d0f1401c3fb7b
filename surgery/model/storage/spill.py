"""Move large tensors of the IR out of memory, to the scratch file, each only once."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from surgery.model.storage.ir_scopes import bodies
from surgery.model.storage.ir_tensors import SparseTensor, StoredTensor, is_a, stored
from surgery.model.storage.residue import KEY
from surgery.model.wire.tensors import PAYLOAD_FIELDS, payload_size
from surgery.model.wire.weights import Weights
from surgery.model.wire.wire import Reference

# The types of attributes with tensors, subgraphs or text
_HOLDING: Final = {
    ir.AttributeType.TENSOR,
    ir.AttributeType.TENSORS,
    ir.AttributeType.GRAPH,
    ir.AttributeType.GRAPHS,
    ir.AttributeType.STRING,
}
# Key in the `meta` of a tensor that was written to a scratch file
_SPILLED: Final = "surgery.spilled"


def rewrite_tensors(
    model: ir.Model,
    tensor: Callable[[ir.TensorProtocol], ir.TensorProtocol | None],
    attribute: Callable[[ir.Attr], ir.Attr | None] | None = None,
) -> None:
    """Visit a whole model once, and replace tensors and attributes by the results of the callbacks.

    A result of None keeps the object. `tensor` is called for every initializer and every tensor in an attribute, and
    `attribute` for every string attribute.
    """
    waiting: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while waiting:
        here = waiting.pop()
        if isinstance(here, ir.Graph):
            for value in here.initializers.values():
                new = None if value.const_value is None else tensor(value.const_value)
                if new is not None:
                    value.const_value = new
        else:
            _rewrite_attributes(here.attributes, tensor, attribute, waiting)
        for node in here:
            if node.attributes.data:
                _rewrite_attributes(node.attributes, tensor, attribute, waiting)


def _rewrite_attributes(attributes: Any, tensor: Any, attribute: Any, waiting: list[Any]) -> None:
    for held in list(attributes.data.values()):
        kind = held.type
        if kind not in _HOLDING:
            continue
        if held.value is None:
            continue
        waiting.extend(bodies(held))
        if kind == ir.AttributeType.STRING:
            other = attribute(held) if attribute is not None else None
        else:
            new = _rewritten(kind, held.value, tensor)
            other = None if new is None else ir.Attr(held.name, kind, new, doc_string=held.doc_string)
        if other is not None:
            attributes[held.name] = other


def _rewritten(kind: ir.AttributeType, value: Any, tensor: Any) -> Any:
    """Return the replacement of the tensors in an attribute; None if all are kept."""
    if kind == ir.AttributeType.TENSOR:
        return tensor(value)
    several = [(tensor(item), item) for item in value] if kind == ir.AttributeType.TENSORS else []
    if all(made is None for made, _ in several):
        return None
    return [old if made is None else made for made, old in several]


def spill_large_tensors(model: ir.Model, weights: Weights, limit: int) -> None:
    """Write each large tensor in memory to the scratch file, and replace it by a mapped one."""

    def spill(tensor: ir.TensorProtocol) -> StoredTensor | None:
        if is_a(tensor, ir.ExternalTensor):
            return None if is_a(tensor, StoredTensor) else stored(tensor, None)
        large = not is_a(tensor, SparseTensor) and _is_large(tensor, max(limit, 1))
        return _spilled(tensor, weights) if large else None

    rewrite_tensors(model, spill)


def spill_tensor(tensor: ir.TensorProtocol, weights: Weights, limit: int) -> ir.TensorProtocol:
    """Write a tensor of at least `limit` bytes to the scratch file and return a mapped one; return others as is."""
    if isinstance(tensor, ir.ExternalTensor | SparseTensor) or not _is_large(tensor, limit):
        return tensor
    return _spilled(tensor, weights) or tensor


def _is_large(tensor: ir.TensorProtocol, limit: int) -> bool:
    if is_a(tensor, serde.TensorProtoTensor):
        return _is_large_proto(tensor.raw, limit)
    return tensor.dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED) and tensor.nbytes >= limit


def _is_large_proto(proto: onnx.TensorProto, limit: int) -> bool:
    """Return whether loading would treat a tensor as large: both on the wire and in memory, which may differ.

    A tensor in an unusual form, which loading does not split off, does not count as large here either.
    """
    if proto.ByteSize() < limit or (payload_size(proto.data_type, proto.dims) or 0) < limit:
        return False
    rest = deepcopy(proto)
    for field in PAYLOAD_FIELDS:
        rest.ClearField(field)
    if proto.ByteSize() - rest.ByteSize() < limit:
        return False
    used = [field.name for field, _ in proto.ListFields()]
    return "segment" not in used and sum(field in used for field in PAYLOAD_FIELDS) == 1


def _spilled(tensor: ir.TensorProtocol, weights: Weights) -> StoredTensor | None:
    """Write a tensor to scratch, once even if it occurs several times; return None if its size is wrong."""
    meta: dict[str, Any] = getattr(tensor, "meta", {})
    known = meta.get(_SPILLED)
    if known is not None and known[0] is weights:
        reference = known[1]
    else:
        reference = _written(tensor, weights)
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


def _written(tensor: ir.TensorProtocol, weights: Weights) -> Reference:
    """Write a tensor to scratch; a transposed one may be written later by a worker."""
    view = tensor.raw if isinstance(tensor, ir.Tensor) else None
    if isinstance(view, np.ndarray) and not view.flags.c_contiguous and tensor.dtype.bitwidth >= 8:
        # For a transposed weight, NumPy would write element by element, and copying it whole would take memory.
        return weights.spill_moved(view)
    # A large tensor protocol object may lack `tofile`.
    data: Any = tensor if hasattr(tensor, "tofile") else tensor.tobytes()
    return weights.spill(data)
