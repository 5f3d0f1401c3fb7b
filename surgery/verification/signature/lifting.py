"""Nodes of the original, converted to the opset of a changed model that they are to be run with.

Operators that are the same in both opsets stay unchanged. Others go through onnx's converter, which is sometimes wrong:
its result is compared with its input, and not used unless the two agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from surgery.base.errors import WorkerError
from surgery.base.operators.subgraphs import graphs
from surgery.base.promises import Parity
from surgery.base.workers import Worker, stage
from surgery.model.proto.dataflow import reads
from surgery.model.proto.signature import signature
from surgery.model.storage.summary import opset
from surgery.model.wire.stored_lists import put_outside, whole
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature.carrying import carry
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

_TIMEOUT = 60.0


def lift(
    stem: onnx.GraphProto,
    names: Sequence[str],
    original: onnx.ModelProto,
    version: int,
    inputs: InputsSpec,
    spec: VerifySpec,
) -> onnx.GraphProto | str:
    """Return the nodes of an original that compute these values, converted to another opset, or why that fails."""
    before = opset(original)
    bodies: list[Any] = [stem, *original.functions]
    if before == version or all(_is_same(body, before, version) for body in bodies):
        return stem
    what = f"the model imports ai.onnx {version}, and the original {before}"
    if original.functions:
        return f"{what}, whose functions cannot be converted"
    given = _model(stem, names, original)
    converted = _converted(given, version, spec)
    if isinstance(converted, str):
        return f"{what}, which cannot be converted: {converted}"
    own, _ = carry(inputs, inputs.data, signature(original), given, spec)
    with closing(Verifier(given.SerializeToString(deterministic=True), own, spec)) as verifier:
        verdict = verifier.verify(converted.SerializeToString(deterministic=True), Parity.EXACT)
    if not verdict.passed:
        return f"{what}, and onnx's converter changes its results: {verdict.message}"
    return converted.graph


def _is_same(body: Any, before: int, version: int) -> bool:
    """Return whether operators of the default domain are the same at two opsets: none was revised in between."""
    import onnx.defs

    for inner in graphs(body):
        for node in inner.node:
            if node.domain not in ("", "ai.onnx"):
                continue
            try:
                schemas = [onnx.defs.get_schema(node.op_type, number, "") for number in (before, version)]
            except onnx.defs.SchemaError:
                return False
            if schemas[0].since_version != schemas[1].since_version:
                return False
    return True


def _model(stem: onnx.GraphProto, names: Sequence[str], original: onnx.ModelProto) -> onnx.ModelProto:
    """Make a model from nodes of the original."""
    import onnx

    result = onnx.ModelProto(ir_version=original.ir_version)
    result.opset_import.extend(original.opset_import)
    graph = result.graph
    graph.CopyFrom(stem)
    graph.name = original.graph.name or "stem"
    read = {name for node in stem.node for name in reads(node)}
    graph.input.extend(port for port in original.graph.input if port.name in read)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return result


def _converted(model: onnx.ModelProto, version: int, spec: VerifySpec) -> onnx.ModelProto | str:
    """Convert a model in a worker; large constants, which the converter cannot see, are added back afterwards."""
    import onnx

    small = deepcopy(model)
    large = [tensor for tensor in model.graph.initializer if tensor.external_data]
    held = [tensor for tensor in small.graph.initializer if not tensor.external_data]
    del small.graph.initializer[:]
    small.graph.initializer.extend(held)
    known = {port.name for port in small.graph.input}
    small.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in large
        if tensor.name not in known
    )
    with closing(Worker(timeout=_TIMEOUT, memory=spec.memory)) as worker:
        try:
            answer = worker.call(
                "surgery.verification.signature.lifting:run_converter",
                skeleton=small.SerializeToString(),
                version=version,
            )
        except WorkerError as error:
            return error.what
    if "reason" in answer:
        return str(answer["reason"])
    result = onnx.load_model_from_string(answer["model"])
    put_outside(result, model)
    added = {tensor.name for tensor in large} - known
    kept = [port for port in result.graph.input if port.name not in added]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    result.graph.initializer.extend(large)
    return result


def run_converter(skeleton: bytes, version: int) -> dict[str, Any]:
    """Run onnx's converter, in a worker."""
    import onnx
    import onnx.version_converter

    stage("version converter")
    try:
        converted = onnx.version_converter.convert_version(onnx.load_model_from_string(whole(skeleton)), version)
    except Exception as error:
        return {"reason": " ".join(str(error).split())[:300]}
    return {"model": converted.SerializeToString(deterministic=True)}
