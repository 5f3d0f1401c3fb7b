"""The nodes of a model that a target does not run, with recipe steps that would help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import onnx_ir as ir

from surgery.base.errors import SurgeryError
from surgery.base.json_record import Record
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.analysis.misfits import Misfit, Reason, misfit, misfits, operand
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.targets import Target, shipped

_SIZES = {"batch": 1, "sequence": 128, "seq": 128, "height": 224, "width": 224}
"""Suggested sizes for dims with such names, for the user to change."""

_WITHOUT = {
    "BatchNormalization": "fuse-conv-bn",
    "Dropout": "drop-dropout",
    "GatherND": "simplify-indices",
    "Identity": "drop-identity",
    "If": "inline-if",
    "Loop": "unroll-loop",
    "Pad": "fuse-pad",
    "SequenceAt": "sequences-to-split",
    "SplitToSequence": "sequences-to-split",
}
"""Passes that often remove all nodes of an operator."""

_ORDER = (
    *("set-dims", "inline-functions", "inline-if", "unroll-loop", "fold-constants", "drop-dropout", "drop-identity"),
    *("simplify-indices", "sequences-to-split", "fuse-pad", "fuse-conv-bn", "fuse-gelu", "decompose"),
    *("downgrade-opset", "upgrade-opset", "to-float16", "to-float32", "set-dtype"),
)
"""The order of suggested steps; for example, shapes can be folded only after dims are numbers."""


@dataclass(frozen=True)
class UnfitNodes(
    Record,
    keys="misfit.reason.kind misfit.reason.op reason=misfit.reason.words misfit.count misfit.first help",
):
    """Nodes with one reason, and the recipe step that would help; empty if none is known."""

    misfit: Misfit
    help: str


@dataclass(frozen=True)
class Fit(Record, keys="target=target.name target.about target.source fits nodes off misfits=rows steps"):
    """How a model fits a target; `rows` is empty if the target runs all `nodes`. `off` counts the others."""

    target: Target
    rows: tuple[UnfitNodes, ...]
    nodes: int
    off: int

    @property
    def fits(self) -> bool:
        """Whether the target runs the whole model, as far as known."""
        return not self.rows

    @property
    def steps(self) -> list[str]:
        """The steps that would help, in a sensible order."""
        found = dict.fromkeys(row.help for row in self.rows if row.help)
        return sorted(found, key=lambda step: _ORDER.index(step.split(":")[0]))


def fit(stored: storage.StoredModel, target: Target) -> Fit:
    """Return the nodes of a model that a target does not run, with the steps that would help."""
    graph = _graph(stored, target)
    found = misfits(graph)
    apart = _taken_apart(stored, target) if any(one.reason.op for one in found) else set()
    advice = _Advice(graph, apart)
    rows = tuple(UnfitNodes(one, advice.of(one.reason)) for one in found)
    off = sum(one.count for one in found if one.reason.op)
    return Fit(target, rows, len(graph.nodes()), off)


def steps_toward(stored: storage.StoredModel, name: str) -> list[str]:
    """Return the steps that would help a model to fit the target of a name, or the profile at a path."""
    return fit(stored, shipped.find(name)).steps


def _graph(stored: storage.StoredModel, target: Target) -> Graph:
    model = storage.ir_from_proto(storage.without_alias(stored.proto), stored.weights)
    return Graph(model, weights=stored.weights, target=target)


def _taken_apart(stored: storage.StoredModel, target: Target) -> set[str]:
    """Run `decompose` on the model, and return the operators for which it reduces the number of unsupported nodes."""
    graph = _graph(stored, target)
    before = _counts(graph)
    try:
        graph.begin("decompose")
        catalog.find("decompose").function(graph)
        graph.finish()
    except SurgeryError:
        return set()
    after = _counts(graph)
    return {op for op, count in before.items() if after.get(op, 0) < count}


def _counts(graph: Graph) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in graph.nodes():
        reason = misfit(graph, node)
        if reason is not None:
            found[reason.op] = found.get(reason.op, 0) + 1
    return found


class _Advice:
    """Finds the step that helps: `apart` are operators that `decompose` replaces, `computed` data-dependent nodes."""

    def __init__(self, graph: Graph, apart: set[str]) -> None:
        self._graph = graph
        self._target = graph.target
        self._apart = apart
        self._computed = _computed(graph)
        self._nodes: dict[Reason, list[Node]] = {}
        for node in graph.nodes():
            reason = misfit(graph, node)
            if reason is not None:
                self._nodes.setdefault(reason, []).append(node)

    def of(self, reason: Reason) -> str:
        """Return the step that would help; empty if none is known."""
        return next(chain(self._of_model(reason), self._of_nodes(reason)), "")

    def _of_model(self, reason: Reason) -> Iterator[str]:
        newest, opset = self._target.opset[1], self._graph.opset
        if reason.kind in ("opset", "ir-version", "version") and opset < self._target.opset[0]:
            yield f"upgrade-opset: {{to: {self._target.opset[0]}}}"
        elif reason.kind in ("opset", "ir-version"):
            lower = ", lower_ir_version: true" if self._graph.ir.ir_version > self._target.ir_version[1] else ""
            yield f"downgrade-opset: {{to: {min(newest, opset)}{lower}}}"
        if reason.kind == "dims" and reason.subject:
            yield f"set-dims: {{{', '.join(_sizes(self._graph))}}}"
        if reason.kind == "functions":
            yield "inline-functions"
        if reason.kind == "input-type" and "float16" in self._target.types and reason.subject == "float":
            yield "to-float16"

    def _of_nodes(self, reason: Reason) -> Iterator[str]:
        if not reason.op:
            return
        if self._is_of_shapes(reason):
            yield "fold-constants"
        if self._is_of_narrow_floats(reason):
            yield "to-float32"
        if reason.op in self._apart:
            yield "decompose"
        if reason.op == "Erf" and self._target.has("Gelu"):
            yield "fuse-gelu"
        if reason.op in _WITHOUT:
            yield _WITHOUT[reason.op]
        if reason.kind == "type" and "float16" in self._target.types and reason.subject == "float":
            yield "to-float16"

    def _is_of_narrow_floats(self, reason: Reason) -> bool:
        """Return whether the target runs the operator in float32, and not in float16 or bfloat16."""
        narrow = {"bfloat16", "float16"} & set(reason.subject.split(", "))
        wide = self._target.computes(reason.op, ir.DataType.FLOAT, self._graph.opset)
        return reason.kind == "type" and bool(narrow) and wide

    def _is_of_shapes(self, reason: Reason) -> bool:
        """Return whether all nodes, or their operands that must be constants, depend only on constants and shapes."""
        nodes = self._nodes[reason]
        if reason.kind == "constant":
            return all(self._is_fixed(operand(node, reason.subject)) for node in nodes)
        return all(node.ir not in self._computed for node in nodes)

    def _is_fixed(self, value: Value | None) -> bool:
        if value is None or value.is_constant:
            return True
        return value.producer is not None and value.producer.ir not in self._computed


def _computed(graph: Graph) -> set[ir.Node]:
    """Return the nodes that depend on input data, rather than only on constants and the dims of values."""
    found: set[ir.Node] = set()
    for node in graph.nodes():
        if node.op in ("Shape", "Size"):
            continue
        for value in graph.reads(node):
            maker = value.producer
            if (value.is_input and not value.is_constant) or (maker is not None and maker.ir in found):
                found.add(node.ir)
                break
    return found


def _sizes(graph: Graph) -> Iterator[str]:
    """Yield the options of `set-dims` with a suggested size for each dynamic dim of the inputs."""
    ports = [value for value in graph.inputs() if not value.is_initializer]
    declared = {value: value.declared_dims or () for value in ports}
    names = dict.fromkeys(dim for dims in declared.values() for dim in dims if isinstance(dim, str))
    if names:
        yield f"dims: {{{', '.join(f'{name}: {_suggested(name)}' for name in names)}}}"
    open_dims = {value.name: dims for value, dims in declared.items() if None in dims}
    if open_dims:
        each = (f"{_key(name)}: [{', '.join(_open_sizes(dims))}]" for name, dims in open_dims.items())
        yield f"ports: {{{', '.join(each)}}}"


def _open_sizes(dims: Sequence[int | str | None]) -> Iterator[str]:
    """Yield a suggested size for each dim without a name, of images after batch and channels, and null for others."""
    for axis, dim in enumerate(dims):
        size = _SIZES["height"] if len(dims) > 3 and axis > 1 else 1
        yield str(size) if dim is None else "null"


def _key(name: str) -> str:
    """Return a name as a key of a recipe."""
    return name if name.isidentifier() else json.dumps(name)


def _suggested(name: str) -> int:
    return next((size for part, size in _SIZES.items() if part in name.lower()), 1)
