"""ONNX text: parsing, printing, a canonical form of models, and differences between models.

The language is the textual syntax of the ONNX specification (onnx/docs/Syntax.md), parsed and printed by onnx.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.errors import SurgeryError
from surgery.base.operators.subgraphs import subgraphs
from surgery.model.graph.traversal import post_order, reads
from surgery.model.shapes.facts import dims
from surgery.model.storage.ir_scopes import scopes

if TYPE_CHECKING:
    import onnx

DEFAULT_OPSET = 21
DEFAULT_IR_VERSION = 10
_SHOWN_ELEMENTS = 64


class TextError(SurgeryError):
    """ONNX text that cannot be parsed."""

    code = "text"


def parse(text: str, *, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """Parse a model, or a bare graph, which gets `opset` and IR version 10. Lines that start with `#` are comments."""
    import onnx.parser

    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if not body.lstrip().startswith("<"):
        body = f'<ir_version: {DEFAULT_IR_VERSION}, opset_import: ["" : {opset}]>\n{body}'
    try:
        return onnx.parser.parse_model(body)
    except (onnx.parser.ParseError, RuntimeError, IndexError) as error:
        # The last two, by release, are for a number that its type does not hold.
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise TextError(f"not ONNX text: {' '.join(reason.split())}") from error


def parse_nodes(body: str) -> list[onnx.NodeProto]:
    """Parse lines such as `y = Add(x, c)` that do not form a whole graph."""
    return list(parse(f"g () => () {{\n{body}\n}}").graph.node)


def print_graph(model: onnx.ModelProto, *, declarations: bool = False) -> str:
    """Print the main graph as ONNX text that can be parsed, without node metadata; value infos with `declarations`."""
    import onnx.printer

    copy = deepcopy(model)
    _strip(copy.graph, declarations)
    return "\n".join(line.rstrip() for line in onnx.printer.to_text(copy.graph).splitlines())


def print_model(model: onnx.ModelProto) -> str:
    """Print a whole model as ONNX text, without value infos and node metadata."""
    import onnx.printer

    copy = deepcopy(model)
    _strip(copy.graph)
    for function in copy.functions:
        del function.value_info[:]
        _strip_nodes(function.node)
    return "\n".join(line.rstrip() for line in onnx.printer.to_text(copy).splitlines())


def _strip(graph: onnx.GraphProto, declarations: bool = False) -> None:
    if not declarations:
        del graph.value_info[:]
    for tensor in graph.initializer:
        _list_integers(tensor)
    _strip_nodes(graph.node, declarations)


def _strip_nodes(nodes: Iterable[onnx.NodeProto], declarations: bool = False) -> None:
    for node in nodes:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                _list_integers(tensor)
        for graph in subgraphs(node):
            _strip(graph, declarations)


def _list_integers(tensor: onnx.TensorProto) -> None:
    """Store integers as a list: of those stored as bytes, onnx 1.20 and older print int32 and int64 only."""
    from onnx import TensorProto, numpy_helper

    wide = {TensorProto.UINT32, TensorProto.UINT64}
    narrow = {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.BOOL}
    if tensor.HasField("raw_data") and tensor.data_type in wide | narrow:
        listed = tensor.uint64_data if tensor.data_type in wide else tensor.int32_data
        listed.extend(map(int, numpy_helper.to_array(tensor).flat))
        tensor.ClearField("raw_data")


def canonical(model: ir.Model) -> str:
    """Return a text form that is equal for two models that differ only in interior names.

    Nodes come in the order in which the outputs need them, and dead nodes last; values are numbered in that order.
    Names of inputs, outputs and dims are kept.
    """
    lines = _canonical_imports(model.opset_imports, "")
    lines += _canonical_graph(model.graph, {}, "")
    for identifier, function in sorted(model.functions.items()):
        lines.append(f"function {'.'.join(identifier)} {sorted(function.attributes)}")
        lines += _canonical_imports(function.opset_imports, "  ")
        lines += _canonical_graph(function.graph, {}, "  ")
    return "\n".join(lines) + "\n"


def _canonical_imports(imports: Mapping[str, int], indent: str) -> list[str]:
    return [f"{indent}opset {domain or 'ai.onnx'} {version}" for domain, version in sorted(imports.items())]


def structural_diff(
    before: ir.Model, after: ir.Model, *, names: tuple[str, str] = ("before", "after"), declared: bool = False
) -> str:
    """Return the unified diff of the canonical forms; empty if they are equal.

    With `declared`, it also covers the order of the nodes and the declarations of intermediate values, by name.
    """
    one, other = (canonical(model) + (declarations(model) if declared else "") for model in (before, after))
    return "".join(difflib.unified_diff(one.splitlines(keepends=True), other.splitlines(keepends=True), *names))


def declarations(model: ir.Model) -> str:
    """List intermediate values with their declared types and dims, in the order of their nodes.

    They follow the descriptive fields and metadata of the model, and the doc strings of its inputs and outputs.
    """
    made = (value for graph in scopes(model) for node in graph for value in node.outputs if value.name)
    values = [value.name if value.type is None else _typed(value) for value in made]
    return "".join(f"{line}\n" for line in [*_descriptions(model), *values])


def _descriptions(model: ir.Model) -> Iterator[str]:
    fields = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
    yield from (f"{name}: {said}" for name in fields if (said := getattr(model, name)))
    yield from (f"metadata {key}: {text}" for key, text in sorted(model.metadata_props.items()))
    ports = dict.fromkeys([*model.graph.inputs, *model.graph.outputs])
    yield from (f"{value.name}: {value.doc_string}" for value in ports if value.doc_string)


def _canonical_graph(graph: ir.Graph, outer: dict[ir.Value, str], indent: str) -> list[str]:
    names = dict(outer)
    for value in graph.inputs:
        names[value] = value.name or ""
    for value in graph.outputs:
        names.setdefault(value, value.name or "")
    lines = [f"{indent}input {_typed(value)}{_default(value)}" for value in graph.inputs]
    for node in _needed_order(graph):
        for operand in node.inputs:
            if operand is not None and operand.is_initializer() and operand not in names:
                names[operand] = f"w{len(names)}"
                lines.append(f"{indent}{names[operand]} = {_tensor(operand.const_value)}")
        operands = [("" if value is None else names.setdefault(value, f"?{value.name}")) for value in node.inputs]
        for value in node.outputs:
            if value not in names:
                names[value] = f"v{len(names)}" if value.name and (value.uses() or value.is_graph_output()) else "_"
        results = [names[value] for value in node.outputs]
        while results and results[-1] == "_":
            results.pop()
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        lines.append(f"{indent}{', '.join(results)} = {op}({', '.join(operands)})")
        for name, attribute in sorted(node.attributes.items()):
            lines += _attribute(name, attribute, names, indent + "    ")
    lines += [f"{indent}{names[value]} = {_tensor(value.const_value)} unused" for value in _unused(graph, names)]
    lines += [f"{indent}output {names[value]}: {_typed(value)}" for value in graph.outputs]
    return lines


def _unused(graph: ir.Graph, names: dict[ir.Value, str]) -> Iterator[ir.Value]:
    for value in graph.initializers.values():
        if value not in names:
            names[value] = "unused" if not value.uses() else f"w{len(names)}"
            yield value


def _needed_order(graph: ir.Graph) -> list[ir.Node]:
    """Order the nodes by a traversal from the outputs through the inputs; dead nodes come last."""

    def needed(node: ir.Node) -> list[ir.Node]:
        makers = [value.producer() for value in reads(node)]
        return [maker for maker in reversed(makers) if maker is not None and maker.graph is graph]

    return post_order([*(value.producer() for value in graph.outputs), *graph], needed)


def _attribute(name: str, attribute: ir.Attr, names: dict[ir.Value, str], indent: str) -> list[str]:
    if attribute.is_ref():
        return [f"{indent}{name} = @{attribute.ref_attr_name}"]
    match attribute.type:
        case ir.AttributeType.GRAPH:
            return [f"{indent}{name} =", *_canonical_graph(attribute.as_graph(), names, indent + "    ")]
        case ir.AttributeType.TENSOR:
            return [f"{indent}{name} = {_tensor(attribute.as_tensor())}"]
    return [f"{indent}{name} = {attribute.value!r}"]


def _typed(value: ir.Value) -> str:
    shape = dims(value.shape)
    return f"{value.name} {value.type} {list(shape) if shape is not None else '?'}"


def _default(value: ir.Value) -> str:
    return f" = {_tensor(value.const_value)}" if value.is_initializer() else ""


def _tensor(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None:
        return "?"
    head = f"{tensor.dtype.name.lower()}{list(tensor.shape.numpy())}"
    if tensor.size <= _SHOWN_ELEMENTS:
        # The repr of the elements distinguishes 0.0 from -0.0, unlike equality.
        return f"{head} {tensor.numpy().reshape(-1).tolist()!r}"
    return f"{head} sha256:{hashlib.sha256(tensor.tobytes()).hexdigest()[:16]}"
