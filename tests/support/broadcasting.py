"""Random models in which operands broadcast, and the comparison of a model with what a pass makes of it.

ONNX Runtime alone says what is right here, so that nothing of `surgery.verification` can hide a mistake. Models come
from two sources: random expressions over elementwise operators, and the case files of the passes with other shapes, so
that each idiom meets constants that enlarge it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnxruntime as ort

from support import case_files
from surgery import Parity
from surgery.base.errors import SurgeryError
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.features import testing
from surgery.model import storage

THEMES = ("attention", "chains", "cleanup", "constants", "idioms", "linear", "shapes", "structure", "weights")
LEFT_OUT = (
    *("canonical-order", "drop-unused-inputs", "infer-shapes", "set-layout", "strip-lineage", "strip-metadata"),
    "unroll-loop",
)
"""Passes of these themes that change no value, or the signature, or that take options."""

NEEDS_ELEMENTS = ("fuse-attention", "fuse-pad")
"""Passes that make an operator which ONNX Runtime refuses to run where a dim is 0: Attention, and AveragePool with pads
that are as large as what there is."""

DIMS = (1, 2, 3, "N", "N", "M")
FLOAT = onnx.TensorProto.FLOAT
TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


@dataclass(frozen=True)
class Wrong:
    """A model of which a pass makes another one: which pass, at which sizes, and what differs."""

    name: str
    dims: Mapping[str, int]
    what: str

    def __str__(self) -> str:
        return f"{self.name} at {dict(self.dims)}: {self.what}"


@cache
def passes() -> tuple[Pass, ...]:
    """List the standard passes that may meet elementwise operators."""
    found = catalog.passes().values()
    return tuple(one for one in found if one.is_standard and one.theme in THEMES and one.name not in LEFT_OUT)


def wrong(model: onnx.ModelProto, declared: Pass, seed: int) -> tuple[Wrong | None, onnx.ModelProto]:
    """Run a pass; return what is wrong with its result, None when nothing is, and the result."""
    try:
        outcome = testing.run(model, declared, {})
    except SurgeryError:
        return None, model
    after = storage.resolve(outcome.after)
    if outcome.before.SerializeToString() == outcome.after.SerializeToString():
        return None, model
    return compare(model, after, declared.name, exact=declared.promise({}) is Parity.EXACT, seed=seed), after


def compare(before: onnx.ModelProto, after: onnx.ModelProto, name: str, *, exact: bool, seed: int) -> Wrong | None:
    """Run both models over several sizes, and say where the second gives something else."""
    first = _session(before)
    if isinstance(first, str):
        return None
    second = _session(after)
    for dims in points(before):
        if 0 in dims.values() and name in NEEDS_ELEMENTS:
            continue
        feed = feeds(before, dims, seed)
        expected = _run(first, feed)
        if isinstance(expected, str) or not _have_declared_ranks(before, expected):
            continue
        if isinstance(second, str):
            return Wrong(name, dims, second)
        got = _run(second, feed)
        if isinstance(got, str):
            return Wrong(name, dims, got)
        for output, a, b in zip(first.get_outputs(), expected, got):
            what = _difference(np.asarray(a), np.asarray(b), exact)
            if what:
                return Wrong(name, dims, f"{output.name}: {what}")
    return None


def _session(model: onnx.ModelProto) -> ort.InferenceSession | str:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return f"not loaded: {' '.join(str(error).split())[:200]}"


def _run(session: ort.InferenceSession, feed: Feed) -> list[Any] | str:
    run = ort.RunOptions()
    run.log_severity_level = 4
    try:
        return list(session.run(None, feed, run))
    except Exception as error:
        return f"not run: {' '.join(str(error).split())[:200]}"


def _have_declared_ranks(model: onnx.ModelProto, results: list[Any]) -> bool:
    """Return whether results have the ranks of the outputs; ONNX Runtime 1.22 gives others for means of no elements."""
    kinds = [value.type.tensor_type for value in model.graph.output]
    return all(
        not kind.HasField("shape") or np.ndim(result) == len(kind.shape.dim) for kind, result in zip(kinds, results)
    )


def _difference(a: Array, b: Array, exact: bool) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
    if a.dtype.kind != "f":
        return None if np.array_equal(a, b) else "other elements"
    if exact:
        same = np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[a == 0], np.signbit(b)[b == 0])
        return None if same else "other bits"
    finite = np.isfinite(a)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[np.isinf(a)], b[np.isinf(a)]):
        return "NaN or infinity elsewhere"
    scale = float(np.abs(a[finite]).max(initial=1e-6))
    error = float(np.abs(a[finite].astype(np.float64) - b[finite]).max(initial=0.0))
    return None if error <= TOLERANCE[a.dtype.name] * scale else f"error {error:.2g} at a scale of {scale:.2g}"


def names(model: onnx.ModelProto) -> list[str]:
    """List the named dims of the inputs."""
    dims = (dim for value in ports(model) for dim in value.type.tensor_type.shape.dim)
    return list(dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param))


def ports(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """List the inputs that are to be fed."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in defaults]


def points(model: onnx.ModelProto) -> Iterator[dict[str, int]]:
    """Yield sizes: all equal, all different, one alone at 1, and none at all."""
    free = names(model)
    if not free:
        yield {}
        return
    extents = sorted({1, 2, 3, *(dim for tensor in model.graph.initializer for dim in tensor.dims if 0 < dim < 9)})
    chosen = [dict.fromkeys(free, extent) for extent in (*extents, 0)]
    for shift in range(2):
        cycle = itertools.cycle([*extents[shift:], *extents[:shift]])
        chosen.append({name: next(cycle) for name in free})
    if len(free) > 1:
        chosen += [{**dict.fromkeys(free, 3), name: 1} for name in free]
    yield from (point for index, point in enumerate(chosen) if point not in chosen[:index])


def feeds(model: onnx.ModelProto, dims: Mapping[str, int], seed: int) -> Feed:
    """Draw inputs: floats of either sign and away from 0, small positive integers."""
    rng = np.random.default_rng(seed)
    made: Feed = {}
    for value in ports(model):
        kind = value.type.tensor_type
        shape = [dims[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind == "f":
            drawn = rng.uniform(0.1, 2, shape) * rng.choice([-1, 1], shape)
        elif dtype.kind == "b":
            drawn = rng.random(shape) < 0.5
        else:
            drawn = rng.integers(1, 4, shape)
        made[value.name] = np.asarray(drawn).astype(dtype)
    return made


# Random expressions

UNARY = ("Neg", "Relu", "Abs", "Sigmoid", "Exp", "Sqrt", "Reciprocal", "Floor", "Identity", "Tanh", "Sign", "Erf")
BINARY = ("Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu")
COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")


class Expression:
    """A random graph of elementwise operators over inputs and constants that broadcast."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.floats: list[str] = []
        self.bools: list[str] = []

    def model(self) -> onnx.ModelProto | None:
        """Make the model; None when the shapes do not fit."""
        draw = self.random
        for _ in range(draw.randint(1, 2)):
            self.floats.append(self._input())
        for _ in range(draw.randint(2, 6)):
            self._node()
        made = [name for node in self.nodes for name in node.output]
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name in made if name not in read or draw.random() < 0.1]
        outputs = [onnx.helper.make_tensor_value_info(name, 9 if name in self.bools else FLOAT, None) for name in ends]
        graph = onnx.helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        opset = draw.choice((13, 17, 21))
        imports = [onnx.helper.make_opsetid("", opset)]
        return declared(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8))

    def _input(self) -> str:
        shape = [self.random.choice(DIMS) for _ in range(self.random.randint(0, 3))]
        name = f"x{len(self.inputs)}"
        self.inputs.append(onnx.helper.make_tensor_value_info(name, FLOAT, shape))
        return name

    def _operand(self, constant: float) -> str:
        draw = self.random
        if draw.random() >= constant:
            return draw.choice(self.floats[-3:])
        shape = [draw.choice((1, 1, 2, 3, 3)) for _ in range(draw.choice((0, 0, 1, 1, 2, 2, 3, 4)))]
        if shape and draw.random() < 0.06:
            shape[draw.randrange(len(shape))] = 0
        elements = [draw.choice(CONSTANTS)] if draw.random() < 0.7 else CONSTANTS
        array = np.array([draw.choice(elements) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)
        return self._constant(array)

    def _constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def _node(self) -> None:
        draw, name = self.random, f"t{len(self.nodes)}"
        choice = draw.random()
        if choice < 0.62:
            operands = [self._operand(0), self._operand(0.75)]
            draw.shuffle(operands)
            node = onnx.helper.make_node(draw.choice(BINARY), operands, [name])
        elif choice < 0.8:
            node = onnx.helper.make_node(draw.choice(UNARY), [self._operand(0)], [name])
        elif choice < 0.88 or not self.bools:
            node = onnx.helper.make_node(draw.choice(COMPARISONS), [self._operand(0), self._operand(0.7)], [name])
            self.bools.append(name)
            self.nodes.append(node)
            return
        elif choice < 0.96:
            condition = draw.choice(self.bools)
            node = onnx.helper.make_node("Where", [condition, self._operand(0.2), self._operand(0.5)], [name])
        else:
            shape = [draw.choice((1, 1, 2, 3)) for _ in range(draw.randint(0, 3))]
            target = self._constant(np.array(shape, np.int64))
            node = onnx.helper.make_node("Expand", [self._operand(0), target], [name])
        self.nodes.append(node)
        self.floats.append(name)


CONSTANTS = (0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.5, -1.0, 3.0, 6.0, 0.3)


def declared(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Declare the outputs as they are inferred, with separate names for unknown dims; None if it is not valid."""
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(inferred)
    except Exception:
        return None
    for value, found in zip(model.graph.output, inferred.graph.output):
        if not found.type.tensor_type.HasField("shape"):
            continue
        value.type.tensor_type.shape.CopyFrom(found.type.tensor_type.shape)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = f"{value.name}_{axis}"
    return model


# Case files with other shapes


def variant(case: testing.Case, seed: int) -> onnx.ModelProto | None:
    """Give a case's graph other shapes: constants that are repeated or have more dims, inputs with other dims."""
    draw = random.Random(seed)
    model = case.model()
    del model.graph.value_info[:]
    fed = {value.name for value in ports(model)}
    constants = [tensor for tensor in model.graph.initializer if tensor.name not in fed and not tensor.external_data]
    for tensor in constants:
        if draw.random() < 0.4:
            _reshape(tensor, draw)
    for value in ports(model):
        if draw.random() < 0.5 and value.type.HasField("tensor_type"):
            _redeclare(value.type.tensor_type.shape, draw)
    return declared(model)


def _reshape(tensor: onnx.TensorProto, draw: random.Random) -> None:
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.kind not in "fiu" or array.ndim > 4:
        return
    kind = draw.random()
    if array.size == 1 and kind < 0.7:
        shape = [draw.choice((1, 1, 1, 2, 3, 3)) for _ in range(draw.randint(0, 4))]
        if shape and draw.random() < 0.08:
            shape[draw.randrange(len(shape))] = 0
        array = np.broadcast_to(array.reshape(()), shape)
    elif kind < 0.6:
        array = array[None]
    elif kind < 0.8:
        array = np.repeat(array[None], draw.choice((2, 3)), 0)
    elif array.ndim:
        array = array[..., None]
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), tensor.name))


def _redeclare(shape: onnx.TensorShapeProto, draw: random.Random) -> None:
    kind = draw.random()
    dims = list(shape.dim)
    if dims and kind < 0.5:
        dim = draw.choice(dims)
        extent = draw.choice((1, 1, 2, 3, "N", "Q"))
        dim.Clear()
        if isinstance(extent, int):
            dim.dim_value = extent
        else:
            dim.dim_param = extent
    elif dims and kind < 0.7:
        del shape.dim[0]
    elif kind < 0.9:
        shape.dim.add()
        for axis in range(len(dims), 0, -1):
            shape.dim[axis].CopyFrom(shape.dim[axis - 1])
        shape.dim[0].Clear()
        shape.dim[0].dim_param = draw.choice(("N", "Q"))
    else:
        del shape.dim[:]


@cache
def templates() -> tuple[testing.Case, ...]:
    """List the case files that are templates: those of the passes that are looked at, without options."""
    known = {one.name for one in passes()}
    return tuple(
        case
        for case in case_files.read()
        if case.pass_name in known and not case.options and case.error is None and case.unverified is None
    )
