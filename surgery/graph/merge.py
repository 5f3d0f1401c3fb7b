"""Merging another model into a graph: its nodes, weights, functions and opsets, under unique names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from surgery import storage
from surgery.errors import UsageError
from surgery.graph.builder import Builder
from surgery.graph.graph import Graph
from surgery.graph.rename import dim_names, rename_dims, rename_values
from surgery.graph.signature_mappings import Joined
from surgery.graph.state import GraphState
from surgery.graph.values import Value
from surgery.shapes.facts import Dim
from surgery.storage.scopes import nested, scopes, values


@dataclass(frozen=True)
class Other:
    """A model that was read to become part of another one: its file, and a separate graph. It can be used once."""

    path: Path
    graph: Graph

    @classmethod
    def read(cls, graph: Graph, path: Path) -> Other:
        """Read a model that is to become part of `graph`; its weights stay where they are.

        ModelFileError when it cannot be read.
        """
        assert graph.weights is not None
        stored = storage.load(path)
        graph.weights.adopt(stored.weights)
        model = storage.ir_from_proto(storage.without_alias(stored.proto), graph.weights)
        return cls(path, Graph(model, weights=graph.weights))

    def inputs(self) -> list[Value]:
        """List the inputs that have no default."""
        return [value for value in self.graph.inputs() if not value.ir.is_initializer()]

    def join(self, new: Builder, connect: Mapping[str, Value], prefix: str = "") -> tuple[Value, ...]:
        """Add the model to that of a site, and return its outputs, which are some of the result.

        `connect` says which value of the model before goes into which input of this one; its further inputs are new
        ones of the result, and those with a default keep that. All names of it get the prefix. The result is compared
        with both models, composed. The pass must declare "outputs" and "inputs". UsageError where both models have a
        value of one name, or import other opsets.
        """
        graph, model = new.graph, self.graph.ir
        self._require_opsets(graph)
        own = {value.name for value in values(scopes(graph.ir))}
        connect = _rename_connected(model, connect, own, prefix)
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
        """Add the nodes, weights and functions of the model to a site, and return what its outputs become.

        `connect` says which value goes into which input of this model; a further input keeps its default. UsageError
        where both models import other opsets.
        """
        model = self.graph.ir
        self._require_opsets(new.graph)
        _keep_functions_apart(new.graph, model, "")
        inputs = [_input(new, Value(self.graph, port), connect.get(port.name or "")) for port in model.graph.inputs]
        _bring_along(new, model)
        return new.inline(model.graph, inputs)

    def _require_opsets(self, graph: GraphState) -> None:
        """Raise UsageError where both models import a domain at different versions."""
        mine = graph.ir.opset_imports
        for domain, version in self.graph.ir.opset_imports.items():
            if mine.get(domain, version) != version:
                raise UsageError(
                    f"the model imports {domain or 'ai.onnx'} {mine[domain]}, and {self.path.name} {version}",
                    todo="upgrade the older one first, with 'upgrade-opset'",
                )

    def _unify_dims(self, graph: GraphState, connect: Mapping[str, Value], prefix: str) -> None:
        """Rename dims: to what `graph` calls those that they meet, and away from all other names that it has."""
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
    """Give a graph the functions, the opsets and the IR version that the nodes of a model need."""
    graph = new.graph
    for function in model.functions.values():
        if function.identifier() not in graph.ir.functions:
            new.define(function)
    for domain, version in model.opset_imports.items():
        if domain not in graph.ir.opset_imports:
            new.set_opset(version, domain)
    new.raise_ir_version(model.ir_version)


def _input(new: Builder, port: Value, given: Value | None) -> Value:
    """Return what an input of the other model becomes: a value of this one, its default, or an input of this one."""
    if given is not None:
        return given
    default = port.ir.const_value
    if default is not None:
        return new.constant(default, port.name)
    if port.dtype is None or not isinstance(port.type, ir.TensorType):
        raise UsageError(f"input '{port.name}' is not a tensor", todo="connect it to a value of this model")
    return new.add_input(port.name, port.dtype, port.shape)


def _keep_functions_apart(graph: GraphState, model: ir.Model, prefix: str) -> None:
    """Rename functions that this graph has under the same name with another body."""
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
    """Rename inputs that take a value of this graph where that graph has such a name: they will be gone."""
    taken = {name for name in own if name} | {f"{prefix}{value.name}" for value in model.graph.inputs}
    names: dict[ir.Value, str] = {}
    for port in model.graph.inputs:
        if port.name in connect and f"{prefix}{port.name}" in own:
            names[port] = _unused(f"{port.name}_joined", taken)
            taken.add(names[port])
    renamed = {port.name: name for port, name in names.items()}
    rename_values(model, names)
    return {renamed.get(name, name): value for name, value in connect.items()}


def _prefix_names(model: ir.Model, own: set[str | None], prefix: str) -> None:
    """Put the prefix before all names but those inside functions; UsageError for a value that both models have."""
    inside = list(nested([model.graph]))
    names = {value: f"{prefix}{value.name}" for value in values(inside) if value.name}
    for node in (node for scope in inside for node in scope):
        node.name = node.name and f"{prefix}{node.name}"
    taken = next((name for name in names.values() if name in own), None)
    if taken is not None:
        raise UsageError(f"both models have a tensor '{taken}'", todo="set a prefix, for example 'prefix: second/'")
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
