"""The reference for models with one signature: the original, seen through that signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.signature import Signature, signature
from surgery.model.storage.summary import opset
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.comparing.ports import PortMatch, rename, required, retype
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature import grafting
from surgery.verification.signature.carrying import carry
from surgery.verification.signature.lifting import lift
from surgery.verification.signature.relating import Settled, settle
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Names = Mapping[str, str]


@dataclass(frozen=True)
class Freed:
    """A dim of an input, named as in the changed model, that was a number and is dynamic now."""

    port: str
    axis: int
    extent: int


@dataclass(frozen=True)
class SignatureView:
    """The terms on which models with one signature are compared.

    `reference` is the original, seen through that signature; `match` maps its inputs and outputs to their current
    names. `accepted` is the model that was accepted last, under the names of the reference. `retyped` says whether an
    input or output now has another element type. `settled` is what was last put around the reference, and `freed` are
    dims that were a number in it and are dynamic now: the two are compared at that number alone. `remarks` are for the
    verdict, `stems` are the nodes cut out of the reference to be run with a piece of it.
    """

    signature: Signature
    reference: bytes
    match: PortMatch
    inputs: InputsSpec
    verifier: Verifier
    accepted: bytes | None = None
    retyped: bool = False
    settled: Settled = field(default_factory=Settled)
    freed: tuple[Freed, ...] = ()
    remarks: tuple[str, ...] = ()
    stems: dict[tuple[int, tuple[str, ...]], onnx.GraphProto | str] = field(default_factory=dict, compare=False)

    @property
    def incomparable(self) -> list[str]:
        """The outputs for which the original has no value."""
        known = {theirs for _, theirs in self.match.outputs}
        return [port.name for port in self.signature.outputs if port.name not in known]

    def after(
        self,
        model: onnx.ModelProto,
        found: Signature,
        renamed: Names,
        accounts: Iterable[SignatureMapping],
        spec: VerifySpec,
    ) -> SignatureView:
        """Return the terms for a model with another signature."""
        original = onnx_model(self.reference)
        settled = settle(accounts, original, model, self.match)
        reference = settled.around(original)
        match = _follow(self.match, found, renamed, Flow(reference.graph), settled)
        seen = see(reference, model, match)
        data = seen.SerializeToString(deterministic=True)
        retyped = _differ_in_type(signature(reference), found, match)
        freed = tuple(_freed(reference, model, match))
        if data == self.reference:
            return replace(self, signature=found, match=match, retyped=retyped, settled=settled, freed=freed)
        inputs, remarks = carry(
            self.inputs, self.verifier.original.given, signature(original), seen, spec, settled=settled
        )
        verifier = Verifier(data, inputs, spec)
        accepted = None
        if self.accepted is not None:
            before = see(settled.around(onnx_model(self.accepted)), model, match)
            accepted = before.SerializeToString(deterministic=True)
            verifier.accept(accepted)
        return SignatureView(found, data, match, inputs, verifier, accepted, retyped, settled, freed, remarks)

    def inputs_for(self, model: onnx.ModelProto, spec: VerifySpec) -> tuple[InputsSpec, tuple[str, ...]]:
        """Return the specification of inputs under the names of a changed model, and the parts that were left out."""
        names = dict((*self.match.inputs, *self.match.outputs))
        return carry(self.inputs, self.verifier.original.given, signature(self._original()), model, spec, names=names)

    def hint(self, model: onnx.ModelProto) -> str:
        """Return a hint if the original may not run with the nodes of this step around it because opsets differ."""
        own, its = opset(self._original()), opset(model)
        if not self.settled.wraps or own == its:
            return ""
        return (
            f"the relations of this step are in ai.onnx {its}, and the original imports {own}: change the opset "
            f"in a later step"
        )

    def problem(self, model: onnx.ModelProto) -> Verdict | None:
        """Return why a model cannot be compared at all; None if it can."""
        new = self._inside(model)
        obstacle = grafting.obstacle(model, self._original(), new) if new else ""
        if new and not obstacle:
            stem = self._stem(model, new)
            obstacle = f"the original cannot compute input '{new[0]}': {stem}" if isinstance(stem, str) else ""
        if obstacle:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=obstacle)
        if model.graph.output and not self.match.outputs:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message="the original has no outputs to compare")
        return None

    def _inside(self, model: onnx.ModelProto) -> list[str]:
        """Return the inputs that a model needs but the reference lacks: values inside it, by their names there."""
        known = {theirs for _, theirs in self.match.inputs}
        inner = {theirs: mine for mine, theirs in self.match.inner}
        return [inner.get(port.name, port.name) for port in required(model) if port.name not in known]

    def _stem(self, model: onnx.ModelProto, names: list[str]) -> onnx.GraphProto | str:
        """Return the nodes of the original upstream of these inputs, at the opset of a model, or why there are none."""
        version = opset(model)
        key = version, tuple(names)
        if key not in self.stems:
            original = self._original()
            inputs = replace(self.inputs, data=self.verifier.original.given)
            self.stems[key] = lift(
                grafting.above(original, names), names, original, version, inputs, self.verifier.spec
            )
        return self.stems[key]

    def _original(self) -> onnx.ModelProto:
        return onnx_model(self.reference)

    def align(self, model: onnx.ModelProto, data: bytes) -> bytes:
        """Return a model with the names, element types and inputs of the reference, and with only its outputs."""
        inside = self._inside(model)
        outputs = [theirs for _, theirs in self.match.outputs]
        if [value.name for value in model.graph.output] != outputs or self.match.renames:
            model = rename(_with_outputs(model, outputs), self.match)
            data = model.SerializeToString(deterministic=True)
        if self.retyped:
            model = retype(model, self._original())
            data = model.SerializeToString(deterministic=True)
        stem = self._stem(model, inside) if inside else ""
        if not isinstance(stem, str):
            data = grafting.graft(model, self._original(), inside, stem).SerializeToString(deterministic=True)
        return data


def _follow(match: PortMatch, found: Signature, renamed: Names, original: Flow, settled: Settled) -> PortMatch:
    """Match the inputs and outputs again after a change, and new outputs with values of the original."""
    inputs, outputs = ({port.name for port in ports} for ports in (found.inputs, found.outputs))
    said = {theirs for _, theirs in settled.outputs}
    kept = [(mine, now) for mine, theirs in match.outputs if (now := renamed.get(theirs, theirs)) not in said]
    kept += settled.outputs
    known = {theirs for _, theirs in kept}
    kept += [(port.name, port.name) for port in found.outputs if port.name not in known and port.name in original]
    fed = [(mine, renamed.get(theirs, theirs)) for mine, theirs in match.inputs if mine not in settled.gone]
    fed += [pair for pair in settled.inputs if pair not in fed]
    made = {theirs for _, theirs in settled.inner}
    inner = [(mine, now) for mine, theirs in match.inner if (now := renamed.get(theirs, theirs)) not in made]
    inner += settled.inner
    known = {theirs for _, theirs in (*fed, *inner)}
    inner += [(port.name, port.name) for port in found.inputs if port.name not in known and port.name in original]
    return PortMatch(
        tuple((mine, theirs) for mine, theirs in fed if theirs in inputs),
        tuple((mine, theirs) for mine, theirs in kept if theirs in outputs),
        tuple((mine, theirs) for mine, theirs in inner if theirs in inputs),
    )


def _differ_in_type(original: Signature, changed: Signature, match: PortMatch) -> bool:
    """Return whether an input or output that both have differs in its type."""
    pairs = ((match.inputs, original.inputs, changed.inputs), (match.outputs, original.outputs, changed.outputs))
    for names, mine, theirs in pairs:
        before, now = ({port.name: port.type for port in ports} for ports in (mine, theirs))
        if any(before.get(a, now[b]) != now[b] for a, b in names):
            return True
    return False


def see(original: onnx.ModelProto, changed: onnx.ModelProto, match: PortMatch) -> onnx.ModelProto:
    """Copy a model, restricted to the inputs and outputs of a changed one.

    An input that no longer exists takes its value in the changed model, or its default. An input with neither stays,
    and is varied: the changed model must not depend on it. Nodes that only lost outputs needed go with them: they take
    time, and may be what cannot be run.
    """
    outputs = [mine for mine, _ in match.outputs]
    result = _with_outputs(original, outputs)
    graph = result.graph
    if len(outputs) < len(original.graph.output):
        needed = Flow(graph).above(outputs)
        kept = [node for number, node in enumerate(graph.node) if number in needed]
        del graph.node[:]
        graph.node.extend(kept)
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
    _declare_dims(graph, changed, match)
    return result


def _declare_dims(original: onnx.GraphProto, changed: onnx.ModelProto, match: PortMatch) -> None:
    """Declare the dims of the changed model; one that is a number in the original and dynamic now stays that number."""
    pins: dict[str, int] = {}
    pairs = list(_pairs(original, changed, match))
    for port, other in pairs:
        for mine, theirs in zip(port.type.tensor_type.shape.dim, other.type.tensor_type.shape.dim):
            if mine.HasField("dim_value") and theirs.dim_param:
                pins[theirs.dim_param] = mine.dim_value
    for port, other in pairs:
        before = list(port.type.tensor_type.shape.dim)
        shape = deepcopy(other.type.tensor_type.shape)
        for number, dim in enumerate(shape.dim):
            if dim.dim_param in pins:
                dim.dim_value = pins[dim.dim_param]
            elif not dim.WhichOneof("value") and number < len(before) and before[number].HasField("dim_value"):
                dim.dim_value = before[number].dim_value
        port.type.tensor_type.shape.CopyFrom(shape)


def _pairs(
    original: onnx.GraphProto, changed: onnx.ModelProto, match: PortMatch
) -> Iterator[tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]]:
    """Yield the matched inputs that are tensors in both models."""
    declared = {value.name: value for value in changed.graph.input}
    names = dict(match.inputs)
    for port in original.input:
        other = declared.get(names.get(port.name, ""))
        if other is not None and port.type.HasField("tensor_type") and other.type.HasField("tensor_type"):
            yield port, other


def _freed(original: onnx.ModelProto, changed: onnx.ModelProto, match: PortMatch) -> Iterator[Freed]:
    """Yield the dims of inputs that are a number in the original and dynamic in the changed model."""
    for port, other in _pairs(original.graph, changed, match):
        dims = zip(port.type.tensor_type.shape.dim, other.type.tensor_type.shape.dim)
        for axis, (mine, theirs) in enumerate(dims):
            if mine.HasField("dim_value") and not theirs.HasField("dim_value"):
                yield Freed(other.name, axis, mine.dim_value)


def onnx_model(data: bytes) -> onnx.ModelProto:
    """Parse a model without weights."""
    import onnx

    return onnx.load_model_from_string(data)


def _with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Copy a model with these values as its outputs, in this order; the type of a new one is left open."""
    import onnx

    result = deepcopy(model)
    declared = {value.name: value for value in model.graph.output}
    del result.graph.output[:]
    result.graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return result
