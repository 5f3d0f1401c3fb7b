"""Matching of the inputs and outputs of two models, by name or by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal

from surgery.base.errors import UsageError, counted
from surgery.base.operators.subgraphs import graphs, initializer_names
from surgery.model.proto.signature import SignaturePort, signature

if TYPE_CHECKING:
    import onnx

By = Literal["name", "position"]
"""How the inputs and outputs of two models are matched."""


@dataclass(frozen=True)
class PortMatch:
    """The matched inputs and outputs of two models, as (first, second).

    `inner` has inputs of the second model that are interior values of the first.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    inner: tuple[tuple[str, str], ...] = ()

    @property
    def renames(self) -> bool:
        """Whether any of them has another name in the second model."""
        return any(mine != theirs for mine, theirs in (*self.inputs, *self.outputs, *self.inner))


def by_name(first: onnx.ModelProto, second: onnx.ModelProto) -> PortMatch:
    """Match inputs and outputs with the same name."""
    mine, theirs = signature(first), signature(second)
    inputs = {port.name for port in theirs.inputs}
    outputs = {port.name for port in theirs.outputs}
    return PortMatch(
        tuple((port.name, port.name) for port in mine.inputs if port.name in inputs),
        tuple((port.name, port.name) for port in mine.outputs if port.name in outputs),
    )


def by_position(first: onnx.ModelProto, second: onnx.ModelProto) -> PortMatch:
    """Match inputs and outputs in order; raise UsageError if their numbers differ.

    Initializers that are listed as inputs do not count, because only some tools list them.
    """
    pairs = []
    for kind, mine, theirs in (
        ("input", required(first), required(second)),
        ("output", list(signature(first).outputs), list(signature(second).outputs)),
    ):
        if len(mine) != len(theirs):
            raise UsageError(
                f"cannot match by position: A has {_counted(mine, kind)}, B has {_counted(theirs, kind)}",
                todo="match by name, or give both the same number",
            )
        pairs.append(tuple((a.name, b.name) for a, b in zip(mine, theirs)))
    return PortMatch(*pairs)


def _counted(ports: Sequence[SignaturePort], kind: str) -> str:
    names = ", ".join(port.name for port in ports[:8]) + (", …" if len(ports) > 8 else "")
    return f"{counted(len(ports), kind)}{f' ({names})' if names else ''}"


def required(model: onnx.ModelProto) -> list[SignaturePort]:
    """List the inputs without an initializer."""
    given = initializer_names(model.graph)
    return [port for port in signature(model).inputs if port.name not in given]


def mismatch(first: onnx.ModelProto, second: onnx.ModelProto, match: PortMatch) -> str | None:
    """Return why the second model cannot take the inputs of the first one; None if it can."""
    mine = {port.name: port for port in signature(first).inputs}
    theirs = {port.name: port for port in signature(second).inputs}
    known = {name for _, name in match.inputs}
    for port in required(second):
        if port.name not in known:
            return f"B needs an input '{port.name}' that A does not have"
    for a, b in match.inputs:
        if mine[a].type != theirs[b].type:
            names = f"input '{a}'" if a == b else f"input '{a}' (B's '{b}')"
            return f"{names} is {mine[a].type} in A and {theirs[b].type} in B"
    return None


def narrowed(first: onnx.ModelProto, second: onnx.ModelProto, match: PortMatch) -> list[str]:
    """Return the declared inputs of the first model that the second does not accept, one line per input."""
    mine, theirs = signature(first), {port.name: port for port in signature(second).inputs}
    pairs = dict(match.inputs)
    # Inputs with a default are matched by name, even if the others are matched by position.
    pairs |= {port.name: port.name for port in mine.inputs if port.name not in pairs and port.name in theirs}
    found = []
    known: dict[str, tuple[str, str | int]] = {}
    for port in mine.inputs:
        other = theirs.get(pairs.get(port.name, ""))
        if other is None:
            found.append(f"input '{port.name}' is missing")
        elif _pins(port, other) or _ties(port, other, known):
            name = f"input '{port.name}'" if port.name == other.name else f"input '{port.name}' (B's '{other.name}')"
            found.append(f"{name} is {other}, not {port}")
    return found


def _pins(port: SignaturePort, other: SignaturePort) -> bool:
    """Return whether an input has a new rank or a new fixed size."""
    if other.dims is None:
        return False
    if port.dims is None or len(port.dims) != len(other.dims):
        return True
    return any(isinstance(now, int) and now != before for before, now in zip(port.dims, other.dims))


def _ties(port: SignaturePort, other: SignaturePort, known: dict[str, tuple[str, str | int]]) -> bool:
    """Return whether independent dims now have the same name; `known` has the previous meaning of each name."""
    found = False
    for axis, (before, now) in enumerate(zip(port.dims or (), other.dims or ())):
        if isinstance(now, str):
            meant: tuple[str, str | int] = ("", before) if before is not None else (port.name, axis)
            found |= known.setdefault(now, meant) != meant
    return found


def rename(model: onnx.ModelProto, match: PortMatch) -> onnx.ModelProto:
    """Copy a model with the input and output names of the other one; the computation is unchanged.

    All values are renamed consistently in all scopes, and a value whose name is needed gets a fresh one, so scopes do
    not matter.
    """
    import onnx

    copy = deepcopy(model)
    names = set(names_of(copy.graph))
    new: dict[str, str] = {theirs: mine for mine, theirs in (*match.inputs, *match.inner)}
    # A value may be an output twice, or both input and output: additional names need a node.
    places: dict[str, list[int]] = {}
    for index, output in enumerate(copy.graph.output):
        places.setdefault(output.name, []).append(index)
    again: list[tuple[str, str, int]] = []
    met = Counter[str]()
    for mine, theirs in match.outputs:
        if new.setdefault(theirs, mine) != mine or met[theirs]:
            again.append((mine, theirs, places[theirs][min(met[theirs], len(places[theirs]) - 1)]))
        met[theirs] += 1
    taken = {*new.values(), *(mine for mine, _, _ in again)}
    fresh = (name for number in count() if (name := f"value_{number}") not in names | taken)
    new |= {name: next(fresh) for name in sorted(names & taken) if name not in new}
    rename_values(copy.graph, new)
    for mine, theirs, index in again:
        copy.graph.node.append(onnx.helper.make_node("Identity", [new[theirs]], [mine]))
        copy.graph.output[index].name = mine
    return copy


def retype(model: onnx.ModelProto, like: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model with Casts at the inputs and outputs that have another element type in `like`.

    The copy has the input and output types of `like`, and the same computation in between.
    """
    import onnx

    copy = deepcopy(model)
    graph = copy.graph
    wanted = {value.name: value.type.tensor_type.elem_type for value in (*like.graph.input, *like.graph.output)}
    names = set(names_of(graph))
    fresh = (name for number in count() if (name := f"cast_{number}") not in names)
    for ports, is_input in ((graph.input, True), (graph.output, False)):
        for port in ports:
            own, other = port.type.tensor_type.elem_type, wanted.get(port.name)
            if not own or not other or own == other:
                continue
            name, inner = port.name, next(fresh)
            rename_values(graph, {name: inner})
            # An input may be an output, too.
            for same in (*graph.input, *graph.output):
                if same.name == inner:
                    same.name, same.type.tensor_type.elem_type = name, other
            ends = (name, inner, own) if is_input else (inner, name, other)
            cast = onnx.helper.make_node("Cast", [ends[0]], [ends[1]], to=ends[2])
            graph.node.insert(0 if is_input else len(graph.node), cast)
    return copy


def names_of(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of all values, including those of subgraphs."""
    for item in graphs(graph):
        yield from (value.name for value in (*item.input, *item.output, *item.value_info, *item.initializer))
        yield from (tensor.values.name for tensor in item.sparse_initializer)
        for node in item.node:
            yield from (name for name in (*node.input, *node.output) if name)


def rename_values(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Rename values wherever they occur, including in subgraphs."""
    for item in graphs(graph):
        for value in (*item.input, *item.output, *item.value_info, *item.initializer):
            value.name = new.get(value.name, value.name)
        for sparse in item.sparse_initializer:
            sparse.values.name = new.get(sparse.values.name, sparse.values.name)
        for annotation in item.quantization_annotation:
            annotation.tensor_name = new.get(annotation.tensor_name, annotation.tensor_name)
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = new.get(entry.value, entry.value)
        for node in item.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]


def make_room(graph: onnx.GraphProto, names: Iterable[str]) -> dict[str, str]:
    """Rename the values of a graph that have one of these names; return the new names by old name."""
    taken = set(names_of(graph))
    fresh = (name for number in count() if (name := f"value_{number}") not in taken)
    moved = {name: next(fresh) for name in dict.fromkeys(names) if name in taken}
    rename_values(graph, moved)
    return moved


def unused(wish: str, taken: Container[str]) -> str:
    """Return a name, with a number appended if it is taken."""
    return wish if wish not in taken else next(name for n in count(1) if (name := f"{wish}_{n}") not in taken)
