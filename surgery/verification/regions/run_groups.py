"""Runs of both pieces of a region in groups of sets.

The outputs of a region may be larger than those of the model, and each set adds to them, in the worker and in this
process. Only one group is held at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.compare import total_bytes
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.regions.region_feeding import Chosen, Feed, Feeding

_ROOM = 8 << 20
"""Number of bytes of inputs, or of outputs, after which a group ends. One set may take more."""


@dataclass
class RunGroup:
    """Some sets, and what the pieces do on them; empty when the next group is asked for."""

    sets: Sequence[tuple[Binding, Feed]]
    outcomes: Sequence[RunOutcome]


def run_in_groups(
    engine: Engine, skeletons: Sequence[bytes], feeding: Feeding, chosen: Sequence[Chosen]
) -> Iterator[RunGroup]:
    """Run pieces on the chosen sets, group by group: a set is best followed by those that it is compared with."""
    dims = list(dict.fromkeys(binding.dim_key for binding, _ in chosen))
    left = deque(sorted(chosen, key=lambda one: dims.index(one[0].dim_key)))
    drawn: list[tuple[Binding, Feed]] = []
    while left or drawn:
        while left and (not drawn or sum(total_bytes(feed) for _, feed in drawn) < _ROOM):
            binding, number = left.popleft()
            drawn.append((binding, feeding.feed(binding, number)))
        outcomes = engine.run_each(skeletons, [feed for _, feed in drawn], room=_ROOM)
        done = len(outcomes[0].runs) or len(drawn)
        group, drawn = RunGroup(drawn[:done], outcomes), drawn[done:]
        del outcomes
        yield group
        # The caller still names the group while the next one runs.
        group.sets = group.outcomes = ()
