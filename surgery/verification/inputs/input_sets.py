"""The choice of a model's sets of inputs: points for its free dims, kinds of data, seeds.

The same model, recipe and seed give the same sets on every machine: the cost of a run is estimated, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from surgery.base.operators.distributions import ORDINARY
from surgery.verification.inputs.feed_plan import Binding

CHEAP, TRIVIAL = 0.1, 0.006
"""Estimated seconds of one run up to which seven sets, or twenty-eight, are made instead of two."""

SECOND = "edges"
"""The kind of data at the second point; the first has ordinary data."""

RECORDED = 2
"""Number of sets at a point whose integers regions of the model are given."""

_ROUNDS = 4

_ENOUGH = 16 << 20
"""Number of bytes of outputs, over all sets, above which more sets show little but take memory and time."""


def choose(accepted: Sequence[Binding], cost: float, size: int = 0) -> list[Binding]:
    """Assign kinds of data to each accepted point: more if a run is cheap, one for each point after the second.

    The first two sets are the most informative, and all that an expensive model gets. Different kinds of data at the
    same point show whether an output moves. `size` is the number of bytes that a run outputs.
    """
    if not accepted:
        return []
    first, second = accepted[0], accepted[1 if len(accepted) > 1 else 0]
    points = (first, second)
    plan = [(first, "normal"), (second, SECOND)]
    if cost <= CHEAP:
        plan += [(first, "wide"), (second, "image"), (first, "coarse"), (second, "small"), (first, "near")]
    plan += [(binding, "normal") for binding in accepted[2:]]
    chosen = [replace(binding, character=character) for binding, character in plan]
    if cost <= TRIVIAL:
        # Each kind in turn at either point; each further point replaces one of them.
        rounds = [
            replace(points[(index + turn) % 2], character=character, seed=first.seed + turn)
            for turn in range(1, _ROUNDS)
            for index, character in enumerate(ORDINARY)
        ]
        rounds = rounds[: max(len(ORDINARY), len(rounds) - len(accepted[2:]))]
        chosen += rounds[: max(0, _ENOUGH // max(size, 1) - len(chosen))]
    return [binding for index, binding in enumerate(chosen) if binding not in chosen[:index]]


def further(bindings: Sequence[Binding], special: bool) -> list[Binding]:
    """Return more sets at the first point: with other seeds, and if `special` with NaN and infinities."""
    base = bindings[0]
    more = [replace(base, character=character, seed=base.seed + _ROUNDS) for character in ORDINARY]
    more += [replace(base, character="normal", seed=base.seed + _ROUNDS + seed) for seed in range(1, 4)]
    return [*more, replace(base, character="special")] if special else more
