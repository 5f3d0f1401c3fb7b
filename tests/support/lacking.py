"""What a model needs, and the installed onnx or ONNX Runtime lacks: each is asked, no release is named.

On releases older than those that the tests are made with, a failing test is skipped with the reason if it, or its
module, reads or makes a model that needs such a thing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.parser
import onnx.printer
import onnx.shape_inference
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeTypeError
from packaging.requirements import Requirement

from support import ROOT
from surgery.base.errors import WorkerError
from surgery.base.operators.forms import Schema
from surgery.base.workers.fork import call_in_fork
from surgery.model.targets.kernels import installed

_TEXT = {
    "names of nodes": '{ ["n"] y = Relu(x) }',
    "quoted names of values": '{ "a/b" = Relu(x) y = Relu("a/b") }',
    "quoted empty names": '{ y = Clip(x, "", "") }',
    "numbers that float32 rounds to zero": "<float k = {1e-50}> { y = Add(x, k) }",
    "expressions of dims": '<float["2*n"] a> { a = Concat<axis = 0>(x, x) y = Relu(a) }',
}
_UNREAD = (onnx.parser.ParseError, RuntimeError, IndexError)
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


@cache
def are_old() -> bool:
    """Return whether onnx or ONNX Runtime is older than what the tests of the newest releases require."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = map(Requirement, tomllib.load(file)["project"]["optional-dependencies"]["test"])
    modules = {"onnx": onnx, "onnxruntime": onnxruntime}
    return any(one.name in modules and modules[one.name].__version__ not in one.specifier for one in wanted)


@cache
def of_parser() -> tuple[str, ...]:
    """List what the installed onnx cannot read of ONNX text."""
    found = []
    for what, body in _TEXT.items():
        try:
            onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[m] y) {body}')
        except _UNREAD:
            found.append(what)
    return tuple(found)


_made: dict[Hashable, list[onnx.ModelProto | None]] = {}
"""The models that each test or module read or made; None for text that was not read."""


@contextmanager
def recorded(key: Hashable) -> Iterator[None]:
    """Record the models that are read from text or made in Python in this process, on older releases."""
    if not are_old():
        yield
        return
    models = _made.setdefault(key, [])

    def watched(function: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
        def run(*args: Any, **options: Any) -> onnx.ModelProto:
            try:
                models.append(function(*args, **options))
            except _UNREAD:
                models.append(None)
                raise
            return models[-1]

        return run

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((onnx.parser, "parse_model"), (onnx.helper, "make_model")):
            patch.setattr(module, name, watched(getattr(module, name)))
        yield


@contextmanager
def excused(*keys: Hashable) -> Iterator[None]:
    """Skip a failing test if a recorded model needs what the installed releases lack."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        if not are_old():
            raise
        if "contrib_ops" in str(error) or re.search("com\\.microsoft::\\w+ '", str(error)):  # its own file or domain
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not run it: {error}")
        models = [model for key in keys for model in _made[key]]
        if None in models and of_parser():
            pytest.skip(f"onnx {onnx.__version__} reads no {', no '.join(of_parser())} in text")
        skip_lacking(*filter(None, models))
        raise


def skip_lacking(*models: onnx.ModelProto) -> None:
    """Skip the test if the installed releases lack something that a model needs."""
    for model in models:
        for what in _of_onnx(model):
            pytest.skip(f"onnx {onnx.__version__} has no {what}")
        for what in _of_runtime(model):
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__} has no {what}")


def skip_opset(opset: int) -> None:
    """Skip the test if the installed onnx does not have an opset."""
    if opset > _newest(""):
        pytest.skip(f"onnx {onnx.__version__} has no opset {opset}")


def outlived(function: Callable[[], list[str]]) -> list[str]:
    """Call a function, on older releases in a fork: their native code ends the process on some models (no text)."""
    if not are_old():
        return function()
    with suppress(WorkerError):
        found: list[str] = call_in_fork(function, stage="test", timeout=None, memory=None)[0]
        return found
    return []


def skip_short_numbers() -> None:
    """Skip the test if the installed onnx prints float32 numbers with fewer digits than distinguish them."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Elu<alpha = 0.015686275>(x) }'
    )
    if "0.015686275" not in onnx.printer.to_text(model):
        pytest.skip(f"onnx {onnx.__version__} prints numbers with few digits")


def skip_unmultiplied(dtype: int) -> None:
    """Skip the test if the reference evaluator of the installed onnx multiplies no matrices of an element type."""
    shown = onnx.TensorProto.DataType.Name(dtype).lower()
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({shown}[1,2,2] x) => ({shown}[1,2,2] y) {{ y = MatMul(x, x) }}'
    )
    x = np.ones((1, 2, 2), onnx.helper.tensor_dtype_to_np_dtype(dtype))
    try:
        ReferenceEvaluator(model).run(None, {"x": x})
    except (RuntimeTypeError, TypeError) as error:
        pytest.skip(f"the reference evaluator of onnx {onnx.__version__} does not multiply {shown}: {error}")


computes_types = pytest.mark.skipif(
    onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16).name != "bfloat16",
    reason=f"onnx {onnx.__version__} computes bfloat16 as an integer",
)


def skip_unnamed(*texts: str) -> None:
    """Skip the test if a reason, given or expected, names an operator that the installed releases lack."""
    if not are_old():
        return
    for text in texts:
        found = re.search(r" has no com\.microsoft::(\w+)|^([A-Z]\w*[a-z][A-Z]\w*) supports", text)
        op = found and (found[1] or found[2])
        if op and not onnx.defs.has(op) and not installed().of("com.microsoft", op, 1):
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__} has no {op}")
        removed = re.search(r"^(\w+) of this type was removed", text)
        if removed and not _lost_types(removed[1]):
            pytest.skip(f"onnx {onnx.__version__} allows {removed[1]} all types that it once had")


def _lost_types(op: str) -> bool:
    """Return whether the newest schema of an operator lacks a type that an older one allows its first input."""
    versions = [
        schema for schema in onnx.defs.get_all_schemas_with_history() if (schema.domain, schema.name) == ("", op)
    ]
    newest = max(versions, key=lambda schema: schema.since_version)
    return any(_first_types(schema) - _first_types(newest) for schema in versions)


def _first_types(schema: onnx.defs.OpSchema) -> set[str]:
    """Return the types of the first input, without `types`, which raises an error in onnx 1.20."""
    kind = schema.inputs[0].type_str
    listed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    return set(listed.get(kind, [kind]))


_NARROWED = ("Erf",)
"""Operators that may have had any type of number, until a newer release of onnx removed some from their schemas."""


def skip_wide(model: onnx.ModelProto, *texts: str) -> None:
    """Skip the test if an unknown type is expected to matter, and the installed onnx still allows all types."""
    if not are_old() or "the type of the input is not known" not in texts:
        return
    for op in {node.op_type for node in _nodes(model)}.intersection(_NARROWED):
        if not _lost_types(op):
            pytest.skip(f"onnx {onnx.__version__} allows {op} all types that it once had")


def skip_invalid(*models: onnx.ModelProto) -> None:
    """Skip the test if the checker of an older onnx refuses a model, which is valid for the newest."""
    if not are_old():
        return
    for model in models:
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            pytest.skip(f"onnx {onnx.__version__} takes the model for invalid: {' '.join(str(error).split())}")


def skip_unknown(reasons: Iterable[str]) -> None:
    """Skip the test if a pass refuses to write an operator of ONNX that the installed onnx lacks."""
    for reason in reasons:
        op = reason.removeprefix("the installed onnx does not know ")
        if op != reason and not onnx.defs.has(op):
            pytest.skip(f"onnx {onnx.__version__} has no {op}")


def skip_unrun(reasons: Iterable[str]) -> None:
    """Skip the test if a pass refuses what the runtime has no kernel for, on an older release."""
    for reason in reasons:
        if are_old() and (" has no com.microsoft::" in reason or "has no kernel for" in reason):
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__}: {reason}")


def _of_onnx(model: onnx.ModelProto) -> Iterator[str]:
    if model.ir_version > onnx.IR_VERSION:
        yield f"IR version {model.ir_version}"
    for domain, opset in _opsets(model).items():
        if domain in _ONNX_DOMAINS and opset > _newest(domain):
            yield f"opset {opset} of {domain or 'ai.onnx'}"


@cache
def _newest(domain: str) -> int:
    plain = "" if domain == "ai.onnx" else domain
    if not plain:
        return int(onnx.defs.onnx_opset_version())
    return max(schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == plain)


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {item.domain: item.version for item in model.opset_import}


def _of_runtime(model: onnx.ModelProto) -> Iterator[str]:
    own = {(function.domain, function.name) for function in model.functions}
    opsets = _opsets(model)
    for node in _nodes(model):
        if node.domain != "com.microsoft" or (node.domain, node.op_type) in own:
            continue
        schema = installed().schema(node.domain, node.op_type, opsets.get(node.domain, 1))
        if schema is None:
            yield node.op_type
        else:
            yield from _of_call(node, schema)


def _of_call(node: onnx.NodeProto, schema: Schema) -> Iterator[str]:
    """Yield what a node uses and a schema lacks."""
    yield from (
        f"attribute '{attribute.name}' of {node.op_type}"
        for attribute in node.attribute
        if attribute.name not in schema.attributes
    )
    for name, parameter in zip(node.input, schema.inputs):
        if not name and parameter.option == "Single":
            yield f"{node.op_type} without {parameter.name}"
    for side, names, known in (("inputs", node.input, schema.inputs), ("outputs", node.output, schema.outputs)):
        if len(names) > len(known) and not any(parameter.variadic for parameter in known):
            yield f"{len(names)} {side} of {node.op_type}"


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    graphs = [model.graph.node, *(function.node for function in model.functions)]
    while graphs:
        for node in graphs.pop():
            yield node
            for attribute in node.attribute:
                graphs += [graph.node for graph in (attribute.g, *attribute.graphs) if graph.node]
