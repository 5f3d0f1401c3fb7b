"""Find the sites of a LOSSY step that the budget of accuracy has no room for.

Each site is converted by itself, and what the outputs then lose is its sensitivity. Errors of sites are taken to be
independent, so that the power of their errors adds up: the sites that use least of the budget for what they save are
converted first, as many as fit. What is converted in the end is always measured as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surgery.engine.candidate import Candidate
from surgery.errors import SurgeryError
from surgery.graph.graph import Graph
from surgery.graph.state import Site
from surgery.graph.values import Node, Refusal
from surgery.operators.operations import MACS, UnknownDim, terms
from surgery.verification.accuracy.evaluation import Loss
from surgery.verification.accuracy.metrics import Metrics
from surgery.verification.inputs.spec import Limit

_DIM = 64
"""The extent that an unknown dim is taken to have where the costs of nodes are compared."""

_MOST_ADDITIONS = 6
"""How often sites that are left are tried on top of those that fit."""


@dataclass(frozen=True)
class Sensitivity:
    """What the outputs lose by one site alone: the share of the budget that it uses, and the worst of each metric.

    `macs` are the multiply-accumulates of its node, with unknown dims taken for 64. `score` is the metric of the
    user's, if there is one.
    """

    site: Site
    use: float
    metrics: Metrics
    macs: float
    score: float | None = None

    @property
    def noise(self) -> float:
        """The power of the error, as a share of that of the outputs: where a coarse metric sees no loss, this does."""
        snr = self.metrics["snr"]
        return 10.0 ** (-snr / 10.0) if snr > -math.inf else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        metrics = {name: value if math.isfinite(value) else str(value) for name, value in self.metrics.items()}
        use = self.use if math.isfinite(self.use) else str(self.use)
        score = {} if self.score is None else {"metric": self.score if math.isfinite(self.score) else str(self.score)}
        return {
            "site": self.site.number,
            "anchor": self.site.anchor,
            "use": use,
            "metrics": metrics,
            **score,
            "macs": self.macs,
        }

    def __str__(self) -> str:
        used = f"uses {self.use:.3g} of the budget alone" if math.isfinite(self.use) else "cannot be converted"
        return f"site {self.site.number} at '{self.site.anchor}' {used}"


@dataclass(frozen=True)
class Choice:
    """The sites that are converted, and the sensitivities of all, the most sensitive first."""

    candidate: Candidate | None
    sensitivities: tuple[Sensitivity, ...]

    @property
    def kept(self) -> tuple[Sensitivity, ...]:
        """The sites that stay as they were."""
        converted = {site.number for site in self.candidate.applied} if self.candidate is not None else set()
        return tuple(one for one in self.sensitivities if one.site.number not in converted)


class SiteChooser:
    """Chooses the sites of a step to convert.

    `run` runs the pass without the sites to skip, `measure` what the outputs of its result lose; `note` is told which
    site is measured. `macs` has the multiply-accumulates of nodes by their labels.
    """

    def __init__(
        self,
        run: Callable[[frozenset[int]], Candidate],
        measure: Callable[[Candidate], Loss],
        limits: Sequence[Limit],
        macs: Mapping[str, float],
        note: Callable[[str], None],
    ) -> None:
        self._run = run
        self._measure = measure
        self._limits = limits
        self._macs = macs
        self._note = note
        self._all: frozenset[int] = frozenset()

    def sensitivities(self, sites: Sequence[Site]) -> tuple[Sensitivity, ...]:
        """Measure each site alone; the most sensitive first."""
        self._all = frozenset(site.number for site in sites)
        found = []
        for count, site in enumerate(sites, 1):
            self._note(f"sensitivity of site {count} of {len(sites)}")
            _, loss = self._attempt({site.number})
            macs = self._macs.get(site.anchor, 0.0)
            score = loss.score.changed if loss.score is not None else None
            found.append(Sensitivity(site, loss.use(self._limits), loss.worst, macs, score))
        return tuple(sorted(found, key=lambda one: (-one.use, -one.noise, one.site.number)))

    def choose(self, sites: Sequence[Site]) -> Choice:
        """Choose the largest part of the sites within the budget, as far as sensitivities show."""
        found = self.sensitivities(sites)
        order = sorted((one for one in found if one.use <= 1.0), key=_price)
        chosen, best, used = self._longest(order)
        for _ in range(_MOST_ADDITIONS):
            taken = {one.site.number for one in chosen}
            expected = sum(one.use for one in chosen)
            scale = used / expected if expected > 0.0 and used > 0.0 else 1.0
            more = _fitting([one for one in order if one.site.number not in taken], (1.0 - used) / scale)
            if not more:
                break
            candidate, loss = self._attempt({*taken, *(one.site.number for one in more)})
            if loss.use(self._limits) > 1.0:
                # The most sensitive of them is what there is no room for.
                worst = max(more, key=lambda one: (one.use, one.noise))
                order.remove(worst)
                continue
            chosen, best, used = [*chosen, *more], candidate, loss.use(self._limits)
        return Choice(best, found)

    def _longest(self, order: list[Sensitivity]) -> tuple[list[Sensitivity], Candidate | None, float]:
        """Find how many of the first sites fit together, by halving."""
        low, high = 0, len(order) + 1
        best: Candidate | None = None
        used = 0.0
        while high - low > 1:
            middle = (low + high) // 2 if best is not None or high <= len(order) else self._guess(order)
            self._note(f"the {middle} least sensitive sites together")
            candidate, loss = self._attempt({one.site.number for one in order[:middle]})
            if loss.use(self._limits) <= 1.0:
                low, best, used = middle, candidate, loss.use(self._limits)
            else:
                high = middle
        return order[:low], best, used

    def _guess(self, order: list[Sensitivity]) -> int:
        """Return how many sites fit if the power of their errors adds up, at least one."""
        total, count = 0.0, 0
        for count, one in enumerate(order):
            total += one.use
            if total > 1.0:
                return max(1, count)
        return max(1, count + 1) if order else 1

    def _attempt(self, convert: set[int]) -> tuple[Candidate, Loss]:
        candidate = self._run(self._all - convert)
        if candidate.proto is None or not candidate.ok:
            return candidate, Loss({}, candidate.complaint or "the pass failed")
        try:
            return candidate, self._measure(candidate)
        except SurgeryError as error:
            return candidate, Loss({}, str(error))


def _price(one: Sensitivity) -> tuple[float, float, int]:
    """Return what a site uses of the budget for what it saves; next, for equal uses, the power of its error."""
    macs = max(one.macs, 1.0)
    return one.use / macs, one.noise / macs, one.site.number


def _fitting(order: Sequence[Sensitivity], room: float) -> list[Sensitivity]:
    """Take sites in order, without those that there is no room for."""
    taken = []
    for one in order:
        if one.use <= room:
            taken.append(one)
            room -= one.use
    return taken


def macs_by_label(graph: Graph) -> dict[str, float]:
    """Return the multiply-accumulates of each node by its label."""
    return {node.label: _macs(node) for node in graph.nodes()}


def _macs(node: Node) -> float:
    try:
        found = [factors for kind, factors in terms(node) or () if kind == MACS]
    except (Refusal, UnknownDim):
        return 0.0
    return sum(math.prod(float(one) if isinstance(one, int) else _DIM for one in factors) for factors in found)
