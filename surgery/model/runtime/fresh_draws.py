"""Models with seeded random operators, rewritten so that one session draws in each run what a new session would.

A kernel seeds its generator when a session is created, and continues from run to run. The rewritten model has a copy of
each draw for each run, in a branch of an If: only that copy draws in its run, for the first time. A new session for
each run takes most of the time of a model with thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from surgery.base.operators.subgraphs import BODIES, nodes, subgraphs
from surgery.model.runtime.seeds import repeats_draws, seeded

if TYPE_CHECKING:
    import onnx

_RUN: Final = "\1run"
"""The name of the additional input, the number of the run; no model has such a name."""

_MOST: Final = 2_000
"""Number of copies from which new sessions are made instead."""

_INT64 = 7
"""The number of int64 in `TensorProto.DataType`."""


def with_draws_for_each(skeleton: bytes, feeds: Sequence[dict[str, Any]]) -> tuple[bytes, list[dict[str, Any]]] | None:
    """Return a model and inputs for one session that draw as new sessions would; None if the model draws elsewhere.

    That is in a function or in a separate model of an operator, which cannot read the number of the run.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    total = sum(map(seeded, nodes(model)))
    within = list(_graphs(model.graph))
    if total * len(feeds) > _MOST or total != sum(seeded(node) for graph in within for node in graph.node):
        return None
    for graph in within:
        _replace(graph, len(feeds))
    head = [
        made
        for number in range(1, len(feeds))
        for made in (
            onnx.helper.make_node("Constant", [], [f"{_RUN}{number}"], value=_scalar(number)),
            onnx.helper.make_node("Equal", [_RUN, f"{_RUN}{number}"], [_is(number)]),
        )
    ]
    others = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*head, *others])
    model.graph.input.append(onnx.helper.make_tensor_value_info(_RUN, _INT64, []))
    return model.SerializeToString(), [{**feed, _RUN: np.asarray(run, np.int64)} for run, feed in enumerate(feeds)]


def draws(skeleton: bytes) -> bool:
    """Return whether a serialized model draws random numbers with a seed."""
    import onnx

    return b"seed" in skeleton and repeats_draws(onnx.load_model_from_string(skeleton))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those of its subgraphs that can read its values."""
    yield graph
    for node in graph.node:
        if node.op_type in BODIES:
            for body in subgraphs(node):
                yield from _graphs(body)


def _replace(graph: onnx.GraphProto, runs: int) -> None:
    """Give each run a copy of each draw of a graph. The first one draws in every run, and is used in the first."""
    found = list(graph.node)
    if not any(map(seeded, found)):
        return
    del graph.node[:]
    for node in found:
        graph.node.extend(_copies(node, runs) if seeded(node) else [node])


def _copies(node: onnx.NodeProto, runs: int) -> list[onnx.NodeProto]:
    import onnx

    made = []
    for run in range(runs):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(node.output):
            copy.output[place] = name and _drawn(name, run)
        made.append(copy)
    outputs = [name for name in node.output if name]
    result = made[:1]
    for run in range(1, runs):
        before = [_drawn(name, run - 1) if run == 1 else _chosen(name, run - 1) for name in outputs]
        kept = [f"{name}/kept" for name in (_drawn(name, run) for name in outputs)]
        passes = [onnx.helper.make_node("Identity", [one], [other]) for one, other in zip(before, kept)]
        choice = onnx.helper.make_node(
            "If",
            [_is(run)],
            list(outputs) if run == runs - 1 else [_chosen(name, run) for name in outputs],
            then_branch=_branch([made[run]], [_drawn(name, run) for name in outputs]),
            else_branch=_branch(passes, kept),
        )
        result.append(choice)
    return result


def _branch(made: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.GraphProto:
    import onnx

    return onnx.GraphProto(name="draw", node=made, output=[onnx.ValueInfoProto(name=name) for name in outputs])


def _scalar(number: int) -> onnx.TensorProto:
    import onnx

    return onnx.TensorProto(data_type=_INT64, int64_data=[number])


def _is(run: int) -> str:
    return f"{_RUN}{run}?"


def _drawn(name: str, run: int) -> str:
    return f"{name}\1{run}"


def _chosen(name: str, run: int) -> str:
    return f"{name}\1{run}!"
