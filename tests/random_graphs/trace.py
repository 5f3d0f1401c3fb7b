"""A graph that is built node by node; ONNX Runtime runs each node as it is added, at two sizes of each dynamic dim.

So a block of nodes needs no shape arithmetic of its own: it looks at what the values are in both runs, and what the
runtime refuses is rolled back (`Unfit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from random_graphs.elements import FLOATS, draw

Array = Any  # numpy array, or a list of them for a sequence
MOST_ELEMENTS = 20_000
FOREIGN = {"com.microsoft": 1, "ai.onnx.ml": 3}
"""The versions of other domains that are imported where they are used."""
STUMBLES = (ZeroDivisionError, IndexError, OverflowError, ValueError)
"""What a block may meet that asks for what a value does not have; it is rolled back like one that does not fit."""


class Unfit(Exception):  # noqa: N818 - a choice that leads nowhere, no error
    """There is no place for this block, or the runtime does not run what it made."""


@dataclass(eq=False)
class Value:
    """A value of the graph with what it holds in both runs."""

    name: str
    runs: tuple[Array, Array]
    constant: bool = False
    random: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.runs[0], np.ndarray)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.runs[0].dtype

    @property
    def is_float(self) -> bool:
        return self.is_tensor and self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        return self.is_tensor and self.dtype.kind in "iu"

    @property
    def rank(self) -> int:
        return self.runs[0].ndim

    @property
    def dims(self) -> tuple[int | None, ...]:
        """The extents; None for one that is not the same in both runs."""
        first, second = (run.shape for run in self.runs)
        return tuple(a if a == b else None for a, b in zip(first, second))

    @property
    def is_static(self) -> bool:
        return None not in self.dims

    @property
    def is_empty(self) -> bool:
        return any(run.size == 0 for run in self.runs)


@dataclass
class Scope:
    """The main graph, or the body of a node."""

    nodes: list[NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)


class Trace:
    """A model in the making."""

    def __init__(self, rng: np.random.Generator, opset: int, ir_version: int) -> None:
        self.rng = rng
        self.opset = opset
        self.ir_version = ir_version
        self.scopes = [Scope()]
        self.table: dict[str, Value] = {}
        self.overridable: set[str] = set()
        self.highest: dict[str, int] = {}  # the largest that an input of indices may hold
        self.override_share = 0.0
        self.special_share = 0.02
        self._count = 0

    # Choices

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose(self, items: Sequence[Any]) -> Any:
        if not len(items):
            raise Unfit
        return items[int(self.rng.integers(len(items)))]

    def among(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    @property
    def visible(self) -> list[Value]:
        return [value for scope in self.scopes for value in scope.values]

    def pick(self, fits: Callable[[Value], bool], *, constants: bool = False) -> Value:
        """Choose a value that fits; a recent one more often than not, so that chains come about."""
        found = [v for v in self.visible if v.is_tensor and (constants or not v.constant) and fits(v)]
        if len(found) > 4 and self.chance(0.6):
            found = found[-4:]
        return self.choose(found)

    def float_value(self, *, rank: int | tuple[int, int] | None = None, dtype: Any = None) -> Value:
        low, high = (0, 9) if rank is None else (rank, rank) if isinstance(rank, int) else rank
        return self.pick(lambda v: v.is_float and low <= v.rank <= high and (dtype is None or v.dtype == dtype))

    # Nodes

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def op(self, op: str, *inputs: Value | None, n: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node, run; return its output, or a list of `n` outputs."""
        names = [value.name if value is not None else "" for value in inputs]
        while names and not names[-1]:
            names.pop()
        outputs = [self.fresh(op[:3].lower()) for _ in range(n)]
        kept = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op, names, outputs, domain=domain, **kept)
        if self.chance(0.6):
            node.name = self.fresh(f"/{op}_")
        return self.add(node)

    def add(self, node: NodeProto, *weights: TensorProto) -> Any:
        """Add a node; `weights` are what it reads of types that NumPy does not have."""
        reads = [self.table[name] for name in _free(node) if name in self.table]
        both = self._run(node, reads, weights)
        values = []
        for name, first, second in zip(filter(None, node.output), *both):
            value = Value(name, (first, second), random=any(v.random for v in reads) or _draws(node))
            if value.is_tensor and max(first.size, second.size) > MOST_ELEMENTS:
                raise Unfit
            if value.is_tensor and second.ndim != first.ndim:
                raise Unfit
            values.append(value)
        self.scopes[-1].nodes.append(node)
        self.scopes[-1].initializers.extend(weights)
        for value in values:
            self._enter(value)
        return values if len(values) > 1 else values[0]

    def _enter(self, value: Value, place: Scope | None = None) -> Value:
        self.table[value.name] = value
        (place or self.scopes[-1]).values.append(value)
        return value

    def enter(self, name: str, runs: tuple[Array, Array], *, random: bool = False) -> Value:
        """Make an input of the graph, or of a body, known."""
        return self._enter(Value(name, runs, random=random))

    def _run(self, node: NodeProto, reads: list[Value], weights: Sequence[TensorProto]) -> list[list[Array]]:
        constants = [*weights, *(numpy_helper.from_array(v.runs[0], v.name) for v in reads if v.constant)]
        fed = [v for v in reads if not v.constant]
        graph = helper.make_graph(
            [node],
            "one",
            [type_info(v.name, v.runs[0]) for v in fed],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            constants,
        )
        model = helper.make_model(graph, opset_imports=imports(self.opset, graph), ir_version=max(self.ir_version, 4))
        try:
            session = ort.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])
            return [session.run(None, {v.name: v.runs[i] for v in fed}) for i in range(2)]
        except Exception as problem:
            raise Unfit(str(problem)) from None

    # Constants

    def constant(self, array: Any, dtype: Any = None, *, fixed: bool = False) -> Value:
        """Add a constant in one of its forms: an initializer, overridable or not, or a Constant node."""
        array = np.array(array, dtype)
        if not fixed and array.dtype in FLOATS and len(self.scopes) == 1 and self.chance(self.override_share):
            value = self.enter(self.fresh("k"), (array, array))
            self.overridable.add(value.name)
            self.scopes[0].initializers.append(numpy_helper.from_array(array, value.name))
            return value
        name = self.fresh("c")
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.4):
            self.scopes[-1].nodes.append(helper.make_node("Constant", [], [name], value=tensor))
            return self._enter(Value(name, (array, array), constant=True))
        home = self.scopes[0] if self.chance(0.7) else self.scopes[-1]
        home.initializers.append(tensor)
        return self._enter(Value(name, (array, array), constant=True), home)

    def ints(self, *numbers: int) -> Value:
        return self.constant(numbers, np.int64, fixed=True)

    def scalar(self, number: float, like: Value | np.dtype[Any]) -> Value:
        dtype = like.dtype if isinstance(like, Value) else like
        array = np.array(number, dtype)
        return self.constant(array if self.chance(0.7) else array.reshape([1]), fixed=self.chance(0.5))

    def drawn(self, shape: Sequence[int], dtype: Any, **how: Any) -> Value:
        if np.dtype(dtype) == object:
            raise Unfit  # texts
        special = self.chance(self.special_share)
        return self.constant(draw(self.rng, tuple(shape), np.dtype(dtype), special=special, **how))

    # Bodies and retreats

    @contextmanager
    def body(self) -> Iterator[Scope]:
        scope = Scope()
        self.scopes.append(scope)
        try:
            yield scope
        finally:
            self.scopes.pop()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Take back all that was added when it comes to nothing."""
        depth = len(self.scopes)
        marks = [(len(s.nodes), len(s.values), len(s.initializers)) for s in self.scopes]
        try:
            yield
        except (Unfit, *STUMBLES):
            del self.scopes[depth:]
            for scope, (nodes, values, initializers) in zip(self.scopes, marks):
                for value in scope.values[values:]:
                    self.table.pop(value.name, None)
                    self.overridable.discard(value.name)
                del scope.nodes[nodes:], scope.values[values:], scope.initializers[initializers:]
            raise


def imports(opset: int, graph: GraphProto) -> list[onnx.OperatorSetIdProto]:
    """Import the operator set of ONNX, and those of other domains that a graph has nodes of."""
    versions = {"": opset} | {domain: FOREIGN[domain] for domain in sorted(_domains(graph)) if domain in FOREIGN}
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _domains(graph: GraphProto) -> set[str]:
    bodies = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {node.domain for node in graph.node}.union(*map(_domains, bodies))


def options() -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.intra_op_num_threads = made.inter_op_num_threads = 1
    made.log_severity_level = 4
    return made


def type_info(name: str, value: Array, dims: Sequence[Any] | None = None) -> onnx.ValueInfoProto:
    """Declare a value by what it holds; dims are left open unless given."""
    if isinstance(value, list):
        if not value:
            raise Unfit
        return helper.make_tensor_sequence_value_info(name, helper.np_dtype_to_tensor_dtype(value[0].dtype), None)
    element = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, element, [None] * value.ndim if dims is None else dims)


def _draws(node: NodeProto) -> bool:
    """Return whether a node, or one in its bodies, draws random numbers."""
    if "Random" in node.op_type or node.op_type == "Bernoulli":
        return True
    return any(_draws(inner) for attribute in node.attribute if attribute.HasField("g") for inner in attribute.g.node)


def _free(node: NodeProto) -> list[str]:
    """List what a node reads: its inputs, and what its bodies capture."""
    names = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names.update(dict.fromkeys(captured(attribute.g)))
    return list(names)


def captured(graph: GraphProto) -> list[str]:
    """List what a body reads that it does not define."""
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        names.update(dict.fromkeys(name for name in _free(node) if name not in known))
        known.update(node.output)
    names.update(dict.fromkeys(value.name for value in graph.output if value.name not in known))
    return list(names)
