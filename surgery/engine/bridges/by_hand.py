"""What people write in Python for nodes, tensors and constants, as objects of a graph and options of passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.operators import schemas
from surgery.base.promises import Parity
from surgery.engine.bridges.run_pass import work
from surgery.engine.registry.passes import Pass
from surgery.model.graph import literals
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.patterns.selector import NodeSelector
from surgery.model.storage.ir_scopes import values
from surgery.model.wire import globs

Which = Node | str | Mapping[str, Any] | NodeSelector | Sequence[Any]
"""Nodes: a node, the name of one or a glob, a mapping such as {"op": "Conv"}, or a list of these."""

Tensor = Value | str
"""A tensor: a value of the graph, or its name."""

Operand = Value | str | int | float | bool | Sequence[Any] | np.ndarray[Any, Any] | np.generic | None
"""An input of an operator: a tensor or its name, a number, a list of numbers or an array, None for an omitted one."""


@dataclass(frozen=True)
class Chosen:
    """A selector of nodes that are given as objects, some by other selectors."""

    parts: tuple[Node | NodeSelector, ...]

    def nodes(self, graph: Graph) -> list[Node]:
        """List the nodes, each once, in the order given; raise UsageError for one that is gone."""
        found: dict[Node, None] = {}
        for part in self.parts:
            if isinstance(part, NodeSelector):
                found.update(dict.fromkeys(part.nodes(graph)))
                continue
            if part.graph is not graph or part.ir.graph not in graph.scopes:
                what = "belongs to another graph" if part.graph is not graph else "is no longer in the graph"
                raise UsageError(f"the node '{part.label}' {what}", todo="find a node by its name")
            found[part] = None
        return list(found)


def selector(which: Which) -> Chosen:
    """Return the selector that a caller means; raise UsageError for what is none."""
    parts = list(which) if isinstance(which, list | tuple) else [which]
    if not parts:
        raise UsageError("an empty list selects no node", todo="name one")
    return Chosen(tuple(part if isinstance(part, Node) else _read(part) for part in parts))


def _read(part: Any) -> NodeSelector:
    if isinstance(part, Value):
        raise UsageError(f"'{part.name}' is a tensor, not a node", todo="its node is `.producer`")
    try:
        return NodeSelector.read(part)
    except ValueError as error:
        raise UsageError(str(error), todo="write a name, a glob, or a mapping such as {'op': 'Conv'}") from None


def only(found: Sequence[Node]) -> Node:
    """Return the only one of some nodes; raise UsageError if there are several."""
    if len(found) > 1:
        names = ", ".join(f"'{node.label}'" for node in found[:3])
        todo = "name one, or list them by g.select"
        raise UsageError(f"{len(found)} nodes match: {names}{', ...' if found[3:] else ''}", todo=todo)
    return found[0]


def tensor_named(graph: Graph, name: str | Node) -> Value:
    """Return the only tensor of the main graph with a name; raise UsageError if there is none."""
    if not isinstance(name, str):
        todo = "name a tensor, or pass one of the `.outputs` of the node" if isinstance(name, Node) else "name one"
        raise UsageError(f"{name!r} is not a tensor", todo=todo)
    found = graph.tensors([name])
    if len(found) > 1:
        raise UsageError(f"'{name}' matches {len(found)} tensors", todo="name one")
    return found[0]


def require_known(graph: Graph, value: Value, pending: Builder | None) -> None:
    """Raise UsageError for a value that is neither in the graph nor among the nodes and constants to be added."""
    edits = pending.edits if pending is not None else None
    added = edits is not None and (value.ir in edits.made() or any(value.ir is made for made, _, _ in edits.constants))
    if not added and (value.graph is not graph or value.ir.graph not in graph.scopes):
        what = "belongs to another graph" if value.graph is not graph else "is no longer in the graph"
        raise UsageError(f"the tensor '{value.name}' {what}", todo="find a tensor by its name")


def inner_anchor(graph: Graph, inputs: Sequence[Value], pending: Builder) -> Node | None:
    """Return the node before which a new node with these inputs is added, in a subgraph; None for the main graph."""
    for value in inputs:
        place = place_of(value, pending).anchor
        if place is not None:
            return place
        if value.scope is not None and value.scope is not graph.main and len(value.scope):
            return Node(graph, value.scope[-1])
    return None


def place_of(value: Value, site: Builder) -> Builder:
    """Return the builder of a site at the place of the new node that makes a value; the given one for other values."""
    before = next((made.before for made in site.edits.nodes if value.ir in made.outputs), None)
    return site if before is None else site.at(Node(site.graph, before))


def run_on(graph: Graph, declared: Pass, options: Mapping[str, Any]) -> None:
    """Run a pass on a graph that is being edited, within the records of the edit.

    Options may be objects: nodes and selectors for an option of the type `NodeSelector`, and arrays where any value is
    allowed. Raises UsageError for invalid options, and for a pass that loses accuracy.
    """
    objects = {name: value for name, value in options.items() if isinstance(value, Chosen | np.ndarray)}
    plain = {name: value for name, value in options.items() if name not in objects}
    for name in objects.keys() - {option.name for option in declared.options}:
        plain[name] = None  # for the message that there is no such option
    # A text stands for an object while the other options are checked.
    bound = {**declared.bind({**plain, **dict.fromkeys(objects, "*")}), **objects}
    if declared.promise(plain) is Parity.LOSSY:
        what = f"'{declared.name}' loses accuracy within a budget, which an edit by hand has not"
        raise UsageError(what, todo=f"run it by itself: surgery.run(model, '{declared.name}')")
    work(declared, bound)(graph)


def operands(
    graph: Graph, op: str, given: Sequence[Operand], find: Callable[[Tensor], Value], keep: Callable[[Any], Value]
) -> list[Value | None]:
    """Return the inputs of a new node.

    `find` returns the value of a tensor, and `keep` adds a constant. An array keeps its type; numbers get the type that
    the operator takes there: a fixed one, or that of another input of the same type.
    """
    found: dict[int, Value | None] = {
        index: None if item is None else find(item)
        for index, item in enumerate(given)
        if item is None or isinstance(item, Value | str)
    }
    known = {index: value.dtype for index, value in found.items() if value is not None and value.dtype is not None}
    for index, item in enumerate(given):
        if index in found:
            continue
        if isinstance(item, np.ndarray | np.generic):
            found[index] = keep(constant(item))
            continue
        try:
            found[index] = keep(literals.literal_tensor(item, _type_of(graph, op, index, item, known)))
        except UsageError as error:
            raise UsageError(error.what, where=f"input {index} of the new {op}", todo=error.todo) from None
    return [found[index] for index in range(len(given))]


def _type_of(graph: Graph, op: str, index: int, item: Any, known: Mapping[int, ir.DataType]) -> ir.DataType:
    """Return the element type for numbers at an input of an operator, given those of other inputs."""
    domain, _, name = op.rpartition("::")
    schema = schemas.schema_at(domain, name, graph.ir.opset_imports.get(domain, 1))
    if schema is None:
        return next(iter(known.values()), _plain(item))
    formal = schemas.parameter(schema, index)
    fixed = schemas.only_type(schema, formal.type_str) if formal is not None else None
    if fixed is not None:
        return literals.data_type(fixed)
    return next((known[other] for other in schemas.alike(schema, index) if other in known), _plain(item))


_TYPE_ATTRIBUTES = ("to", "dtype")


def presume_types(
    op: str, inputs: Sequence[Value | None], made: Sequence[Value], attributes: Mapping[str, Any]
) -> None:
    """Note the element types of the outputs of a node that is not in the graph yet, for numbers that are added to them.

    They follow from the schema: a fixed type, that of an input, or that of an attribute.
    """
    graph = made[0].graph
    domain, _, name = op.rpartition("::")
    schema = schemas.schema_at(domain, name, graph.ir.opset_imports.get(domain, 1))
    if schema is None or not schema.outputs:
        return
    formals = [schemas.parameter(schema, index) for index in range(len(inputs))]
    letters = {
        formal.type_str: value.dtype
        for formal, value in zip(formals, inputs)
        if formal is not None and value is not None and value.dtype is not None
    }
    named = next((attributes[key] for key in _TYPE_ATTRIBUTES if key in attributes), None)
    for index, value in enumerate(made):
        letter = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
        fixed = schemas.only_type(schema, letter)
        dtype = literals.data_type(fixed) if fixed is not None else letters.get(letter)
        if dtype is None and named is not None:
            dtype = ir.DataType(named.value if isinstance(named, ir.Attr) else named)
        value.ir.type = None if dtype is None else ir.TensorType(dtype)


def forget_presumed(pending: Builder) -> None:
    """Forget the presumed types, before the nodes enter the graph, where their types are inferred."""
    for value in pending.edits.made():
        value.type = None


def constant(item: Operand) -> np.ndarray[Any, Any] | ir.TensorProtocol:
    """Return the tensor of an array, with its type, or of numbers, of which whole ones are int64, others float32."""
    if isinstance(item, np.ndarray | np.generic):
        return np.asarray(item)
    return literals.literal_tensor(item, _plain(item))


def new_names(graph: Graph, names: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return new names in the groups that the pass `rename` takes; raise UsageError if nothing has an old name."""
    known = {
        "tensors": dict.fromkeys(value.name for value in values(graph.scopes) if value.name),
        "nodes": dict.fromkeys(node.label for node in graph.nodes()),
        "dims": graph.dim_names(),
    }
    return globs.by_kind(known, names)


def _plain(item: Any) -> ir.DataType:
    """Return the element type of numbers that nothing else decides."""
    kind = literals.array_of(item).dtype.kind
    return {"i": ir.DataType.INT64, "b": ir.DataType.BOOL, "U": ir.DataType.STRING}.get(kind, ir.DataType.FLOAT)
