"""Sets of inputs on which the guards of a model decide either way.

A copy of the model outputs how often each guard decides one way. Where none of the drawn sets makes a guard decide some
way, kinds of data that are made for it are tried on the inputs that the guard depends on, see `operators.deciding`;
those that make it decide are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.deciding import DIRECT, HIDDEN, KINDS, NOT_FINITE, PADDED, PATTERNS
from surgery.base.operators.graph_guards import SELECTING, Guard, guards
from surgery.base.operators.moving import CARRIES, EXTENTS
from surgery.base.operators.use import Index, TypedIndex
from surgery.model.proto.extract import cut
from surgery.model.proto.randomness import origins
from surgery.verification.inputs.feed_plan import Binding

if TYPE_CHECKING:
    import onnx

_MOST = 64
"""Maximum number of guards that are watched: those nearest to the inputs."""

_OLDEST = 9
"""The first opset in which comparisons accept all types that the copy needs."""

_FEW, _DEPTH, _OPERANDS = 16, 3, 4
"""Maximum number of elements of a constant that is no weight; of nodes that distinguish guards, and of operands."""

_KEPT = 8
"""Maximum number of sets that are added."""

_FLOAT = 1

Feed = Mapping[str, Any]
State = tuple[Guard, bool]
"""A guard and one of the two ways in which it decides."""


class Watch:
    """A model that outputs how its guards decide, without the guards that no element of an input affects.

    `sources` holds the inputs that each guard depends on, and `direct` those whose elements arrive at guards as they
    are, by the kind of data that shows it. With `few`, only tests for particular numbers, NaN and infinities count.
    """

    def __init__(self, model: onnx.ModelProto, *, few: bool = False) -> None:
        self.sources: dict[Guard, frozenset[str]] = {}
        self.direct: dict[str, frozenset[str]] = {}
        self.skeleton = b""
        index = Index(model)
        if index.opset < _OLDEST:
            return
        found = guards(model.graph.node, TypedIndex(index, {}))
        exact = [one for one in found if one.test == "true" and _tests_numbers(index, one)]
        found = exact if few else found
        if found:
            self._watch(model, found, index)

    def states(self) -> set[State]:
        """Return the two ways in which each guard may decide."""
        return {(guard, way) for guard in self.sources for way in (False, True)}

    def decided(self, outputs: Feed) -> set[State]:
        """Return the ways in which guards decide in one run."""
        found: set[State] = set()
        for number, guard in enumerate(self.sources):
            hits, all_of_them = (float(outputs[name]) for name in _names(number))
            if guard.test == "empty":
                found.add((guard, all_of_them == 0))
                continue
            found |= {(guard, way) for way, count in ((True, hits), (False, all_of_them - hits)) if count > 0}
        return found

    def fed(self, feed: Feed) -> Feed:
        """Return the part of a set of inputs that the guards need."""
        return {name: feed[name] for name in self.inputs if name in feed}

    def _watch(self, model: onnx.ModelProto, found: Sequence[Guard], index: Index) -> None:
        import onnx

        own = onnx.ModelProto()
        own.CopyFrom(model)
        del own.graph.output[:]
        for number, guard in enumerate(found):
            nodes, tensors = _counted(guard, number, index.opset)
            own.graph.node.extend(nodes)
            own.graph.initializer.extend(tensors)
            own.graph.output.extend(onnx.ValueInfoProto(name=name) for name in _names(number))
        fed = _fed(own, [guard.value for guard in found])
        sources = [fed[guard.value] for guard in found]
        near = _near(own.graph, index)
        # One guard of each kind on the same inputs is enough: layers repeat the same guard. The first one is kept.
        unlike = {
            (guard.test, guard.bound, inputs, _origin(guard.value, index)): n
            for n, (guard, inputs) in reversed(list(enumerate(zip(found, sources))))
            if inputs and (guard.test != "below" or guard.value in near)
        }
        kept = sorted(unlike.values())[:_MOST]
        if not kept:
            return
        self.sources = {found[n]: sources[n] for n in kept}
        names = [name for n in kept for name in _names(n)]
        # Only what the guards read is run, not the whole model.
        piece = cut(own, {}, names)
        renamed = dict(zip(names, (name for n, _ in enumerate(kept) for name in _names(n))))
        _rename(piece.graph, renamed)
        defaults = {tensor.name for tensor in piece.graph.initializer}
        self.inputs = [value.name for value in piece.graph.input if value.name not in defaults]
        self.skeleton = piece.SerializeToString()
        named = set[str]().union(*self.sources.values())
        self.direct = {kind: frozenset(_arriving(index, named, kind)) for kind in DIRECT}


def _tests_numbers(index: Index, guard: Guard) -> bool:
    node = index.producers.get(guard.value)
    return node is not None and node.op_type in ("Equal", "IsInf", "IsNaN")


def _fed(model: onnx.ModelProto, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the inputs whose elements decide about some values, including how many elements there are."""
    import onnx

    own = onnx.ModelProto()
    own.CopyFrom(model)
    del own.graph.output[:]
    own.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    counted: set[str] = set()
    for node in own.graph.node:
        if node.op_type in SELECTING or not counted.isdisjoint(node.input):
            counted.update(node.output)
            if node.op_type in EXTENTS:
                node.op_type = "Identity"  # the extents follow from elements
    return origins(own).inputs


def _near(graph: onnx.GraphProto, index: Index) -> set[str]:
    """Return the values that are computed without weights: only these can be made small or equal from the inputs."""
    found = {value.name for value in graph.input} - index.constants.keys()
    for node in graph.node:
        if all(name in found or _is_small(name, index) for name in node.input if name):
            found.update(node.output)
    return found


def _is_small(name: str, index: Index) -> bool:
    tensor = index.constants.get(name)
    return tensor is not None and math.prod(tensor.dims) <= _FEW


def _origin(name: str, index: Index, depth: int = _DEPTH) -> object:
    """Return what computes a value: the nearest operators and the numbers among their operands.

    Guards of the same origin, such as those of the layers of a transformer, decide alike.
    """
    tensor, node = index.constants.get(name), index.producers.get(name)
    if tensor is not None:
        return tensor.SerializeToString(deterministic=True) if math.prod(tensor.dims) <= _FEW else ""
    if node is None or not depth:
        return name if node is None else ""
    return node.op_type, tuple(_origin(one, index, depth - 1) for one in node.input)


def _names(number: int) -> tuple[str, str]:
    """Return the names of the outputs for a guard: the number of elements that pass its test, and of all elements."""
    return f"guard/{number}/hits", f"guard/{number}/all"


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in graph.output:
        value.name = names[value.name]


def _counted(guard: Guard, number: int, opset: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Make the nodes that count the elements that pass a test."""
    from onnx import helper, numpy_helper

    hits, whole = _names(number)
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    value, last = guard.value, guard.value

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"guard/{number}/{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    if guard.test in ("below", "hidden"):
        value = add("Cast", value, to=_FLOAT)
        if guard.test == "hidden":
            axes = numpy_helper.from_array(np.array([guard.axis]), f"guard/{number}/axes")
            tensors += [axes] if opset >= 18 else []
            given = {} if opset >= 18 else {"axes": [guard.axis]}
            value = add("ReduceMax", value, *(one.name for one in tensors), keepdims=0, **given)
        last = value
        tensors.append(numpy_helper.from_array(np.array(guard.bound, np.float32), f"guard/{number}/bound"))
        value = add("Less", value, tensors[-1].name)
    counted = add("Size", last)
    if guard.test == "empty":
        value = counted
    passed = add("ReduceSum", add("Cast", value, to=_FLOAT), keepdims=0)
    nodes += [helper.make_node("Identity", [passed], [hits]), helper.make_node("Identity", [counted], [whole])]
    return nodes, tensors


def _arriving(index: Index, names: Iterable[str], kind: str) -> Iterator[str]:
    """Yield the inputs whose elements arrive at a test for NaN or infinity, or at scores, unchanged or added to."""
    ends = {"IsNaN", "IsInf"} if kind == NOT_FINITE else {"Softmax", "LogSoftmax", "ReduceMax", "ReduceLogSumExp"}
    for name in names:
        pending, seen = [name], {name}
        while pending:
            readers = [reader for value in [pending.pop()] for reader in index.consumers.get(value, ())]
            if any(node.op_type in ends for node, _ in readers):
                yield name
                break
            onward = {node.output[0] for node, place in readers if _passes(node.op_type, place, kind)} - seen
            seen |= onward
            pending += onward


def _passes(op: str, place: int, kind: str) -> bool:
    return place in CARRIES.get(op, ()) or (kind == HIDDEN and op in ("Add", "Sum"))


@dataclass
class GuardSearch:
    """The search for sets of inputs on which guards decide as they did on none before.

    `feed` makes the inputs of a binding, and `run` runs the watching model on some of them. `tries` is the maximum
    number of sets that are tried.
    """

    watch: Watch
    feed: Callable[[Binding], Feed]
    run: Callable[[bytes, Sequence[Feed]], Sequence[Any]]
    tries: int

    def __post_init__(self) -> None:
        self.left = self.watch.states()

    def see(self, bindings: Sequence[Binding]) -> None:
        """Take note of how guards decide on sets that are used anyway."""
        for states in self._decided([self.feed(binding) for binding in bindings] if self.left else []):
            self.left -= states

    def find(self, base: Binding) -> list[Binding]:
        """Return sets like `base` that make more guards decide, or decide otherwise.

        The fewer inputs depart from ordinary data, the more their results show.
        """
        found: list[Binding] = []
        usual = replace(base, character=KINDS[0], ports=())
        for ports in sorted(set(self.watch.sources.values()), key=lambda names: (len(names), sorted(names))):
            if any(self.watch.sources[guard] == ports for guard, _ in self.left):
                found += self._kept(self._candidates(replace(usual, ports=tuple(sorted(ports)))))
        for kind, ports in self.watch.direct.items() if self.left else ():
            found += self._kept([replace(usual, character=kind, ports=tuple(sorted(ports)))] if ports else [])
        if self.left:
            found += self._kept(self._candidates(replace(usual, ports=None)))
        return found[:_KEPT]

    def _candidates(self, padded: Binding) -> list[Binding]:
        """List the kinds of data to try on some inputs, the first of them with as many patterns as there are."""
        rows = self._rows(replace(padded, ports=()), padded)
        turns = [replace(padded, seed=padded.seed + turn) for turn in range(0, PATTERNS, rows)]
        return turns + [replace(padded, character=kind) for kind in KINDS[1:]]

    def _rows(self, usual: Binding, padded: Binding) -> int:
        """Return the least number of rows of an input that is masked; `PATTERNS` if none is."""
        ordinary, masked = self.feed(usual), self.feed(padded)
        shapes = [np.shape(masked[name]) for name in self.watch.inputs if not _same(ordinary[name], masked[name])]
        return min([PATTERNS, *(max(1, math.prod(shape[:-1])) for shape in shapes)])

    def _kept(self, candidates: Sequence[Binding]) -> list[Binding]:
        """Try sets that differ from ordinary ones, and return those that reach something new."""
        usual = {seed: self.feed(replace(candidates[0], ports=(), seed=seed)) for seed in {c.seed for c in candidates}}
        chosen, feeds = [], []
        for one in candidates:
            ordinary, feed = usual[one.seed], self.feed(one)
            if any(not _same(ordinary[name], feed[name]) for name in self.watch.inputs):
                chosen.append(one)
                feeds.append(feed)
        chosen, feeds = chosen[: self.tries], feeds[: self.tries]
        self.tries -= len(chosen)
        found: list[Binding] = []
        for one, states in zip(chosen, self._decided(feeds)):
            is_next = bool(found) and one.character == found[-1].character == PADDED
            if states & self.left or is_next:
                found.append(one)
                self.left -= states
        return found

    def _decided(self, feeds: Sequence[Feed]) -> list[set[State]]:
        """Return how guards decide on each set; nothing where the model rejects it."""
        if not feeds:
            return []
        runs = self.run(self.watch.skeleton, [self.watch.fed(feed) for feed in feeds])
        return [set() if isinstance(run, str) else self.watch.decided(run) for run in runs]


def _same(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return first is second or type(first) is type(second)
    return first.shape == second.shape and first.tobytes() == second.tobytes()
