"""The whole model as a `gs.Graph` of onnx-graphsurgeon, its weights mapped until the pass reads them.

Features that onnx-graphsurgeon cannot represent are hidden from it and restored (`surgery.engine.bridges.preserve`).
This is tested before the pass runs: a round trip of the unchanged graph must return the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.logger import G_LOGGER

from surgery.base.errors import PassError
from surgery.base.operators.subgraphs import graphs
from surgery.engine.bridges.lazy_tensors import Lender
from surgery.engine.bridges.preserve import Remains, tensors_of
from surgery.model.storage import Weights
from surgery.model.wire.stored_lists import put_outside, with_lists

_OVERRIDABLE_FROM = 4
"""The first IR version in which an initializer that is listed as an input is an overridable default."""


def run(skeleton: onnx.ModelProto, weights: Weights, call: Callable[[Any], Any]) -> onnx.ModelProto:
    """Let `call` change the graph, and return the resulting model.

    Raises PassError before the call if onnx-graphsurgeon cannot represent the model, naming the feature.
    """
    stored, skeleton = skeleton, with_lists(skeleton)
    shown, hidden = _shown(skeleton)
    lender = Lender(skeleton, weights)
    with _named_errors("cannot represent"), _quiet():
        graph = gs.import_onnx(shown)
        remains = Remains(skeleton, graph, hidden)
        lender.lend(_constants(graph))
        back = _written(graph, remains)
    if back.SerializeToString(deterministic=True) != skeleton.SerializeToString(deterministic=True):
        raise _cannot_hold(_difference(skeleton, back))
    lender.inside = True
    made = call(graph)
    lender.inside = False
    with _named_errors("cannot write"), _quiet():
        lender.settle(_constants(made))
        written = _written(made, remains)
    put_outside(written, stored)
    return written


def _shown(skeleton: onnx.ModelProto) -> tuple[onnx.ModelProto, frozenset[str]]:
    """Return a copy without features that would be misread or overridable initializers, and the names of the latter."""
    shown = deepcopy(skeleton)
    _hide_types(shown.graph)
    hidden: frozenset[str] = frozenset()
    if shown.ir_version >= _OVERRIDABLE_FROM:
        hidden = frozenset(entry.name for entry in shown.graph.input)
        for tensors in (shown.graph.initializer, shown.graph.sparse_initializer):
            for tensor in reversed(list(tensors)):
                if (tensor.name if isinstance(tensor, onnx.TensorProto) else tensor.values.name) in hidden:
                    tensors.remove(tensor)
    return shown, hidden


def _hide_types(graph: onnx.GraphProto) -> None:
    """Clear, in a graph and its subgraphs, the types of values that a round trip would change."""
    for scope in graphs(graph):
        for entry in (*scope.input, *scope.output, *scope.value_info):
            if not _holds(entry):
                entry.ClearField("type")


def _holds(entry: onnx.ValueInfoProto) -> bool:
    try:
        with _quiet():
            back = OnnxExporter.export_value_info_proto(OnnxImporter.import_tensor(entry), False)
    except Exception:
        return False
    return entry.type.WhichOneof("value") == "tensor_type" or bool(back.type == entry.type)


def _written(graph: gs.Graph, remains: Remains) -> onnx.ModelProto:
    remains.recognise(graph)
    with remains.typed(graph):
        made = gs.export_onnx(graph, do_type_check=False)
    return remains.model(made, graph)


def _constants(graph: gs.Graph) -> Iterator[gs.Constant]:
    """Yield the constants of a graph, its subgraphs and its functions, including those in attributes."""
    pending: list[Any] = [graph, *graph.functions]
    while pending:
        scope = pending.pop()
        yield from (tensor for tensor in tensors_of(scope) if isinstance(tensor, gs.Constant))
        for node in scope.nodes:
            for value in node.attrs.values():
                if isinstance(value, gs.Graph):
                    pending.append(value)
                elif isinstance(value, gs.Constant):
                    yield value


def _difference(one: Any, other: Any, path: str = "") -> str:
    """Return the path of the first field in which two messages of the same type differ."""
    for field in one.DESCRIPTOR.fields:
        left, right = getattr(one, field.name), getattr(other, field.name)
        if left == right and (field.is_repeated or one.HasField(field.name) == other.HasField(field.name)):
            continue
        here = f"{path}{field.name}"
        if field.message_type is None:
            return here
        if not field.is_repeated:
            return _difference(left, right, f"{here}.")
        if len(left) != len(right):
            return here
        number = next(index for index, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
        return _difference(left[number], right[number], f"{here}[{number}].")
    return path.rstrip(".") or "an unknown field"


@contextmanager
def _named_errors(verb: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            reason = f"a text in it is not UTF-8 ({reason})"
        raise PassError(f"onnx-graphsurgeon {verb} the model: {reason}") from error


def _cannot_hold(what: str) -> PassError:
    return PassError(f"onnx-graphsurgeon cannot represent {what} of the model", todo="write the pass in another API")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the log messages of onnx-graphsurgeon."""
    severity, G_LOGGER.severity = G_LOGGER.severity, G_LOGGER.CRITICAL
    try:
        yield
    finally:
        G_LOGGER.severity = severity
