"""Validity of a model: the findings of onnx's checker, whether ONNX Runtime loads it, and whether it runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.base.errors import counted
from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.model import storage
from surgery.model.proto.repair import faults
from surgery.model.runtime.custom_operators import custom_nodes
from surgery.model.runtime.engine import Engine
from surgery.verification.inputs.defaults import listed_weights
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.running.stale_shapes import stale_shapes
from surgery.verification.verdict.checks import CHECK_TIMEOUT, INFERENCE, Checker

if TYPE_CHECKING:
    from surgery.model.storage.loading import Model
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

FREEZING = "initializers-from-inputs"
"""The pass that makes constants of initializers that are also inputs."""

REDECLARING = "redeclare-shapes"
"""The pass that replaces declared shapes that inference contradicts."""


@dataclass(frozen=True)
class Validity(Record, keys="valid=ok findings runtime=refusal? failure? overridable repaired?"):
    """The problems of a model as it is.

    `findings` are those of the checker and of strict shape inference. `refusal` says why ONNX Runtime does not load it;
    this is a `gap` if ONNX Runtime lacks a kernel, library or opset for it, rather than a fault of the model. `failure`
    says why it fails on every input that was tried, and `has_choice` that other sizes of its dynamic dims may be legal.
    `is_evaluated`: the reference evaluator of onnx runs it in place of ONNX Runtime.
    `overridable` is the number of initializers that are also inputs, which is no problem, but keeps passes from them.
    `repairable` is what a run of any recipe repairs, such as the order of nodes, and `repaired` what this run did.
    `stale` are declared shapes that inference contradicts, which the pass `redeclare-shapes` repairs.
    """

    findings: tuple[str, ...] = ()
    refusal: str = ""
    gap: bool = False
    failure: str = ""
    has_choice: bool = False
    is_evaluated: bool = False
    overridable: int = 0
    repaired: str = ""
    repairable: str = ""
    stale: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.findings and not self.refusal and not self.failure

    @property
    def remark(self) -> str:
        """What keeps passes from the weights of the model, and the step that helps; empty if nothing does."""
        if not self.overridable:
            return ""
        count = f"{self.overridable} initializer{' is' if self.overridable == 1 else 's are'}"
        return (
            f"{count} also listed as inputs, which callers may override, so no pass folds or fuses them; the step "
            f"{FREEZING} makes them constants, as does 'surgery apply --freeze-weights'"
        )

    def with_rejection(self, rejection: tuple[str, bool] | None) -> Validity:
        """Return the same with the reason why the model fails on every input, see `ReferenceRun`."""
        failure, has_choice = rejection or ("", False)
        return replace(self, failure=failure, has_choice=has_choice)

    def __repr__(self) -> str:
        """Return a line for a prompt; `str` has the problems."""
        count = len(self.findings) + bool(self.refusal) + bool(self.failure)
        return f"<Validity: {'ok' if self.ok else counted(count, 'problem')}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(text,) for text in (*self.findings, self.refusal, self.failure) if text]
        remarks = [text for text in (self.remark, self.repairable, self.stale) if text]
        return view("listed")(repr(self)[1:-1], "ok" if self.ok else "bad", remarks, ("Problem",), rows, "problems")

    def __str__(self) -> str:
        """Return all problems, in one line."""
        if self.ok:
            return f"valid; {self.remark}" if self.remark else "valid"
        if self.is_evaluated and not self.findings:
            return f"ONNX Runtime rejects it, so the slow reference evaluator of onnx runs it: {self.refusal}"
        if self.gap and not self.findings:
            return f"cannot be run here: {self.refusal}"
        if self.has_choice and not self.findings:
            return f"not known to run: {self.failure}"
        how = "cannot run it" if self.gap else "rejects it"
        refusal = [f"ONNX Runtime {how}: {self.refusal}"] if self.refusal else []
        failure = [f"it fails on every input that was tried: {self.failure}"] if self.failure else []
        repair = [f"{self.repairable}: 'surgery apply tidy MODEL -o OUT' repairs that"] if self.repairable else []
        # A run fails if the output of a subgraph declares another size; then there is nothing to compare with.
        accepted = " --unverified accept" if self.failure or self.refusal else ""
        repair += (
            [f"{self.stale}: 'surgery run {REDECLARING} MODEL -o OUT{accepted}' repairs that"] if self.stale else []
        )
        return f"invalid: {'; '.join([*repair, *self.findings, *refusal, *failure])}"


def validity(stored: storage.StoredModel, spec: VerifySpec, findings: list[str] | None = None) -> Validity:
    """Check a model, unless its `findings` are known, and load it in ONNX Runtime; each in a process with limits."""
    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    if findings is None:
        with closing(Checker(timeout=min(spec.timeout, CHECK_TIMEOUT), memory=spec.memory)) as checker:
            findings = checker.check(skeleton)
    weights = storage.weight_bytes(stored.proto)
    with closing(Engine("onnxruntime", spec.timeout, spec.memory, weights, spec.setup)) as engine:
        outcome = engine.run(skeleton, [])
    # ONNX Runtime knows some plugins of TensorRT by name, and rejects those without all attributes.
    refused = outcome.failure or ""
    named = [f"{node.op_type} '{node.name}'" for node in custom_nodes(stored.proto) if node.name] if refused else []
    gap = outcome.unsupported is not None or any(name in refused for name in named)
    return Validity(
        tuple(findings),
        refused,
        gap,
        overridable=listed_weights(stored.proto),
        repairable=faults(stored.proto),
        stale=stale(stored, findings),
    )


def check(model: Model, *, run: bool = True) -> Validity:
    """Check that a model is valid: the checker of onnx, strict shape inference, and a run in ONNX Runtime.

    Without `run`, ONNX Runtime only loads it.

    Raises ModelFileError if the model cannot be read, and TransferError if a connection breaks. An invalid model does
    not raise: look at `Validity.ok`.
    """
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

    stored = storage.opened(model)
    return validity_of_run(stored, InputsSpec(), VerifySpec()) if run else validity(stored, VerifySpec())


def stale(stored: storage.StoredModel, findings: Sequence[str]) -> str:
    """Describe the declared shapes that inference contradicts, if the findings are about shapes; else empty."""
    doubtful = any(finding.startswith(INFERENCE) for finding in findings)
    return stale_shapes(storage.ir_from_proto(stored.proto)) if doubtful else ""


def validity_of_run(stored: storage.StoredModel, inputs: InputsSpec, spec: VerifySpec) -> Validity:
    """Check and load a model as `validity` does, and run it once, on inputs that are legal for it.

    The checker and shape inference accept what kernels reject: a bias of another length than the channels, a constant
    index out of range. A model that is larger than the memory, or takes too long, is not run.
    """
    found = validity(stored, spec)
    if found.refusal:
        return found
    from surgery.verification.comparing.reference_run import ReferenceRun

    skeleton = storage.without_alias(stored.proto).SerializeToString(deterministic=True)
    run = ReferenceRun(skeleton, with_found_sets(inputs, stored.path), spec, once=True)
    run.prepare()
    return found.with_rejection(run.rejection)
