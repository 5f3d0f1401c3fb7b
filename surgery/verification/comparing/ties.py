"""Differences that near ties explain.

TopK, ArgMax and ArgMin choose among numbers. Where two of them are nearly equal, rounding decides, and all that is
selected by the choice then differs by more than any tolerance: a label, a box, the order of a list. An index says
nothing by itself; what it selects does. So both models run again with the choices of the original in place of the nodes
that choose. What these nodes choose from is compared instead, like any output: if it agrees, other choices are between
values that are equal within the tolerance, and if all outputs agree as well, nothing else differs.

A node counts only if both models have it, with the same attributes, the same constants and the same outputs by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.operators.dtypes import type_of
from surgery.base.operators.message_tensors import to_array
from surgery.base.promises import Parity
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.output_judge import OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.run_feeds import feeds_for
from surgery.verification.comparing.vacuity import Run

if TYPE_CHECKING:
    import onnx

CHOOSING = frozenset({"ArgMax", "ArgMin", "TopK"})
"""Operators that choose elements by their order."""

RunModel = Callable[[bytes, Sequence[Run]], RunOutcome]
"""Runs a changed model on the feeds of some runs."""


def settled(original: ReferenceRun, candidate: bytes, verdict: Verdict, run: RunModel | None = None) -> Verdict:
    """Return the verdict on a changed model that differs, or the one without its near ties if these are all.

    `run` runs changed models; by default, they run like the original.
    """
    import onnx

    if not verdict.is_different or not original.runs or original.random:
        return verdict
    models = [onnx.load_model_from_string(skeleton) for skeleton in (original.skeleton, candidate)]
    shared = _shared(*models)
    if not shared:
        return verdict
    found = _ChoiceSettling(original, models, shared, run or _like(original)).judge()
    if found is None or not found.passed:
        return verdict
    message = f"near ties of nearly equal values: {verdict.message}; with the original's choices, {found.message}"
    details = replace(found.details or Details(), tied=True)
    return replace(found, status=Status.CLOSE, message=message, details=details)


def _like(original: ReferenceRun) -> RunModel:
    def run(model: bytes, runs: Sequence[Run]) -> RunOutcome:
        with closing(original.engine_for(original.engine)) as engine:
            return engine.run(model, feeds_for(model, runs))

    return run


@dataclass
class _ChoiceSettling:
    """Both models, and the names of the outputs of nodes that choose in both."""

    original: ReferenceRun
    models: Sequence[onnx.ModelProto]
    shared: Sequence[tuple[str, ...]]
    run: RunModel

    def judge(self) -> Verdict | None:
        """Compare both models with the choices of the original; return None if one of them does not run so."""
        runs = self._with_choices()
        if runs is None:
            return None
        mine, theirs = (_without(model, self.shared, runs[0].feed) for model in self.models)
        own = _complete(_like(self.original)(mine, runs))
        made = None if own is None else _complete(self.run(theirs, runs))
        if own is None or made is None:
            return None
        expected = [replace(run, outputs=outputs) for run, outputs in zip(runs, own)]
        return OutputJudge(self.original.inner(mine, expected)).judge(expected, made, Parity.CLOSE)

    def _with_choices(self) -> list[Run] | None:
        """Return the runs of the original with its choices as further inputs."""
        names = [name for outputs in self.shared for name in outputs if name]
        chosen = _complete(_like(self.original)(_only(self.models[0], names), self.original.runs))
        if chosen is None:
            return None
        return [replace(run, feed={**run.feed, **made}) for run, made in zip(self.original.runs, chosen)]


def _complete(outcome: RunOutcome) -> list[Mapping[str, Any]] | None:
    """Return the outputs of all runs; None if one failed."""
    made = [run for run in outcome.runs if not isinstance(run, str)]
    return made if outcome.failure is None and len(made) == len(outcome.runs) else None


def _shared(first: onnx.ModelProto, second: onnx.ModelProto) -> list[tuple[str, ...]]:
    """Return the outputs of the nodes that choose in both models alike."""
    mine, theirs = (dict(_choosing(model)) for model in (first, second))
    return [outputs for outputs, form in mine.items() if theirs.get(outputs) == form]


def _choosing(model: onnx.ModelProto) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the outputs of each node that chooses, and what it is: its attributes and its constant inputs."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    stored |= {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
    for node in model.graph.node:
        if node.op_type in CHOOSING and node.domain in ("", "ai.onnx"):
            attributes = sorted(one.SerializeToString(deterministic=True) for one in node.attribute)
            constants = [_content(stored[name]) if name in stored else None for name in node.input]
            yield tuple(node.output), (node.op_type, attributes, constants)


def _content(held: Any) -> bytes:
    """Return a constant without its name."""
    import onnx

    if isinstance(held, onnx.NodeProto):
        tensors = [attribute.t for attribute in held.attribute if attribute.HasField("t")]
        if not tensors:
            return b"".join(one.SerializeToString(deterministic=True) for one in held.attribute)
        held = tensors[0]
    return to_array(held).tobytes() if not held.external_data else held.SerializeToString()


def _only(model: onnx.ModelProto, names: Sequence[str]) -> bytes:
    """Copy a model with some values as its only outputs."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    data: bytes = copy.SerializeToString()
    return data


def _without(model: onnx.ModelProto, shared: Sequence[tuple[str, ...]], feed: Mapping[str, Any]) -> bytes:
    """Copy a model whose nodes that choose are gone: their outputs are inputs, and their inputs are outputs."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph, places = copy.graph, {outputs: place for place, outputs in enumerate(shared)}
    given = {name for outputs in shared for name in outputs if name}
    kept = [value for value in graph.output if value.name not in given]
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        place = places.get(tuple(node.output))
        if place is None:
            nodes.append(node)
            continue
        for number, name in enumerate(node.input):
            read = f"choice/{place}/{number}"
            nodes.append(onnx.helper.make_node("Identity", [name], [read]))
            kept.append(onnx.ValueInfoProto(name=read))
    declared = [value for value in graph.value_info if value.name not in given]
    for field, items in ((graph.node, nodes), (graph.output, kept), (graph.value_info, declared)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del field[:]
        field.extend(copies)
    for name in sorted(given):
        kind = type_of(feed[name].dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, None))
    data: bytes = copy.SerializeToString()
    return data
