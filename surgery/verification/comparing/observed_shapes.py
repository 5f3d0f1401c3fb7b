"""Inferred shapes of the original that its run contradicts: a rule of shape inference, or a declaration, was wrong.

A copy of the model outputs the shapes of its values, of as few runs as have all sizes of its inputs. A number must be
the extent that was seen, and dims with one name must have one extent within a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.verification.inputs.dims import evaluate
from surgery.workers import stage

if TYPE_CHECKING:
    from surgery.shapes.facts import Dim, Doubt
    from surgery.verification.comparing.reference_run import ReferenceRun
    from surgery.verification.comparing.vacuity import Run

Shapes = Mapping[str, "Sequence[Dim]"]

_MOST_RUNS = 4
"""Maximum number of runs whose shapes are looked at."""

_LONG = 0.1
"""Estimated seconds above which another run of the model is not worth it."""

_PLAIN = frozenset({*range(1, 14), 16})
"""The element types that Shape takes in every release of ONNX Runtime, as numbers of `TensorProto.DataType`."""


def contradicted(original: ReferenceRun) -> dict[str, Doubt]:
    """Return the values whose inferred shapes a run of the original contradicts; empty if runs are expensive."""
    original.prepare()
    runs = list(_unlike(original.runs))
    if original.problem is not None or original.engine != "onnxruntime" or not runs:
        return {}
    if original.cost(runs[0].binding) > _LONG:
        return {}
    engine = original.engine_for(original.engine)
    try:
        known = engine.analyse(inferred_shapes, skeleton=original.skeleton)
        if not known:
            return {}
        outcome = engine.run(_watching(original.skeleton, list(known)), [run.feed for run in runs])
    finally:
        engine.close()
    found: dict[str, Doubt] = {}
    for run, seen in zip(runs, outcome.runs if outcome.failure is None else ()):
        if not isinstance(seen, str):
            shapes = {name: _extents(seen[_name(number)]) for number, name in enumerate(known)}
            for name, axes in wrong(known, {**_fed(run), **shapes}):
                found[name] = None if axes is None or found.get(name, ()) is None else (*(found.get(name) or ()), *axes)
    return found


def inferred_shapes(skeleton: bytes) -> dict[str, list[Dim]]:
    """Infer the shapes of the inputs and of the values of the main graph that are not constant, in this order."""
    import onnx
    import onnx_ir as ir

    from surgery.shapes.facts import dims
    from surgery.shapes.inference import Inference
    from surgery.storage import ir_from_proto

    stage("shape inference")
    model = ir_from_proto(onnx.load_model_from_string(skeleton))
    facts = Inference(model).everything()
    computed = (value for node in model.graph if node.op_type != "Constant" for value in node.outputs)
    found: dict[str, list[Dim]] = {}
    for value in (*model.graph.inputs, *computed):
        fact, shape = facts.get(value), dims(facts[value].shape) if value in facts else None
        if value.name and fact is not None and isinstance(fact.type, ir.TensorType) and int(fact.type.dtype) in _PLAIN:
            found |= {} if shape is None else {value.name: [*shape]}
    return found


def wrong(known: Shapes, seen: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Doubt]]:
    """Yield the values whose inferred dims are not those of a run, with the axes; None for another rank."""
    point: dict[str, int] = {}
    for name, dims in known.items():
        extents = seen.get(name)
        if extents is None:
            continue
        if len(extents) != len(dims):
            yield name, None
            continue
        axes = [axis for axis, (dim, extent) in enumerate(zip(dims, extents)) if not _agrees(dim, extent, point)]
        if axes:
            yield name, tuple(axes)


def _agrees(dim: Dim, extent: int, point: dict[str, int]) -> bool:
    """Return whether a dim may have an extent; a name without an extent gets it."""
    if dim is None or isinstance(dim, int):
        return dim in (None, extent)
    if dim.isidentifier():
        return point.setdefault(dim, extent) == extent
    if not extent:
        return True  # expressions hold for names that are at least 1
    try:
        return evaluate(dim, point) == extent
    except (ValueError, SyntaxError, ZeroDivisionError):
        return True


def _unlike(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield runs with different shapes of inputs, none of which is empty."""
    seen: list[Mapping[str, Sequence[int]]] = []
    for run in runs:
        shapes = _fed(run)
        if shapes not in seen and all(math.prod(shape) for shape in shapes.values()) and len(seen) < _MOST_RUNS:
            seen.append(shapes)
            yield run


def _fed(run: Run) -> dict[str, Sequence[int]]:
    return {name: value.shape for name, value in run.feed.items() if isinstance(value, np.ndarray)}


def _extents(shape: Any) -> list[int]:
    return [int(extent) for extent in shape]


def _watching(skeleton: bytes, names: Sequence[str]) -> bytes:
    """Copy a model so that its outputs are the shapes of these values."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    graph = model.graph
    del graph.output[:]
    for number, name in enumerate(names):
        graph.node.append(onnx.helper.make_node("Shape", [name], [_name(number)]))
        graph.output.append(onnx.ValueInfoProto(name=_name(number)))
    return bytes(model.SerializeToString())


def _name(number: int) -> str:
    return f"shape/{number}"
