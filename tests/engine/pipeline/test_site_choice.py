"""Sites that are left out, although those after them are then numbered anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from surgery.base.errors import PassError
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.site_choice import chosen
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph.state import Site

STEP = PassStep("fuse", path="r.yaml", line=3)


class Without:
    """Leaves out the sites at some anchors."""

    def __init__(self, *anchors: str) -> None:
        self.anchors = anchors

    def leaves_out(self, step: PassStep, site: Site) -> bool:
        assert step is STEP
        return site.anchor in self.anchors


def fixed(anchors: str) -> Callable[[frozenset[int]], Candidate]:
    """Return a pass that finds the same sites whatever is skipped."""

    def run(skip: frozenset[int]) -> Candidate:
        return Candidate(STEP, sites=tuple(Site(n, a, (), (), n in skip) for n, a in enumerate(anchors, 1)))

    return run


def overlapping(anchors: str) -> Callable[[frozenset[int]], Candidate]:
    """Return a pass whose sites take their neighbor with them, unless they are skipped."""

    def run(skip: frozenset[int]) -> Candidate:
        sites: list[Site] = []
        left = list(anchors)
        while left:
            number, anchor = len(sites) + 1, left.pop(0)
            sites.append(Site(number, anchor, (), (), number in skip))
            if number not in skip and left:
                left.pop(0)
        return Candidate(STEP, sites=tuple(sites))

    return run


def applied(candidate: Candidate) -> str:
    return "".join(site.anchor for site in candidate.applied)


@pytest.mark.parametrize(
    ("unwanted", "skip", "left"),
    [("", [], "abcde"), ("b", [], "acde"), ("ae", [], "bcd"), ("abcde", [], ""), ("b", [1], "cde"), ("", [5], "abcd")],
)
def test_other_sites_are_applied(unwanted: str, skip: list[int], left: str) -> None:
    assert applied(chosen(Without(*unwanted), STEP, fixed("abcde"), frozenset(skip))) == left


@pytest.mark.parametrize(
    ("unwanted", "left"), [("", "ace"), ("a", "bd"), ("c", "ad"), ("ab", "ce"), ("ac", "bd"), ("ae", "bd"), ("e", "ac")]
)
def test_sites_that_appear_in_place_of_others_are_judged_anew(unwanted: str, left: str) -> None:
    found = chosen(Without(*unwanted), STEP, overlapping("abcde"), frozenset())
    assert applied(found) == left
    assert not {site.anchor for site in found.applied} & {*unwanted}


def test_a_pass_that_always_finds_others_is_an_error() -> None:
    count = 0

    def run(skip: frozenset[int]) -> Candidate:
        nonlocal count
        count += 1
        return Candidate(STEP, sites=(Site(count, "a", (), ()),))

    with pytest.raises(PassError, match=r"^r\.yaml:3: pass 'fuse' finds new sites each time"):
        chosen(Without("a"), STEP, run, frozenset())
    assert count == 65
