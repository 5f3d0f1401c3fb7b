"""What people change at a selection by typing a value, or with one press: each change is a step of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.engine.recipe import writer
from surgery.engine.yaml.yaml_nodes import plain
from surgery.engine.yaml.yaml_tree import compose

if TYPE_CHECKING:
    from surgery.model.graph.values import Node, Value

_MOST_ELEMENTS = 64
"""The elements up to which a weight is shown, and can be edited, as text."""
_FILES = (".npy", ".npz", ".safetensors")


@dataclass(frozen=True)
class Property(Record):
    """Something of a selection that can be changed: `value` as it is written in a recipe, None for a mere action.

    `key` identifies it in `Session.set_property`: "name", "operator", "attribute:alpha", "input:0", "tensor:x",
    "dims:x", "type:x", "weight:w"; "remove", "output", "cut-before" and "cut-after" are actions. `hint` says what to
    type where there is no value.
    """

    key: str
    label: str
    value: str | None = None
    hint: str = ""


def properties_of(nodes: Sequence[Node], tensors: Sequence[Value]) -> Iterator[Property]:
    """Yield what can be changed: of one node or tensor its fields, of several what applies to them together."""
    if len(nodes) + len(tensors) == 1:
        yield from (_of_node(nodes[0]) if nodes else _of_tensor(tensors[0]))
    yield from _actions(nodes, tensors)


def step_of(key: str, text: str, nodes: Sequence[Node], tensors: Sequence[Value]) -> Mapping[str, Any]:
    """Return the step that changes a property to what a text says. Raises UsageError if it is none of the selection."""
    if key not in {one.key for one in properties_of(nodes, tensors)}:
        raise UsageError(f"the selection has no property '{key}'")
    kind, _, name = key.partition(":")
    if kind in _ACTIONS:
        return _ACTIONS[kind](nodes, tensors)
    return _STEPS[kind](name, text.strip(), nodes, tensors)


# What is shown


def _of_node(node: Node) -> Iterator[Property]:
    yield Property("name", "Name", node.label)
    yield Property("operator", "Operator", node.op)
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in _TYPE_WORDS and not attribute.is_ref():
            value = node.attr(name)
            is_float = attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)
            yield Property(f"attribute:{name}", name, _text(_shortest(np.float32(value)) if is_float else value))
    for name, kind in sorted((node.graph.declared_attributes(node.ir, node.op) or {}).items()):
        if name not in node.attributes and kind in _TYPE_WORDS:
            yield Property(f"attribute:{name}", name, "", _TYPE_WORDS[kind])
    for number, read in enumerate(node.inputs):
        yield Property(f"input:{number}", f"Input {number}", read.name if read is not None else "", "a tensor, or none")
    for number, value in enumerate(node.outputs):
        if value.name:
            yield Property(f"tensor:{value.name}", f"Output {number}", value.name)
    held = [value for value in node.inputs if value is not None and value.is_initializer]
    for weight in dict.fromkeys(node.outputs if node.op == "Constant" else held):
        yield _of_weight(weight)


_TYPE_WORDS = {
    ir.AttributeType.INT: "default; an integer",
    ir.AttributeType.FLOAT: "default; a number",
    ir.AttributeType.STRING: "default; a text",
    ir.AttributeType.INTS: "default; integers, such as [1, 1]",
    ir.AttributeType.FLOATS: "default; numbers, such as [0.5, 2]",
    ir.AttributeType.STRINGS: "default; texts, such as [a, b]",
}


def _of_weight(value: Value) -> Property:
    key, label = f"weight:{value.name}", value.name
    size = value.size
    if size is not None and size <= _MOST_ELEMENTS and value.dtype is not None and value.dtype.numpy().kind in "biuf":
        array = value.constant
        if array is not None:
            return Property(key, label, _text(_shortest(array)))
    dims = "×".join(map(str, value.static_shape or ()))
    return Property(
        key, label, "", f"{_type_of(value)} {dims}: a .npy, .npz or .safetensors file, or one number for all elements"
    )


def _of_tensor(value: Value) -> Iterator[Property]:
    yield Property(f"tensor:{value.name}", "Name", value.name)
    if value.is_initializer:
        yield _of_weight(value)
    if not (value.is_input or value.is_output):
        return
    dims = value.declared_dims
    if dims is not None:
        yield Property(f"dims:{value.name}", "Dims", _text(dims), "sizes and names, such as [batch, 3]")
    if value.dtype is not None:
        yield Property(f"type:{value.name}", "Type", _type_of(value), "such as float16")


def _type_of(value: Value) -> str:
    if value.dtype is None:
        return "unknown type"
    return "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name


def _actions(nodes: Sequence[Node], tensors: Sequence[Value]) -> Iterator[Property]:
    kinds = {(one.is_output, one.is_input) for one in tensors}
    if (nodes and not tensors) or (not nodes and kinds in ({(True, False)}, {(False, True)})):
        yield Property("remove", "Remove")
    if any(not one.is_output for one in _made(nodes, tensors)):
        yield Property("output", "Make an output")
        yield Property("cut-after", "Cut after")
    if _read(nodes, tensors):
        yield Property("cut-before", "Cut before")


def _made(nodes: Sequence[Node], tensors: Sequence[Value]) -> list[Value]:
    """Return what nodes compute that something reads, and selected tensors that can become outputs."""
    found = [value for node in nodes for value in node.outputs if value.name and value.is_used]
    return [*found, *(value for value in tensors if not value.is_initializer and not value.is_input)]


def _read(nodes: Sequence[Node], tensors: Sequence[Value]) -> list[Value]:
    """Return the computed tensors that come into the selected nodes from outside, and selected computed tensors."""
    inner = {value for node in nodes for value in node.outputs}
    come = [value for node in nodes for value in node.inputs if value is not None and value not in inner]
    return list(dict.fromkeys(value for value in (*come, *tensors) if value.producer is not None))


def _text(value: Any) -> str:
    """Return a value as a recipe has it in one line."""
    return value if isinstance(value, str) else writer.flow(list(value) if isinstance(value, tuple) else value)


def _shortest(array: Any) -> Any:
    """Return elements as plain values, each with the fewest digits that tell it from its neighbours."""
    if array.ndim:
        return [_shortest(item) for item in array]
    item = array[()]
    return float(str(item)) if array.dtype.kind == "f" else item.item()


# What it becomes


def _names(nodes: Sequence[Node]) -> str | list[str]:
    labels = [node.label for node in nodes]
    return labels[0] if len(labels) == 1 else labels


def _tensor_names(values: Sequence[Value]) -> list[str]:
    return list(dict.fromkeys(value.name for value in values))


def _remove(nodes: Sequence[Node], tensors: Sequence[Value]) -> Mapping[str, Any]:
    if nodes:
        return {"remove-nodes": {"nodes": _names(nodes)}}
    kind = "outputs" if tensors[0].is_output else "inputs"
    return {f"remove-{kind}": {kind: _tensor_names(tensors)}}


_ACTIONS: Mapping[str, Callable[[Sequence[Node], Sequence[Value]], Mapping[str, Any]]] = {
    "remove": _remove,
    "output": lambda nodes, tensors: {
        "add-outputs": {"outputs": _tensor_names([one for one in _made(nodes, tensors) if not one.is_output])}
    },
    "cut-after": lambda nodes, tensors: {"cut": {"outputs": _tensor_names(_made(nodes, tensors))}},
    "cut-before": lambda nodes, tensors: {"cut": {"inputs": _tensor_names(_read(nodes, tensors))}},
}


def _value(text: str) -> Any:
    """Return what a text says in YAML; a list may lack its brackets."""
    document = compose(text if text[:1] in ("[", "{", '"', "'") or "," not in text else f"[{text}]")
    if document.mistakes:
        raise UsageError(f"'{text}': {document.mistakes[0][2]}")
    return plain(document.root) if document.root is not None else None


def _replacement(node: Node, op: str) -> dict[str, Any]:
    """Return the options that put another operator in place of that of a node, without attributes it does not have."""
    known = node.graph.declared_attributes(node.ir, op)
    lost = {one: None for one in node.attributes if known is not None and one not in known}
    return {"nodes": _names([node]), "op": op, **({"attributes": lost} if lost else {})}


def _connect(number: str, text: str, nodes: Sequence[Node], _: Sequence[Value]) -> Mapping[str, Any]:
    """Return the step with which a node reads another tensor."""
    inputs: list[int | str | None] = list(range(len(nodes[0].inputs)))
    inputs[int(number)] = text or None
    return {"replace-op": {"nodes": _names(nodes), "op": nodes[0].op, "inputs": inputs}}


def _set_attribute(name: str, text: str, nodes: Sequence[Node], _: Sequence[Value]) -> Mapping[str, Any]:
    options: dict[str, Any] = {"nodes": _names(nodes), "name": name}
    if not text:
        return {"set-attribute": {**options, "remove": True}}
    attribute = nodes[0].attributes.get(name)
    is_text = attribute is not None and attribute.type == ir.AttributeType.STRING
    return {"set-attribute": {**options, "value": text if is_text else _value(text)}}


def _set_weight(name: str, text: str, _: Sequence[Node], __: Sequence[Value]) -> Mapping[str, Any]:
    content = {"file": text} if text.endswith(_FILES) else {"value": _value(text)}
    return {"set-initializer": {"name": name, **content}}


def _set_type(name: str, text: str, _: Sequence[Node], tensors: Sequence[Value]) -> Mapping[str, Any]:
    return {"set-dtype": {"outputs" if tensors[0].is_output else "inputs": {name: text}}}


_STEPS: Mapping[str, Callable[[str, str, Sequence[Node], Sequence[Value]], Mapping[str, Any]]] = {
    "name": lambda _, text, nodes, __: {"rename": {"nodes": {nodes[0].label: text}}},
    "operator": lambda _, text, nodes, __: {"replace-op": _replacement(nodes[0], text)},
    "attribute": _set_attribute,
    "input": _connect,
    "tensor": lambda name, text, _, __: {"rename": {"tensors": {name: text}}},
    "weight": _set_weight,
    "dims": lambda name, text, _, __: {"set-dims": {"ports": {name: _value(text)}}},
    "type": _set_type,
}
