"""The region of a change: the nodes of both models that compute the same values from the same values.

Values with the same name are assumed to be equal in both models until they are found to differ. A value that is defined
differently is a *target*: the nodes that compute it from the nearest values that both models have are cut out of both.
When each target is shown to be equal given equal values at the boundary, all values are equal, from the inputs to the
outputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.operators.dtypes import dtype_of, is_float
from surgery.model.proto.extract import called
from surgery.verification.regions.definitions import Definitions, differing, is_replaced

if TYPE_CHECKING:
    import onnx

_MADE, _STORED = "/made", "/stored"

OWN_INITIALIZERS = 4
"""The first IR version in which initializers need not be inputs. In older versions, ONNX Runtime does not find
initializers of the main graph that only a subgraph of a subgraph reads, unless they are inputs too."""

_MOST_OPENED = 64
"""Maximum number of values that only the changed model reads and whose producing nodes are followed."""


@dataclass(frozen=True)
class Region:
    """The nodes upstream of some `targets` in both models, as standalone models.

    `given` are the values at the boundary, which become inputs of both; the code that runs the pieces declares their
    types. `outputs` are the names of the targets in the pieces, in the same order. `nodes` is the number of nodes in
    the model that has more of them.
    """

    targets: tuple[str, ...]
    outputs: tuple[str, ...]
    given: tuple[str, ...]
    before: onnx.ModelProto
    after: onnx.ModelProto
    nodes: int

    def inner(self, name: str) -> str:
        """Return the name that nodes of the pieces read a value by: a target that is not given has another one."""
        computed = any(name in node.output for node in self.before.graph.node)
        return name if computed or name in self.given or name not in self.targets else name + _MADE


@dataclass
class _Cone:
    """The nodes of both models upstream of some targets, by index, and the values at their boundary."""

    targets: list[str]
    numbers: tuple[set[int], set[int]]
    given: tuple[set[str], set[str]]

    def nodes(self) -> Iterator[tuple[int, int]]:
        """Yield the side and the index of each node."""
        return ((side, number) for side in (0, 1) for number in self.numbers[side])

    def size_with(self, other: _Cone) -> int:
        """Return the number of nodes of this cone and another one, in the model that has more of them."""
        return max(len(mine | its) for mine, its in zip(self.numbers, other.numbers))

    def absorb(self, other: _Cone) -> None:
        """Merge another cone into this one."""
        self.targets.extend(other.targets)
        for side in (0, 1):
            self.numbers[side].update(other.numbers[side])
            self.given[side].update(other.given[side])


class Boundary:
    """The boundary of the regions of a change.

    `doubted` are values with the same name that are no longer assumed to be equal: their readers belong to the region.
    `opened` are values that are assumed to be equal, but whose producing nodes belong to the region nevertheless,
    because they constrain the values. `differing` are the values of both models with different definitions.
    """

    def __init__(self, before: Definitions, after: Definitions) -> None:
        self.sides = (before, after)
        self.doubted: set[str] = set()
        self.opened: set[str] = set()
        self.differing = differing(before, after)

    @property
    def targets(self) -> set[str]:
        """The values that must be shown to be equal."""
        found = set(self.differing)
        before, after = self.sides
        for name in self.doubted:
            for number in after.flow.readers.get(name, ()):
                found.update(made for made in after.flow.makes(number) if made in before.flow)
            for number in before.flow.readers.get(name, ()):
                found.update(made for made in before.flow.makes(number) if made in after.flow)
        return {name for name in found - self.doubted if not self.is_replaced(name)}

    def is_replaced(self, name: str) -> bool:
        """Return whether a value is stored in both models, and nothing that is computed from it is assumed equal."""
        return is_replaced(name, *self.sides, self.differing | self.doubted)

    def stops(self, name: str) -> bool:
        """Return whether a region ends at a value, which is then given from outside."""
        before, after = self.sides
        if name in before.inputs:
            return True
        if name in self.doubted or name in self.opened or name not in before.flow or name not in after.flow:
            return False
        return not (before.is_constant(name) and after.is_constant(name))

    def cut(self, targets: Iterable[str], largest: int | None = None) -> list[Region]:
        """Cut the nodes upstream of some targets out of both models; targets that share a node share a region.

        With `largest`, only as long as that has no more nodes.
        """
        return [self._region(cone) for cone in _joined([self._cone(name) for name in sorted(targets)], largest)]

    def _cone(self, target: str) -> _Cone:
        """Find the nodes that compute a target.

        A value that only the changed model reads is not given but computed from values that the original reads, because
        it must be the same as something there.
        """
        before, after = self.sides
        numbers, given = self._reach(before, [target])
        opened: set[str] = set()
        while True:
            more, its = self._reach(after, [target], opened)
            new = {name for name in its - given if name not in after.inputs}
            if not new or len(opened) > _MOST_OPENED:
                break
            opened |= new
        if opened:
            # The original's producers of the opened values belong to the region too, where the original reads these
            # values.
            numbers, given = self._reach(before, [target], opened)
        return _Cone([target], (numbers, more), (given, its))

    def _reach(
        self, side: Definitions, targets: Iterable[str], opened: Container[str] = frozenset()
    ) -> tuple[set[int], set[str]]:
        """Find the nodes that compute some targets, and the values at their boundary."""
        flow = side.flow
        numbers: set[int] = set()
        given = {name for name in targets if name in side.inputs}
        pending = [flow.producers[name] for name in targets if name in flow.producers]
        while pending:
            number = pending.pop()
            if number in numbers:
                continue
            numbers.add(number)
            for name in flow.reads[number]:
                if self.stops(name) and name not in opened:
                    given.add(name)
                elif name in flow.producers:
                    pending.append(flow.producers[name])
        return numbers, given

    def _region(self, cone: _Cone) -> Region:
        targets = tuple(cone.targets)
        given = cone.given[0] | cone.given[1]
        before, after = (_piece(side, targets, numbers, given) for side, numbers in zip(self.sides, cone.numbers))
        return Region(
            targets,
            tuple(name + _MADE for name in targets),
            tuple(sorted(given)),
            before,
            after,
            max(map(len, cone.numbers)),
        )


def _joined(cones: Iterable[_Cone], largest: int | None) -> list[_Cone]:
    """Merge cones that share a node, unless together they have more than the `largest` number of nodes."""
    owners: dict[tuple[int, int], _Cone] = {}
    found: dict[int, _Cone] = {}
    for cone in cones:
        met = {id(owner): owner for key in cone.nodes() if (owner := owners.get(key)) is not None}
        # Merge the smaller cones into the largest, so that no node moves often.
        first, *others = sorted([*met.values(), cone], key=lambda one: len(one.numbers[1]), reverse=True)
        if largest is not None:
            first, others = cone, [one for one in met.values() if cone.size_with(one) <= largest][:1]
        for other in others:
            first.absorb(other)
            found.pop(id(other), None)
        found[id(first)] = first
        for one in [*others, cone]:
            owners.update((key, first) for key in one.nodes())
    return list(found.values())


def _piece(side: Definitions, targets: tuple[str, ...], numbers: set[int], given: Container[str]) -> onnx.ModelProto:
    """Copy nodes into a standalone model. A value that is both given and produced is produced under another name."""
    import onnx.helper

    model, flow = side.model, side.flow
    result = onnx.ModelProto(ir_version=max(model.ir_version, OWN_INITIALIZERS))
    result.opset_import.extend(model.opset_import)
    graph = result.graph
    graph.name = "region"
    graph.node.extend(_copied(flow.nodes[number], given) for number in sorted(numbers))
    read = {name: None for number in sorted(numbers) for name in flow.reads[number]}
    captured = {name for number in numbers for name in flow.reads[number] if name not in flow.nodes[number].input}
    made: set[str] = set()
    for name in targets:
        if name in flow.producers and name in given:
            continue
        source = name
        if name in given and name in side.initializers:
            # Other nodes of the region read the given value under this name.
            source = name + _STORED
            graph.initializer.add().CopyFrom(side.initializers[name])
            graph.initializer[-1].name = source
        elif name in flow.producers and name not in captured:
            # Identity would copy the value, and before opset 14 it does not accept sequences.
            made.add(name)
            continue
        graph.node.append(onnx.helper.make_node("Identity", [source], [name + _MADE]))
        read[name] = None
    for node in graph.node if made else ():
        for names in (node.input, node.output):
            if not made.isdisjoint(names):
                names[:] = [one + _MADE if one in made else one for one in names]
    stored = (side.initializers.get(name) for name in read if name not in given)
    graph.initializer.extend(tensor for tensor in stored if tensor is not None)
    graph.sparse_initializer.extend(
        t for t in model.graph.sparse_initializer if t.values.name in read and t.values.name not in given
    )
    result.functions.extend(called(model, graph.node))
    return result


def _copied(node: onnx.NodeProto, given: Container[str]) -> onnx.NodeProto:
    """Copy a node, renaming those of its outputs that are given."""
    copy = type(node)()
    copy.CopyFrom(node)
    for field in ("doc_string", "metadata_props"):
        copy.ClearField(field)
    copy.output[:] = [name + _MADE if name in given else name for name in copy.output]
    return copy


def nudged(piece: onnx.ModelProto, name: str, element_type: int = 0) -> onnx.ModelProto | None:
    """Copy a piece with the elements of a float made slightly larger or smaller; None if it produces no such float.

    `element_type` is a number of `TensorProto.DataType`, 0 if unknown. The factor is 1 + sin(1000 x) / 100, which
    differs for nearly every element, so that no normalization cancels it. A zero becomes 1 / 100.
    """
    import onnx.helper

    place = next((i for i, node in enumerate(piece.graph.node) if name in node.output), None)
    dtype = dtype_of(element_type)
    if place is None or (dtype is not None and not is_float(dtype)):
        return None
    result = onnx.ModelProto()
    result.CopyFrom(piece)
    nodes = [*result.graph.node]
    # The value gets another name where it is computed, so that its readers read the changed one under the old name.
    own = f"{name}/own"
    nodes[place].output[list(nodes[place].output).index(name)] = own
    chain, numbers = _numbers_like(name, own, element_type, {"many": 1000.0, "part": 0.01, "one": 1.0})
    steps = (
        ("Mul", own, numbers["many"]),
        ("Sin", "step0"),
        ("Mul", "step1", numbers["part"]),
        ("Add", "step2", numbers["one"]),
        ("Mul", own, "step3"),
        ("Abs", own),
        ("Sign", "step5"),
        ("Sub", numbers["one"], "step6"),
        ("Mul", "step7", numbers["part"]),
        ("Add", "step4", "step8"),
    )
    for number, (op, *inputs) in enumerate(steps):
        read = [f"{name}/{one}" if one.startswith("step") else one for one in inputs]
        chain.append(onnx.helper.make_node(op, read, [f"{name}/step{number}"]))
    chain[-1].output[0] = name
    del result.graph.node[:]
    result.graph.node.extend([*nodes[: place + 1], *chain, *nodes[place + 1 :]])
    return result


def _numbers_like(
    name: str, own: str, element_type: int, numbers: Mapping[str, float]
) -> tuple[list[onnx.NodeProto], dict[str, str]]:
    """Make constants of the type of a value, which is now called `own`; return the nodes, and the names by key."""
    import onnx.helper

    nodes, names = [], {}
    for key, number in numbers.items():
        names[key] = f"{name}/{key}"
        tensor = onnx.helper.make_tensor("", element_type or onnx.TensorProto.FLOAT, [], [number])
        nodes.append(onnx.helper.make_node("Constant", [], [names[key]], value=tensor))
        if not element_type:
            # CastLike exists since opset 15.
            nodes.append(onnx.helper.make_node("CastLike", [names[key], own], [f"{names[key]}/like"]))
            names[key] += "/like"
    return nodes, names
