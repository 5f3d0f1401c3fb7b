"""The values given to a region: floats are drawn, integers are those of the original."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.deciding import NOT_FINITE, decide
from surgery.base.operators.domain import MASK, Domain, draw, generator
from surgery.base.operators.ranges import NOT_NEGATIVE, UNIT
from surgery.base.promises import Parity
from surgery.model.runtime.engine import Engine
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_values import TAKEN, Form, Point
from surgery.verification.regions.regions import Region
from surgery.verification.regions.tried_bindings import bindings, shapes
from surgery.verification.running.guards import GuardSearch, Watch

if TYPE_CHECKING:
    import onnx

_PERIOD = 131_071
"""Maximum number of elements drawn for one value; a prime."""

_TRIES, _FEW_TRIES = 24, 8
"""Maximum number of sets that are tried for the guards of a region whose run is trivial, or cheap."""

_REMEMBERED = 8 << 20
"""Number of bytes of drawn elements that are remembered."""

Feed = dict[str, Any]

Chosen = tuple[Binding, int]
"""A chosen set: what `Feeding.feed` draws its values from."""


class Drawn:
    """Elements drawn before, which other regions get too; all are forgotten when they take too much memory."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._bytes = 0

    def of(self, key: Hashable, draw: Callable[[], Any]) -> Any:
        """Return the elements of a key, drawn by a function that returns the same each time."""
        found = self._known.get(key)
        if found is None:
            found = draw()
            if self._bytes + found.nbytes > _REMEMBERED:
                self._known.clear()
                self._bytes = 0
            if found.nbytes <= _REMEMBERED:
                self._known[key] = found
                self._bytes += found.nbytes
        return found


class Feeding:
    """The sets of values for one region at some sizes; `piece` declares the values that are given."""

    def __init__(
        self, region: Region, points: Sequence[Point], before: Definitions, piece: onnx.ModelProto, drawn: Drawn
    ) -> None:
        self.region = region
        self.points = points
        self._before = before
        self._drawn = drawn
        plan = FeedPlan(piece, InputsSpec())
        # Integers come from the original, and no shape inside affects which floats are legal.
        given = shapes(region, points[0])
        self._domains = plan.domains(given)
        self._cost = plan.cost(given, 0)
        self._places = {tuple(point.dims.items()): point for point in points}

    def sets(self, promise: Parity, *, few: bool) -> list[Chosen]:
        """Choose some sets of each kind of data, a few if few must suffice."""
        chosen = bindings(self.region, self.points, promise, self._cost, few=few)
        return [(binding, number) for number, binding in enumerate(chosen)]

    def deciding(self, chosen: Sequence[Binding], engine: Engine) -> list[Chosen]:
        """Choose more sets, on which guards inside decide as they do on none of those chosen."""

        def run(skeleton: bytes, feeds: Sequence[Any]) -> Sequence[Any]:
            outcome = engine.run(skeleton, feeds)
            return outcome.runs if outcome.failure is None else [outcome.failure] * len(feeds)

        if self._cost > CHEAP or not chosen:
            return []
        found = self._taken()
        for piece in (self.region.before, self.region.after):
            search = GuardSearch(Watch(piece), self.feed, run, _FEW_TRIES if self._cost > TRIVIAL else _TRIES)
            search.see([*chosen, *found])
            found += search.find(chosen[0])
        return [(binding, 0) for binding in found]

    def _taken(self) -> list[Binding]:
        """Return sets with the integers of runs in which guards of the original decide otherwise, if they differ."""
        point = self.points[0]
        names = [name for name in self.region.given if not point.forms[name].is_drawn]
        seen = [self._integers(names, run) for run in point.recorded[: point.ordinary]]
        found: list[Binding] = []
        for run, recorded in list(zip(point.runs, point.recorded))[point.ordinary :]:
            integers = self._integers(names, recorded)
            if integers not in seen:
                seen.append(integers)
                found.append(point.like(run.binding))
        return found

    @staticmethod
    def _integers(names: Sequence[str], recorded: Mapping[str, Any]) -> list[bytes]:
        return [np.asarray(recorded[name]).tobytes() for name in names]

    def feed(self, binding: Binding, number: int = 0) -> Feed:
        """Return the values of a set; `number` selects the run of the original that integers are taken from."""
        point = self._places[binding.dim_key]
        recorded = point.recorded[point.taken_from(binding, number)]
        return {
            name: self._value(name, index, point.forms[name], recorded.get(name), binding)
            for index, name in enumerate(self.region.given)
        }

    def _value(self, name: str, index: int, form: Form, recorded: Any, binding: Binding) -> Any:
        domain = self._domains[name] if form.is_drawn else _domain_of(recorded)
        # Only a caller gives NaN: where it is computed, the values that it is computed from matter.
        given = binding.character != NOT_FINITE or name in self._before.inputs
        taken = binding.profile == TAKEN and not form.is_drawn
        if domain is not None and given and not taken and binding.decides(name):
            rng = generator(binding.seed, f"given {index}", binding.ordinary)
            found = decide(binding.character, domain, form.dtype, form.shape, rng, binding.seed)
            if found is not None:
                return self._signed(found, name) if form.is_drawn else found
        if not form.is_drawn:
            return recorded
        return self._signed(self._draw(index, form, self._domains[name], binding), name)

    def _draw(self, index: int, form: Form, domain: Domain, binding: Binding) -> Any:
        """Draw the elements of a value: different ones for each given value of a region, the same for other regions.

        The elements of a large value repeat with a period that is unrelated to any shape, unless its domain depends on
        the shape.
        """
        is_repeated = domain.draw is None and math.prod(form.shape) > _PERIOD
        shape = (_PERIOD,) if is_repeated else form.shape
        key = (index, form.dtype, shape, domain, binding.ordinary, binding.seed)

        def drawn() -> Any:
            rng = generator(binding.seed, f"given {index}", binding.ordinary)
            return draw(domain, form.dtype, shape, binding.ordinary, rng, binding.seed)

        found = self._drawn.of(key, drawn)
        return np.resize(found, form.shape) if is_repeated else found

    def _signed(self, drawn: Any, name: str) -> Any:
        """Bring drawn elements into the range of the operator that produces the value."""
        operator = bounding(self._before, name)
        if operator in UNIT:
            return _unit(drawn)
        return np.abs(drawn) if operator in NOT_NEGATIVE else drawn


def bounding(before: Definitions, name: str) -> str:
    """Return the operator that produces a value if it bounds the range of its elements; "" if none does."""
    producer = before.flow.producers.get(name)
    operator = before.flow.nodes[producer].op_type if producer is not None else ""
    return operator if operator in UNIT or operator in NOT_NEGATIVE else ""


def _domain_of(recorded: Any) -> Domain | None:
    """Return the domain of integers that are zeros and ones in the original, such as a mask; None for others."""
    if not isinstance(recorded, np.ndarray) or recorded.dtype.kind not in "biu":
        return None
    return MASK if recorded.size and bool(((recorded == 0) | (recorded == 1)).all()) else None


def _unit(drawn: Any) -> Any:
    size = np.abs(drawn.astype(np.float64))
    return np.where(size > 1, 1 / np.where(size > 1, size, 1), size).astype(drawn.dtype)
