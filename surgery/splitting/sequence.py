"""Verification of pieces: run in sequence in separate sessions, they must give the results of the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.promises import Parity
from surgery.runtime.engine import Engine, EngineName, Outcome
from surgery.splitting.cutting import Piece, together
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker, new_findings
from surgery.verification.verdict.verifier import Verdict, Verifier

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
    with closing(_InSequence(model, list(zip(parts, data, strict=True)), inputs, spec)) as verifier:
        made = _bytes(together(model, parts))
        verdict = verifier.verify(made, Parity.EXACT)
        return verifier.confirm(made, verdict, Parity.EXACT) if verdict.is_unverified else verdict


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


class _InSequence(Verifier):
    """A verifier that runs the pieces in sequence instead of a changed model.

    The changed model that it receives consists of the merged pieces; it is examined only if outputs alone prove
    nothing.
    """

    def __init__(
        self, model: onnx.ModelProto, parts: Sequence[tuple[Piece, bytes]], inputs: InputsSpec, spec: VerifySpec
    ) -> None:
        super().__init__(_bytes(model), inputs, spec)
        self._parts = parts
        self._outputs = [value.name for value in model.graph.output]

    def _run(self, skeleton: bytes, name: EngineName) -> Outcome:
        original, spec = self._original, self._verify
        known: list[dict[str, Any]] = [dict(run.feed) for run in original.runs]
        seconds = [0.0] * len(known)
        for number, (part, data) in enumerate(self._parts, start=1):
            names = {*part.inputs, *part.defaults}
            feeds = [{key: value for key, value in values.items() if key in names} for values in known]
            engine = Engine(name, spec.timeout, spec.memory, original.weights, spec.setup)
            with closing(engine):
                outcome = engine.run(data, feeds)
            if outcome.failure is not None:
                return _blame(outcome, number)
            for values, made in zip(known, outcome.runs, strict=True):
                if isinstance(made, str):
                    return Outcome(invalid=f"piece {number}: {made}")
                values.update(made)
            seconds = [before + now for before, now in zip(seconds, outcome.seconds, strict=False)]
        return Outcome(runs=[{name: values[name] for name in self._outputs} for values in known], seconds=seconds)


def _blame(outcome: Outcome, number: int) -> Outcome:
    """Add the number of the piece that cannot be run to an outcome; a crash is returned unchanged."""
    if outcome.unsupported is not None:
        return replace(outcome, unsupported=f"piece {number}: {outcome.unsupported}")
    return outcome if outcome.crash is not None else replace(outcome, invalid=f"piece {number}: {outcome.invalid}")


def _bytes(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data
