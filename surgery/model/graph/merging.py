"""Merging another model into a graph: its nodes, weights, functions and opsets, under unique names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.model import storage
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.graph.rename import dim_names, rename_dims, rename_values
from surgery.model.graph.signature_mappings import Joined
from surgery.model.graph.state import GraphState
from surgery.model.graph.values import Value
from surgery.model.shapes.facts import Dim
from surgery.model.storage.ir_scopes import nested, scopes, values


@dataclass(frozen=True)
class Other:
    """A model that was read to be merged into another one: its path and its graph. It can be used only once."""

    path: Path
    graph: Graph

    @classmethod
    def read(cls, graph: Graph, path: Path) -> Other:
        """Read a model that is to be merged into `graph`; its weights are not copied.

        Raises ModelFileError if it cannot be read.
        """
        assert graph.weights is not None
        stored = storage.load(path)
        graph.weights.adopt(stored.weights)
        model = storage.ir_from_proto(storage.without_alias(stored.proto), graph.weights)
        return cls(path, Graph(model, weights=graph.weights))

    def inputs(self) -> list[Value]:
        """List the inputs without a default."""
        return [value for value in self.graph.inputs() if not value.ir.is_initializer()]

    def join(self, new: Builder, connect: Mapping[str, Value], prefix: str = "") -> tuple[Value, ...]:
        """Add the model to the model of a site, and return its outputs, which become outputs of the result.

        `connect` maps inputs of this model to values of the previous model. Other inputs become new inputs of the
        result, unless they have a default, which they keep. All names of this model get the prefix, and inner names
        that the graph has too get a number. Verification compares the result with the composition of both models. The
        pass must declare "outputs" and "inputs". Raises UsageError if an input or output would have the name of a value
        of the graph, or if both models import different opsets.
        """
        graph, model = new.graph, self.graph.ir
        self._require_opsets(graph)
        own = {value.name for value in values(scopes(graph.ir))}
        connect = _rename_connected(model, connect, own, prefix)
        _rename_inner(model, own, prefix)
        assert graph.weights is not None
        new.edits.joins.append(
            Joined(
                storage.proto_from_ir(model, graph.weights).SerializeToString(deterministic=True),
                {name: new.name_before(value) for name, value in connect.items()},
                prefix,
            )
        )
        _keep_functions_apart(graph, model, prefix)
        self._unify_dims(graph, connect, prefix)
        ports = list(model.graph.inputs)
        names = [value.name or "" for value in ports]
        _prefix_names(model, own, prefix)
        inputs = [_input(new, Value(self.graph, value), connect.get(name)) for name, value in zip(names, ports)]
        _bring_along(new, model)
        wanted = [value.name or "" for value in model.graph.outputs]
        made = new.inline(model.graph, inputs)
        return tuple(new.add_output(value, name) for value, name in zip(made, wanted))

    def embed(self, new: Builder, connect: Mapping[str, Value]) -> tuple[Value, ...]:
        """Add the nodes, weights and functions of the model to a site, and return the values of its outputs.

        `connect` maps inputs of this model to values; other inputs keep their defaults. Raises UsageError if both
        models import different opsets.
        """
        model = self.graph.ir
        self._require_opsets(new.graph)
        _keep_functions_apart(new.graph, model, "")
        inputs = [_input(new, Value(self.graph, port), connect.get(port.name or "")) for port in model.graph.inputs]
        _bring_along(new, model)
        return new.inline(model.graph, inputs)

    def _require_opsets(self, graph: GraphState) -> None:
        """Raise UsageError if both models import a domain at different versions."""
        mine = graph.ir.opset_imports
        for domain, version in self.graph.ir.opset_imports.items():
            if mine.get(domain, version) != version:
                raise UsageError(
                    f"the model imports {domain or 'ai.onnx'} {mine[domain]}, and {self.path.name} {version}",
                    todo="convert the older one in a run of its own, or merge them by 'surgery merge'",
                )

    def _unify_dims(self, graph: GraphState, connect: Mapping[str, Value], prefix: str) -> None:
        """Rename dims: connected ones to their names in `graph`, others to names that it does not use."""
        model = self.graph.ir
        names: dict[str, str] = {}
        for port in model.graph.inputs:
            given = connect.get(port.name or "")
            for mine, theirs in zip(_dims(given), _dims(Value(self.graph, port))):
                if isinstance(mine, str) and isinstance(theirs, str) and mine.isidentifier():
                    names.setdefault(theirs, mine)
        taken = {*dim_names(graph.ir), *names.values()}
        for name in dim_names(model):
            if name.isidentifier() and name not in names and name in taken:
                names[name] = _unused(f"{prefix}{name}" if (prefix + name).isidentifier() else f"{name}_1", taken)
                taken.add(names[name])
        rename_dims(model, {old: new for old, new in names.items() if old != new})
        self.graph.facts.forget()


def _bring_along(new: Builder, model: ir.Model) -> None:
    """Add the functions and opset imports that the nodes of a model need, and raise the IR version."""
    graph = new.graph
    for function in model.functions.values():
        if function.identifier() not in graph.ir.functions:
            new.define(function)
    for domain, version in model.opset_imports.items():
        if domain not in graph.ir.opset_imports:
            new.set_opset(version, domain)
    new.raise_ir_version(model.ir_version)


def _input(new: Builder, port: Value, given: Value | None) -> Value:
    """Return the value of an input of the other model: a value of this model, its default, or a new input."""
    if given is not None:
        return given
    default = port.ir.const_value
    if default is not None:
        return new.constant(default, port.name)
    if port.dtype is None or not isinstance(port.type, ir.TensorType):
        raise UsageError(f"input '{port.name}' is not a tensor", todo="connect it to a value of this model")
    return new.add_input(port.name, port.dtype, port.shape)


def _keep_functions_apart(graph: GraphState, model: ir.Model, prefix: str) -> None:
    """Rename functions whose name this graph uses for a function with another body."""
    known = graph.ir.functions
    taken = {name for _, name, _ in (*known, *model.functions)}
    renamed: dict[ir.OperatorIdentifier, str] = {}
    for identifier, function in model.functions.items():
        if identifier in known and _body(known[identifier]) != _body(function):
            renamed[identifier] = _unused(f"{prefix}{function.name}", taken)
            taken.add(renamed[identifier])
    for node in (node for scope in scopes(model) for node in scope):
        name = renamed.get(node.op_identifier())
        if name is not None:
            node.op_type = name
    for identifier, name in renamed.items():
        model.functions[identifier].name = name


def _body(function: ir.Function) -> bytes:
    data: bytes = ir.serde.serialize_function(function).SerializeToString(deterministic=True)
    return data


def _rename_connected(
    model: ir.Model, connect: Mapping[str, Value], own: set[str | None], prefix: str
) -> dict[str, Value]:
    """Rename connected inputs whose names clash with this graph: they will not exist in the result."""
    taken = {name for name in own if name} | {f"{prefix}{value.name}" for value in model.graph.inputs}
    names: dict[ir.Value, str] = {}
    for port in model.graph.inputs:
        if port.name in connect and f"{prefix}{port.name}" in own:
            names[port] = _unused(f"{port.name}_joined", taken)
            taken.add(names[port])
    renamed = {port.name: name for port, name in names.items()}
    rename_values(model, names)
    return {renamed.get(name, name): value for name, value in connect.items()}


def _rename_inner(model: ir.Model, own: set[str | None], prefix: str) -> None:
    """Rename inner values whose names clash with this graph; nobody outside of the model refers to them."""
    every = [value for value in values(nested([model.graph])) if value.name]
    ports = {*model.graph.outputs, *(value for value in model.graph.inputs if not value.is_initializer())}
    taken = {name for name in own if name} | {f"{prefix}{value.name}" for value in every}
    names: dict[ir.Value, str] = {}
    for value in every:
        if value not in ports and f"{prefix}{value.name}" in own:
            found = _unused(f"{prefix}{value.name}_1", taken)
            taken.add(found)
            names[value] = found.removeprefix(prefix)
    rename_values(model, names)


def _prefix_names(model: ir.Model, own: set[str | None], prefix: str) -> None:
    """Prepend the prefix to all names except inside functions; raise UsageError for a value name in both models."""
    inside = list(nested([model.graph]))
    names = {value: f"{prefix}{value.name}" for value in values(inside) if value.name}
    for node in (node for scope in inside for node in scope):
        node.name = node.name and f"{prefix}{node.name}"
    taken = next((name for name in names.values() if name in own), None)
    if taken is not None:
        raise UsageError(
            f"both models have a tensor '{taken}', which is an input or output of the second",
            todo="set a prefix, for example 'prefix: second/'",
        )
    if prefix:
        rename_values(model, names)


def _dims(value: Value | None) -> tuple[Dim, ...]:
    return () if value is None else value.shape or ()


def _unused(wish: str, taken: set[str]) -> str:
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    return name
