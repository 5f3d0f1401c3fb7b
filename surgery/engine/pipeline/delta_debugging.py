"""Delta debugging over the sites of a pass: find the sites that make it fail, in few runs.

A site depends on the sites before it and on none after it, and sites are numbered in their order. So the search first
stops the pass early: without all sites above number k, the first k are exactly the same sites with the same numbers,
and binary search finds the first k with which the pass fails. That site is refused, and the search continues after it,
where refusing it may have changed the following sites. In the end, each refused site made the pass fail, and the pass
held without it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from surgery.model.graph.state import Site

MOST_RUNS = 64
"""Maximum number of runs of a search: with that many guilty sites, there is little left to save."""

_MARGIN = 1000
"""Numbers skipped beyond those seen: skipping a site may let the pass find new sites."""

_ROUNDS = 4
"""Maximum number of runs to find sites whose numbers shift when others are skipped."""


class TrialRun(Protocol):
    """A run of a pass without some of its sites."""

    @property
    def ok(self) -> bool:
        """Whether its result holds."""

    @property
    def sites(self) -> Sequence[Site]:
        """The sites that were applied and skipped, by number."""


T = TypeVar("T", bound=TrialRun)


class SearchLimit(Exception):  # noqa: N818 - an answer, not an error of its own
    """The failure cannot be attributed to sites; the text says why."""


@dataclass(frozen=True)
class Guilty(Generic[T]):
    """A site with which a pass fails, and without which it holds. `trial` is the failing run that ends with it."""

    site: Site
    trial: T


class SiteSearch(Generic[T]):
    """The search for the guilty sites of one failing run.

    `test` runs the pass without the sites with the given numbers. `runs` counts its calls; there are at most `most`,
    and none starts after `seconds`. `found` are the guilty sites so far.
    """

    def __init__(
        self,
        test: Callable[[frozenset[int]], T],
        failed: T,
        *,
        most: int = MOST_RUNS,
        seconds: float | None = None,
    ) -> None:
        self.runs = 0
        self.found: list[Guilty[T]] = []
        self._test = test
        self._most = most
        self._seconds = seconds
        self._ends: float | None = None
        self._failed = failed
        self._known = {frozenset[int](): failed}

    def guilty(self) -> tuple[list[Guilty[T]], T]:
        """Find the sites to refuse, and return them with the run that holds without them.

        Raises `SearchLimit` if the pass has no sites, fails without them too, or has too many guilty ones.
        """
        if not _applied(self._failed):
            raise SearchLimit("the pass reports no sites, so that it cannot be split")
        if not self._run(self._beyond(0)).ok:
            raise SearchLimit("it fails even without its sites, because of changes outside of them")
        trial = self._failed
        while not trial.ok:
            refused = [guilty.site.number for guilty in self.found]
            self.found.append(self._next(refused, trial))
            trial = self._run(frozenset([*refused, self.found[-1].site.number]))
        return self.found, trial

    @property
    def best(self) -> T | None:
        """The run with the most sites among those that held; None if no run with sites held."""
        held = [trial for trial in self._known.values() if trial.ok and _applied(trial)]
        return max(held, key=lambda trial: len(_applied(trial)), default=None)

    @property
    def trials(self) -> list[T]:
        """The runs so far, the failing one included."""
        return list(self._known.values())

    def accomplices(self, guilty: Guilty[T], refused: Sequence[int] = ()) -> tuple[list[Site], T]:
        """Find the earlier sites that a guilty site needs to fail; return them with the failing run of only these.

        `refused` are the numbers of the guilty sites before it. If no smaller set can be shown to fail, all earlier
        sites are returned.
        """
        whole = guilty.trial
        others = [site for site in _applied(whole) if site.number < guilty.site.number and site.number not in refused]
        needed: list[Site] = []
        before = others
        while (trial := self._only(whole, [*needed, guilty.site])).ok:
            if not before:
                return others, whole
            # It fails with before[least:] and holds with before[most:]; so before[least] is finally needed.
            least, most = 0, len(before)
            while most - least > 1:
                middle = (least + most) // 2
                if self._only(whole, [*before[middle:], *needed, guilty.site]).ok:
                    most = middle
                else:
                    least = middle
            needed = [*needed, before[least]]
            before = before[least + 1 :]
        return needed, trial

    def _next(self, refused: Sequence[int], failed: T) -> Guilty[T]:
        """Find the first site after the refused ones with which the pass fails."""
        start = refused[-1] if refused else 0
        rest = [site for site in _applied(failed) if site.number > start]
        if not rest:
            raise SearchLimit("it does not fail in the same way each time")
        holds, fails, last = -1, len(rest) - 1, failed
        # After two adjacent guilty sites, the next one is most likely guilty too.
        guess = len(refused) > 1 and refused[-1] == refused[-2] + 1
        while fails - holds > 1:
            middle = 0 if guess else (holds + fails) // 2
            guess = False
            trial = self._run(self._beyond(rest[middle].number, refused))
            if trial.ok:
                holds = middle
            else:
                fails, last = middle, trial
        return Guilty(rest[fails], last)

    def _only(self, whole: T, wanted: Iterable[Site]) -> T:
        """Run with only some sites of a run, found by their anchors if their numbers have shifted."""
        numbers = {site.number for site in wanted}
        names = {name for number, name in _names(whole).items() if number in numbers}
        for _ in range(_ROUNDS):
            trial = self._run(self._beyond(0) - numbers)
            found = {number for number, name in _names(trial).items() if name in names}
            if found == {site.number for site in _applied(trial)}:
                break
            numbers = found
        return trial

    def _run(self, skip: frozenset[int]) -> T:
        if skip not in self._known:
            if self.runs == self._most:
                raise SearchLimit(f"gave up after {self._most} runs")
            self._require_time()
            self.runs += 1
            self._known[skip] = self._test(skip)
        return self._known[skip]

    def _require_time(self) -> None:
        if self._seconds is None:
            return
        now = time.monotonic()
        self._ends = now + self._seconds if self._ends is None else self._ends
        if now > self._ends:
            raise SearchLimit(f"gave up after {self._seconds:g} s")

    def _beyond(self, number: int, refused: Iterable[int] = ()) -> frozenset[int]:
        """Return the numbers of all sites above `number`, and of the refused ones."""
        return frozenset(range(number + 1, 2 * len(self._failed.sites) + _MARGIN)).union(refused)


class Guilts:
    """The guilty sites of passes, so that they are not tried again in the next round.

    A site is recognized by its anchor; sites without one are not remembered.
    """

    def __init__(self) -> None:
        self._anchors: dict[object, set[str]] = {}

    def add(self, key: object, sites: Iterable[Site]) -> None:
        """Remember sites of the pass with this `key`."""
        self._anchors.setdefault(key, set()).update(site.anchor for site in sites if site.anchor)

    def avoid(self, key: object, trial: T, test: Callable[[frozenset[int]], T]) -> T:
        """Run a pass again without the sites that were guilty before, unless there are none.

        Skipping a site may change the numbers of others, so this is repeated until none of them is applied, or a limit
        is reached.
        """
        anchors = self._anchors.get(key)
        if not anchors:
            return trial
        for _ in range(_ROUNDS):
            if not any(site.anchor in anchors for site in _applied(trial)):
                break
            trial = test(frozenset(site.number for site in trial.sites if site.anchor in anchors))
        return trial


def _applied(trial: TrialRun) -> list[Site]:
    return [site for site in trial.sites if not site.skipped]


def _names(trial: TrialRun) -> dict[int, tuple[str, int]]:
    """Name each site by its anchor and the number of earlier sites with the same anchor."""
    seen: Counter[str] = Counter()
    names = {}
    for site in trial.sites:
        names[site.number] = site.anchor, seen[site.anchor]
        seen[site.anchor] += 1
    return names
