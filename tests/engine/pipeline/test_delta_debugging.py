"""Which sites are found guilty, and in how many runs, on passes that are only acted."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from support.breadth import sampled

from surgery.engine.pipeline import delta_debugging
from surgery.engine.pipeline.delta_debugging import Guilts, SearchLimit, SiteSearch
from surgery.model.graph.state import Site


@dataclass(frozen=True)
class Trial:
    ok: bool
    sites: tuple[Site, ...]

    @property
    def applied(self) -> list[str]:
        return [site.anchor for site in self.sites if not site.skipped]


@dataclass
class Acted:
    """A pass that fires at anchors in order; `hides` lists the later anchors that one takes away when it is applied."""

    anchors: list[str]
    fails: Callable[[set[str]], bool]
    hides: dict[str, set[str]] = field(default_factory=dict)
    runs: int = 0

    def __call__(self, skip: frozenset[int] = frozenset()) -> Trial:
        self.runs += 1
        sites: list[Site] = []
        hidden: set[str] = set()
        for anchor in self.anchors:
            if anchor not in hidden:
                number = len(sites) + 1
                sites.append(Site(number, anchor, (), (), number in skip))
                if number not in skip:
                    hidden |= self.hides.get(anchor, set())
        applied = {site.anchor for site in sites if not site.skipped}
        return Trial(not self.fails(applied), tuple(sites))


def numbered(count: int) -> list[str]:
    return [f"node {number}" for number in range(1, count + 1)]


def search(acted: Acted, **options: int) -> SiteSearch[Trial]:
    return SiteSearch(acted, acted(), **options)


@pytest.mark.parametrize("wrong", range(1, 13))
def test_one_guilty_site_among_twelve_takes_few_runs(wrong: int) -> None:
    acted = Acted(numbered(12), lambda applied: f"node {wrong}" in applied)
    hunt = search(acted)
    (guilty,), rest = hunt.guilty()
    assert (guilty.site.number, guilty.site.anchor) == (wrong, f"node {wrong}")
    assert rest.ok and len(rest.applied) == 11
    needed, alone = hunt.accomplices(guilty)
    assert (needed, alone.applied, alone.ok) == ([], [f"node {wrong}"], False)
    # The failing run, the empty one, four to find it, one for the rest, one for it alone.
    assert acted.runs == hunt.runs + 1 <= 8


def test_every_set_of_guilty_sites_is_found() -> None:
    for count in range(1, 7):
        anchors = numbered(count)
        for size in range(1, count + 1):
            for wrong in itertools.combinations(anchors, size):
                acted = Acted(anchors, lambda applied, wrong=set(wrong): bool(applied & wrong))  # type: ignore[misc]
                found, rest = search(acted).guilty()
                assert tuple(guilty.site.anchor for guilty in found) == wrong
                assert rest.ok and set(rest.applied) == set(anchors) - set(wrong)


def test_when_all_are_guilty_two_runs_for_each_are_enough() -> None:
    acted = Acted(numbered(24), bool)
    found, rest = search(acted).guilty()
    assert len(found) == 24 and rest.applied == []
    assert acted.runs <= 60


def test_sites_that_fail_only_together() -> None:
    acted = Acted(numbered(16), lambda applied: {"node 3", "node 11", "node 14"} <= applied)
    hunt = search(acted)
    (guilty,), rest = hunt.guilty()
    assert guilty.site.number == 14
    assert rest.applied == [anchor for anchor in numbered(16) if anchor != "node 14"]
    needed, alone = hunt.accomplices(guilty)
    assert [site.number for site in needed] == [3, 11]
    assert alone.applied == ["node 3", "node 11", "node 14"] and not alone.ok


def test_a_site_that_appears_when_another_is_skipped() -> None:
    # A chain a-b-c: joining a and b leaves nothing to join b and c with.
    acted = Acted(["ab", "bc", "cd", "x", "y"], lambda applied: bool(applied & {"ab", "y"}), {"ab": {"bc"}})
    hunt = search(acted)
    found, rest = hunt.guilty()
    assert [guilty.site.anchor for guilty in found] == ["ab", "y"]
    assert rest.applied == ["bc", "cd", "x"]


def test_a_renumbered_guilty_site_is_found_by_its_anchor() -> None:
    acted = Acted(["ab", "bc", "cd", "x", "y", "z"], lambda applied: "y" in applied, {"ab": {"bc"}})
    hunt = search(acted)
    (guilty,), _ = hunt.guilty()
    assert (guilty.site.number, guilty.site.anchor) == (4, "y")
    needed, alone = hunt.accomplices(guilty)
    assert needed == []
    # Alone it is number 5: with `ab` skipped, `bc` takes a number.
    assert [(site.number, site.anchor) for site in alone.sites if not site.skipped] == [(5, "y")]


@pytest.mark.parametrize("seed", sampled(range(200), 10))
def test_found_sites_always_explain_the_failure(seed: int) -> None:
    draw = random.Random(seed)
    anchors = numbered(draw.randint(1, 14))
    bad = [set(draw.sample(anchors, draw.randint(1, min(3, len(anchors))))) for _ in range(draw.randint(1, 3))]
    hides = {
        anchor: set(draw.sample(anchors[place + 1 :], min(1, len(anchors) - place - 1)))
        for place, anchor in enumerate(anchors)
        if draw.random() < 0.3
    }
    acted = Acted(anchors, lambda applied: any(group <= applied for group in bad), hides)
    hunt = search(acted, most=1000)
    if acted().ok:
        return
    found, rest = hunt.guilty()
    assert rest.ok and found
    refused: list[int] = []
    for guilty in found:
        # It ends a run that fails, and without it that run holds.
        assert not guilty.trial.ok and guilty.trial.applied[-1] == guilty.site.anchor
        behind = frozenset(range(guilty.site.number, 100)).union(refused)
        assert acted(behind).ok
        needed, alone = hunt.accomplices(guilty, refused)
        assert not alone.ok and {site.anchor for site in needed} <= set(alone.applied)
        refused.append(guilty.site.number)


def test_a_failure_that_cannot_be_split_is_reported() -> None:
    with pytest.raises(SearchLimit, match="reports no sites"):
        search(Acted([], lambda applied: True)).guilty()
    with pytest.raises(SearchLimit, match="even without its sites"):
        search(Acted(numbered(3), lambda applied: True)).guilty()


def test_the_number_of_runs_is_bounded() -> None:
    acted = Acted(numbered(200), bool)
    hunt = search(acted, most=20)
    with pytest.raises(SearchLimit, match="gave up after 20 runs"):
        hunt.guilty()
    assert (hunt.runs, acted.runs) == (20, 21)


def test_no_run_is_repeated() -> None:
    seen: list[frozenset[int]] = []
    acted = Acted(numbered(9), lambda applied: {"node 2", "node 8"} <= applied)

    def test(skip: frozenset[int]) -> Trial:
        seen.append(skip)
        return acted(skip)

    hunt = SiteSearch(test, acted())
    (guilty,), _ = hunt.guilty()
    hunt.accomplices(guilty)
    assert len(seen) == len(set(seen)) == hunt.runs


def test_the_search_terminates_for_a_flaky_pass() -> None:
    answers = iter([True, True, True, True])

    def test(skip: frozenset[int]) -> Trial:
        return Trial(next(answers), ())

    failed = Trial(False, (Site(1, "a", (), ()), Site(2, "b", (), ())))
    found, rest = SiteSearch(test, failed).guilty()
    assert rest.ok and [guilty.site.number for guilty in found] == [2]


def test_a_failure_that_comes_and_goes_is_reported() -> None:
    sites = (Site(1, "a", (), ()), Site(2, "b", (), ()))
    answers = iter([Trial(True, ()), Trial(True, sites[:1]), Trial(False, ())])
    with pytest.raises(SearchLimit, match="it does not fail in the same way each time"):
        SiteSearch(lambda skip: next(answers), Trial(False, sites)).guilty()


def test_no_run_begins_after_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 103.0, 105.0, 105.5, 200.0])
    monkeypatch.setattr(delta_debugging.time, "monotonic", lambda: next(now))
    acted = Acted(numbered(200), bool)
    hunt = SiteSearch(acted, acted(), seconds=5.0)
    with pytest.raises(SearchLimit, match="gave up after 5 s"):
        hunt.guilty()
    # The time begins with the first run, and one that begins at its end is made.
    assert hunt.runs == 3


def test_the_best_run_has_the_most_sites() -> None:
    acted = Acted(numbered(8), lambda applied: "node 6" in applied)
    hunt = search(acted)
    assert hunt.best is None and len(hunt.trials) == 1
    hunt.guilty()
    assert hunt.best is not None and len(hunt.best.applied) == 7 and len(hunt.trials) == hunt.runs + 1


def test_sites_with_one_anchor_are_numbered() -> None:
    sites = tuple(Site(number, anchor, (), ()) for number, anchor in enumerate("abab", 1))
    assert delta_debugging._names(Trial(True, sites)) == {1: ("a", 0), 2: ("b", 0), 3: ("a", 1), 4: ("b", 1)}


def test_a_site_that_cannot_fail_with_fewer_has_all_others() -> None:
    """What fails is the number of sites, so no smaller set shows it."""
    acted = Acted(numbered(4), lambda applied: len(applied) >= 4)
    hunt = search(acted)
    (guilty,), _ = hunt.guilty()
    needed, alone = hunt.accomplices(guilty)
    assert [site.number for site in needed] == [1, 2, 3] and alone.applied == numbered(4)
    flaky = SiteSearch(lambda skip: Trial(True, guilty.trial.sites), guilty.trial)
    assert flaky.accomplices(guilty) == (list(guilty.trial.sites[:3]), guilty.trial)


def test_guilty_sites_are_avoided_in_later_rounds() -> None:
    guilts, acted = Guilts(), Acted(["ab", "bc", "cd"], bool, {"ab": {"bc"}})
    first = acted()
    assert guilts.avoid("pass", first, acted) is first and acted.runs == 1
    guilts.add("pass", [Site(1, "bc", (), ()), Site(2, "", (), ())])
    guilts.add("other", [Site(1, "cd", (), ())])
    assert guilts.avoid("pass", first, acted) is first and acted.runs == 1
    guilts.add("pass", [Site(1, "ab", (), ())])
    # Without `ab` there is `bc`, which is avoided, too.
    found = guilts.avoid("pass", first, acted)
    assert found.applied == ["cd"] and acted.runs == 3
    assert guilts.avoid("pass", found, acted) is found and acted.runs == 3
    stubborn = Trial(True, (Site(1, "ab", (), ()),))
    calls: list[frozenset[int]] = []
    guilts.avoid("pass", stubborn, lambda skip: calls.append(skip) or stubborn)  # type: ignore[func-returns-value]
    assert calls == [frozenset({1})] * 4
