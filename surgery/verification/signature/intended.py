"""A model with intended changes of its results: they are not compared, but the model is run.

It must run on inputs that are legal for it, in ONNX Runtime if the previous model runs there. And its outputs must be
numbers: where the previous model gives finite outputs for the same inputs, it must not give NaN or infinity, and an
output that the previous model does not have must be finite for at least one set of inputs. This applies to ordinary
data; data that is meant to reach the limits of a type's range may exceed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import is_float
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, describe
from surgery.verification.comparing.ports import PortMatch
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run, tensors
from surgery.verification.signature.terms import Freed
from surgery.verification.verdict.verifier import Verifier

_EXTREME = ("edges", "wide", "special")


def examine(changed: ReferenceRun, before: Verifier, match: PortMatch) -> Verdict:
    """Run a changed model by itself; `match` maps inputs and outputs of the model before it to its own."""
    changed.prepare()
    if changed.problem is not None:
        before.original.prepare()
        problem = changed.problem.replace("the original", "the changed model")
        if before.original.problem is not None or changed.gap:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=problem)
        return Verdict(Status.DIFFERENT, message=f"the changed model does not run: {problem}")
    fault = _not_finite(changed, before, match)
    if fault:
        return Verdict(Status.DIFFERENT, message=fault)
    count = len(changed.runs)
    inputs = "1 set of inputs" if count == 1 else f"{count} sets of inputs"
    return Verdict(
        Status.INTENDED, message=f"intended change: not compared; it runs on {inputs}, and its outputs are finite"
    )


def runs_elsewhere(changed: ReferenceRun, freed: Sequence[Freed]) -> Verdict | None:
    """Return the verdict on a changed model that runs at no other extent of a newly dynamic dim; None if it does."""
    changed.prepare()
    if changed.problem is not None:
        problem = changed.problem.replace("the original", "the changed model")
        return Verdict(Status.DIFFERENT, message=f"the changed model does not run at other dims: {problem}")
    for dim in freed:
        seen = {np.shape(run.feed[dim.port])[dim.axis] for run in changed.runs if dim.port in run.feed}
        if seen == {dim.extent}:
            refused = next((binding["refused"] for binding in changed.bindings if "refused" in binding), "")
            what = f"dim {dim.axis} of input '{dim.port}' is now dynamic, but the model only runs at {dim.extent}"
            return Verdict(Status.DIFFERENT, message=f"{what}{f': {refused}' if refused else ''}")
    return None


def _not_finite(changed: ReferenceRun, before: Verifier, match: PortMatch) -> str:
    """Return which output is NaN or infinite where it should not be; an empty string if none is."""
    runs = [run for run in changed.runs if run.binding.character not in _EXTREME]
    faulty = {name for run in runs for name, value in run.outputs.items() if not _is_finite(value)}
    if not faulty:
        return ""
    references = _run_before(before, match, runs)
    theirs = {now: own for own, now in match.outputs}
    for name in sorted(faulty):
        own = theirs.get(name, "")
        known = [(run, other) for run, other in zip(runs, references) if own in other]
        for run, other in known:
            if _is_finite(other[own]) and not _is_finite(run.outputs[name]):
                return f"output '{name}' is not finite, unlike in the previous model{describe(run)}"
        if not known and not any(_is_finite(run.outputs[name]) for run in runs):
            return f"output '{name}' is not finite in any run"
    return ""


def _run_before(before: Verifier, match: PortMatch, runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """Run the previous model on the inputs that it shares with the changed one; return no outputs where it fails."""
    names = dict(match.inputs)
    feeds = [{own: run.feed[now] for own, now in names.items() if now in run.feed} for run in runs]
    return [{} if isinstance(outputs, str) else outputs for outputs in before.run(feeds)]


def _is_finite(value: Any) -> bool:
    return all(bool(np.isfinite(one.astype(np.float64)).all()) for one in tensors(value) if is_float(one.dtype))
