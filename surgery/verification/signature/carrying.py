"""Adapt the specification of inputs to a model with other inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import type_of
from surgery.model.proto.signature import Signature, SignaturePort, signature
from surgery.model.runtime.engine import Engine
from surgery.verification.comparing.ports import required
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.signature.relating import GIVEN, Settled

if TYPE_CHECKING:
    import onnx


def carry(
    inputs: InputsSpec,
    given: Sequence[DataSpec],
    before: Signature,
    after: onnx.ModelProto,
    spec: VerifySpec,
    *,
    names: Mapping[str, str] | None = None,
    settled: Settled | None = None,
) -> tuple[InputsSpec, tuple[str, ...]]:
    """Keep the settings that apply to a model with other inputs than `before`; also return remarks on left out sets.

    `names` maps inputs and outputs to their names in the model; `settled` says which of them have another form there.
    """
    called, settled = names or {}, settled or Settled()
    now = {port.name: port for port in signature(after).inputs}
    kept = {port.name: called.get(port.name, port.name) for port in before.inputs if port.name not in settled.outdated}
    sets, left_out = _sets(given, after, {**called, **kept}, settled, spec)
    generator = inputs.generator
    if generator is not None:
        gone = {port.name for port in before.inputs if kept.get(port.name) not in now}
        generator = replace(generator, gone=generator.gone | gone)
    types = {port.name: port.type for port in before.inputs}
    carried = replace(
        inputs,
        dims=_dims(inputs, before, now, kept),
        tensors={
            kept[name]: how
            for name, how in inputs.tensors.items()
            if name in kept and kept[name] in now and now[kept[name]].type == types[name]
        },
        data=tuple(sets),
        generator=generator,
        only_given=inputs.only_given and (bool(sets) or not left_out),
    )
    return carried, tuple(f"the inputs '{name}' no longer fit the model and are left out" for name in left_out)


def _dims(
    inputs: InputsSpec, before: Signature, now: Mapping[str, SignaturePort], kept: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """Assign the extents to try to the new names of the dims."""
    dims = dict(inputs.dims)
    for port in before.inputs:
        other = now.get(kept.get(port.name, ""))
        for old, new in zip(port.dims or (), (other.dims or ()) if other is not None else ()):
            if old != new and old in dims and isinstance(new, str):
                dims[new] = dims[str(old)]
    return dims


def _sets(
    given: Sequence[DataSpec],
    after: onnx.ModelProto,
    names: Mapping[str, str],
    settled: Settled,
    spec: VerifySpec,
) -> tuple[list[DataSpec], list[str]]:
    """Return the sets that fit the model, and the names of those that do not."""
    ports = {port.name: port for port in signature(after).inputs}
    outputs = {value.name for value in after.graph.output}
    needed = [port.name for port in required(after)]
    found, left_out = [], []
    for item in given:
        if item.arrays is None:
            continue
        arrays = {names.get(key, key): value for key, value in item.arrays.items() if key not in settled.outdated}
        arrays = {key: value for key, value in arrays.items() if key in ports or key in outputs}
        arrays |= {key: v for key, v in _inverted(item.arrays, after, settled, spec).items() if key in ports}
        if all(name in arrays and _fits(arrays[name], ports[name]) for name in needed):
            found.append(replace(item, arrays=arrays, found=True))
        else:
            left_out.append(item.path.name)
    return found, left_out


def _fits(value: Any, port: SignaturePort) -> bool:
    """Return whether an array fits a tensor with these dims; True for values that only a run can test."""
    if not isinstance(value, np.ndarray) or port.dims is None or not port.type.startswith("tensor"):
        return True
    pairs = zip(port.dims, value.shape)
    return len(port.dims) == value.ndim and all(not isinstance(dim, int) or dim == own for dim, own in pairs)


def _inverted(arrays: Mapping[str, Any], model: onnx.ModelProto, settled: Settled, spec: VerifySpec) -> dict[str, Any]:
    """Compute current inputs from previous ones, where a pass says how."""
    made: dict[str, Any] = {}
    for nodes, name in settled.inverses:
        feed = {f"{GIVEN}{key}": value for key, value in arrays.items()}
        read = dict.fromkeys(key for node in nodes for key in node.input if key in feed)
        value = _evaluated(nodes, {key: feed[key] for key in read}, name, model, spec)
        if value is not None:
            made[name] = value
    return made


def _evaluated(
    nodes: Sequence[onnx.NodeProto], feed: Mapping[str, Any], name: str, model: onnx.ModelProto, spec: VerifySpec
) -> Any:
    """Run a few nodes; return None if that fails."""
    import onnx

    kinds = {key: type_of(np.asarray(value).dtype) for key, value in feed.items()}
    graph = onnx.helper.make_graph(
        nodes,
        "inverse",
        [onnx.helper.make_tensor_value_info(key, kind, None) for key, kind in kinds.items()],
        [onnx.ValueInfoProto(name=name)],
    )
    small = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    engine = Engine("onnxruntime", spec.timeout, spec.memory, 0, spec.setup)
    try:
        outcome = engine.run(small.SerializeToString(), [feed])
    finally:
        engine.close()
    if outcome.failure is not None or isinstance(outcome.runs[0], str):
        return None
    return outcome.runs[0][name]
