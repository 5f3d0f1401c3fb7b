"""The types and shapes of all values of a model at chosen dims, inferred in a worker and kept for each choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from surgery.model.runtime.engine import Engine
from surgery.model.shapes.declarations import (
    CONTRIB,
    Declared,
    Extent,
    General,
    declare,
    declare_by_names,
    declare_contrib,
)
from surgery.verification.inputs.dims import calculate, evaluate, symbols_of
from surgery.verification.inputs.feed_plan import Binding, DimKey, FeedPlan

_CONFIRMED = 2
"""Number of choices of dims at which formulas must have given the inferred shapes before they replace inference."""


class Declaring:
    """The inference of one model. `blind`: it ran out of time or memory once, and is not tried again."""

    def __init__(self, plan: FeedPlan, inlined: bytes) -> None:
        self.blind = False
        self._plan = plan
        self._inlined = inlined
        self._known: dict[DimKey, Declared] = {}
        self._general: General | None = None
        self._formulas = Formulas((), {})

    def learn(self, shapes: Mapping[str, Sequence[Extent]]) -> None:
        """Learn the shapes of values for all choices of dims; they are used once they have been confirmed."""
        self._formulas = Formulas(self._plan.dims.names, shapes)
        for key, found in self._known.items():
            self._formulas.compare(dict(key), found)

    def known(self, binding: Binding) -> Declared:
        """Return the types and shapes inferred for a binding; empty if inference was not run or failed."""
        return self._known.get(binding.dim_key, {})

    def keep(self, used: Collection[DimKey]) -> None:
        """Forget all other choices of dims."""
        self._known = {key: found for key, found in self._known.items() if key in used}

    def declare(self, binding: Binding, worker: Engine) -> Declared:
        """Infer the types and shapes for a binding; empty if that fails."""
        known = self.known(binding)
        if known or not self._plan.ports or self.blind:
            return known
        found = self._formulas.at(binding.dims)
        found = self._by_names(binding.dims, worker) if found is None else found
        if found is None:
            dims = self._plan.shapes(binding.dims)
            has_contrib = any(node.domain == CONTRIB for node, _ in self._plan.index.nodes)
            inference = declare_contrib if has_contrib else declare
            found = worker.analyse(inference, skeleton=self._inlined, dims=dims)
            self._formulas.compare(binding.dims, found or {})
        self.blind = found is None
        self._known[binding.dim_key] = found or {}
        return found or {}

    def _by_names(self, point: Mapping[str, int], worker: Engine) -> Declared | None:
        """Return the shapes that follow from the names of dims alone; None unless those of all values do."""
        if self._general is None:
            dims = self._plan.extents()
            found: General = {}
            if self._plan.dims.names:
                found = worker.analyse(declare_by_names, skeleton=self._inlined, dims=dims) or {}
            made = {name for names in self._plan.index.outputs for name in names if name}
            self._general = found if made <= found.keys() else {}
        if not self._general:
            return None
        extents = {extent for _, shape in self._general.values() for extent in shape}
        bound = {extent: evaluate(extent, point) for extent in extents}
        return {name: (dtype, [bound[extent] for extent in shape]) for name, (dtype, shape) in self._general.items()}


class Formulas:
    """The shapes of values as expressions in the symbols of the dims `names`.

    They replace inference once they have agreed with it at two choices of dims, at which inference knew all values that
    it knows anywhere, for the dims that differed between these.
    """

    def __init__(self, names: Sequence[str], shapes: Mapping[str, Sequence[Extent]]) -> None:
        self._symbols = symbols_of(names)
        self._shapes = shapes
        self._types: dict[str, int] = {}
        self._agreed: list[Mapping[str, int]] = []

    def compare(self, point: Mapping[str, int], inferred: Declared) -> None:
        """Compare with the shapes inferred at a point. With dims that do not fit, inference knows fewer values."""
        if not self._shapes or not inferred or len(inferred) < len(self._types):
            return
        if inferred.keys() != self._types.keys():
            self._types, self._agreed = {name: dtype for name, (dtype, _) in inferred.items()}, []
        if self._evaluated(point) == {name: list(shape) for name, (_, shape) in inferred.items()}:
            self._agreed.append(point)
        else:
            self._shapes = {}

    def at(self, point: Mapping[str, int]) -> Declared | None:
        """Return the types and shapes at a point; None if the formulas are not confirmed, or fail there."""
        if not self._shapes or len(self._agreed) < _CONFIRMED or not all(map(self._is_within, point.items())):
            return None
        found = self._evaluated(point)
        return None if found is None else {name: (self._types[name], shape) for name, shape in found.items()}

    def _is_within(self, dim: tuple[str, int]) -> bool:
        """Return whether formulas were confirmed for a dim at two extents, or at this one."""
        name, extent = dim
        extents = {point[name] for point in self._agreed}
        return len(extents) >= _CONFIRMED or extent in extents

    def _evaluated(self, point: Mapping[str, int]) -> dict[str, list[int]] | None:
        """Return the shapes of the values with types at a point; None if one cannot be calculated."""
        bound = {symbol: point[name] for name, symbol in self._symbols.items()}
        try:
            extents = {extent for name in self._types for extent in self._shapes[name]}
            known = {extent: calculate(str(extent), bound) for extent in extents}
        except (KeyError, ValueError, SyntaxError, ZeroDivisionError):
            return None
        if min(known.values(), default=0) < 0:
            return None
        return {name: [known[extent] for extent in self._shapes[name]] for name in self._types}
