"""Track the reference of a chain of passes: a signature, and an original.

A pass may change the signature if it declares so. From then on, the new signature must stay, and only the inputs and
outputs that the original and the changed model both have are compared. For this, the original is seen through the new
signature: it keeps the remaining outputs, inputs that no longer exist are bound, and dims are those declared now. The
changed model is seen under the original's names. If a pass says how an input or output follows from the previous ones,
the nodes for that are put around the original. If a pass intends to compute something else, its result is the original
from then on; so is a verified model, if the next one has inputs or outputs that the original does not know. The result
of a LOSSY pass is the original for the passes after it, too, except for LOSSY ones: the loss of all of them is measured
against the model before the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import PassError
from surgery.base.promises import Change, Parity
from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.proto.ports import by_name
from surgery.model.proto.signature import Port, Signature, signature
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.inputs.spec import InputsSpec, MetricLimit, VerifySpec
from surgery.verification.signature import intended as trial
from surgery.verification.signature.relating import Settled
from surgery.verification.signature.terms import Names, SignatureView, onnx_model, see
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Accounts = tuple[SignatureMapping, ...]
Model = tuple["onnx.ModelProto", bytes]

_MOST_TOLD = 3


@dataclass(frozen=True)
class _Next:
    """The terms for the model identified by `key`, and the terms for the committed model in that comparison."""

    key: object
    terms: SignatureView
    before: SignatureView


class SignatureTracker:
    """Checks the models of a chain against their signature and the results of the original.

    Throughout, `renamed` maps inputs and outputs of the model that was committed last to their names in a new one, and
    `accounts` describe how they follow from each other.
    """

    def __init__(self, original: bytes, inputs: InputsSpec, spec: VerifySpec) -> None:
        import onnx

        model = onnx.load_model_from_string(original)
        self.first = signature(model)
        self._spec = spec
        self._terms = SignatureView(
            self.first, original, by_name(model, model), inputs, Verifier(original, inputs, spec)
        )
        self._next: _Next | None = None
        self._committed = original
        self._seen: tuple[SignatureView, bytes, bytes] | None = None
        self._is_right = True  # whether the committed model holds against the original
        self._accurate: SignatureView | None = None  # the reference of LOSSY steps, once there was one
        self.deploys_on = ""
        """The execution provider or runtime that models are made for, on which they run as deployed where it starts."""

    @property
    def verifier(self) -> Verifier:
        """The verifier for models with the signature of the committed one."""
        return self._terms.verifier

    def names(
        self, model: onnx.ModelProto, declared: Collection[Change], said: Names, accounts: Accounts = ()
    ) -> Names:
        """Return the new names of inputs and outputs: as the pass says, or as they can be matched by order."""
        if said or accounts or "names" not in declared:
            return said
        return _match_by_order(self._terms.signature, signature(model))

    def complaints(self, model: onnx.ModelProto, declared: Collection[Change], renamed: Names) -> Iterator[str]:
        """Yield the differences in the signature of a changed model that its pass does not declare."""
        for deviation in self._terms.signature.compare(signature(model), renamed):
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
        if promise is Parity.INTENDED:
            terms = self._fresh_terms(model, data)
            verdict = trial.examine(terms.verifier.original, self._terms.verifier, self._terms.match)
        elif promise is Parity.LOSSY:
            terms = self._accurate_terms(model, renamed, accounts)
            verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), promise)
        else:
            terms = self._comparable(model, renamed, accounts)
            before = self._aligned() if terms is self._terms and self._compares_regions(promise) else None
            made = None
            if later is not None and before is not None and self.keeps_terms(later[1][0], promise, {}, ()):
                made = later[0], terms.align(*later[1])
            verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), promise, before, made)
            if terms is self._terms and verdict.reason == VACUOUS and self._looks_into_regions:
                verdict = terms.verifier.look_inside(self._aligned(), terms.align(model, data), promise, verdict)
            if verdict.passed and terms is not self._terms:
                verdict = self._at_other_sizes(terms, model, data) or verdict
            self._is_right = self._is_right or (verdict.passed and data == self._committed)
        changes = [deviation.text for deviation in self._terms.signature.compare(terms.signature, renamed)]
        remarks = [*_some(changes), *(f"output '{name}' is not compared" for name in terms.incomparable)]
        remarks += terms.remarks if terms is not self._terms else ()
        remarks += [terms.hint(model)] if verdict.reason == NOT_RUN and terms.hint(model) else []
        return replace(verdict, message="; ".join([verdict.message, *remarks])) if remarks else verdict

    def compare_ahead(self, before: Model, after: Model, promise: Parity) -> bool:
        """Compare a model with the model it was made from, before that one is verified.

        Return whether the whole model has to be compared.
        """
        terms = self._terms
        if not self._compares_regions(promise):
            return False
        return not terms.verifier.compare_ahead(terms.align(*before), terms.align(*after), promise)

    def keeps_terms(self, model: onnx.ModelProto, promise: Parity, renamed: Names, accounts: Accounts) -> bool:
        """Return whether a changed model will be compared with the same reference as the committed one."""
        changes = promise is Parity.INTENDED or accounts or self._terms.signature.compare(signature(model), renamed)
        return not changes

    def _compares_regions(self, promise: Parity) -> bool:
        """Return whether a change may be compared with the committed model, which must be verified step by step.

        The loss of a LOSSY step is measured at the outputs.
        """
        spec = self._spec
        return spec.mode == "each" and spec.compare == "region" and self._is_right and promise is not Parity.LOSSY

    @property
    def _looks_into_regions(self) -> bool:
        """Whether the region of a change is compared if outputs of the whole model prove nothing."""
        return self._spec.mode == "each" and self._spec.compare == "both" and self._is_right

    def verify_whole(self, model: onnx.ModelProto, data: bytes) -> Verdict:
        """Compare a committed model as a whole with the original, within rounding."""
        terms = self._comparable(model, {}, ())
        verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), Parity.CLOSE)
        self._is_right = self._is_right or verdict.passed
        if self._accurate is not None and verdict.passed:
            accurate = self._accurate_terms(model, {}, ())
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
        terms = self._comparable(model, renamed, accounts)
        problem = terms.problem(model)
        if problem is not None:
            return Deployed(problem)
        if not self._is_right:
            message = "it is not shown to be right as written"
            return Deployed(Verdict(Status.UNVERIFIED, NOT_RUN, message=message))
        return terms.verifier.deploy(terms.align(model, data), target=self.deploys_on, with_original=with_original)

    def take_whole(self, verdict: Verdict) -> None:
        """Take over a verdict of `verify_whole`, possibly from an earlier run."""
        self._is_right = self._is_right or verdict.status.accepted

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
        terms = self._accurate_terms(model, renamed, accounts)
        problem = terms.problem(model)
        if problem is not None:
            return Loss({}, problem.message)
        return terms.verifier.measure(terms.align(model, data), optimized=optimized, sets=sets)

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """The budget of LOSSY steps."""
        return self._terms.verifier.accuracy.limits

    def calibration(self) -> list[Mapping[str, Any]]:
        """Return the calibration inputs, under the names of the committed model."""
        terms = self._accurate or self._terms
        names = dict(terms.match.inputs)
        found = terms.verifier.calibration.feeds
        return [{names.get(name, name): array for name, array in feed.items()} for feed in found]

    @property
    def draws_calibration(self) -> bool:
        """Whether the calibration inputs are drawn."""
        return (self._accurate or self._terms).verifier.calibration.synthetic

    def _accurate_terms(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> SignatureView:
        """Return the terms for comparing a changed model with the model before the first LOSSY step."""
        if self._accurate is None:
            return self._terms_of(model, renamed, accounts)
        found = signature(model)
        if not accounts and not self._accurate.signature.compare(found, renamed):
            return self._accurate
        return self._accurate.after(model, found, renamed, accounts, self._spec)

    def _aligned(self) -> bytes:
        """Return the committed model under the names of the original."""
        terms, committed = self._terms, self._committed
        if self._seen is None or self._seen[0] is not terms or self._seen[1] != committed:
            self._seen = terms, committed, terms.align(onnx_model(committed), committed)
        return self._seen[2]

    def _at_other_sizes(self, terms: SignatureView, model: onnx.ModelProto, data: bytes) -> Verdict | None:
        """Run the model at other sizes of newly dynamic dims; both models are compared only at the previous number."""
        if not terms.freed:
            return None
        inputs = replace(terms.inputs_for(model, self._spec)[0], data=(), only_given=False)
        with closing(Verifier(data, inputs, self._spec)) as verifier:
            return trial.runs_elsewhere(verifier.original, terms.freed)

    def compared(
        self, before: onnx.ModelProto, after: onnx.ModelProto, renamed: Names, accounts: Accounts = ()
    ) -> tuple[Verifier, onnx.ModelProto, onnx.ModelProto]:
        """Return the verifier, and the committed and the changed model in the form in which they are compared."""
        import onnx

        terms = self._comparable(after, renamed, accounts)
        own = self._terms if self._next is None or self._next.terms is not terms else self._next.before
        mine, theirs = (
            onnx.load_model_from_string(known.align(model, model.SerializeToString(deterministic=True)))
            for known, model in ((own, before), (terms, after))
        )
        if terms is not self._terms:
            mine = terms.settled.around(mine)
        return terms.verifier, see(mine, after, terms.match), theirs

    def adopt(
        self,
        model: onnx.ModelProto,
        data: bytes,
        renamed: Names,
        accounts: Accounts = (),
        *,
        right: bool,
        accepted: bool,
        intended: bool = False,
        lossy: bool = False,
    ) -> None:
        """Hold later models to the signature of this one; if it was `accepted`, hold exact steps to its exact bits.

        A model that was `intended` to compute something else becomes the reference of later ones, and so does a `lossy`
        one, although later LOSSY steps are measured against the model before it. A model that was not verified as
        `right` never does.
        """
        kept = self._keep_accurate(model, renamed, accounts, intended, lossy)
        intended = intended or lossy
        terms = self._fresh_terms(model, data) if intended else self._comparable(model, renamed, accounts)
        self._is_right = intended or (right and self._is_right)
        self._committed = data
        if terms is self._terms:
            self._forget_next()
        elif terms.verifier is not self._terms.verifier and self._terms.verifier is not kept:
            self._terms.verifier.close()
        self._terms, self._next = replace(terms, settled=Settled(), freed=(), remarks=()), None
        if accepted:
            aligned = terms.align(model, data)
            terms.verifier.accept(aligned)
            self._terms = replace(self._terms, accepted=aligned)

    def _keep_accurate(
        self, model: onnx.ModelProto, renamed: Names, accounts: Accounts, intended: bool, lossy: bool
    ) -> Verifier | None:
        """Adapt the reference of LOSSY steps to a model that is committed; return its verifier."""
        before, after = self._accurate, None
        if lossy or (before is not None and not intended):
            after = replace(self._accurate_terms(model, renamed, accounts), settled=Settled(), freed=(), remarks=())
        self._accurate = after
        if before is not None and (after is None or after.verifier is not before.verifier):
            before.verifier.close()
        if lossy and self._next is not None:
            own = after is not None and self._next.terms.verifier is after.verifier
            self._next = None if own else self._next
        return after.verifier if after is not None else None

    def close(self) -> None:
        """Forget the outputs of the original, and stop its preparation."""
        self._forget_next()
        self._terms.verifier.close()
        if self._accurate is not None:
            self._accurate.verifier.close()

    def moves_baseline(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> bool:
        """Return whether the original is not known to compute the inputs or outputs of a changed model.

        If the committed model has been verified by then, it replaces the original.
        """
        try:
            return self._terms_of(model, renamed, accounts).problem(model) is not None
        except PassError:
            return True

    def _comparable(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> SignatureView:
        """Return the terms for a changed model: the original's, or the committed one's if those cannot be used."""
        has_other = self._is_right and self._committed != self._terms.reference
        terms: SignatureView | None = None
        try:
            terms = self._terms_of(model, renamed, accounts)
            problem = terms.problem(model)
            if problem is None or not has_other:
                return terms
            why = problem.message
        except PassError as error:  # a model of the opset that an earlier step upgraded to is joined, for example
            if not has_other:
                raise
            why = error.what
        before = self._own_terms(onnx_model(self._committed), self._committed)
        found = before.after(model, signature(model), renamed, accounts, self._spec)
        if found.verifier is not before.verifier:
            before.verifier.close()
        if terms is not None and found.problem(model) is not None:
            found.verifier.close()
            return terms
        self._forget_next()
        reason = f"because it cannot be compared with the original: {why}"
        remark = f"compared with the model before this step, {reason}"
        found = replace(found, remarks=(remark, *found.remarks))
        self._next = _Next(_key(model, renamed, accounts), found, before)
        return found

    def _terms_of(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> SignatureView:
        """Return the terms for a model with this signature: the current ones, or new ones."""
        key = _key(model, renamed, accounts)
        if self._next is not None and self._next.key == key:
            return self._next.terms
        found = signature(model)
        if not accounts and not self._terms.signature.compare(found, renamed):
            return self._terms
        self._forget_next()
        self._next = _Next(key, self._terms.after(model, found, renamed, accounts, self._spec), self._terms)
        return self._next.terms

    def _fresh_terms(self, model: onnx.ModelProto, data: bytes) -> SignatureView:
        """Return the terms in which this model itself is the original."""
        if self._next is None or self._next.key != data:
            self._forget_next()
            self._next = _Next(data, self._own_terms(model, data), self._terms)
        return self._next.terms

    def _own_terms(self, model: onnx.ModelProto, data: bytes) -> SignatureView:
        inputs, remarks = self._terms.inputs_for(model, self._spec)
        verifier = Verifier(data, inputs, self._spec)
        return SignatureView(signature(model), data, by_name(model, model), inputs, verifier, remarks=remarks)

    def _forget_next(self) -> None:
        if self._next is not None and self._next.terms.verifier is not self._terms.verifier:
            self._next.terms.verifier.close()
        self._next = None


def _key(model: onnx.ModelProto, renamed: Names, accounts: Accounts) -> object:
    """Return a key of a changed model, made of everything that affects the terms."""
    opsets = [(item.domain, item.version) for item in model.opset_import]
    return signature(model), opsets, renamed, [_Itself(account) for account in accounts]


@dataclass(frozen=True, eq=False)
class _Itself:
    """An account compared by identity, as its arrays have no equality; held, as the id of a freed one is given anew."""

    account: SignatureMapping

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.account is other.account

    __hash__ = None  # type: ignore[assignment]


def _some(changes: list[str]) -> list[str]:
    """Return the changes of a signature, limited to a few."""
    return changes if len(changes) <= _MOST_TOLD else [*changes[:_MOST_TOLD], f"and {len(changes) - _MOST_TOLD} more"]


def _match_by_order(before: Signature, after: Signature) -> dict[str, str]:
    """Match removed ports with new ones, in order, if there are as many and their types agree.

    This is for passes over another API, which cannot say what they renamed.
    """
    renamed: dict[str, str] = {}
    for mine, theirs in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        gone, new = _only_in(mine, theirs), _only_in(theirs, mine)
        if [port.type for port in gone] == [port.type for port in new]:
            renamed |= {old.name: port.name for old, port in zip(gone, new)}
    return renamed


def _only_in(ports: tuple[Port, ...], others: tuple[Port, ...]) -> list[Port]:
    names = {port.name for port in others}
    return [port for port in ports if port.name not in names]
