"""Seeds for random operators, so that two models draw the same numbers in runs that are compared.

ONNX Runtime seeds a draw without a seed by the position of its node, which each rewrite moves. With the attribute
`seed`, a node draws the same numbers in each session. A draw of a changed model gets the seed of the draw of the
original that has the same name, or the same place among those of its operator. Draws in functions get none: two calls
would draw the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.operators.forms import key_of
from surgery.base.operators.subgraphs import nested
from surgery.model.proto.randomness import is_random, origins

if TYPE_CHECKING:
    import onnx

_WHOLE = frozenset({"Dropout"})
"""Operators whose seed is an integer; others have a float."""

_STEP = 1009
"""The distance of two seeds. Floats represent all seeds exactly."""


@dataclass(frozen=True)
class Seeded:
    """A model with seeds. `is_certain`: each of its draws has the name, the operator and the attributes of one of the
    original's, so that it has to draw the same numbers."""

    skeleton: bytes
    is_certain: bool


class Seeds:
    """The seeds of the draws of an original. `outputs` are those that depend on the draws, `operators` what draws."""

    def __init__(self, original: onnx.ModelProto) -> None:
        found = origins(original)
        self.outputs, self.operators = found.random, found.operators
        self._draws = [_Draw.of(node) for node in _unseeded(original)]

    def seed(self, model: onnx.ModelProto) -> Seeded | None:
        """Add the seeds to a model; None if it draws elsewhere than the original, so that no seed belongs there."""
        import onnx.helper

        nodes = list(_unseeded(model))
        pairs = _pairs(self._draws, [_Draw.of(node) for node in nodes])
        if pairs is None:
            return None
        for node, (place, _) in zip(nodes, pairs):
            number = _STEP * (place + 1)
            seed = number if node.op_type in _WHOLE else float(number)
            node.attribute.append(onnx.helper.make_attribute("seed", seed))
        if origins(model).random:
            return None
        return Seeded(model.SerializeToString(deterministic=True), all(certain for _, certain in pairs))


@dataclass(frozen=True)
class _Draw:
    """What identifies a draw."""

    operator: str
    output: str
    name: str
    settings: tuple[bytes, ...]

    @classmethod
    def of(cls, node: onnx.NodeProto) -> _Draw:
        settings = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        return cls(node.op_type, node.output[0], node.name, tuple(settings))


def _unseeded(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    """Yield the nodes of a graph and its subgraphs that may draw random numbers and can have a seed."""
    for node in nested(model.graph.node):
        if key_of(node.domain, node.op_type) in traits.SEEDED and node.output and is_random(node):
            yield node


def _pairs(known: Sequence[_Draw], draws: Sequence[_Draw]) -> list[tuple[int, bool]] | None:
    """Return for each draw the position of its counterpart, and whether that is certain; None if one has none."""
    found: dict[int, tuple[int, bool]] = {}
    left = set(range(len(known)))

    def match(key: Callable[[_Draw], object], *, by_name: bool) -> None:
        places = defaultdict[object, list[int]](list)
        for place in sorted(left):
            places[known[place].operator, key(known[place])].append(place)
        for number, draw in enumerate(draws):
            open_places = places.get((draw.operator, key(draw)))
            if number not in found and open_places and key(draw) != "":
                place = open_places.pop(0)
                left.discard(place)
                found[number] = place, by_name and draw.settings == known[place].settings

    match(lambda draw: draw.output, by_name=True)
    match(lambda draw: draw.name, by_name=True)
    match(lambda draw: None, by_name=False)
    return [found[number] for number in range(len(draws))] if len(found) == len(draws) else None
