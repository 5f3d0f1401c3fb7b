"""The search for bindings that the original accepts, by running it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from surgery.verify.inputs import PROFILES, Binding, Plan

Probe = Callable[[Binding], "str | None"]
"""Run the original with a binding: None when it went well, else what the runtime said."""

BUDGET = 30.0
"""Seconds after which the search makes do with what it has."""


@dataclass
class Found:
    """Bindings that the original accepts, and those that it refused, with the reason."""

    accepted: list[Binding] = field(default_factory=list)
    refused: list[tuple[Binding, str]] = field(default_factory=list)


def search(plan: Plan, seed: int, probe: Probe, budget: float = BUDGET) -> Found:
    """Find at least two points for the free dims, distinct in each dim where the model allows it."""
    return _Search(plan, seed, probe, time.monotonic() + budget).run()


class _Search:
    def __init__(self, plan: Plan, seed: int, probe: Probe, deadline: float) -> None:
        self.plan = plan
        self.seed = seed
        self.probe = probe
        self.deadline = deadline
        self.found = Found()
        self.profile = PROFILES[0]

    def run(self) -> Found:
        base = self._first()
        if base is None:
            return self.found
        self.found.accepted.append(base)
        if self.plan.dims.names:
            self._vary(base.dims)
        return self.found

    def _first(self) -> Binding | None:
        """Try each point of the ladder as the graph suggests, then with simpler integers."""
        for profile in PROFILES:
            self.profile = profile
            for point in self.plan.dims.ladder():
                if self._accepts(point):
                    return self._binding(point)
                if self._late():
                    return None
        return None

    def _vary(self, base: Mapping[str, int]) -> None:
        """Move every dim away from the base: all at once, else one by one, else those together that are tied."""
        dims = self.plan.dims
        target = dims.point(1)
        if target == dict(base):
            target = dims.point(0)
        if target != dict(base) and self._accept(target):
            return
        moved: dict[str, int] = {}
        stuck: list[str] = []
        for name in dims.names:
            other = self._other(name, base)
            if other is None:
                stuck.append(name)
            else:
                moved[name] = other
        if moved and not self._accept({**base, **moved}):
            for name, extent in list(moved.items())[:3]:
                self._accept({**base, name: extent})
        self._vary_tied(base, stuck)

    def _other(self, name: str, base: Mapping[str, int]) -> int | None:
        for extent in self.plan.dims.alternatives(name, base[name]):
            if not self._late() and self._accepts({**base, name: extent}):
                return extent
        return None

    def _vary_tied(self, base: Mapping[str, int], stuck: list[str]) -> None:
        """Move dims that only go together by the same amount: equal ones, and sums such as past + present."""
        groups = [list(pair) for pair in combinations(stuck, 2)][:20]
        if len(stuck) > 2:
            groups.append(stuck)
        for group in groups:
            for step in (1, 2, 4, 32):
                point = {**base, **{name: base[name] + step for name in group}}
                if not self._late() and not self._is_wished(group) and self._accept(point):
                    return

    def _is_wished(self, names: list[str]) -> bool:
        return any(name in self.plan.dims.wishes for name in names)

    def _accept(self, point: Mapping[str, int]) -> bool:
        if not self._accepts(point):
            return False
        self.found.accepted.append(self._binding(point))
        return True

    def _accepts(self, point: Mapping[str, int]) -> bool:
        binding = self._binding(point)
        message = self.probe(binding)
        if message is not None:
            self.found.refused.append((binding, message))
        return message is None

    def _binding(self, point: Mapping[str, int]) -> Binding:
        return replace(Binding(seed=self.seed, profile=self.profile), dims=dict(point))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline
