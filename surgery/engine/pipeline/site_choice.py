"""Sites that a run skips on request, such as those that a plan skips.

A site depends on the sites before it and on none after it, so leaving one out may change which sites follow and how
they are numbered. The pass is run again until it applies only wanted sites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from surgery.base.errors import PassError
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph.state import Site

_MOST_RUNS = 64
"""Maximum number of runs of a pass, which may find the sites that are left out again and again."""


class SiteChoice(Protocol):
    """The choice of the sites that a run applies."""

    def leaves_out(self, step: PassStep, site: Site) -> bool:
        """Return whether a site of a step is left out."""


def chosen(
    choice: SiteChoice, step: PassStep, run: Callable[[frozenset[int]], Candidate], skip: frozenset[int]
) -> Candidate:
    """Run a pass without the sites to `skip` and those that the choice leaves out.

    Raises PassError if it finds new ones to leave out each time.
    """
    found = run(skip)
    anchors: dict[int, str] = {}
    for _ in range(_MOST_RUNS):
        unwanted = {site.number: site.anchor for site in found.applied if choice.leaves_out(step, site)}
        if not unwanted:
            return found
        anchors |= unwanted
        found = run(skip.union(anchors))
        shifted = [
            site.number
            for site in found.sites
            if site.skipped and site.number not in skip and anchors.get(site.number) != site.anchor
        ]
        if shifted:
            # The sites after a left-out one are renumbered. Only the first of them is certain.
            first = max(min(shifted), min(unwanted) + 1)
            anchors = {number: anchor for number, anchor in anchors.items() if number < first}
            found = run(skip.union(anchors))
    raise PassError(
        f"pass '{step.name}' finds new sites each time that some are left out",
        where=f"{step.path}:{step.line}" if step.path else None,
        todo="skip other sites, or remove the step from the recipe",
    )
