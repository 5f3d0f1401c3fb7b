"""Convert an `onnx_ir.Model` to a skeleton, and restore everything that the IR could not represent.

`onnx_ir.serde` is not used for the structure: it adds a value info for every initializer, sorts metadata, drops
trailing outputs without a name, duplicates the metadata of tensors, logs to stderr, and raises on sparse attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx_ir import serde

from surgery.model.storage.ir_tensors import SparseTensor, is_a, tensor_reference
from surgery.model.storage.message_merging import ordered
from surgery.model.storage.residue import KEY, GraphResidue, Residue
from surgery.model.wire.long_attributes import LongAttr
from surgery.model.wire.tensors import STRING, refer

# Key in the `meta` of a value with a quantization annotation, defined by onnx_ir
QUANTIZATION: Final = "quant_parameter_tensor_names"
# The first IR version in which functions have value infos
_FUNCTION_VALUE_INFO: Final = 10

_Type = ir.AttributeType
_NUMBERS: Final = {kind: onnx.AttributeProto.AttributeType.Value(kind.name) for kind in _Type}
_TENSOR_TYPES: Final = (ir.TensorType, ir.SparseTensorType)
_SCALARS: Final = {_Type.INT: "i", _Type.FLOAT: "f"}
_LISTS: Final = {_Type.INTS: "ints", _Type.FLOATS: "floats"}
GRAPH_TYPES: Final = (_Type.GRAPH, _Type.GRAPHS)
_RAW_MESSAGES: Final = {
    _Type.SPARSE_TENSOR: "sparse_tensor",
    _Type.SPARSE_TENSORS: "sparse_tensors",
    _Type.TYPE_PROTO: "tp",
    _Type.TYPE_PROTOS: "type_protos",
}


class Exporter:
    """Builds the messages of one model. Without `restore`, residue is left out."""

    def __init__(self, ir_version: int, *, restore: bool = True) -> None:
        self._restore = restore
        self._function_values = ir_version >= _FUNCTION_VALUE_INFO

    def model(self, model: ir.Model) -> onnx.ModelProto:
        """Export a model."""
        out = onnx.ModelProto(ir_version=model.ir_version)
        for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            _set_text(out, field, getattr(model, field))
        _opsets(out.opset_import, model.opset_imports)
        _entries(out.metadata_props, model.metadata_props)
        for configuration in model.device_configurations:
            out.configuration.append(serde.serialize_model_configuration(configuration))
        residue = self._graph_residue(model.graph.meta)
        if residue.model is not None:
            residue.model.restore(out)
        self._graph(out.graph, model.graph)
        for function in model.functions.values():
            self._function(out.functions.add(), function)
        return out

    def value(self, out: onnx.ValueInfoProto, value: ir.Value, role: str) -> None:
        """Export a value as graph input, graph output or value info."""
        out.name = value.name or ""
        if value.type is not None:
            # Without a type, a shape cannot be stored.
            _type(out.type, value.type, value.shape)
        _set_text(out, "doc_string", value.doc_string)
        _entries(out.metadata_props, value.metadata_props)
        self._put_back_role(out, value, role)

    def annotation(self, out: onnx.TensorAnnotation, value: ir.Value) -> None:
        """Export the quantization annotation of a value."""
        out.tensor_name = value.name or ""
        _entries(out.quant_parameter_tensor_names, value.meta[QUANTIZATION])
        self._put_back_role(out, value, "annotation")

    def node_shell(self, out: onnx.NodeProto, node: ir.Node) -> None:
        """Export a node without the subgraphs in its attributes."""
        # Nearly all of the export time is spent here, so there is no loop over fields and no generator.
        out.op_type = node.op_type
        if name := node.name:
            out.name = name
        if domain := node.domain:
            out.domain = domain
        if overload := node.overload:
            out.overload = overload
        if node.doc_string:
            out.doc_string = node.doc_string
        if inputs := node.inputs:
            out.input.extend(["" if value is None else value.name or _unnamed(node) for value in inputs])
        if outputs := node.outputs:
            out.output.extend([value.name or "" for value in outputs])
        for attribute in node.attributes.data.values():
            self._attribute(out.attribute.add(), attribute)
        if entries := node.metadata_props:
            _entries(out.metadata_props, entries)
        self._odd_parts(out, node)

    def _odd_parts(self, out: onnx.NodeProto, node: ir.Node) -> None:
        """Export the parts that few nodes have."""
        for configuration in node.device_configurations:
            out.device_configurations.append(serde.serialize_node_device_configuration(configuration))
        if self._restore:
            self._put_back(out, node.meta)

    def graph_shell(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Export a graph without its lists."""
        _set_text(out, "name", graph.name)
        _set_text(out, "doc_string", graph.doc_string)
        _entries(out.metadata_props, graph.metadata_props)

    def function_shell(self, out: onnx.FunctionProto, function: ir.Function) -> None:
        """Export a function without its nodes and value infos."""
        for field in ("domain", "name", "overload", "doc_string"):
            _set_text(out, field, getattr(function, field))
        _opsets(out.opset_import, function.opset_imports)
        _entries(out.metadata_props, function.metadata_props)
        out.input.extend(value.name or "" for value in function.inputs)
        out.output.extend(value.name or "" for value in function.outputs)
        for attribute in function.attributes.values():
            if attribute.value is None:
                out.attribute.append(attribute.name)
            else:
                self._attribute(out.attribute_proto.add(), attribute)

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        """Export a tensor. Large tensors are already external."""
        if is_a(tensor, serde.TensorProtoTensor):
            out.CopyFrom(tensor.raw)
            if {entry.key: entry.value for entry in out.metadata_props} != tensor.metadata_props:
                out.ClearField("metadata_props")
                _entries(out.metadata_props, tensor.metadata_props)
            return
        _set_text(out, "name", tensor.name)
        _set_text(out, "doc_string", tensor.doc_string)
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy())
        if is_a(tensor, ir.ExternalTensor):
            refer(out, tensor_reference(tensor))
        elif out.data_type == STRING:
            out.string_data.extend(_strings(tensor))
        else:
            out.raw_data = tensor.tobytes()
        _entries(out.metadata_props, tensor.metadata_props)
        self._put_back(out, tensor.meta)

    def _graph(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        self.graph_shell(out, graph)
        residue = self._graph_residue(graph.meta)
        if residue.shell is not None:
            residue.shell.restore(out)
        for value in graph.inputs:
            self.value(out.input.add(), value, "input")
        for value in graph.outputs:
            self.value(out.output.add(), value, "output")
        for value in graph.initializers.values():
            self._initializer(out, value)
        out.initializer.extend(residue.unnamed_initializers)
        nodes = list(graph)
        for node in nodes:
            self._node(out.node.add(), node)
        values = graph_values(graph, nodes)
        described, annotated = _split_values(values, ports=False)
        known = {value.name for value in values} if residue.loose_values or residue.loose_annotations else set()
        self._value_infos(out.value_info, described, residue, known)
        self._annotations(out, annotated, residue, known)

    def _initializer(self, out: onnx.GraphProto, value: ir.Value) -> None:
        if value.const_value is None:
            raise ValueError(f"initializer '{value.name}' has no value")
        if is_a(value.const_value, SparseTensor):
            sparse = out.sparse_initializer.add()
            sparse.CopyFrom(value.const_value.proto)
            if sparse.values.name != value.name:
                sparse.values.name = value.name or ""
            return
        tensor = out.initializer.add()
        self.tensor(tensor, value.const_value)
        if tensor.name != value.name:
            tensor.name = value.name or ""

    def _node(self, out: onnx.NodeProto, node: ir.Node) -> None:
        self.node_shell(out, node)
        attributes = node.attributes.data
        for held in attributes.values():
            if held.type in GRAPH_TYPES:
                for attribute in out.attribute:
                    self._subgraphs(attribute, attributes.get(attribute.name))
                return

    def _subgraphs(self, out: onnx.AttributeProto, attribute: ir.Attr | None) -> None:
        if attribute is None or attribute.is_ref():
            return
        if attribute.type == _Type.GRAPH:
            self._graph(out.g, attribute.value)
        elif attribute.type == _Type.GRAPHS:
            for graph in attribute.value:
                self._graph(out.graphs.add(), graph)

    def _function(self, out: onnx.FunctionProto, function: ir.Function) -> None:
        self.function_shell(out, function)
        residue = self._graph_residue(function.meta)
        if residue.shell is not None:
            residue.shell.restore(out)
        for default in out.attribute_proto:
            self._subgraphs(default, function.attributes.get(default.name))
        for node in function:
            self._node(out.node.add(), node)
        values = _function_values(function)
        described, _ = _split_values(values, ports=True)
        if not self._function_values:
            described = [value for value in described if "value_info" in value.meta.get(KEY, ())]
        self._value_infos(out.value_info, described, residue, {value.name for value in values})

    def _value_infos(self, out: Any, values: Sequence[ir.Value], residue: GraphResidue, known: set[str | None]) -> None:
        """Export the value infos of a graph: those of its own values, and the loose ones.

        A loose one is left out if a value has its name now, because it would describe the wrong value.
        """
        loose = [entry for entry in residue.loose_values if entry.name not in known]
        if not loose:
            for value in ordered(values, residue.value_order, "name"):
                self.value(out.add(), value, "value_info")
            return
        entries = []
        for value in values:
            entries.append(onnx.ValueInfoProto())
            self.value(entries[-1], value, "value_info")
        out.extend(ordered([*entries, *loose], residue.value_order, "name"))

    def _annotations(
        self,
        out: onnx.GraphProto,
        values: Iterable[ir.Value],
        residue: GraphResidue,
        known: set[str | None],
    ) -> None:
        entries = []
        for value in values:
            entries.append(onnx.TensorAnnotation())
            self.annotation(entries[-1], value)
        entries += [entry for entry in residue.loose_annotations if entry.tensor_name not in known]
        out.quantization_annotation.extend(ordered(entries, residue.annotation_order, "tensor_name"))

    def _attribute(self, out: onnx.AttributeProto, attribute: ir.Attr) -> None:
        """Export an attribute without its subgraphs."""
        out.name = attribute.name
        _set_text(out, "doc_string", attribute.doc_string)
        kind = attribute.type
        if kind != _Type.UNDEFINED:
            out.type = _NUMBERS[kind]
        if attribute.is_ref():
            out.ref_attr_name = attribute.ref_attr_name or ""
        elif is_a(attribute, LongAttr):
            attribute.write(out)
        else:
            self._attribute_value(out, kind, attribute.value)

    def _attribute_value(self, out: onnx.AttributeProto, kind: ir.AttributeType, value: Any) -> None:
        if kind in _SCALARS:
            setattr(out, _SCALARS[kind], value)
        elif kind in _LISTS:
            getattr(out, _LISTS[kind]).extend(value)
        elif kind == _Type.STRING:
            out.s = _bytes(value)
        elif kind == _Type.STRINGS:
            out.strings.extend(_bytes(item) for item in value)
        elif kind == _Type.TENSOR:
            self.tensor(out.t, value)
        elif kind == _Type.TENSORS:
            for tensor in value:
                self.tensor(out.tensors.add(), tensor)
        elif kind in _RAW_MESSAGES:
            _messages(out, _RAW_MESSAGES[kind], value)

    def _put_back(self, out: Any, meta: Mapping[str, Any]) -> None:
        """Merge the residue of an object into its export."""
        if self._restore and meta:
            residue = meta.get(KEY)
            if isinstance(residue, Residue):
                residue.restore(out)

    def _put_back_role(self, out: Any, value: ir.Value, role: str) -> None:
        """Merge the residue of a value in one of its roles, each of which has its own message."""
        if self._restore and value.meta:
            residue = value.meta.get(KEY, {}).get(role)
            if residue is not None:
                residue.restore(out)

    def _graph_residue(self, meta: Mapping[str, Any]) -> GraphResidue:
        residue = meta.get(KEY) if self._restore else None
        return residue if residue is not None else GraphResidue()


def graph_values(graph: ir.Graph, nodes: Iterable[ir.Node] | None = None) -> Iterable[ir.Value]:
    """Return the values of a graph, each once: inputs, initializers, and outputs of `nodes` (by default, all nodes)."""
    values = dict.fromkeys(graph.inputs)
    values.update(dict.fromkeys(graph.initializers.values()))
    for node in graph if nodes is None else nodes:
        for value in node.outputs:
            values[value] = None
    return values


def _function_values(function: ir.Function) -> Iterable[ir.Value]:
    values = dict.fromkeys(function.inputs)
    for node in function:
        values.update(dict.fromkeys(node.outputs))
    return values


def _split_values(values: Iterable[ir.Value], *, ports: bool) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the values that get a value info, and those with a quantization annotation.

    A value is marked if the original had a value info for it that the plain export would lack. Other values get one if
    there is something to describe that no initializer tensor contains; inputs and outputs only with `ports`, because
    inputs and outputs of a graph have their own declarations, and those of a function do not.
    """
    described, annotated = [], []
    for value in values:
        if meta := value.meta:
            if meta.get(QUANTIZATION) is not None:
                annotated.append(value)
            if "value_info" in meta.get(KEY, ()):
                described.append(value)
                continue
        if value.name and (ports or not (value.is_graph_input() or value.is_graph_output())):
            words = bool(value.metadata_props or value.doc_string)
            if words or (value.type is not None and not value.is_initializer()):
                described.append(value)
    return described, annotated


def _unnamed(node: ir.Node) -> str:
    """Refuse an input without a name: it would silently become an omitted input."""
    raise ValueError(f"node '{node.name}' ({node.op_type}) uses a value without a name")


def _set_text(out: Any, field: str, value: object) -> None:
    if value:
        setattr(out, field, value)


def _entries(out: Any, entries: Mapping[str, str]) -> None:
    for key, value in entries.items():
        entry = out.add()
        entry.key, entry.value = key, value


def _opsets(out: Any, imports: Mapping[str, int]) -> None:
    for domain, version in imports.items():
        out.add(domain=domain, version=version)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8")


def _strings(tensor: ir.TensorProtocol) -> list[bytes]:
    if isinstance(tensor, ir.StringTensor):
        return [_bytes(item) for item in tensor.string_data()]
    return [_bytes(item) for item in tensor.numpy().ravel().tolist()]


def _messages(out: onnx.AttributeProto, field: str, value: Any) -> None:
    """Export types or sparse tensors: IR types are converted, and other messages are copied unchanged."""
    several = isinstance(value, list | tuple)
    for item in value if several else [value]:
        target = getattr(out, field).add() if several else getattr(out, field)
        if not isinstance(item, ir.TypeAndShape):
            target.CopyFrom(item)
            continue
        target.SetInParent()
        if item.type is not None:
            _type(target, item.type, item.shape)


def _type(out: onnx.TypeProto, kind: ir.TypeProtocol, shape: ir.ShapeProtocol | None) -> None:
    """Export a type; the shape belongs to the innermost tensor type."""
    if kind.denotation:
        out.denotation = kind.denotation
    if isinstance(kind, _TENSOR_TYPES):
        tensor = out.tensor_type if isinstance(kind, ir.TensorType) else out.sparse_tensor_type
        tensor.elem_type = kind.dtype.value
        if shape is not None:
            proto = tensor.shape
            proto.SetInParent()
            for index, dim in enumerate(shape):
                _dimension(proto.dim.add(), dim, shape.get_denotation(index))
    elif isinstance(kind, ir.SequenceType):
        _type(out.sequence_type.elem_type, kind.elem_type, shape)
    elif isinstance(kind, ir.OptionalType):
        _type(out.optional_type.elem_type, kind.elem_type, shape)
    else:
        raise TypeError(f"there is no ONNX type for {kind!r}")


def _dimension(out: Any, dim: Any, denotation: str | None) -> None:
    if isinstance(dim, int):
        out.dim_value = dim
    elif dim.value is not None:
        out.dim_param = str(dim.value)
    if denotation:
        out.denotation = denotation
