"""Compare the models of a chain of passes with the original, each in the terms of its signature.

A pass may change the signature if it declares so. From then on, the new signature must stay, and only the inputs and
outputs that the original and the changed model both have are compared. The changed model is seen under the original's
names, and the original through the new signature, see `references`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import first_few
from surgery.base.promises import Change, Parity
from surgery.model.proto.signature import Signature, SignaturePort, signature
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.accuracy.measured_part import MeasuredPart, unmeasured
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.inputs import given
from surgery.verification.inputs.spec import InputsSpec, MetricLimit, VerifySpec
from surgery.verification.signature import intended as trial
from surgery.verification.signature.references import Accounts, References
from surgery.verification.signature.terms import Names, SignatureView, onnx_model
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Model = tuple["onnx.ModelProto", bytes]

_MOST_NAMED = 3


class SignatureTracker:
    """Checks the models of a chain against their signature and the results of the original.

    Throughout, `renamed` maps inputs and outputs of the model that was committed last to their names in a new one, and
    `accounts` describe how they follow from each other. Raises RecipeError or UsageError for calibration or evaluation
    data that does not fit the original, which only a later step would read.
    """

    def __init__(self, original: bytes, inputs: InputsSpec, spec: VerifySpec) -> None:
        if data := (*inputs.calibration.data, *spec.accuracy.samples.data):
            given.check(original, data)
        self.references = References(original, inputs, spec)
        self._spec = spec
        self.deploys_on = ""
        """The execution provider or runtime that models are made for, on which they run as deployed where it starts."""

    @property
    def verifier(self) -> Verifier:
        """The verifier for models with the signature of the committed one."""
        return self.references.terms.verifier

    def names(
        self, model: onnx.ModelProto, declared: Collection[Change], said: Names, accounts: Accounts = ()
    ) -> Names:
        """Return the new names of inputs and outputs: as the pass says, or as they can be matched by order."""
        if said or accounts or "names" not in declared:
            return said
        return match_by_order(self.references.terms.signature, signature(model))

    def complaints(self, model: onnx.ModelProto, declared: Collection[Change], renamed: Names) -> Iterator[str]:
        """Yield the differences in the signature of a changed model that its pass does not declare."""
        for deviation in self.references.terms.signature.compare(signature(model), renamed):
            if deviation.change not in declared:
                yield f"{deviation.text}; the pass does not declare that it changes {deviation.change}"

    def verify(
        self,
        model: onnx.ModelProto,
        data: bytes,
        promise: Parity,
        renamed: Names,
        accounts: Accounts = (),
        later: tuple[int, Model] | None = None,
    ) -> Verdict:
        """Compare a changed model, given as a message and as bytes, with the original.

        A model with a promise of INTENDED is not compared but run by itself, see `intended`. `later` is the model after
        later steps, see `Verifier.verify`.
        """
        references, current = self.references, self.references.terms
        if promise is Parity.INTENDED:
            terms = references.fresh_terms(model, data)
            verdict = trial.examine(terms.verifier.original, current.verifier, current.match)
        elif promise is Parity.LOSSY:
            terms = references.accurate_terms(model, renamed, accounts)
            verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), promise)
        else:
            terms = references.comparable(model, renamed, accounts)
            before = references.aligned() if terms is current and self._compares_regions(promise) else None
            made = None
            if later is not None and before is not None and self.keeps_terms(later[1][0], promise, {}, ()):
                made = later[0], terms.align(*later[1])
            problem = terms.problem(model)
            verdict = problem or terms.verifier.verify(terms.align(model, data), promise, before, made)
            if terms is current and verdict.reason == VACUOUS and self._looks_into_regions:
                verdict = terms.verifier.look_inside(references.aligned(), terms.align(model, data), promise, verdict)
            if problem is None and terms is not current and verdict.reason == NOT_RUN:
                # Nodes may be the same although the original, with a custom operator, does not run.
                verdict = terms.verifier.confirm(terms.align(model, data), verdict, promise)
            if verdict.passed and terms is not current:
                verdict = self._at_other_sizes(terms, model, data) or verdict
            references.is_right = references.is_right or (verdict.passed and data == references.committed)
        changes = [deviation.text for deviation in current.signature.compare(terms.signature, renamed)]
        remarks = [
            *([first_few(changes, _MOST_NAMED, ";")] if changes else ()),
            *(f"output '{name}' is not compared" for name in terms.incomparable),
        ]
        remarks += terms.remarks if terms is not current else ()
        remarks += [terms.hint(model)] if verdict.reason == NOT_RUN and terms.hint(model) else []
        return replace(verdict, message="; ".join([verdict.message, *remarks])) if remarks else verdict

    def compare_ahead(self, before: Model, after: Model, promise: Parity) -> bool:
        """Compare a model with the model it was made from, before that one is verified.

        Return whether the whole model has to be compared.
        """
        terms = self.references.terms
        if not self._compares_regions(promise):
            return False
        return not terms.verifier.compare_ahead(terms.align(*before), terms.align(*after), promise)

    def keeps_terms(self, model: onnx.ModelProto, promise: Parity, renamed: Names, accounts: Accounts) -> bool:
        """Return whether a changed model will be compared with the same reference as the committed one."""
        if promise is Parity.INTENDED or accounts:
            return False
        return not self.references.terms.signature.compare(signature(model), renamed)

    def _compares_regions(self, promise: Parity) -> bool:
        """Return whether a change may be compared with the committed model, which must be verified step by step.

        The loss of a LOSSY step is measured at the outputs.
        """
        is_stepwise = self._spec.mode == "each" and self._spec.compare == "region"
        return is_stepwise and self.references.is_right and promise is not Parity.LOSSY

    @property
    def _looks_into_regions(self) -> bool:
        """Whether the region of a change is compared if outputs of the whole model prove nothing."""
        return self._spec.mode == "each" and self._spec.compare == "both" and self.references.is_right

    def verify_whole(self, model: onnx.ModelProto, data: bytes) -> Verdict:
        """Compare a committed model as a whole with the original, within rounding."""
        terms = self.references.comparable(model, {}, ())
        if not self.deploys_on:
            terms.verifier.deploy_ahead()
        verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), Parity.CLOSE)
        self.references.is_right = self.references.is_right or verdict.passed
        if self.references.accurate is not None and verdict.passed:
            accurate = self.references.accurate_terms(model, {}, ())
            return accurate.problem(model) or accurate.verifier.verify(accurate.align(model, data), Parity.LOSSY)
        return verdict

    def deploy(
        self,
        model: onnx.ModelProto,
        data: bytes,
        renamed: Names,
        accounts: Accounts = (),
        *,
        with_original: bool = False,
    ) -> Deployed:
        """Run a changed model as deployed, and compare it with the original, see `Verifier.deploy`."""
        terms = self.references.comparable(model, renamed, accounts)
        problem = terms.problem(model)
        if problem is not None:
            return Deployed(problem)
        if not self.references.is_right:
            message = "it is not shown to be right as written"
            return Deployed(Verdict(Status.UNVERIFIED, NOT_RUN, message=message))
        return terms.verifier.deploy(terms.align(model, data), target=self.deploys_on, with_original=with_original)

    def take_whole(self, verdict: Verdict) -> None:
        """Take over a verdict of `verify_whole`, possibly from an earlier run."""
        self.references.is_right = self.references.is_right or verdict.status.accepted

    def measure(
        self,
        model: onnx.ModelProto,
        data: bytes,
        renamed: Names,
        accounts: Accounts = (),
        *,
        optimized: bool = False,
        sets: tuple[int, ...] = (),
    ) -> Loss:
        """Measure the loss of the outputs of a model made by a LOSSY step, see `Evaluation.measure`."""
        terms = self.references.accurate_terms(model, renamed, accounts)
        problem = terms.problem(model)
        if problem is not None:
            return Loss({}, problem.message)
        return terms.verifier.measure(terms.align(model, data), optimized=optimized, sets=sets)

    def unmeasured(self, model: onnx.ModelProto) -> Collection[str]:
        """Return the results of the nodes of the committed model on which nothing that is measured depends.

        These are nodes downstream of custom operators that keep the original from running, for example.
        """
        return () if self._lossy_terms.verifier.part is None else unmeasured(model)

    def measured(self, before: onnx.ModelProto, after: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto, str]:
        """Return the parts of two models in which a loss is measured, and where these end; empty for whole models."""
        if self._lossy_terms.verifier.part is not None:
            part = MeasuredPart.of(before.SerializeToString(deterministic=True))
            changed = None if part is None else part.of_changed(after.SerializeToString(deterministic=True))
            if part is not None and changed is not None:
                return onnx_model(part.skeleton), onnx_model(changed), f"before {part.custom}"
        return before, after, ""

    @property
    def _lossy_terms(self) -> SignatureView:
        """The terms in which the losses of LOSSY steps are measured."""
        return self.references.accurate or self.references.terms

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """The budget of LOSSY steps."""
        return self.references.terms.verifier.accuracy.limits

    def calibration(self) -> list[Mapping[str, Any]]:
        """Return the calibration inputs, under the names of the committed model."""
        terms = self._lossy_terms
        names = dict(terms.match.inputs)
        found = terms.verifier.calibration.feeds
        return [{names.get(name, name): array for name, array in feed.items()} for feed in found]

    @property
    def draws_calibration(self) -> bool:
        """Whether the calibration inputs are drawn."""
        return self._lossy_terms.verifier.calibration.synthetic

    def close(self) -> None:
        """Forget the outputs of the original, and stop its preparation."""
        self.references.close()

    def _at_other_sizes(self, terms: SignatureView, model: onnx.ModelProto, data: bytes) -> Verdict | None:
        """Run the model at other sizes of newly dynamic dims; both models are compared only at the previous number."""
        if not terms.freed:
            return None
        inputs = replace(terms.inputs_for(model, self._spec)[0], data=(), only_given=False)
        with closing(Verifier(data, inputs, self._spec)) as verifier:
            return trial.runs_elsewhere(verifier.original, terms.freed)


def match_by_order(before: Signature, after: Signature) -> dict[str, str]:
    """Match removed ports with new ones, in order, if there are as many and their types agree.

    This is for passes over another API, which cannot say what they renamed.
    """
    renamed: dict[str, str] = {}
    for mine, theirs in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        gone, new = _only_in(mine, theirs), _only_in(theirs, mine)
        if [port.type for port in gone] == [port.type for port in new]:
            renamed |= {old.name: port.name for old, port in zip(gone, new)}
    return renamed


def _only_in(ports: tuple[SignaturePort, ...], others: tuple[SignaturePort, ...]) -> list[SignaturePort]:
    names = {port.name for port in others}
    return [port for port in ports if port.name not in names]
