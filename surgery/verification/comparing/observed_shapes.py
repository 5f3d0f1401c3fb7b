"""The shapes of values in runs of the original, which show where inferred shapes are wrong.

The values that a pass creates are not in the original: they are looked at in the changed model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surgery.model.proto.extract import cut

if TYPE_CHECKING:
    import onnx

    from surgery.model.runtime.engine import Engine
    from surgery.verification.comparing.reference_run import ReferenceRun
    from surgery.verification.comparing.vacuity import Run

Extents = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Seen:
    """The shapes of tensors in one run, by name, and the names of the inputs among them."""

    shapes: Extents
    inputs: frozenset[str]


_MOST_RUNS = 4
"""Maximum number of runs whose shapes are looked at."""

_MOST_CHANGED = 2
"""The same for a changed model: two different sizes are enough to confirm a rule."""

_SHAPES, _END = "surgery/shapes", -1
"""The name of the output with all shapes, and the number that ends each of them."""

_LONG = 0.1
"""Estimated seconds above which another run of the model is not worth it."""

_PLAIN = frozenset({*range(1, 14), 16})
"""The element types that Shape takes in every release of ONNX Runtime, as numbers of `TensorProto.DataType`."""


def seen(
    original: ReferenceRun, engine: Callable[[], Engine], changed: bytes = b"", names: Sequence[str] = ()
) -> list[Seen]:
    """Run a copy of the original that outputs the shapes of its values, on inputs of different sizes, none of them 0.

    Return the shapes of inputs and of values of the main graph in each run; nothing if runs are expensive. With
    `changed`, run that model on the same inputs, and return the shapes of inputs and of `names`. `engine` is like that
    of the original.
    """
    original.prepare()
    runs = list(_unlike(original.runs))[: _MOST_CHANGED if changed else None]
    if original.problem is not None or original.engine != "onnxruntime" or not runs:
        return []
    if original.inputs.cost(runs[0].binding) > _LONG:
        return []
    if changed:
        watching, watched = _watching_some(changed, names), list(names)
    else:
        types = {name: dtype for name, (dtype, _) in original.inputs.inferred(runs[0].binding).items()}
        watching, watched = _watching(original.skeleton, types)
    given = {value.name for value in watching.graph.input}
    feeds = [{name: value for name, value in run.feed.items() if name in given} for run in runs]
    outcome = engine().run(watching.SerializeToString(), feeds)
    found: list[Seen] = []
    for run, result in zip(runs, outcome.runs if outcome.failure is None else ()):
        if not isinstance(result, str):
            shapes = dict(zip(watched, _separate(result[_SHAPES].tolist())))
            fed = _fed(run)
            found.append(Seen({**fed, **shapes}, frozenset(fed)))
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


def _watching(skeleton: bytes, types: Mapping[str, int]) -> tuple[onnx.ModelProto, list[str]]:
    """Copy a model so that its output is the shapes of computed tensors; return their names, too."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    graph = model.graph
    computed = [name for node in graph.node if node.op_type != "Constant" for name in node.output]
    names = [name for name in computed if types.get(name) in _PLAIN]
    _add_shapes(graph, names)
    return model, names


def _watching_some(skeleton: bytes, names: Sequence[str]) -> onnx.ModelProto:
    """Copy the nodes upstream of some values to a model whose output is the shapes of these."""
    import onnx

    model = cut(onnx.load_model_from_string(skeleton), {}, names)
    _add_shapes(model.graph, names)
    return model


def _add_shapes(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Replace the outputs of a graph by the shapes of some values, in one tensor: many small ones take long to send."""
    import onnx

    del graph.output[:]
    end = onnx.numpy_helper.from_array(np.array([_END], np.int64))
    graph.node.append(onnx.helper.make_node("Constant", [], [f"{_SHAPES}/end"], value=end))
    shapes = [f"{_SHAPES}/{number}" for number in range(len(names))]
    graph.node.extend(onnx.helper.make_node("Shape", [name], [shape]) for name, shape in zip(names, shapes))
    parts = [part for shape in shapes for part in (shape, f"{_SHAPES}/end")]
    graph.node.append(onnx.helper.make_node("Concat", parts or [f"{_SHAPES}/end"], [_SHAPES], axis=0))
    graph.output.append(onnx.ValueInfoProto(name=_SHAPES))


def _separate(extents: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes in a tensor of all of them."""
    shape: list[int] = []
    for extent in extents:
        if extent == _END:
            yield tuple(shape)
            shape = []
        else:
            shape.append(extent)
