"""Random graphs: valid for the checker, and run by ONNX Runtime at two sizes of each dynamic dim.

A seed gives a model and what its inputs may be. What is not valid in the end gives None, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from random_graphs import (
    blocks_bodies,
    blocks_elementwise,
    blocks_foreign,
    blocks_idioms,
    blocks_networks,
    blocks_rare,
    blocks_shapes,
)
from random_graphs.blocks import BLOCKS
from random_graphs.elements import draw
from random_graphs.functions import make_functions
from random_graphs.trace import STUMBLES, Trace, Unfit, imports, options, type_info

__all__ = ["Entry", "Made", "blocks_bodies", "blocks_elementwise", "blocks_idioms", "generate"]
_ = (blocks_foreign, blocks_networks, blocks_rare, blocks_shapes)  # imported for what they register

IR_VERSIONS = dict(zip(range(11, 27), (6, 7, 7, 7, 8, 8, 8, 8, 9, 9, 10, 10, 11, 12, 13, 13)))
SYMBOLS = ("N", "M", "batch", "seq")
SIZES = ((2, 3), (5, 7), (3, 2), (7, 5), (1, 3), (1, 2), (1, 4))
MOST_OUTPUTS = 10
DTYPES = (np.float32,) * 8 + (np.float64, np.float16, np.int64, np.int32, np.bool_, np.uint8, np.int8)


@dataclass(frozen=True)
class Entry:
    """What an input may be: its dims, names among them, its type, and for integers the bounds."""

    dims: tuple[int | str, ...]
    dtype: np.dtype[Any]
    low: int | None = None
    high: int = 4
    overrides: bool = False


@dataclass(frozen=True)
class Made:
    """A model, its inputs, and the outputs whose values are random."""

    model: onnx.ModelProto
    inputs: Mapping[str, Entry]
    random: frozenset[str] = field(default_factory=frozenset)

    @property
    def symbols(self) -> list[str]:
        return sorted({dim for entry in self.inputs.values() for dim in entry.dims if isinstance(dim, str)})


def generate(seed: int) -> Made | None:
    """Make the model of a seed; None when the checker or the runtime refuses it."""
    rng = np.random.default_rng([17, seed])
    opset = int(rng.integers(11, 27))
    ir_version = 3 if opset <= 13 and rng.random() < 0.15 else IR_VERSIONS[opset]
    t = Trace(rng, opset, ir_version)
    t.override_share = float(rng.choice([0.0, 0.0, 0.1, 0.5]))
    t.special_share = float(rng.choice([0.0, 0.02, 0.1]))
    entries = _inputs(t)
    names, weights = list(BLOCKS), np.array([weight for weight, _ in BLOCKS.values()])
    # A model is of a few kinds of blocks, each of which comes often: so they meet.
    mood = weights * rng.gamma(0.5, 2.0, len(weights))
    for _ in range(int(rng.choice([2, 4, 6, 10, 15, 25]))):
        with suppress(Unfit, *STUMBLES), t.attempt():
            BLOCKS[str(rng.choice(names, p=mood / mood.sum()))][1](t)
    with suppress(Unfit), t.attempt():
        _unusual_output(t)
    made = _close(t, entries)
    return made if made is not None and _runs(made, t) else None


def _inputs(t: Trace) -> dict[str, Entry]:
    """Give the graph one to three inputs of dims that are named, or known."""
    symbols = [str(name) for name in t.rng.permutation(SYMBOLS)[: t.among(0, 2)]]
    extents = [1, 2, 3, 4, 4, 6, 8, *([0] if t.chance(0.03) else [])]
    pairs = [SIZES[i] for i in t.rng.permutation(len(SIZES))]
    sizes = [{symbol: pair[i] for symbol, pair in zip(SYMBOLS, pairs)} for i in range(2)]
    entries = {}
    for number in range(t.among(1, 3)):
        rank = t.choose([0, 1, 2, 2, 3, 3, 4, 4])
        dims = tuple(t.choose(symbols) if symbols and t.chance(0.35) else t.choose(extents) for _ in range(rank))
        dtype = np.dtype(t.choose(DTYPES) if number else np.float32)
        name = t.fresh(t.choose(["x", "input", "in/"]))
        shapes = [tuple(dim if isinstance(dim, int) else size[dim] for dim in dims) for size in sizes]
        kind = str(t.rng.choice(["normal", "plain"]))
        low, high = t.choose([(None, 4), (0, 1), (0, 2)]) if dtype.kind == "i" else (None, 4)
        entries[name] = Entry(dims, dtype, low, high)
        if low == 0:
            t.highest[name] = high
        arrays = [np.asarray(draw(t.rng, shape, dtype, character=kind, low=low, high=high)) for shape in shapes]
        t.enter(name, (arrays[0], arrays[1]))
    return entries


def _unusual_output(t: Trace) -> None:
    """Now and then, let an output be a copy of an input, of another value, or of a constant."""
    if t.chance(0.15):
        t.op("Identity", t.pick(lambda v: True, constants=t.chance(0.3)))


def _close(t: Trace, entries: dict[str, Entry]) -> Made | None:
    """Choose outputs, and declare inputs and outputs."""
    main = t.scopes[0]
    read = {name for node in main.nodes for name in node.input}
    computed = [v for v in main.values if v.is_tensor and not v.constant and v.name not in entries]
    computed = [v for v in computed if v.name not in t.overridable]
    sinks = [v for v in computed if v.name not in read and (t.chance(0.85) or len(computed) == 1)]
    inner = [v for v in computed if v.name in read and t.chance(0.08)]
    outputs = [*sinks, *inner] or computed[-1:]
    if not outputs:
        return None
    if len(outputs) > MOST_OUTPUTS:
        outputs = [outputs[i] for i in sorted(t.rng.permutation(len(outputs))[:MOST_OUTPUTS])]
    for name in sorted(t.overridable):
        value = t.table[name]
        entries[name] = Entry(value.runs[0].shape, value.dtype, overrides=True)
    # Below IR version 4 each initializer is an input.
    if t.ir_version < 4:
        for tensor in main.initializers:
            entries.setdefault(tensor.name, Entry(tuple(tensor.dims), _dtype(tensor), overrides=True))
    inputs = [type_info(n, np.zeros([1] * len(e.dims), e.dtype), e.dims) for n, e in entries.items()]
    graph = helper.make_graph(
        main.nodes, "random", inputs, [type_info(v.name, v.runs[0]) for v in outputs], main.initializers
    )
    model = helper.make_model(graph, opset_imports=imports(t.opset, graph), ir_version=t.ir_version)
    if t.ir_version >= 8 and t.chance(0.15):
        make_functions(t, model)
    return Made(_declared(t, model), entries, frozenset(v.name for v in outputs if v.random))


def _dtype(tensor: onnx.TensorProto) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(tensor.data_type)


def _declared(t: Trace, model: onnx.ModelProto) -> onnx.ModelProto:
    """Declare the shapes of outputs, and of other values, as far as they can be inferred, as exporters do."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=t.chance(0.5))
    except Exception:
        return model
    if t.chance(0.3):
        return inferred
    if t.chance(0.7):
        del model.graph.output[:]
        model.graph.output.extend(inferred.graph.output)
    return model


def _runs(made: Made, t: Trace) -> bool:
    """Whether the checker takes the model, and the runtime runs it at the two sizes with the values of the trace."""
    try:
        onnx.checker.check_model(made.model, full_check=True)
        session = ort.InferenceSession(made.model.SerializeToString(), options(), providers=["CPUExecutionProvider"])
        for i in range(2):
            fed = {name: t.table[name].runs[i] for name, entry in made.inputs.items() if not entry.overrides}
            session.run(None, fed)
    except Exception:
        return False
    return True


def feed(
    made: Made, rng: np.random.Generator, sizes: Mapping[str, int], *, special: bool, override: bool
) -> dict[str, Any]:
    """Draw inputs for sizes of the dims; initializers that may be overridden are, or are left as they are."""
    fed = {}
    for name, entry in made.inputs.items():
        if entry.overrides and (not override or entry.dtype.kind != "f"):
            continue
        shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in entry.dims)
        fed[name] = np.asarray(draw(rng, shape, entry.dtype, special=special, low=entry.low, high=entry.high))
    return fed


def extents(made: Made) -> list[int]:
    """List sizes worth trying for a dim: small ones, and the extents that the constants have."""
    found = {1, 2, 3, 5}
    for tensor in made.model.graph.initializer:
        found.update(int(dim) for dim in tensor.dims if 0 < dim <= 12)
    for node in made.model.graph.node:
        for attribute in node.attribute:
            found.update(int(dim) for dim in attribute.t.dims if 0 < dim <= 12)
    return sorted(found)
