"""The original adapted to an edit of its inputs and outputs: with nodes around it, or combined with another model.

A pass that takes an input in another layout says how the previous input follows from the new one. These nodes are put
before the original, never before the changed model, so that the two are compared as callers see the new one. The nodes
and their names are determined once, and then applied in the same way to each model with the names of the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from surgery.base.errors import PassError
from surgery.base.operators.subgraphs import subgraphs
from surgery.model.graph.signature_mappings import Joined, Pieces, Relation, SignatureMapping
from surgery.model.proto.dataflow import Flow
from surgery.verification.comparing.ports import PortMatch, make_room, names_of, unused
from surgery.verification.signature.composition import compose, obstacle
from surgery.verification.signature.piecewise import Piecewise

if TYPE_CHECKING:
    import onnx


_OURS = re.compile(r"relation_(\d+)/")
"""The names of the values within a relation."""

GIVEN = "given/"
"""The prefix of previous inputs in the nodes that compute current inputs from them."""


class Wrap(Protocol):
    """Something that is put around a model, or combined with it."""

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of the model with it."""


@dataclass(frozen=True)
class NodesUpstream:
    """Nodes before a model: they compute its input `gone`, and the result takes `ports` in its place."""

    nodes: Sequence[onnx.NodeProto]
    gone: str
    ports: Sequence[onnx.ValueInfoProto]

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model with the nodes; its values with the name of a new input are renamed."""
        shared = {port.name for port in model.graph.input} - {self.gone}
        result, moved = _with_room(model, [port.name for port in self.ports if port.name not in shared])
        graph, gone = result.graph, moved.get(self.gone, self.gone)
        for place, node in enumerate(self.nodes):
            graph.node.insert(place, _renamed(node, outputs={self.gone: gone}))
        place = next((number for number, port in enumerate(graph.input) if port.name == gone), len(graph.input))
        inputs = [port for port in graph.input if port.name != gone]
        inputs[place:place] = [port for port in self.ports if port.name not in shared]
        held = [tensor for tensor in graph.initializer if tensor.name != gone]
        del graph.input[:], graph.initializer[:]
        graph.input.extend(inputs)
        graph.initializer.extend(held)
        return _import_domains(result, self.nodes)


@dataclass(frozen=True)
class Behind:
    """Nodes after a model: they compute the value `made` from its values."""

    nodes: Sequence[onnx.NodeProto]
    made: str

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model with the nodes; a value of it with the name of the new value is renamed."""
        result, moved = _with_room(model, [self.made])
        result.graph.node.extend(_renamed(node, inputs=moved) for node in self.nodes)
        return _import_domains(result, self.nodes)


@dataclass(frozen=True)
class Amid:
    """Nodes at a value inside a model: `forth` compute `made` from it, and `back` compute `again` for its readers.

    So the model incurs the loss of the value's conversion to another element type and back.
    """

    forth: Sequence[onnx.NodeProto]
    back: Sequence[onnx.NodeProto]
    value: str
    made: str
    again: str

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model with the nodes; values of it with the names of new values are renamed."""
        result, moved = _with_room(model, [self.made, self.again])
        graph, value = result.graph, moved.get(self.value, self.value)
        flow = Flow(graph)
        for number in flow.readers.get(value, ()):
            _redirect(flow.nodes[number], value, self.again)
        place = flow.producers.get(value, -1) + 1
        forth = [_renamed(node, inputs={self.value: value}) for node in self.forth]
        for number, node in enumerate([*forth, *self.back], place):
            graph.node.insert(number, node)
        return _import_domains(result, [*forth, *self.back])


@dataclass(frozen=True)
class Instead:
    """Nodes and constants in place of the node that computes a value inside a model."""

    value: str
    nodes: Sequence[onnx.NodeProto] = ()
    constants: Sequence[onnx.TensorProto] = ()

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model with them; what the model computed gets another name. Without the value, nothing changes."""
        result = deepcopy(model)
        graph = result.graph
        flow = Flow(graph)
        place = flow.producers.get(self.value)
        if place is None:
            return result
        other = unused(self.value, {*names_of(graph)})
        node = flow.nodes[place]
        node.output[:] = [other if name == self.value else name for name in node.output]
        for number, new in enumerate(self.nodes, place):
            graph.node.insert(number, new)
        graph.initializer.extend(self.constants)
        return _import_domains(result, self.nodes)


@dataclass(frozen=True)
class AddedModel:
    """Another model in parallel with a model or after it, some of whose inputs are fed from it."""

    other: onnx.ModelProto
    connect: Mapping[str, str]
    prefix: str

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model, combined with the other one."""
        return compose(model, self.other, self.connect, self.prefix)


@dataclass
class Settled:
    """The wraps around the original, in this order, and the resulting matches with the changed model's ends.

    Ends are inputs and outputs. `gone` are inputs of the original that no longer exist, `inner` current inputs that are
    computed inside it. `outdated` are all ends without a meaning in the current form; `inverses` compute current inputs
    from previous ones, as nodes and the names of the inputs.
    """

    wraps: list[Wrap] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    inner: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    outdated: set[str] = field(default_factory=set)
    inverses: list[tuple[Sequence[onnx.NodeProto], str]] = field(default_factory=list)

    def around(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy a model with the names of the original, and apply all wraps to it."""
        for wrap in self.wraps:
            model = wrap.apply(model)
        return model


def settle(
    accounts: Iterable[SignatureMapping], original: onnx.ModelProto, changed: onnx.ModelProto, match: PortMatch
) -> Settled:
    """Settle what a pass says about its inputs and outputs; `match` maps the original to the model before the pass.

    An account of an end that the original does not have is ignored: that end is not compared. Raises PassError if an
    account refers to an end that the changed model does not have.
    """
    return _AccountSettling(original, changed, match).all(accounts)


class _AccountSettling:
    def __init__(self, original: onnx.ModelProto, changed: onnx.ModelProto, match: PortMatch) -> None:
        self._model = original
        self._changed = {value.name: value for value in changed.graph.input}
        self._constants = {tensor.name: tensor for tensor in changed.graph.initializer}
        self._given = {value.name for value in changed.graph.output}
        self._inputs = {theirs: mine for mine, theirs in match.inputs}
        self._inner = {theirs: mine for mine, theirs in match.inner}
        self._outputs = {theirs: mine for mine, theirs in match.outputs}
        self._ports = {mine for mine, _ in (*match.inputs, *match.outputs)}
        self._found = Settled()
        # The nodes that earlier steps put around the original stay there.
        numbers = [int(known[1]) for name in names_of(original.graph) if (known := _OURS.match(name))]
        self._first = max(numbers, default=-1) + 1

    def all(self, accounts: Iterable[SignatureMapping]) -> Settled:
        for number, account in enumerate(accounts, self._first):
            if isinstance(account, Joined):
                self._join(account)
            elif isinstance(account, Pieces):
                self._cut(account)
            elif account.end == "input":
                self._input(account, f"relation_{number}/")
            else:
                self._output(account, f"relation_{number}/")
        self._bind_inner()
        return self._found

    def _bind_inner(self) -> None:
        """Bind values inside the original that were inputs before the pass and are constants after it."""
        for now, mine in self._inner.items():
            tensor = self._constants.get(now)
            if tensor is not None and now not in self._changed and mine in Flow(self._model.graph):
                bound = deepcopy(tensor)
                bound.name = mine
                self._add(Instead(mine, constants=[bound]))

    def _add(self, wrap: Wrap) -> None:
        self._found.wraps.append(wrap)
        self._model = wrap.apply(self._model)

    def _input(self, relation: Relation, prefix: str) -> None:
        body = _RelationLines(relation, relation.body, prefix)
        read = {name: relation.names.get(name, name) for name in body.free}
        unknown = next((name for name in read.values() if name not in self._changed), None)
        if unknown is not None:
            what = f"input '{relation.port}' is related to '{unknown}', but the changed model has no such input"
            raise PassError(what, todo="use the names that the inputs have after the pass")
        mine = self._inputs.get(relation.port)
        if mine is None:
            self._from_inside(relation, prefix)
            return
        staying = self._ports - {mine} | {name for name, _ in self._found.inputs}
        known = {now: name for name, now in self._found.inputs} | self._untouched(relation.port)
        names = {now: known.get(now) or unused(now, staying) for now in read.values()}
        ports = [_port(names[now], self._changed[now]) for now in names]
        self._found.gone.add(mine)
        self._found.outdated.add(mine)
        self._found.inputs += [(name, now) for now, name in names.items() if (name, now) not in self._found.inputs]
        self._add(NodesUpstream(body.nodes({key: names[now] for key, now in read.items()}, mine), mine, ports))
        if relation.inverse:
            self._invert(relation, names, prefix)

    def _untouched(self, port: str) -> dict[str, str]:
        """Return the inputs that are unchanged, by their current names."""
        kept = {theirs: mine for theirs, mine in self._inputs.items() if theirs != port}
        return {theirs: mine for theirs, mine in kept.items() if mine not in self._found.gone}

    def _invert(self, relation: Relation, names: Mapping[str, str], prefix: str) -> None:
        body = _RelationLines(relation, relation.inverse, f"{prefix}inverse/")
        now = relation.names.get(body.last, body.last)
        # An input may keep its previous name.
        before = {key: f"{GIVEN}{self._inputs.get(name, name)}" for key, name in _read_before(relation, body).items()}
        if now in names:
            self._found.inverses.append((body.nodes(before, names[now]), names[now]))

    def _from_inside(self, relation: Relation, prefix: str) -> None:
        """Compute a current input inside the original, if the previous input is a value that the original computes."""
        value = self._inner.get(relation.port, relation.port)
        if value not in Flow(self._model.graph):
            return
        if not relation.inverse:
            self._replace(relation, value, _RelationLines(relation, relation.body, prefix))
            return
        body, inverse = (
            _RelationLines(relation, relation.body, prefix),
            _RelationLines(relation, relation.inverse, f"{prefix}inverse/"),
        )
        now = relation.names.get(inverse.last, inverse.last)
        read = {key: self._inner.get(name, name) for key, name in _read_before(relation, inverse).items()}
        forth = inverse.nodes(read, now)
        self._found.inner.append((now, now))
        if set(read.values()) == {value} and {relation.names.get(key, key) for key in body.free} == {now}:
            again = f"{prefix}again"
            self._add(Amid(forth, body.nodes(dict.fromkeys(body.free, now), again), value, now, again))
        else:
            self._add(Behind(forth, now))

    def _replace(self, relation: Relation, value: str, body: _RelationLines) -> None:
        """Compute a value inside the original, which was an input before the pass, from inputs that are unchanged."""
        known = self._untouched(relation.port)
        read = {name: relation.names.get(name, name) for name in body.free}
        if relation.port not in self._changed and all(now in known for now in read.values()):
            nodes = body.nodes({key: known[now] for key, now in read.items()}, value)
            self._add(Instead(value, nodes=nodes))

    def _output(self, relation: Relation, prefix: str) -> None:
        if relation.port not in self._given:
            what = f"an output '{relation.port}' is related to an output of the previous model that does not exist"
            raise PassError(what, todo="use the name that the output has after the pass")
        body = _RelationLines(relation, relation.body, prefix)
        flow = Flow(self._model.graph)
        joined = {now: name for name, now in self._found.outputs}
        read = {key: relation.names.get(key, key) for key in body.free}
        sources = {**self._inputs, **self._outputs, **joined}
        names = {key: sources.get(name, name) for key, name in read.items()}
        if any(name not in flow for name in names.values()):
            return
        staying = self._ports - {self._outputs.get(relation.port, "")} | self._found.gone
        made = unused(relation.port, staying | {name for name, _ in (*self._found.inputs, *self._found.outputs)})
        self._found.outputs.append((made, relation.port))
        if made in self._ports:
            self._found.outdated.add(made)
        self._add(Behind(body.nodes(names, made), made))

    def _cut(self, pieces: Pieces) -> None:
        """Run the original on each piece, if it has all inputs that are cut."""
        axes = {self._inputs.get(name, ""): axis for name, axis in pieces.inputs.items()}
        own = {port.name for port in self._model.graph.input}
        if axes.keys() <= own:
            outputs = {self._outputs[name]: axis for name, axis in pieces.outputs.items() if name in self._outputs}
            self._found.outdated.update((*axes, *outputs))
            self._add(Piecewise(axes, outputs, pieces.count))

    def _join(self, joined: Joined) -> None:
        import onnx

        other = onnx.load_model_from_string(joined.other)
        connect = {
            name: self._outputs.get(value, self._inputs.get(value, value)) for name, value in joined.connect.items()
        }
        why = obstacle(self._model, other, connect, joined.prefix)
        if why:
            raise PassError(f"the model that is joined cannot be compared: {why}")
        self._add(AddedModel(other, connect, joined.prefix))
        names = [f"{joined.prefix}{port.name}" for port in other.graph.input if port.name not in connect]
        self._found.inputs += [(name, name) for name in names if name in self._changed]
        names = [f"{joined.prefix}{value.name}" for value in other.graph.output]
        self._found.outputs += [(name, name) for name in names if name in self._given]


class _RelationLines:
    """The lines of a relation, with separate inner names. `free` are the identifiers that stand for tensors."""

    def __init__(self, relation: Relation, text: str, prefix: str) -> None:
        from surgery.model.graph.text import parse_nodes  # it imports the graph, which loads after the original starts

        self._nodes = parse_nodes(text)
        self._constants = relation.constants
        self._prefix = prefix
        if not self._nodes or not self._nodes[-1].output:
            raise PassError(f"a relation of '{relation.port}' has no effect: '{text}'", todo="write 'x = Op(y)'")
        self.last = self._nodes[-1].output[0]
        self.free: list[str] = []
        made: set[str] = set()
        for node in self._nodes:
            self.free += [name for name in node.input if name and name not in made and name not in self._constants]
            made.update(node.output)
        self.free = list(dict.fromkeys(self.free))

    def nodes(self, names: Mapping[str, str], result: str) -> list[onnx.NodeProto]:
        """Return copies of the nodes, in which free identifiers have these names and the last output is `result`."""
        import onnx

        now = {name: names[name] for name in self.free}
        made: list[onnx.NodeProto] = []
        for name, array in self._constants.items():
            now[name] = f"{self._prefix}{name}"
            tensor = onnx.numpy_helper.from_array(array)
            made.append(onnx.helper.make_node("Constant", [], [now[name]], value=tensor))
        for number, node in enumerate(self._nodes):
            copy = deepcopy(node)
            copy.input[:] = [name and now[name] for name in node.input]
            now |= {name: f"{self._prefix}{number}/{name}" for name in node.output if name}
            copy.output[:] = [name and now[name] for name in node.output]
            made.append(copy)
        made[-1].output[0] = result
        return made


def _read_before(relation: Relation, inverse: _RelationLines) -> dict[str, str]:
    """Map each identifier of an inverse to a previous input; the result of the relation is the input it describes."""
    names = {_RelationLines(relation, relation.body, "").last: relation.port, **relation.names}
    return {key: names.get(key, key) for key in inverse.free}


def _with_room(model: onnx.ModelProto, names: Iterable[str]) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return a copy of a model in which none of these names is taken, and the new names of the values that had them."""
    result = deepcopy(model)
    return result, make_room(result.graph, names)


def _renamed(
    node: onnx.NodeProto, *, inputs: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
) -> onnx.NodeProto:
    copy = deepcopy(node)
    copy.input[:] = [(inputs or {}).get(name, name) for name in node.input]
    copy.output[:] = [(outputs or {}).get(name, name) for name in node.output]
    return copy


def _redirect(node: onnx.NodeProto, old: str, new: str) -> None:
    """Let a node, and the nodes in its subgraphs, read another value; subgraphs do not reuse outer names."""
    node.input[:] = [new if name == old else name for name in node.input]
    for body in subgraphs(node):
        for inner in body.node:
            _redirect(inner, old, new)
        for output in body.output:
            output.name = new if output.name == old else output.name


def _import_domains(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
    known = {item.domain for item in model.opset_import}
    for domain in sorted({node.domain for node in nodes} - known):
        model.opset_import.add(domain=domain, version=1)
    return model


def _port(name: str, like: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    port = deepcopy(like)
    port.name = name
    return port
