"""Find the sites of a LOSSY step that exceed the accuracy budget.

Each site is converted by itself, and the resulting loss of the outputs is its sensitivity. Errors of sites are assumed
to be independent, so that the power of their errors adds up: the sites that use the least of the budget for what they
save are converted first, as many as fit. The final conversion is always measured as a whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surgery.base.errors import SurgeryError, require_machine
from surgery.base.json_record import Record
from surgery.base.operators.operations import MACS, UnknownDim, terms
from surgery.engine.pipeline.candidate import Candidate
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Site
from surgery.model.graph.values import Node, Refusal
from surgery.model.shapes.facts import Dim
from surgery.model.shapes.symbols import where_each_is
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.accuracy.metrics import Metrics
from surgery.verification.inputs.spec import MetricLimit

_MANY = 1000
"""A budget that is exceeded more often is not worth an exact number."""

_DIM = 16
"""The extent assumed for free dims when the costs of nodes are compared."""

_FEW = 4
"""Number of sets of inputs on which a single site is measured."""

_LEAST_MEASURED, _LEAST_SECONDS = 3, 2.0
"""The number of measurements from which the time of others is estimated, and the shortest time that is shown."""

_MOST_UNITS = 32
"""Maximum number of groups of sites that are measured, and of groups that are split."""

_MOST_ADDITIONS = 6
"""Maximum number of attempts to add remaining sites to those that fit."""

_MOST_REMOVALS = 12
"""Maximum number of attempts to leave out more sites where the optimized model does not fit."""

_ELEMENT = 256.0
"""The multiply-accumulates that take as long as converting one element between float32 and integers, and laying it out
for the other kind of kernel: what a node costs that stays in float32 between converted ones, such as an Add of ResNet.
"""

_PART = 4
"""The part of the groups, the most sensitive of them, that each of these attempts leaves out: one in four."""


@dataclass(frozen=True)
class Cost:
    """The cost of a node, with free dims assumed to be 16: multiply-accumulates, and elements of its results."""

    macs: float = 0.0
    elements: float = 0.0

    @property
    def saved(self) -> float:
        """What its conversion saves, in multiply-accumulates."""
        return self.macs + _ELEMENT * self.elements


@dataclass(frozen=True)
class Sensitivity(Record, keys="site=site.number site.anchor use metrics metric=score macs why"):
    """The loss of the outputs by one site alone: the share of the budget that it uses, and the worst of each metric.

    `macs` are the multiply-accumulates of its node, with free dims assumed to be 16. `score` is the user's metric, if
    there is one. `why` says how the runtime failed on the model with the sites that were left out, if it did.
    """

    site: Site
    use: float
    metrics: Metrics
    macs: float
    score: float | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        found = super().to_json()
        if self.score is None:
            del found["metric"]
        if not self.why:
            del found["why"]
        return found

    def __str__(self) -> str:
        used = f"uses {_share(self.use)} the budget alone" if math.isfinite(self.use) else "cannot be converted"
        return f"site {self.site.number} at '{self.site.anchor}' {used}"


def _share(use: float) -> str:
    """Format a share of the budget, as it stands before "the budget"."""
    if use >= _MANY:
        return f"over {_MANY:,} times"
    return f"{use:.3g} times" if use >= 1 else f"{100 * use:.2g} % of"


@dataclass(frozen=True)
class Unit:
    """Sites that are measured together, the resulting loss of the outputs, and the share of the budget they use."""

    members: tuple[Site, ...]
    loss: Loss
    use: float
    costs: Mapping[int, Cost]

    @property
    def noise(self) -> float:
        """The power of the error, as a share of that of the outputs: it shows a loss where a coarse metric does not."""
        snr = self.loss.worst["snr"]
        return 10.0 ** (-snr / 10.0) if snr > -math.inf else math.inf

    def sites(self) -> Iterator[Sensitivity]:
        """Yield the sensitivities of its sites, which share the used budget equally."""
        score = self.loss.score.changed if self.loss.score is not None else None
        for site in self.members:
            yield Sensitivity(site, self.use / len(self.members), self.loss.worst, self.costs[site.number].macs, score)


@dataclass(frozen=True)
class ChosenSites:
    """The sites that are converted, and the sensitivities of those that stay unchanged, the most sensitive first."""

    candidate: Candidate | None
    kept: tuple[Sensitivity, ...]


class SiteChooser:
    """Chooses the sites of a step to convert.

    `run` runs the pass without the sites to skip, `measure` measures the loss of the resulting outputs, on some sets of
    inputs or on all; `note` reports which site is measured. `costs` has the costs of nodes by their labels. The loss of
    a single site is measured once, independently of the `limits`, on the sets of inputs on which the whole step loses
    most.
    """

    def __init__(
        self,
        run: Callable[[frozenset[int]], Candidate],
        measure: Callable[..., Loss],
        limits: Sequence[MetricLimit],
        costs: Mapping[str, Cost],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._measure = measure
        self.limits = limits
        self._costs = costs
        self._note = note
        self._clock = clock
        self._seconds: list[float] = []
        self._all: frozenset[int] = frozenset()
        self._alone: dict[frozenset[int], Loss] = {}
        self._worst: tuple[int, ...] = ()
        self._failures: dict[int, str] = {}

    def sensitivities(self, sites: Sequence[Site]) -> tuple[Sensitivity, ...]:
        """Measure each site alone; the most sensitive first."""
        self._all = frozenset(site.number for site in sites)
        self._measure_whole()
        units = [self._unit([site], len(sites) - number) for number, site in enumerate(sites)]
        found = [one for unit in units for one in unit.sites()]
        return tuple(sorted(found, key=lambda one: (-one.use, one.site.number)))

    def choose(self, sites: Sequence[Site]) -> ChosenSites:
        """Choose the largest part of the sites within the budget, judging by sensitivities.

        If there are many sites, they are measured in groups, and only the groups that use the most of the budget are
        split.
        """
        self._all = frozenset(site.number for site in sites)
        units = self._units(sites)
        # A unit that exceeds the budget alone cannot be chosen. The others compete by what they use for what they save.
        order = sorted((unit for unit in units if unit.use <= 1.0), key=_price)
        chosen, best, used = self._longest(order)
        for _ in range(_MOST_ADDITIONS):
            left = [unit for unit in order if unit not in chosen]
            # Losses do not add up: together, units often lose less than the sum of what each loses alone. The measured
            # loss of the chosen ones shows by how much, and so how many more may fit.
            expected = sum(unit.use for unit in chosen)
            scale = used / expected if expected > 0.0 and used > 0.0 else 1.0
            more = _fitting(left, (1.0 - used) / scale)
            if not more:
                break
            candidate, loss = self._together([*chosen, *more])
            if loss.use(self.limits) > 1.0:
                # The budget has no room for the most sensitive of them.
                order.remove(max(more, key=lambda unit: (unit.use, unit.noise)))
                continue
            chosen, best, used = [*chosen, *more], candidate, loss.use(self.limits)
        # So far, the runtime did not optimize the models, which rounds in another way; the result is judged optimized.
        best = self._optimized(chosen, best)
        converted = {site.number for site in best.applied} if best is not None else set()
        unchanged = (one for unit in units for one in unit.sites() if one.site.number not in converted)
        found = [replace(one, why=self._failures.get(one.site.number, "")) for one in unchanged]
        return ChosenSites(best, tuple(sorted(found, key=lambda one: (-one.use, one.site.number))))

    def _optimized(self, chosen: list[Unit], best: Candidate | None) -> Candidate | None:
        """Leave out the units that use the most for what they save until the model fits as it is judged: optimized.

        Optimized, it rounds differently, which a coarse metric of the user's may show.
        """
        for _ in range(_MOST_REMOVALS):
            if best is None:
                return None
            self._note(f"{len(best.applied)} of {len(self._all)} sites, optimized")
            loss = self._measured(best, optimized=True)
            if loss.use(self.limits) <= 1.0:
                return best
            chosen = sorted(chosen, key=_price)
            kept = len(chosen) - max(1, len(chosen) // _PART)
            self._failures |= {number: loss.failure for number in _sites_of(chosen[kept:]) if loss.failure}
            chosen = chosen[:kept]
            best = self._converted(_sites_of(chosen)) if chosen else None
        return None

    def _units(self, sites: Sequence[Site]) -> list[Unit]:
        """Measure sites in a limited number of groups of neighbours, and split the worst groups."""
        self._measure_whole()
        size = max(1, -(-len(sites) // _MOST_UNITS))
        starts = range(0, len(sites), size)
        units = [self._unit(sites[one : one + size], len(starts) - number) for number, one in enumerate(starts)]
        for _ in range(_MOST_UNITS if size > 1 else 0):
            worst = max((unit for unit in units if len(unit.members) > 1), key=lambda unit: unit.use, default=None)
            if worst is None or worst.use < 1.0 / len(units):
                break
            at, half = units.index(worst), len(worst.members) // 2
            units[at : at + 1] = [self._unit(worst.members[:half]), self._unit(worst.members[half:])]
        return units

    def _unit(self, members: Sequence[Site], left: int = 0) -> Unit:
        """Measure sites together; `left` is the number of measurements that are known to follow, with this one."""
        first, last, began = members[0].number, members[-1].number, self._clock()
        which = f"site {first}" if first == last else f"sites {first} to {last}"
        self._note(f"sensitivity of {which} of {len(self._all)}{self._time(left)}")
        numbers = frozenset(site.number for site in members)
        if numbers not in self._alone:
            self._alone[numbers] = self._attempt(set(numbers), self._worst)[1]
            self._seconds.append(self._clock() - began)
        loss = self._alone[numbers]
        costs = {site.number: self._costs.get(site.anchor, Cost()) for site in members}
        return Unit(tuple(members), loss, loss.use(self.limits), costs)

    def _time(self, left: int) -> str:
        """Return how long as many measurements take, for a message; empty while unknown or short."""
        count = len(self._seconds)
        seconds = sum(self._seconds) / count * left if count >= _LEAST_MEASURED else 0.0
        if seconds < _LEAST_SECONDS:
            return ""
        minutes = round(seconds / 60)
        return f", about {minutes} min left" if minutes > 1 else f", about {5 * math.ceil(seconds / 5)} s left"

    def _measure_whole(self) -> None:
        """Find the sets of inputs on which the whole step loses most."""
        if not self._alone:
            self._worst = self._attempt(set(self._all))[1].worst_sets(self.limits, _FEW)

    def _together(self, units: Sequence[Unit]) -> tuple[Candidate, Loss]:
        return self._attempt(_sites_of(units))

    def _longest(self, order: list[Unit]) -> tuple[list[Unit], Candidate | None, float]:
        """Find how many of the first units fit together, by binary search."""
        low, high = 0, len(order) + 1
        best: Candidate | None = None
        used = 0.0
        while high - low > 1:
            middle = (low + high) // 2 if best is not None or high <= len(order) else _guess(order)
            self._note(f"the {middle} least sensitive of {len(order)} together")
            candidate, loss = self._together(order[:middle])
            if loss.use(self.limits) <= 1.0:
                low, best, used = middle, candidate, loss.use(self.limits)
            else:
                high = middle
        return order[:low], best, used

    def _attempt(self, convert: set[int], sets: tuple[int, ...] = ()) -> tuple[Candidate, Loss]:
        candidate = self._converted(convert)
        return candidate, self._measured(candidate, sets=sets)

    def _converted(self, convert: set[int]) -> Candidate:
        return self._run(self._all - convert)

    def _measured(self, candidate: Candidate, **how: Any) -> Loss:
        if candidate.proto is None or not candidate.ok:
            return Loss({}, candidate.complaint or "the pass failed")
        try:
            return self._measure(candidate, **how)
        except SurgeryError as error:
            require_machine(error)
            return Loss({}, str(error))


def _sites_of(units: Sequence[Unit]) -> set[int]:
    """Return the numbers of the sites of units."""
    return {site.number for unit in units for site in unit.members}


def _price(unit: Unit) -> tuple[float, float, int]:
    """Return the budget used by a unit relative to what it saves; then, for equal uses, the power of its error."""
    saved = max(sum(cost.saved for cost in unit.costs.values()), 1.0)
    return unit.use / saved, unit.noise / saved, unit.members[0].number


def _guess(order: Sequence[Unit]) -> int:
    """Return the number of units that fit if the power of their errors adds up; at least one."""
    room = 1.0
    for count, unit in enumerate(order):
        room -= unit.use
        if room < 0.0:
            return max(1, count)
    return max(1, len(order))


def _fitting(order: Sequence[Unit], room: float) -> list[Unit]:
    """Return units in order, without those that no longer fit into the budget."""
    taken = []
    for unit in order:
        if unit.use <= room:
            taken.append(unit)
            room -= unit.use
    return taken


def costs_by_label(graph: Graph) -> dict[str, Cost]:
    """Return the cost of each node by its label."""
    return {node.label: Cost(_macs(node), _elements(node)) for node in graph.nodes()}


def _macs(node: Node) -> float:
    try:
        found = [factors for kind, factors in terms(node) or () if kind == MACS]
    except (Refusal, UnknownDim):
        return 0.0
    return sum(math.prod(_extent(one) for one in factors) for factors in found)


def _elements(node: Node) -> float:
    return sum(math.prod(map(_extent, one.shape)) for one in node.outputs if one.shape is not None)


def _extent(dim: Dim) -> float:
    if isinstance(dim, str):
        return float(max(where_each_is(_DIM, dim), 0))
    return float(_DIM if dim is None else dim)
