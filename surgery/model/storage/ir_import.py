"""Make any model importable by onnx_ir.

`onnx_ir.serde` raises on maps, sparse tensors and strings that are not UTF-8, ignores attributes without a type, and
does not support sparse initializers. Such parts are replaced by placeholders before the import, in a copy, and stored
in the IR afterwards in their original form.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any, Final

import onnx
import onnx_ir as ir

from surgery.base.operators.subgraphs import bodies
from surgery.model.storage.ir_tensors import SparseTensor, stored
from surgery.model.wire.long_attributes import is_long, long_attribute
from surgery.model.wire.weights import Weights

_Kind = onnx.AttributeProto
_PLAIN_KINDS: Final = frozenset({_Kind.INT, _Kind.INTS, _Kind.FLOAT, _Kind.FLOATS, _Kind.STRING, _Kind.TENSOR})
_MARK: Final = "\0surgery\0"

# The type of an attribute that does not declare one, by the field that is set
_KIND_OF_FIELD: Final = {
    "f": _Kind.FLOAT,
    "i": _Kind.INT,
    "s": _Kind.STRING,
    "t": _Kind.TENSOR,
    "g": _Kind.GRAPH,
    "tp": _Kind.TYPE_PROTO,
    "sparse_tensor": _Kind.SPARSE_TENSOR,
    "floats": _Kind.FLOATS,
    "ints": _Kind.INTS,
    "strings": _Kind.STRINGS,
    "tensors": _Kind.TENSORS,
    "graphs": _Kind.GRAPHS,
    "type_protos": _Kind.TYPE_PROTOS,
    "sparse_tensors": _Kind.SPARSE_TENSORS,
}


class Adapter:
    """Adapts a model to onnx_ir before the import, and provides the replacements of the placeholders after it."""

    def __init__(self) -> None:
        self._held: dict[str, ir.Attr] = {}
        self._sparse: dict[str, onnx.SparseTensorProto] = {}

    def before(self, model: onnx.ModelProto) -> None:
        """Replace the parts that cannot be imported, in place."""
        self._graph(model.graph)
        for function in model.functions:
            self._values(function.value_info)
            self._nodes(function.node)
            for attribute in function.attribute_proto:
                self._attribute(attribute)

    def attribute(self, attribute: ir.Attr) -> ir.Attr | None:
        """Return the attribute that a placeholder stands for; None if the given attribute is not a placeholder."""
        if not self._held or attribute.type != ir.AttributeType.STRING:
            return None
        return self._held.get(attribute.value)

    def tensor(self, tensor: ir.TensorProtocol, weights: Weights | None) -> ir.TensorProtocol | None:
        """Return the sparse tensor of a placeholder, or the mapped tensor of an external one; None for others."""
        if isinstance(tensor, ir.ExternalTensor):
            return stored(tensor, weights)
        if self._sparse:
            sparse = self._sparse.get(tensor.doc_string or "")
            if sparse is not None:
                return SparseTensor(sparse, weights)
        return None

    def _graph(self, graph: onnx.GraphProto) -> None:
        self._values(chain(graph.input, graph.output, graph.value_info))
        for sparse in graph.sparse_initializer:
            # A placeholder declares the name in the right scope, with its type and dims.
            mark = f"{_MARK}{len(self._sparse)}"
            self._sparse[mark] = deepcopy(sparse)
            graph.initializer.add(
                name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims, doc_string=mark
            )
        self._nodes(graph.node)

    def _values(self, values: Any) -> None:
        for value in values:
            if value.HasField("type") and not _holds(value.type, top=True):
                value.ClearField("type")

    def _nodes(self, nodes: Any) -> None:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type not in _PLAIN_KINDS or is_long(attribute):
                    self._attribute(attribute)

    def _attribute(self, attribute: onnx.AttributeProto) -> None:
        if attribute.ref_attr_name:
            return
        if attribute.type == _Kind.UNDEFINED:
            kinds = [_KIND_OF_FIELD[field.name] for field, _ in attribute.ListFields() if field.name in _KIND_OF_FIELD]
            if len(kinds) == 1:
                attribute.type = kinds[0]
        for graph in bodies(attribute):
            self._graph(graph)
        held = _held_back(attribute)
        if held is not None:
            mark = f"{_MARK}{len(self._held)}"
            self._held[mark] = held
            for field in ("ints", "floats", "strings", "t"):
                attribute.ClearField(field)
            attribute.type = _Kind.STRING
            attribute.s = mark.encode()


def _held_back(attribute: onnx.AttributeProto) -> ir.Attr | None:
    """Return an attribute that onnx_ir cannot represent, or only as a long tuple; None for all others."""
    if is_long(attribute):
        return long_attribute(attribute)
    value = _unknown(attribute)
    if value is None:
        return None
    doc_string = attribute.doc_string if attribute.HasField("doc_string") else None
    return ir.Attr(attribute.name, ir.AttributeType(attribute.type), value, doc_string=doc_string)


def _unknown(attribute: onnx.AttributeProto) -> Any | None:
    """Return the value of an attribute that onnx_ir cannot represent; None if it can."""
    kind = attribute.type
    if kind == _Kind.SPARSE_TENSOR:
        return deepcopy(attribute.sparse_tensor)
    if kind == _Kind.SPARSE_TENSORS:
        return tuple(map(deepcopy, attribute.sparse_tensors))
    if kind == _Kind.TYPE_PROTO and not _holds(attribute.tp, top=True):
        return deepcopy(attribute.tp)
    if kind == _Kind.TYPE_PROTOS and not all(_holds(item, top=True) for item in attribute.type_protos):
        return tuple(map(deepcopy, attribute.type_protos))
    if kind == _Kind.STRINGS and not all(_is_utf8(item) for item in attribute.strings):
        return tuple(attribute.strings)
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _holds(proto: onnx.TypeProto, *, top: bool) -> bool:
    """Return whether onnx_ir can represent a type. Inside another type, it must have an element type."""
    which = proto.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, which)
        if not tensor.HasField("elem_type"):
            return top
        return tensor.elem_type in _ELEMENT_TYPES
    if which in ("sequence_type", "optional_type"):
        nested = getattr(proto, which)
        return nested.HasField("elem_type") and _holds(nested.elem_type, top=False)
    return which is None and top


_ELEMENT_TYPES: Final = frozenset(int(kind) for kind in ir.DataType)
