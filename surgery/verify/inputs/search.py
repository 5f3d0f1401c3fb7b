"""The search for bindings that the original accepts, by running it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from surgery.verify.inputs.cover import Budget, Cover
from surgery.verify.inputs.dims import UNKNOWN, Dims, Implied
from surgery.verify.inputs.plan import PROFILES, Binding, Plan
from surgery.verify.inputs.sets import CHEAP, SECOND, TRIVIAL

Probe = Callable[[Binding], "str | None"]
"""Run the original with a binding: None when it went well, else what the runtime said."""

Implications = Callable[[], Implied]
"""Find out what the graph implies for its dims. That takes a while, so that it is asked for only after a refusal."""

BUDGET = 30.0
"""Seconds after which the search makes do with what it has."""


@dataclass
class Found:
    """Bindings that the original accepts, and those that it refused, with the reason."""

    accepted: list[Binding] = field(default_factory=list)
    refused: list[tuple[Binding, str]] = field(default_factory=list)


Cost = Callable[[Binding], float]
"""Estimate the seconds of one run."""


def search(
    plan: Plan, seed: int, probe: Probe, implied: Implications, cost: Cost, found: Found, *, covers: bool = True
) -> None:
    """Find at least two points for the free dims, distinct in each dim where the model allows it.

    Then, with `covers`, try each dim at the sizes that say most. Adds to `found` as it goes, so that what was found is
    there even if `probe` raises.
    """
    _Search(plan, seed, probe, implied, cost, found).run(covers)


_BUDGETS = ((64, 12, 1.5), (24, 4, 1.5), (4, 1, 60.0))
"""For a model whose run is trivial, cheap or dear: the points that are tried for the sake of sizes, those of them that
are kept, and the estimated seconds that trying may take."""


class _Search:
    def __init__(self, plan: Plan, seed: int, probe: Probe, implied: Implications, cost: Cost, found: Found) -> None:
        self.free = self.dims = plan.dims
        self.seed = seed
        self.probe = probe
        self.implied = implied
        self.opening = plan.opening
        self.cost = cost
        self.tied: Dims | None = None
        self.known = UNKNOWN
        self.deadline = time.monotonic() + BUDGET
        self.found = found
        self.profile = PROFILES[0]

    def run(self, covers: bool) -> None:
        base = self._first()
        if base is None:
            return
        self.found.accepted.append(base)
        if self.dims.names:
            self._vary(base.dims)
            self._vary_beside_one(base.dims)
            if self.cost(base) <= TRIVIAL:
                ones = {name: 1 for name in self.dims.names[1:] if name not in self.dims.spatial}
                self._add({**base.dims, **ones}, TRIVIAL)
        if self.free.names and covers:
            self._cover(base)
        if self.dims.names:
            self._add(self.dims.long(), CHEAP)

    def _cover(self, base: Binding) -> None:
        """Try each free dim at 1, at 2, at an uneven size and at those that constants suggest."""
        cost = self.cost(base)
        budget = Budget(*_BUDGETS[(cost > TRIVIAL) + (cost > CHEAP)])
        most = max(cost, CHEAP)

        def probe(point: Mapping[str, int]) -> bool:
            binding = replace(Binding(seed=self.seed, profile=self.profile), dims=dict(point))
            if self._late() or self.cost(binding) > most or not budget.spend(self.opening + self.cost(binding)):
                return False
            message = self.probe(binding)
            if message is None:
                self.found.accepted.append(binding)
                budget.room -= 1
            else:
                self.found.refused.append((binding, message))
            return message is None

        tied = self._implied() if self.found.refused else self.free
        points = [dict(binding.dims) for binding in self.found.accepted]
        Cover(self.free, tied, self.known, points, probe).run(pairs=cost <= TRIVIAL)

    def _first(self) -> Binding | None:
        """Try each point of the ladder as the graph suggests, then with simpler integers."""
        for profile in PROFILES:
            self.profile = profile
            for point in self._points():
                if self._accepts(point):
                    return self._binding(point)
                if self._late():
                    return None
        return None

    def _points(self) -> Iterator[dict[str, int]]:
        """Yield points to try; from the first refusal on, those that respect what the graph implies come before."""
        self.dims = self.free
        first, *others = self.free.ladder()
        yield first
        tied = self._implied()
        if tied is not self.free:
            self.dims = tied
            for point in tied.ladder():
                yield tied.complete(point)
            self.dims = self.free
        yield from others

    def _implied(self) -> Dims:
        if self.tied is None:
            self.known = self.implied() if self.free.names else UNKNOWN
            self.tied = self.free.tied(self.known["ties"]) if self.known["ties"] else self.free
        return self.tied

    def _vary(self, base: Mapping[str, int]) -> None:
        """Move every dim away from the base: all at once, else one by one, else those together that are tied."""
        if self._move_all(base):
            return
        tied = self._implied()
        if tied is not self.dims and tied.complete(base) == dict(base):
            self.dims = tied
            if not tied.names or self._move_all(base):
                return
        moved: dict[str, int] = {}
        stuck: list[str] = []
        for name in self.dims.names:
            other = self._other(name, base)
            if other is None:
                stuck.append(name)
            else:
                moved[name] = other
        if moved and not self._accept({**base, **moved}):
            for name, extent in list(moved.items())[:3]:
                self._accept({**base, name: extent})
        self._vary_tied(base, stuck)

    def _move_all(self, base: Mapping[str, int]) -> bool:
        points = [self.dims.complete(self.dims.point(which)) for which in (1, 0)]
        target = next((point for point in points if point != dict(base)), None)
        return target is not None and self._accept(target)

    def _other(self, name: str, base: Mapping[str, int]) -> int | None:
        for extent in self.dims.alternatives(name, base[name]):
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

    def _vary_beside_one(self, base: Mapping[str, int]) -> None:
        """Move dims that only go where another one is 1, as a batch of sequences that get one more position each."""
        points = [binding.dims for binding in self.found.accepted]
        stuck = [name for name in self.dims.names if len({point[name] for point in points}) == 1]
        for name in stuck[:3]:
            extent = next(iter(self.dims.alternatives(name, base[name])), None)
            for other in self.dims.names:
                wished = extent is None or other == name or base[other] == 1 or self._is_wished([name, other])
                if not wished and not self._late() and self._accept({**base, name: extent or 1, other: 1}):
                    break

    def _add(self, point: Mapping[str, int], most: float) -> None:
        """Add a point that nobody asked for, if it is accepted and a run costs no more than `most` seconds.

        One is where every dim but the first, most often the batch, is 1; another where they are large.
        """
        binding = self._binding(point)
        there = any(binding.dims == other.dims for other in self.found.accepted)
        if there or self._late() or self._is_wished([*self.dims.names]) or self.cost(binding) > most:
            return
        if self.probe(binding) is None:
            self.found.accepted.append(binding)

    def _is_wished(self, names: list[str]) -> bool:
        return any(name in self.dims.wishes for name in names)

    def _accept(self, point: Mapping[str, int]) -> bool:
        if not self._accepts(point):
            return False
        self.found.accepted.append(self._binding(point))
        return True

    def _accepts(self, point: Mapping[str, int]) -> bool:
        binding = self._binding(point)
        expensive = self.found.accepted and self.cost(binding) > CHEAP
        # With the data that an expensive model gets at its second point: then it is not run there once more.
        if expensive and self.probe(replace(binding, character=SECOND)) is None:
            return True
        message = self.probe(binding)
        if message is not None:
            self.found.refused.append((binding, message))
        return message is None

    def _binding(self, point: Mapping[str, int]) -> Binding:
        return replace(Binding(seed=self.seed, profile=self.profile), dims=self.dims.complete(point))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline
