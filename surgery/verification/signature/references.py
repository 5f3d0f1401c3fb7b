"""The reference of the next model in a chain: an original, seen through the signature that models have now.

The original is seen through a new signature: it keeps the remaining outputs, inputs that no longer exist are bound, and
dims are those declared now. If a pass says how an input or output follows from the previous ones, the nodes for that
are put around the original. If a pass intends to compute something else, its result is the original from then on; so is
a verified model, if the next one has inputs or outputs that the original does not know. The result of a LOSSY pass is
the original for the passes after it, too, except for LOSSY ones: the loss of all of them is measured against the model
before the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.base.errors import PassError
from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.proto.signature import signature
from surgery.verification.comparing.ports import by_name
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature.relating import Settled
from surgery.verification.signature.terms import Names, SignatureView, onnx_model, see
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Accounts = tuple[SignatureMapping, ...]


@dataclass(frozen=True)
class _Next:
    """The terms for the model identified by `key`, and the terms for the committed model in that comparison."""

    key: object
    terms: SignatureView
    before: SignatureView


class References:
    """The terms in which the models of a chain are compared.

    `terms` are those of models with the signature of the `committed` one, and `is_right` says whether that one holds
    against the original. `accurate` is the reference of LOSSY steps, once there was one. Throughout, `renamed` maps
    inputs and outputs of the committed model to their names in a new one, and `accounts` describe how they follow from
    each other.
    """

    def __init__(self, original: bytes, inputs: InputsSpec, spec: VerifySpec) -> None:
        import onnx

        model = onnx.load_model_from_string(original)
        first, verifier = signature(model), Verifier(original, inputs, spec)
        self.terms = SignatureView(first, original, by_name(model, model), inputs, verifier)
        self.committed = original
        self.is_right = True
        self.accurate: SignatureView | None = None
        self._spec = spec
        self._next: _Next | None = None
        self._seen: tuple[SignatureView, bytes] | None = None

    def comparable(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> SignatureView:
        """Return the terms for a changed model: the original's, or the committed one's if those cannot be used."""
        has_other = self.is_right and self.committed != self.terms.reference
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
        before = self._own_terms(onnx_model(self.committed), self.committed)
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
        if not accounts and not self.terms.signature.compare(found, renamed):
            return self.terms
        self._forget_next()
        self._next = _Next(key, self.terms.after(model, found, renamed, accounts, self._spec), self.terms)
        return self._next.terms

    def fresh_terms(self, model: onnx.ModelProto, data: bytes, *, like: SignatureView | None = None) -> SignatureView:
        """Return the terms in which this model itself is the original, on inputs of the one that it is `like`."""
        if self._next is None or self._next.key != data:
            self._forget_next()
            self._next = _Next(data, self._own_terms(model, data, like), self.terms)
        return self._next.terms

    def _own_terms(self, model: onnx.ModelProto, data: bytes, like: SignatureView | None = None) -> SignatureView:
        inputs, remarks = self.terms.inputs_for(model, self._spec)
        found = like.verifier.original.found if like is not None else None
        verifier = Verifier(data, inputs, self._spec, found=found)
        return SignatureView(signature(model), data, by_name(model, model), inputs, verifier, remarks=remarks)

    def _forget_next(self) -> None:
        if self._next is not None and self._next.terms.verifier is not self.terms.verifier:
            self._next.terms.verifier.close()
        self._next = None

    def accurate_terms(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> SignatureView:
        """Return the terms for comparing a changed model with the model before the first LOSSY step."""
        if self.accurate is None:
            return self._terms_of(model, renamed, accounts)
        found = signature(model)
        if not accounts and not self.accurate.signature.compare(found, renamed):
            return self.accurate
        return self.accurate.after(model, found, renamed, accounts, self._spec)

    def aligned(self) -> bytes:
        """Return the committed model under the names of the original."""
        if self._seen is None or self._seen[0] is not self.terms:  # a committed model always has terms of its own
            self._seen = self.terms, self.terms.align(onnx_model(self.committed), self.committed)
        return self._seen[1]

    def compared(
        self, before: onnx.ModelProto, after: onnx.ModelProto, renamed: Names, accounts: Accounts = ()
    ) -> tuple[Verifier, onnx.ModelProto, onnx.ModelProto]:
        """Return the verifier, and the committed and the changed model in the form in which they are compared."""
        import onnx

        terms = self.comparable(after, renamed, accounts)
        own = self.terms if self._next is None or self._next.terms is not terms else self._next.before
        mine, theirs = (
            onnx.load_model_from_string(known.align(model, model.SerializeToString(deterministic=True)))
            for known, model in ((own, before), (terms, after))
        )
        if terms is not self.terms:
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
        like = self.terms if lossy else None
        terms = self.fresh_terms(model, data, like=like) if intended else self.comparable(model, renamed, accounts)
        self.is_right = intended or (right and self.is_right)
        self.committed = data
        if terms is self.terms:
            self._forget_next()
        elif terms.verifier is not self.terms.verifier and self.terms.verifier is not kept:
            self.terms.verifier.close()
        self.terms, self._next = replace(terms, settled=Settled(), freed=(), remarks=()), None
        if accepted:
            aligned = terms.align(model, data)
            terms.verifier.accept(aligned)
            self.terms = replace(self.terms, accepted=aligned)

    def _keep_accurate(
        self, model: onnx.ModelProto, renamed: Names, accounts: Accounts, intended: bool, lossy: bool
    ) -> Verifier | None:
        """Adapt the reference of LOSSY steps to a model that is committed; return its verifier."""
        before, after = self.accurate, None
        if lossy or (before is not None and not intended):
            after = replace(self.accurate_terms(model, renamed, accounts), settled=Settled(), freed=(), remarks=())
        self.accurate = after
        if before is not None and (after is None or after.verifier is not before.verifier):
            before.verifier.close()
        if lossy and self._next is not None:
            own = after is not None and self._next.terms.verifier is after.verifier
            self._next = None if own else self._next
        return after.verifier if after is not None else None

    def close(self) -> None:
        """Forget the outputs of the original, and stop its preparation."""
        self._forget_next()
        self.terms.verifier.close()
        if self.accurate is not None:
            self.accurate.verifier.close()

    def moves_baseline(self, model: onnx.ModelProto, renamed: Names, accounts: Accounts = ()) -> bool:
        """Return whether the original is not known to compute the inputs or outputs of a changed model.

        If the committed model has been verified by then, it replaces the original.
        """
        try:
            return self._terms_of(model, renamed, accounts).problem(model) is not None
        except PassError:
            return True


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
