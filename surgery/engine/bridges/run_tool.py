"""One run of a tool over a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import onnx

from surgery.base.errors import PassError, WorkerError
from surgery.base.workers import OUT_OF_MEMORY, Worker
from surgery.engine.bridges.except_selectors import Kept
from surgery.engine.bridges.installed_tools import converter_keeps_references
from surgery.engine.bridges.nodes_before import NodesBefore
from surgery.engine.bridges.tool_packing import FOLDING, Packed, Packing
from surgery.engine.bridges.tool_restore import restore
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Refused, Site, WorkerLimits


@dataclass(frozen=True)
class _Needs:
    """What a tool needs of large weights: it follows references, or needs the values that `readers` read."""

    references: bool = True
    readers: frozenset[str] = frozenset()
    own_sites: bool = False


_READERS = frozenset({"Conv", "ConvTranspose", "BatchNormalization", "MatMul"})
_NEEDS = {
    "onnxoptimizer": _Needs(references=False, readers=_READERS, own_sites=True),
    "onnxsim": _Needs(references=False, readers=_READERS | {"Gemm", FOLDING}),
}
_MOST_SITES = 1 << 12
"""Site numbers above this are never steps of a tool."""


def run_tool(graph: Graph, tool: str, /, *, budget: int = 0, **options: Any) -> None:
    """Run a tool on the model in a worker, within the limits of the graph, and adopt the result.

    A tool is one site, or one site per step of its own. `options` are those of its function in `tool_calls`; `budget`
    is the maximum number of bytes of weights to pass by value if it cannot follow references.

    Raises PassError, with the tool and the stage, if it raises, crashes or runs out of time or memory.
    """
    needs = _needs(tool)
    if needs.own_sites:
        options["skip"] = [number for number in graph.skip if number < _MOST_SITES]
    elif 1 in graph.skip:
        graph.sites.append(Site(1, tool, (), (), skipped=True))
        return
    with storage.Weights() as own:
        weights = graph.weights if graph.weights is not None else own
        _run(graph, tool, Packing(needs.references, needs.readers, budget), weights, options)


def _needs(tool: str) -> _Needs:
    if tool == "onnx-version-converter":
        return _Needs(references=converter_keeps_references())
    return _NEEDS.get(tool, _Needs())


def _run(graph: Graph, tool: str, packing: Packing, weights: storage.Weights, options: dict[str, Any]) -> None:
    before = storage.proto_from_ir(graph.ir, weights)
    packed = Packed(before, weights, packing)
    for name in packed.large:
        graph.refusals.append(Refused(name, f"{tool} does not get its values, because they exceed the budget"))
    answer = _call(graph.limits, tool, packed.data, options)
    made = onnx.load_model_from_string(answer["model"])
    packed.unpack(made)
    after = restore(before, made)
    sites = [
        Site(number, name, tuple(gone), tuple(new), skipped)
        for number, (name, skipped, gone, new) in enumerate(answer.get("sites", ()), start=1)
    ]
    if after.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True):
        # Steps without an effect on the final result are not reported.
        graph.sites += [site for site in sites if site.skipped]
        return
    provenance, model = NodesBefore(graph), storage.ir_from_proto(after, weights)
    lost = Kept(graph).lost(model)
    if lost:
        graph.refusals.append(Refused("", lost))
        return
    graph.adopt(model)
    graph.finish(whole=True)
    whole = provenance.account(graph)
    graph.sites += sites or [replace(whole, anchor=tool)]


def _call(limits: WorkerLimits, tool: str, model: bytes, options: dict[str, Any]) -> dict[str, Any]:
    try:
        with Worker(timeout=limits.timeout, memory=limits.memory) as worker:
            answer: dict[str, Any] = worker.call(
                "surgery.engine.bridges.tool_calls:call", tool=tool, model=model, options=options
            )
    except WorkerError as error:
        said = f"{error.stage} ran out of memory" if error.signal == OUT_OF_MEMORY else error.what
        what = said if tool in said else f"{tool}: {said}"
        raise PassError(what, todo="remove the step, or set 'on_failure: rollback'") from error
    return answer
