"""Validity of a model: the findings of onnx's checker, and whether ONNX Runtime loads it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgery.runtime.engine import Engine
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker

if TYPE_CHECKING:
    from surgery import storage
    from surgery.verification.inputs.spec import VerifySpec


@dataclass(frozen=True)
class Validity:
    """The problems of a model as it is.

    `findings` are those of the checker and of strict shape inference. `refusal` says why ONNX Runtime does not load it;
    this is a `gap` if ONNX Runtime lacks a kernel, library or opset for it, rather than a fault of the model.
    """

    findings: tuple[str, ...] = ()
    refusal: str = ""
    gap: bool = False

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.findings and not self.refusal

    def __str__(self) -> str:
        """Return all problems, in one line."""
        if self.ok:
            return "valid"
        if self.gap and not self.findings:
            return f"cannot be run here: {self.refusal}"
        how = "cannot run it" if self.gap else "rejects it"
        refusal = [f"ONNX Runtime {how}: {self.refusal}"] if self.refusal else []
        return f"invalid: {'; '.join([*self.findings, *refusal])}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"valid": self.ok, "findings": list(self.findings), "runtime": self.refusal or None}


def validity(stored: storage.StoredModel, spec: VerifySpec, findings: list[str] | None = None) -> Validity:
    """Check a model, unless its `findings` are known, and load it in ONNX Runtime; each in a process with limits."""
    from surgery import storage

    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    if findings is None:
        with closing(Checker(timeout=min(spec.timeout, CHECK_TIMEOUT), memory=spec.memory)) as checker:
            findings = checker.check(skeleton)
    weights = storage.weight_bytes(stored.proto)
    with closing(Engine("onnxruntime", spec.timeout, spec.memory, weights, spec.setup)) as engine:
        outcome = engine.run(skeleton, [])
    return Validity(tuple(findings), outcome.failure or "", outcome.unsupported is not None)
