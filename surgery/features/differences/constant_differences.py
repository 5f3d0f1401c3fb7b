"""Differences of constants: added, removed, renamed, moved, changed and by how much, tied and untied.

Constants are the initializers of all graphs and the tensors of Constant nodes, so a constant that moves from a node to
an initializer remains the same constant. Constants are matched by name, then weights by content, then all constants by
the nodes that read them. Their elements are compared piece by piece from the mapped files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.json_record import Record
from surgery.features.differences.compared_model import Side, Value
from surgery.features.differences.constant_distances import Distance, distance, sign_of
from surgery.features.differences.matching import Matching, instead
from surgery.model.storage import Weights, payload_bytes, same_elements

if TYPE_CHECKING:
    import onnx

_WEIGHT = 16
"""Minimum number of elements of a weight; smaller constants may be equal by chance."""

How = Literal["name", "content", "reader"]


@dataclass(frozen=True, eq=False)
class Constant(Record, keys="name scope type dims bytes"):
    """A constant of one model. `node` is whether a Constant node holds it; `scope` is the scope of its value."""

    name: str
    scope: str
    node: bool
    tensor: onnx.TensorProto = field(repr=False)
    weights: Weights = field(repr=False)

    @property
    def type(self) -> str:
        """The element type: "float"."""
        import onnx

        return str(onnx.TensorProto.DataType.Name(self.tensor.data_type)).lower()

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims of the tensor."""
        return tuple(self.tensor.dims)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.tensor.dims)

    @property
    def bytes(self) -> int:
        """The size of its elements in bytes."""
        return payload_bytes(self.tensor)

    def equals(self, other: Constant) -> bool:
        """Return whether another constant has the same type, dims and elements, bit by bit."""
        return same_elements(self.tensor, self.weights, other.tensor, other.weights)

    def distance(self, other: Constant) -> Distance | None:
        """Return the distance between the elements of two constants; None if they differ in number."""
        return distance(self.tensor, self.weights, other.tensor, other.weights)

    def __str__(self) -> str:
        place = f" in {self.scope}" if self.scope else ""
        return f"{self.name}: {self.type}[{', '.join(map(str, self.dims))}]{place}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**super().to_json(), "stored": "node" if self.node else "initializer"}


@dataclass(frozen=True)
class ConstantPair(Record, keys="before after how distance"):
    """A constant that is in both models. `distance` is None if the elements are equal or differ in number."""

    before: Constant
    after: Constant
    how: How
    equal: bool
    distance: Distance | None = None


@dataclass(frozen=True)
class Tie:
    """Equal weights that occur a different number of times in the models: tied if fewer are left, untied if more."""

    before: tuple[Constant, ...]
    after: tuple[Constant, ...]

    @property
    def what(self) -> Literal["tied", "untied"]:
        """Whether the weights were tied or untied."""
        return "tied" if len(self.after) < len(self.before) else "untied"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "what": self.what,
            "before": [constant.name for constant in self.before],
            "after": [constant.name for constant in self.after],
        }


@dataclass(frozen=True)
class Constants(Record, keys="renamed moved changed removed added ties"):
    """The correspondence of the constants of two models."""

    pairs: tuple[ConstantPair, ...] = ()
    removed: tuple[Constant, ...] = ()
    added: tuple[Constant, ...] = ()
    ties: tuple[Tie, ...] = ()

    @property
    def changed(self) -> list[ConstantPair]:
        """The pairs with different elements, types or dims."""
        return [pair for pair in self.pairs if not pair.equal]

    @property
    def renamed(self) -> list[ConstantPair]:
        """The pairs with the same elements and different names."""
        return [pair for pair in self.pairs if pair.equal and pair.before.name != pair.after.name]

    @property
    def moved(self) -> list[ConstantPair]:
        """The pairs with the same elements that moved from a Constant node to an initializer, or vice versa."""
        return [pair for pair in self.pairs if pair.equal and pair.before.node != pair.after.node]

    @property
    def same(self) -> bool:
        """Whether each constant is in both models and stored the same way, regardless of its name."""
        return not (self.changed or self.removed or self.added or self.moved)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; constants that are equal under the same name are only counted."""
        return {"same": sum(pair.equal for pair in self.pairs), **super().to_json()}


def constants(matching: Matching) -> Constants:
    """Compare the constants of two models whose nodes are matched."""
    return _ConstantComparison(matching).run()


class _ConstantComparison:
    """A comparison in progress.

    `open` are the constants of each side that are not matched yet; constants of the same class have the same elements.
    """

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.open = [_constants(side) for side in (matching.before, matching.after)]
        self.classes = _classes([constant for side in self.open for constant in side.values()])
        self.pairs: list[ConstantPair] = []

    def run(self) -> Constants:
        ties = tuple(self._ties())
        self._match("name", self._of_one_name())
        self._match("content", self._of_one_content())
        self._match("reader", self._of_one_reader())
        removed, added = (tuple(side.values()) for side in self.open)
        return Constants(tuple(self.pairs), removed, added, ties)

    def _match(self, how: How, found: Iterable[tuple[Value, Value]]) -> None:
        for before, after in list(found):
            if before not in self.open[0] or after not in self.open[1]:
                continue
            old, new = self.open[0].pop(before), self.open[1].pop(after)
            same = self.classes[old] == self.classes[new]
            self.pairs.append(ConstantPair(old, new, how, same, None if same else old.distance(new)))

    def _of_one_name(self) -> Iterator[tuple[Value, Value]]:
        matching = self.matching
        return ((value, (matching.scope_between(matching.before, value[0]), value[1])) for value in self.open[0])

    def _of_one_content(self) -> Iterator[tuple[Value, Value]]:
        """Yield pairs of weights with the same elements, in order."""
        known: dict[int, list[Value]] = defaultdict(list)
        for value, constant in self.open[1].items():
            known[self.classes[constant]].append(value)
        for value, constant in self.open[0].items():
            same = known.get(self.classes[constant])
            if same and constant.elements >= _WEIGHT:
                yield value, same.pop(0)

    def _of_one_reader(self) -> Iterator[tuple[Value, Value]]:
        """Yield pairs that a matched node reads as the same operand, if they have the same number of elements."""
        for before, after in instead(self.matching, self.matching.before, self.matching.after).items():
            old, new = self.open[0].get(before), self.open[1].get(after)
            if old is not None and new is not None and old.elements == new.elements:
                yield before, after

    def _ties(self) -> Iterator[Tie]:
        """Yield the weights that both models contain, but a different number of times."""
        found: dict[int, tuple[list[Constant], list[Constant]]] = defaultdict(lambda: ([], []))
        for number, side in enumerate(self.open):
            for constant in side.values():
                if constant.elements >= _WEIGHT:
                    found[self.classes[constant]][number].append(constant)
        for old, new in found.values():
            if old and new and len(old) != len(new):
                yield Tie(tuple(old), tuple(new))


def _constants(side: Side) -> dict[Value, Constant]:
    """Return the constants of a model by value."""
    found = {
        value: Constant(value[1], value[0], False, tensor, side.weights) for value, tensor in side.initializers.items()
    }
    for entry in side.entries:
        if entry.op == "Constant" and entry.node is not None:
            tensor = next((one.t for one in entry.node.attribute if one.name == "value"), None)
            value = side.outputs[entry][0] if entry.outputs else None
            if tensor is not None and value is not None:
                found[value] = Constant(value[1], value[0], True, tensor, side.weights)
    return found


def _classes(every: Sequence[Constant]) -> dict[Constant, int]:
    """Assign a number to each constant; those with the same type, dims and elements share one."""
    classes: dict[Constant, int] = {}
    first: dict[Hashable, list[Constant]] = defaultdict(list)
    for constant in every:
        alike = first[sign_of(constant.tensor, constant.weights)]
        same = next((other for other in alike if constant.equals(other)), None)
        if same is None:
            alike.append(constant)
        classes[constant] = len(classes) if same is None else classes[same]
    return classes
