"""The verdict on a changed model that fails where the original runs."""

from __future__ import annotations

from collections.abc import Sequence

from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, describe
from surgery.verification.comparing.vacuity import Run


def failure_of(outcome: RunOutcome, runs: Sequence[Run]) -> Verdict | None:
    """Return the verdict on a changed model that fails where the original runs; None if it does not fail."""
    if outcome.crash is not None:
        return Verdict(
            Status.DIFFERENT, message=f"the changed model fails where the original runs: {outcome.crash.what}"
        )
    if outcome.unsupported is not None:
        # The reference evaluator could decide, but the original runs in ONNX Runtime, and its users run it there.
        return Verdict(Status.UNVERIFIED, NOT_RUN, message=outcome.unsupported)
    if outcome.invalid is not None:
        return Verdict(Status.DIFFERENT, message=f"the runtime rejects the changed model: {outcome.invalid}")
    for run, result in zip(runs, outcome.runs):
        if isinstance(result, str):
            return Verdict(
                Status.DIFFERENT, message=f"the changed model fails where the original runs: {result}{describe(run)}"
            )
    return None
