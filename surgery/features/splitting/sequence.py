"""Verification of pieces: run in sequence in separate sessions, they must give the results of the whole model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from surgery.base.promises import Parity
from surgery.features.splitting.cutting import Piece, together
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker, new_findings
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx


def verify(model: onnx.ModelProto, parts: Sequence[Piece], inputs: InputsSpec, spec: VerifySpec) -> Verdict:
    """Verify that pieces are valid models and, in sequence, bit-identical to the whole model.

    If the outputs prove nothing or the whole model cannot run, the merged pieces are compared with it node by node.
    """
    data = [_bytes(part.proto) for part in parts]
    fault = _fault(_bytes(model), data, spec)
    if fault:
        return Verdict(Status.DIFFERENT, message=fault)
    with closing(Verifier(_bytes(model), inputs, spec, seeded=False)) as verifier:
        made = _bytes(together(model, parts))
        verdict = verifier.verify(made, Parity.EXACT)
        verdict = verifier.confirm(made, verdict, Parity.EXACT) if verdict.is_unverified else verdict
        if not verdict.passed:
            return verdict
        outputs = [value.name for value in model.graph.output]
        run = partial(_run, list(zip(parts, data, strict=True)), outputs)
        in_sequence = verifier.judge(run, Parity.EXACT)
        return verdict if in_sequence.is_unverified else in_sequence  # what proves nothing was compared as one model


def _fault(original: bytes, parts: Sequence[bytes], spec: VerifySpec) -> str:
    """Return the first finding of the checker in a piece that the original does not have; empty if there is none."""
    known: list[str] | None = None
    with closing(Checker(timeout=min(spec.timeout, CHECK_TIMEOUT), memory=spec.memory)) as checker:
        for number, part in enumerate(parts, start=1):
            findings = checker.check(part)
            if findings and known is None:
                known = checker.check(original)
            for finding in new_findings(known or [], findings):
                return f"piece {number}: {finding}"
    return ""


def _run(
    pieces: Sequence[tuple[Piece, bytes]], outputs: Sequence[str], runs: Sequence[Run], engine: Callable[[], Engine]
) -> RunOutcome:
    """Run the pieces one after another, each in a session of its own, on the inputs of some runs."""
    known: list[dict[str, Any]] = [dict(run.feed) for run in runs]
    seconds = [0.0] * len(known)
    for number, (part, data) in enumerate(pieces, start=1):
        names = {*part.inputs, *part.defaults}
        feeds = [{key: value for key, value in values.items() if key in names} for values in known]
        with closing(engine()) as session:
            outcome = session.run(data, feeds)
        if outcome.failure is not None:
            return _blame(outcome, number)
        for values, made in zip(known, outcome.runs, strict=True):
            if isinstance(made, str):
                return RunOutcome(invalid=f"piece {number}: {made}")
            values.update(made)
        seconds = [before + now for before, now in zip(seconds, outcome.seconds, strict=False)]
    return RunOutcome(runs=[{name: values[name] for name in outputs} for values in known], seconds=seconds)


def _blame(outcome: RunOutcome, number: int) -> RunOutcome:
    """Add the number of the piece that cannot be run to an outcome; a crash is returned unchanged."""
    if outcome.unsupported is not None:
        return replace(outcome, unsupported=f"piece {number}: {outcome.unsupported}")
    return outcome if outcome.crash is not None else replace(outcome, invalid=f"piece {number}: {outcome.invalid}")


def _bytes(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data
