"""Differences inside two models that no output shows.

An ArgMax at the end, a saturated Sigmoid, the noise of a quantized model: outputs agree although a value upstream
differs. If the region of a change could not be shown to compute the same, agreeing outputs are no proof if that value
differs in the very runs in which they agree, or if it is computed from stored numbers that differ and that no run has
read. Stored numbers whose readers differ too are no values that could agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import onnx

from surgery.base.promises import Parity
from surgery.model.proto.extract import cut
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.definitions import Definitions, differing, is_replaced
from surgery.verification.regions.inner_values import form
from surgery.verification.regions.recorded_values import observe
from surgery.verification.regions.tables import differing_tables

if TYPE_CHECKING:
    from surgery.verification.comparing.reference_run import ReferenceRun
    from surgery.verification.regions.regional_verdict import ComparedRegions

_MOST = 8
"""Maximum number of values that are compared."""

_RUNS = 4
"""Runs in which they are compared."""


def hidden_differences(
    original: ReferenceRun, before: bytes, after: bytes, regions: ComparedRegions, promise: Parity, spec: VerifySpec
) -> str:
    """Return a message about a value that differs in its region but in no output; an empty string if there is none."""
    sides = Definitions(before), Definitions(after)
    changed, names = differing(*sides), regions.differing
    computed = [name for name in names if not is_replaced(name, *sides, changed.union(names))]
    difference = _in_runs(original, before, after, computed[:_MOST], ComparisonRules.of(spec, promise))
    if difference is not None and (difference.needed > 1.0 or (difference.bits and promise is Parity.EXACT)):
        return f"inside the models {difference.message.replace('output ', '', 1)}, but no output shows it"
    weights = [name for name in _weights(*sides, changed) if name not in regions.agreeing]
    weights = [name for name in weights if not is_replaced(name, *sides, changed.union(names))]
    if weights and difference is not None:
        more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
        return f"the stored numbers of '{weights[0]}'{more} differ, but no tried input reads them"
    tables = differing_tables(*sides, changed)
    first = next((name for name in names if name in tables), None)
    return f"the stored {tables[first]} of '{first}' differ, but no tried input reads them" if first else ""


def _in_runs(
    original: ReferenceRun, before: bytes, after: bytes, names: Sequence[str], rules: ComparisonRules
) -> OutputDistances | None:
    """Compare values inside both models in some runs; None if that is not possible."""
    sides = []
    feeds = [run.feed for run in original.runs[:_RUNS]]
    for skeleton in (before, after):
        model = cut(onnx.load_model_from_string(skeleton), {}, dict.fromkeys(names))
        sides.append(observe(model, feeds, lambda: original.engine_for(original.engine)))
    mine, theirs = sides
    if mine is None or theirs is None:
        return None
    total = OutputDistances()
    for name in names:
        pairs = [(one[name], other[name]) for one, other in zip(mine, theirs)]
        # A value of another type or shape is another value with the same name.
        if all(form(first) == form(second) for first, second in pairs):
            for first, second in pairs:
                compare({name: first}, {name: second}, rules, total)
    return total


def _weights(before: Definitions, after: Definitions, changed: Iterable[str]) -> list[str]:
    """Return the initializers with the same name whose contents differ."""
    return sorted(name for name in changed if name in before.initializers and name in after.initializers)
