"""What can be said of a model without running it: the findings of onnx's checker, and its signature."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from surgery.errors import WorkerError
from surgery.promises import Change
from surgery.verification.inputs.shapes import graphs
from surgery.workers import Worker, stage

if TYPE_CHECKING:
    import onnx

Dims = tuple[int | str | None, ...]

CHECK_TIMEOUT = 120.0
"""Seconds for the checker and the strict shape inference together; they look at a skeleton, never at weights."""

INFERENCE = "shape inference: "
"""How a finding begins that may be one of what a model declares, rather than of what it computes."""

_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\bName: ?\S*(?= OpType)|\d+|\S+(?= in initializer but not)")


class Checker:
    """onnx's checker and its strict shape inference, in one worker for model after model."""

    def __init__(self, *, timeout: float = CHECK_TIMEOUT, memory: int | None = None) -> None:
        self._worker = Worker(timeout=timeout, memory=memory)
        self._ended = False

    def check(self, skeleton: bytes) -> list[str]:
        """Return what the two find in a model, a line each.

        Each of them stops at its first finding, so that there are two at most. A crash is a finding too, and so is
        more time or memory than the limits allow.
        """
        findings = []
        for function in ("run_checker", "run_inference"):
            if self._ended:
                return ["checker: called off"]
            try:
                findings += self._worker.call(f"surgery.verification.checks:{function}", skeleton=skeleton)
            except WorkerError as error:
                findings.append(error.what)
        return findings

    def new(self, original: bytes, known: list[str], changed: bytes, found: list[str]) -> list[str]:
        """Return which findings in a changed model are not `known` of the original, nor due to what that declares."""
        import onnx

        new = new_findings(known, found)
        if not new or not any(item.startswith(INFERENCE) for item in known):
            return new
        first, second = (onnx.load_model_from_string(skeleton) for skeleton in (original, changed))
        return new_findings(*(self.check(without_declared(model, first)) for model in (first, second)))

    def kill(self) -> None:
        """End the check of another thread, which then fails, and check no more."""
        self._ended = True
        self._worker.kill()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def check(skeleton: bytes, *, timeout: float = CHECK_TIMEOUT, memory: int | None = None) -> list[str]:
    """Check a single model, see `Checker`; `timeout` in seconds, `memory` in bytes."""
    with closing(Checker(timeout=timeout, memory=memory)) as checker:
        return checker.check(skeleton)


def new_findings(original: list[str], changed: list[str]) -> list[str]:
    """Return the findings of the changed model that the original does not have.

    Names, indices and numbers do not count: a pass may rename a node that was wrong before.
    """
    known = {_NAMES.sub("", finding) for finding in original}
    return [finding for finding in changed if _NAMES.sub("", finding) not in known]


def without_declared(model: onnx.ModelProto, original: onnx.ModelProto) -> bytes:
    """Copy a model without the shapes of inner values and outputs that it declares just as the original does.

    Where those of the original contradict each other, which contradiction is found first says nothing of a change.
    """
    import onnx

    known = {value.SerializeToString(deterministic=True) for graph in graphs(original.graph) for value in _told(graph)}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in graphs(copy.graph):
        kept = [one for one in graph.value_info if one.SerializeToString(deterministic=True) not in known]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for value in graph.output:
            if value.type.HasField("tensor_type") and value.SerializeToString(deterministic=True) in known:
                value.type.tensor_type.ClearField("shape")
    data: bytes = copy.SerializeToString(deterministic=True)
    return data


def _told(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output


def run_checker(skeleton: bytes) -> list[str]:
    """Run onnx's checker, in a worker whose folder is the root: external data is found from there."""
    import onnx.checker

    stage("checker")
    try:
        onnx.checker.check_model(skeleton, full_check=False)
    except Exception as error:
        return [f"checker: {_one_line(str(error))}"]
    return []


def run_inference(skeleton: bytes) -> list[str]:
    """Run onnx's strict shape inference, which is what the checker's full check adds."""
    import onnx.shape_inference

    stage("shape inference")
    try:
        onnx.shape_inference.infer_shapes(skeleton, check_type=True, strict_mode=True)
    except Exception as error:
        return [f"{INFERENCE}{_one_line(str(error))}"]
    return []


def _one_line(message: str) -> str:
    return " ".join(message.split())[:500]


@dataclass(frozen=True)
class Port:
    """An input or output of a model: its name, its type ("tensor(float)") and its dims, None when not declared."""

    name: str
    type: str
    dims: Dims | None

    def __str__(self) -> str:
        shape = "" if self.dims is None else "[" + ", ".join("?" if d is None else str(d) for d in self.dims) + "]"
        return f"{self.type}{shape}"


@dataclass(frozen=True)
class Deviation:
    """One way in which two signatures differ: what a pass has to declare to make it, and in words."""

    change: Change
    text: str


@dataclass(frozen=True)
class Signature:
    """What the callers of a model rely on."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    metadata: tuple[tuple[str, str], ...]
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[str, ...]

    def differences(self, other: Signature) -> list[str]:
        """Say how another model's inputs, outputs and metadata differ. Opsets and functions may change."""
        return list(dict.fromkeys(difference.text for difference in self.compare(other)))

    def compare(self, other: Signature, renamed: Mapping[str, str] | None = None) -> list[Deviation]:
        """List the differences; `renamed` says what inputs and outputs of this one are called in the other."""
        found = [
            *_port_differences("input", self.inputs, other.inputs, renamed or {}),
            *_port_differences("output", self.outputs, other.outputs, renamed or {}),
        ]
        mine, theirs = dict(self.metadata), dict(other.metadata)
        texts = [f"metadata '{key}' is gone" for key in mine if key not in theirs]
        texts += [f"metadata '{key}' changed" for key in mine if key in theirs and mine[key] != theirs[key]]
        return [*found, *(Deviation("metadata", text) for text in texts)]


def signature(model: onnx.ModelProto) -> Signature:
    """Read the signature of a model.

    Before IR version 4 each initializer had to be listed as an input; those are no inputs.
    """
    hidden = {tensor.name for tensor in model.graph.initializer} if model.ir_version < 4 else set()
    if hidden:
        hidden |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return Signature(
        inputs=tuple(_port(value) for value in model.graph.input if value.name not in hidden),
        outputs=tuple(_port(value) for value in model.graph.output),
        metadata=tuple((entry.key, entry.value) for entry in model.metadata_props),
        opsets=tuple((entry.domain, entry.version) for entry in model.opset_import),
        functions=tuple(f"{function.domain}::{function.name}" for function in model.functions),
    )


def _port(value: onnx.ValueInfoProto) -> Port:
    text, dims = _type_text(value.type)
    return Port(value.name, text, dims)


def _type_text(kind: onnx.TypeProto) -> tuple[str, Dims | None]:
    """Spell a type as ONNX Runtime does, and give the dims of the tensor in it."""
    import onnx

    field = kind.WhichOneof("value")
    if field in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, field)
        number = tensor.elem_type
        element = onnx.TensorProto.DataType.Name(number).lower() if number else "?"
        dims = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        return f"{'sparse_' if field == 'sparse_tensor_type' else ''}tensor({element})", dims
    if field in ("sequence_type", "optional_type"):
        inner, dims = _type_text(getattr(kind, field).elem_type)
        return f"{'seq' if field == 'sequence_type' else 'optional'}({inner})", dims
    if field == "map_type":
        inner, dims = _type_text(kind.map_type.value_type)
        return f"map({onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()}, {inner})", dims
    return field or "?", None


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    field = dim.WhichOneof("value")
    return None if field is None else (dim.dim_value if field == "dim_value" else dim.dim_param or None)


def _port_differences(
    kind: Literal["input", "output"], old: tuple[Port, ...], theirs: tuple[Port, ...], renamed: Mapping[str, str]
) -> Iterator[Deviation]:
    some: Change = "inputs" if kind == "input" else "outputs"
    mine = [replace(port, name=renamed.get(port.name, port.name)) for port in old]
    for before, now in zip(old, mine):
        if before.name != now.name:
            yield Deviation("names", f"{kind} '{before.name}' is called '{now.name}'")
    left, right = {port.name: port for port in mine}, {port.name: port for port in theirs}
    yield from (Deviation(some, f"{kind} '{name}' is gone") for name in left if name not in right)
    yield from (Deviation(some, f"{kind} '{name}' is new") for name in right if name not in left)
    both = [name for name in left if name in right]
    for name in both:
        text = f"{kind} '{name}' is {right[name]}, not {left[name]}"
        if left[name].type != right[name].type:
            yield Deviation("types", text)
        if left[name].dims != right[name].dims:
            yield Deviation("dims", text)
    if both != [name for name in right if name in left]:
        yield Deviation("order", f"the {kind}s stand in another order")
