"""The types and shapes of all values of a model at chosen dims, inferred in a worker and kept for each choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from surgery.model.runtime.engine import Engine
from surgery.model.shapes.declarations import CONTRIB, Declared, General, declare, declare_by_names, declare_contrib
from surgery.verification.inputs.dims import evaluate
from surgery.verification.inputs.feed_plan import Binding, DimKey, FeedPlan


class Declaring:
    """The inference of one model. `blind`: it ran out of time or memory once, and is not tried again."""

    def __init__(self, plan: FeedPlan, inlined: bytes) -> None:
        self.blind = False
        self._plan = plan
        self._inlined = inlined
        self._known: dict[DimKey, Declared] = {}
        self._general: General | None = None

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
        found: Declared | None = self._by_names(binding.dims, worker)
        if found is None:
            dims = self._plan.shapes(binding.dims)
            has_contrib = any(node.domain == CONTRIB for node, _ in self._plan.index.nodes)
            inference = declare_contrib if has_contrib else declare
            found = worker.analyse(inference, skeleton=self._inlined, dims=dims)
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
