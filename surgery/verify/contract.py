"""What a chain of passes is held to: a signature, and an original to compare with.

A pass may change the signature where it declares so. From then on the new one is what must stay, and what is compared
is what the original and the changed model both have. For that the original is seen through the new signature: it keeps
the outputs that are left, what was an input and is none any more is bound, dims are those declared now. The changed
model is seen under the original's names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.parity import Change, Parity
from surgery.recipe.schema import InputsSpec, VerifySpec
from surgery.verify import grafting
from surgery.verify.checks import Port, Signature, signature
from surgery.verify.comparing.details import Verdict
from surgery.verify.comparing.judging import NOT_RUN
from surgery.verify.inside.flow import Flow
from surgery.verify.matching import Match, by_name, rename, required, retype
from surgery.verify.verdict import Verifier

if TYPE_CHECKING:
    import onnx

Names = Mapping[str, str]

_MOST_TOLD = 3


class Contract:
    """Holds the models of a chain to their signature, and to the results of the original.

    `renamed` says, throughout, how inputs and outputs of the model that was committed last are called in a new one.
    """

    def __init__(self, original: bytes, inputs: InputsSpec, spec: VerifySpec) -> None:
        import onnx

        model = onnx.load_model_from_string(original)
        self.first = signature(model)
        self._spec = spec
        self._terms = _Terms(self.first, original, by_name(model, model), inputs, Verifier(original, inputs, spec))
        self._next: tuple[Signature, Names, _Terms] | None = None

    @property
    def verifier(self) -> Verifier:
        """What verifies models with the signature of the committed one."""
        return self._terms.verifier

    def names(self, model: onnx.ModelProto, declared: Collection[Change], said: Names) -> Names:
        """Say how inputs and outputs are called in a changed model: as its pass said, or as far as it can be told."""
        if said or "names" not in declared:
            return said
        return _match_by_order(self._terms.signature, signature(model))

    def complaints(self, model: onnx.ModelProto, declared: Collection[Change], renamed: Names) -> Iterator[str]:
        """Say what is another in the signature of a changed model, though its pass does not declare it."""
        for deviation in self._terms.signature.compare(signature(model), renamed):
            if deviation.change not in declared:
                yield f"{deviation.text}; the pass does not declare that it changes {deviation.change}"

    def verify(self, model: onnx.ModelProto, data: bytes, promise: Parity, renamed: Names) -> Verdict:
        """Compare a changed model, given as a message and as bytes, with the original."""
        terms = self._terms_of(model, renamed)
        verdict = terms.problem(model) or terms.verifier.verify(terms.align(model, data), promise)
        changes = [deviation.text for deviation in self._terms.signature.compare(terms.signature, renamed)]
        remarks = [*_some(changes), *(f"output '{name}' is not compared" for name in terms.incomparable)]
        return replace(verdict, message="; ".join([verdict.message, *remarks])) if remarks else verdict

    def compared(
        self, before: onnx.ModelProto, after: onnx.ModelProto, renamed: Names
    ) -> tuple[Verifier, onnx.ModelProto, onnx.ModelProto]:
        """Return the committed model and a changed one as far as they are compared, and what ran the original."""
        import onnx

        terms = self._terms_of(after, renamed)
        mine, theirs = (
            onnx.load_model_from_string(own.align(model, model.SerializeToString(deterministic=True)))
            for own, model in ((self._terms, before), (terms, after))
        )
        return terms.verifier, _see(mine, after, terms.match), theirs

    def adopt(self, model: onnx.ModelProto, data: bytes, renamed: Names, *, accepted: bool) -> None:
        """Hold later models to the signature of this one; if it was `accepted`, exact steps to its very bits."""
        terms = self._terms_of(model, renamed)
        if terms is self._terms:
            self._forget_next()
        elif terms.verifier is not self._terms.verifier:
            self._terms.verifier.close()
        self._terms, self._next = terms, None
        if accepted:
            aligned = terms.align(model, data)
            terms.verifier.accept(aligned)
            self._terms = replace(terms, accepted=aligned)

    def close(self) -> None:
        """Forget what the original computed, and end what prepares it."""
        self._forget_next()
        self._terms.verifier.close()

    def _terms_of(self, model: onnx.ModelProto, renamed: Names) -> _Terms:
        """Return the terms for a model of this signature: those that hold, or new ones."""
        found = signature(model)
        if not self._terms.signature.compare(found, renamed):
            return self._terms
        if self._next is None or self._next[:2] != (found, renamed):
            self._forget_next()
            self._next = found, renamed, self._terms.after(model, found, renamed, self._spec)
        return self._next[2]

    def _forget_next(self) -> None:
        if self._next is not None and self._next[2].verifier is not self._terms.verifier:
            self._next[2].verifier.close()
        self._next = None


@dataclass(frozen=True)
class _Terms:
    """What models of one signature are compared with.

    `reference` is the original, seen through that signature; `match` says what its inputs and outputs are called now.
    `accepted` is the model that was accepted last, under the names of the reference. `retyped` tells whether an input
    or output has another element type by now.
    """

    signature: Signature
    reference: bytes
    match: Match
    inputs: InputsSpec
    verifier: Verifier
    accepted: bytes | None = None
    retyped: bool = False

    @property
    def incomparable(self) -> list[str]:
        """The outputs that the original has no value for."""
        known = {theirs for _, theirs in self.match.outputs}
        return [port.name for port in self.signature.outputs if port.name not in known]

    def after(self, model: onnx.ModelProto, found: Signature, renamed: Names, spec: VerifySpec) -> _Terms:
        """Return the terms for a model with another signature."""
        import onnx

        reference = onnx.load_model_from_string(self.reference)
        match = _follow(self.match, found, renamed, Flow(reference.graph))
        seen = _see(reference, model, match)
        data = seen.SerializeToString(deterministic=True)
        retyped = _differ_in_type(signature(reference), found, match)
        if data == self.reference:
            return replace(self, signature=found, match=match, retyped=retyped)
        inputs = self._inputs_for(seen, signature(reference))
        verifier = Verifier(data, inputs, spec)
        accepted = None
        if self.accepted is not None:
            before = _see(onnx.load_model_from_string(self.accepted), model, match)
            accepted = before.SerializeToString(deterministic=True)
            verifier.accept(accepted)
        return _Terms(found, data, match, inputs, verifier, accepted, retyped)

    def _inputs_for(self, reference: onnx.ModelProto, before: Signature) -> InputsSpec:
        """Keep what is known of the inputs that are left."""
        now = {port.name: port for port in signature(reference).inputs}
        outputs = {value.name for value in reference.graph.output}
        dims = dict(self.inputs.dims)
        for port in before.inputs:
            for old, new in zip(port.dims or (), (now[port.name].dims or ()) if port.name in now else ()):
                if old != new and old in dims and isinstance(new, str):
                    dims[new] = dims[str(old)]
        sets = tuple(
            replace(item, arrays={k: v for k, v in item.arrays.items() if k in now or k in outputs})
            for item in self.verifier.given
            if item.arrays is not None
        )
        tensors = {name: how for name, how in self.inputs.tensors.items() if name in now}
        generator = self.inputs.generator
        if generator is not None:
            gone = {port.name for port in before.inputs if port.name not in now}
            generator = replace(generator, gone=generator.gone | gone)
        return replace(self.inputs, dims=dims, tensors=tensors, data=sets, generator=generator)

    def problem(self, model: onnx.ModelProto) -> Verdict | None:
        """Say why a model cannot be compared at all, None when it can."""
        new = self._inside(model)
        obstacle = grafting.obstacle(model, self._original(), new) if new else ""
        if obstacle:
            return Verdict("unverified", NOT_RUN, message=obstacle)
        if model.graph.output and not self.match.outputs:
            return Verdict("unverified", NOT_RUN, message="the original has none of the outputs to compare")
        return None

    def _inside(self, model: onnx.ModelProto) -> list[str]:
        """List the inputs that a model needs and the reference has not: values inside it, if anything."""
        known = {theirs for _, theirs in self.match.inputs}
        return [port.name for port in required(model) if port.name not in known]

    def _original(self) -> onnx.ModelProto:
        import onnx

        return onnx.load_model_from_string(self.reference)

    def align(self, model: onnx.ModelProto, data: bytes) -> bytes:
        """Give a model the names and element types of the reference, its inputs, and none but its outputs."""
        inside = self._inside(model)
        outputs = [theirs for _, theirs in self.match.outputs]
        if [value.name for value in model.graph.output] != outputs or self.match.renames:
            model = rename(_with_outputs(model, outputs), self.match)
            data = model.SerializeToString(deterministic=True)
        if self.retyped:
            model = retype(model, self._original())
            data = model.SerializeToString(deterministic=True)
        if inside:
            data = grafting.graft(model, self._original(), inside).SerializeToString(deterministic=True)
        return data


def _some(changes: list[str]) -> list[str]:
    """List changes of a signature, but no more than a few."""
    return changes if len(changes) <= _MOST_TOLD else [*changes[:_MOST_TOLD], f"and {len(changes) - _MOST_TOLD} more"]


def _follow(match: Match, found: Signature, renamed: Names, original: Flow) -> Match:
    """Find the inputs and outputs again after a change, and new outputs among the values of the original."""
    inputs, outputs = ({port.name for port in ports} for ports in (found.inputs, found.outputs))
    kept = [(mine, renamed.get(theirs, theirs)) for mine, theirs in match.outputs]
    known = {theirs for _, theirs in kept}
    kept += [(port.name, port.name) for port in found.outputs if port.name not in known and port.name in original]
    return Match(
        tuple((mine, now) for mine, theirs in match.inputs if (now := renamed.get(theirs, theirs)) in inputs),
        tuple((mine, theirs) for mine, theirs in kept if theirs in outputs),
    )


def _differ_in_type(original: Signature, changed: Signature, match: Match) -> bool:
    """Tell whether an input or output that both have differs in its type."""
    pairs = ((match.inputs, original.inputs, changed.inputs), (match.outputs, original.outputs, changed.outputs))
    for names, mine, theirs in pairs:
        before, now = ({port.name: port.type for port in ports} for ports in (mine, theirs))
        if any(before.get(a, now[b]) != now[b] for a, b in names):
            return True
    return False


def _see(original: onnx.ModelProto, changed: onnx.ModelProto, match: Match) -> onnx.ModelProto:
    """Copy a model as far as a changed one has its inputs and outputs.

    An input that is none any more takes the value that it has in the changed model, or that it has by default. One
    with neither stays, and is varied: the changed model must not depend on it.
    """
    result = _with_outputs(original, [mine for mine, _ in match.outputs])
    graph = result.graph
    values = {tensor.name: tensor for tensor in changed.graph.initializer}
    own = {tensor.name for tensor in graph.initializer}
    for port in list(graph.input):
        if port.name in dict(match.inputs):
            continue
        if port.name in values and port.name not in own:
            graph.initializer.append(values[port.name])
            own.add(port.name)
        if port.name in own and result.ir_version >= 4:
            graph.input.remove(port)
    declared = {value.name: value for value in changed.graph.input}
    for port in graph.input:
        other = declared.get(dict(match.inputs).get(port.name, ""))
        if other is not None and port.type.HasField("tensor_type") and other.type.HasField("tensor_type"):
            port.type.tensor_type.shape.CopyFrom(other.type.tensor_type.shape)
    return result


def _with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Copy a model with these values as its outputs, in this order; the type of a new one is left open."""
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    declared = {value.name: value for value in model.graph.output}
    del result.graph.output[:]
    result.graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return result


def _match_by_order(before: Signature, after: Signature) -> dict[str, str]:
    """Match what is gone with what is new, in their order, where there are as many and their types agree.

    For passes over another API, which have no way to say what they renamed.
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
