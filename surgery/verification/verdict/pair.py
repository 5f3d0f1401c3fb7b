"""Verification of any two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.promises import Parity
from surgery.base.views import view
from surgery.model import storage
from surgery.model.proto.signature import signature
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.ports import By, PortMatch, by_name, by_position, mismatch, narrowed, rename
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Data = str | Path | Mapping[str, Any]
"""A set of inputs: a `.npz`, a folder of test sets, or arrays by input name."""


Given = InputsSpec | Data | Sequence[Data] | None
"""Settings for the inputs, or sets of them."""

Interface = Literal["keep", "may-narrow"]
"""Whether the second model must accept everything that the first one accepts."""


@dataclass(frozen=True)
class Pair(Record, keys="ok *verdict by inputs outputs signature narrowed findings deployed bindings"):
    """The verdict on two models, the differences of their signatures by name, and the inputs that they ran on.

    `inputs` and `outputs` are the matched names. `accepts` says whether an unverified result is acceptable. `narrowed`
    lists what only the first model accepts, `findings` what the checker finds in the second one alone: with findings,
    or if the interface is narrowed although it may not be, the models do not agree. `deployed` is the result of running
    the second model with the default options of ONNX Runtime, None if that was not requested or the models differ
    without them; if that is wrong, so is the verdict.

    In its JSON form, `bindings` are the sets of inputs, each with `dims`, `character` (the kind of data, or the name of
    a given set), `seed` (null for a given set), `refused` (why the original rejects it) and `expected_outputs`
    ("reproduced", or where the original differs from the outputs that came with it).
    """

    verdict: Verdict
    signature: tuple[str, ...]
    bindings: tuple[dict[str, Any], ...]
    by: By = "name"
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    accepts: bool = False
    narrowed: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    interface: Interface = "keep"
    deployed: Deployed | None = None

    @property
    def complaints(self) -> tuple[str, ...]:
        """The problems of the second model, regardless of its outputs."""
        return (*(self.narrowed if self.interface == "keep" else ()), *self.findings)

    @property
    def ok(self) -> bool:
        """Whether the models agree, or an unverified result is accepted, and there are no complaints."""
        agrees = self.verdict.passed or (self.accepts and self.verdict.is_unverified)
        return agrees and not self.complaints

    def __repr__(self) -> str:
        """Return a line for a prompt; `to_json` tells more."""
        sets = f"{len(self.bindings)} input {'set' if len(self.bindings) == 1 else 'sets'}"
        return f"<Pair: {'ok' if self.ok else 'not ok'}, {self.verdict.status.value} on {sets}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(kind, *pair) for kind in ("inputs", "outputs") for pair in getattr(self, kind)]
        remarks = [text for text in (self.verdict.message, *self.complaints) if text]
        return view("listed")(
            repr(self)[1:-1], "ok" if self.ok else "bad", remarks, ("", "First", "Second"), rows, "inputs and outputs"
        )


def verify(
    original: str | Path | onnx.ModelProto | storage.StoredModel,
    changed: str | Path | onnx.ModelProto | storage.StoredModel,
    *,
    by: By = "name",
    inputs: Given = None,
    spec: VerifySpec | None = None,
    promise: Parity = Parity.CLOSE,
    interface: Interface = "keep",
    deploys_on: str = "",
) -> Pair:
    """Run two models (files, or messages in memory) on the same inputs and compare their outputs.

    Inputs and outputs are matched by name or by position. `inputs` are settings for the inputs, or sets of them: paths,
    or dicts of arrays. They are inputs of the original, which is assumed to be right; a test set next to its file is
    used too. The second model has to pass the checker if the first one does, and to accept everything that the first
    one accepts, unless its `interface` may narrow. `deploys_on` is the execution provider or the other runtime on which
    it runs as deployed.

    Raises UsageError for inputs that cannot be read or do not fit the original, ModelFileError if a model cannot be
    read, and TransferError if a connection breaks. A negative verdict does not raise: look at `Pair.ok`.
    """
    # Both stay loaded, because their weights may be in files that are removed along with them.
    sides = [storage.opened(model) for model in (original, changed)]
    first, second = (storage.without_alias(side.proto) for side in sides)
    given = with_found_sets(spec_of(inputs), Path(original) if isinstance(original, str | Path) else None)
    spec = spec or VerifySpec()
    match = by_position(first, second) if by == "position" else by_name(first, second)
    differences = signature(first).differences(signature(second))
    deployed = None
    with closing(Verifier(_bytes(first), given, spec)) as verifier:
        if given.data:
            # The outputs that came with the sets test the original even if the two models are the same.
            verifier.original.prepare()
        wrong = mismatch(first, second, match)
        if wrong is not None:
            verdict = Verdict(Status.DIFFERENT, message=f"{wrong}{_hint(first, second, by)}")
        else:
            renamed = _bytes(rename(second, match) if match.renames else second)
            verdict = verifier.confirm(renamed, verifier.verify(renamed, promise), promise)
            lost = len(match.outputs) < len(first.graph.output)
            if lost and verdict.is_different:
                verdict = replace(verdict, message=f"{verdict.message}{_hint(first, second, by)}")
            runs = bool(deploys_on) or not verifier.is_original(renamed)
            if spec.deployment != "off" and runs and not verdict.is_different:
                deployed = verifier.deploy(renamed, target=deploys_on)
                verdict = verdict if deployed.ok else deployed.verdict
        findings = _findings(first, second, spec, verifier)
        return Pair(
            verdict,
            tuple(differences),
            tuple(verifier.original.bindings),
            by,
            match.inputs,
            match.outputs,
            spec.unverified == "accept",
            tuple(narrowed(first, second, match)),
            tuple(findings),
            interface,
            deployed,
        )


def _findings(first: onnx.ModelProto, second: onnx.ModelProto, spec: VerifySpec, verifier: Verifier) -> list[str]:
    """Return what the checker finds in the second model but not in the first one."""
    with closing(Checker(timeout=min(spec.timeout, CHECK_TIMEOUT), memory=spec.memory)) as checker:
        before, after = _bytes(first), _bytes(second)
        found = checker.check(after)
        return checker.new(before, checker.check(before), after, found, verifier.misdeclared) if found else []


def _bytes(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def spec_of(inputs: Given) -> InputsSpec:
    """Return the settings for inputs that are given as such, or as sets; raise UsageError for anything else."""
    if inputs is None:
        return InputsSpec()
    if isinstance(inputs, InputsSpec):
        return inputs
    return InputsSpec(data=DataSpec.each(inputs))


def _hint(first: onnx.ModelProto, second: onnx.ModelProto, by: By) -> str:
    """Suggest the other way of matching if it would work."""
    if by == "position" or len(first.graph.output) != len(second.graph.output):
        return ""
    try:
        found: PortMatch = by_position(first, second)
    except UsageError:
        return ""
    return "; --by position matches them by their order" if found.renames else ""
