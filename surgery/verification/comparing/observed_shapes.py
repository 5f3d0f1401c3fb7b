"""The shapes of all values in runs of the original, which show where inferred shapes are wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from surgery.verification.comparing.reference_run import ReferenceRun
    from surgery.verification.comparing.vacuity import Run

Extents = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Observed:
    """The shapes of tensors in one run, by name, and the names of the inputs among them."""

    shapes: Extents
    inputs: frozenset[str]


_MOST_RUNS = 4
"""Maximum number of runs whose shapes are looked at."""

_LONG = 0.1
"""Estimated seconds above which another run of the model is not worth it."""

_PLAIN = frozenset({*range(1, 14), 16})
"""The element types that Shape takes in every release of ONNX Runtime, as numbers of `TensorProto.DataType`."""


def observe(original: ReferenceRun) -> list[Observed]:
    """Run a copy of the original that outputs the shapes of its values, on inputs of different sizes, none of them 0.

    Return the shapes of inputs and of values of the main graph in each run; nothing if runs are expensive.
    """
    original.prepare()
    runs = list(_unlike(original.runs))
    if original.problem is not None or original.engine != "onnxruntime" or not runs:
        return []
    if original.cost(runs[0].binding) > _LONG:
        return []
    types = {name: dtype for name, (dtype, _) in original.inferred(runs[0].binding).items()}
    skeleton, names = _watching(original.skeleton, types)
    engine = original.engine_for(original.engine)
    try:
        outcome = engine.run(skeleton, [run.feed for run in runs])
    finally:
        engine.close()
    found: list[Observed] = []
    for run, seen in zip(runs, outcome.runs if outcome.failure is None else ()):
        if not isinstance(seen, str):
            shapes = {name: tuple(map(int, seen[_name(number)])) for number, name in enumerate(names)}
            fed = _fed(run)
            found.append(Observed({**fed, **shapes}, frozenset(fed)))
    return found


def _unlike(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield runs with different shapes of inputs, none of which is empty."""
    seen: list[Extents] = []
    for run in runs:
        shapes = _fed(run)
        if shapes not in seen and all(map(math.prod, shapes.values())) and len(seen) < _MOST_RUNS:
            seen.append(shapes)
            yield run


def _fed(run: Run) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in run.feed.items() if isinstance(value, np.ndarray)}


def _watching(skeleton: bytes, types: Mapping[str, int]) -> tuple[bytes, list[str]]:
    """Copy a model so that its outputs are the shapes of computed tensors; return their names, too."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    graph = model.graph
    computed = [name for node in graph.node if node.op_type != "Constant" for name in node.output]
    names = [name for name in computed if types.get(name) in _PLAIN]
    del graph.output[:]
    for number, name in enumerate(names):
        graph.node.append(onnx.helper.make_node("Shape", [name], [_name(number)]))
        graph.output.append(onnx.ValueInfoProto(name=_name(number)))
    return bytes(model.SerializeToString()), names


def _name(number: int) -> str:
    return f"shape/{number}"
