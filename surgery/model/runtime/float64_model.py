"""A copy of a model that computes in float64, to judge the rounding of both models; made in a worker process.

Every value of type float32, float16 or bfloat16 becomes float64: inputs, outputs, constants, the targets of casts, and
the outputs of subgraphs; functions are inlined. Large weights stay in place, in their own type, and are cast where they
are read. An operator without a float64 kernel in ONNX Runtime is expanded to operators that have one (`expand`), or
else runs in float32 with casts around it and is listed in `Widened.narrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators import traits
from surgery.base.operators.forms import Parameter, Schema, plain_domain
from surgery.base.operators.message_tensors import from_array, to_array
from surgery.base.operators.moving import GATHERING
from surgery.base.operators.subgraphs import BODIES
from surgery.model.runtime.expand import expand
from surgery.model.runtime.result_types import BIT_CAST, FLOAT_BY_DEFAULT, STASHING, TYPE_ATTRIBUTES
from surgery.model.runtime.seeds import seeded
from surgery.model.runtime.type_strings import (
    DOUBLE,
    FLOAT,
    FLOATS,
    TypedValue,
    declared,
    number_of,
    single,
    value_of_tensor,
    widen_type,
)
from surgery.model.targets.kernels import Kernels, choose, installed, widened

if TYPE_CHECKING:
    import onnx

_OLDEST = 6
"""The first opset in which the target of Cast is a number."""

_AXES_ARE_INPUTS = 18
"""The first opset in which all reductions take their axes as an input."""


class UnavailableError(Exception):
    """The model has no float64 form."""


@dataclass
class Widened:
    """The float64 form of a model, the operators that remain in float32, and the size of the largest known value."""

    model: onnx.ModelProto
    narrow: set[str] = field(default_factory=set)
    largest: int = 0


def widen(
    model: onnx.ModelProto,
    kernels: Kernels | None,
    keep: frozenset[str] = frozenset(),
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Widened:
    """Rewrite a model in place. Raises `UnavailableError`.

    `kernels` has the kernels of the runtime; None stands for the reference evaluator, which can compute everything in
    float64. Operators in `keep` stay in float32. `shapes` are those of inputs in all runs, where that is known.
    """
    import onnx.inliner
    import onnx.shape_inference

    opsets = {entry.domain or "": entry.version for entry in model.opset_import}
    if opsets.get("", opsets.get("ai.onnx", _OLDEST)) < _OLDEST:
        raise UnavailableError(f"opset {opsets.get('', 0)} is too old")
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    inferred = onnx.shape_inference.infer_shapes(_bound(model, shapes))
    result = Widened(model)
    work = _Widening(result, kernels, keep, opsets)
    work.graph(model.graph, inferred.graph, {}, {})
    model.graph.initializer.extend(work.stored)
    head = [*work.head, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(head)
    return result


def _bound(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Return a copy of a model in which inputs have these shapes, for inference alone."""
    copied = type(model)()
    copied.CopyFrom(model)
    for value in copied.graph.input:
        for dim, extent in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ())):
            dim.dim_value = extent
    return copied


class _Widening:
    """The walk over one model."""

    def __init__(self, result: Widened, kernels: Kernels | None, keep: frozenset[str], opsets: Mapping[str, int]):
        self.result = result
        self.kernels = kernels
        self.keep = keep
        self.opsets = opsets
        self.head: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self._large: dict[str, str] = {}
        self._count = 0

    def fresh(self, name: str) -> str:
        """Return a name that the model does not have."""
        self._count += 1
        return f"{name}/float64/{self._count}"

    def graph(
        self,
        graph: onnx.GraphProto,
        inferred: onnx.GraphProto,
        outer: Mapping[str, TypedValue],
        casts: Mapping[str, str],
    ) -> None:
        """Widen a graph in place; `outer` has the visible outer values, and `casts` their float32 forms."""
        values = {**outer, **declared(inferred)}
        self.result.largest = max([self.result.largest, *(_elements(value.dims) for value in values.values())])
        scope = Float64Graph(self, values, dict(casts))
        for tensor in graph.initializer:
            values[tensor.name] = value_of_tensor(tensor)
        kept = [tensor for tensor in graph.initializer if not self._initializer(tensor)]
        for sparse in graph.sparse_initializer:
            if sparse.values.data_type in FLOATS:
                raise UnavailableError("a sparse tensor")
        given = {tensor.name for tensor in kept}
        for value in (*graph.input, *graph.output):
            widen_type(value.type)
        for name in [value.name for value in graph.input if value.name in self._large and value.name not in given]:
            # The tensor was renamed, so an input with its old name would have to be fed.
            graph.input.remove(next(value for value in graph.input if value.name == name))
        del graph.initializer[:]
        graph.initializer.extend(kept)
        del graph.value_info[:]
        nodes = list(zip(graph.node, inferred.node))
        for node, twin in nodes:
            scope.node(node, twin)
        for output in graph.output:
            scope.read(output.name)
        del graph.node[:]
        graph.node.extend(scope.nodes)

    def _initializer(self, tensor: onnx.TensorProto) -> bool:
        """Convert a small tensor; set a large one aside and return True."""
        import onnx

        if tensor.data_type not in FLOATS:
            return False
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            self.keep_large(tensor.name, tensor)
            return True
        tensor.CopyFrom(to_double(tensor))
        return False

    def keep_large(self, name: str, tensor: onnx.TensorProto) -> None:
        """Set a large tensor of any graph aside, to be added to the main graph under another name."""
        if name in self._large:
            raise UnavailableError(f"two large tensors with the name '{name}'")
        kept = deepcopy(tensor)
        kept.name = self._large[name] = self.fresh(name)
        self.stored.append(kept)

    def large(self, name: str) -> str | None:
        """Return the name under which a large tensor is kept in its own type; None for other values."""
        return self._large.get(name)

    def cast_large(self, name: str) -> None:
        """Cast a large tensor to float64 at the head of the model, under its old name."""
        import onnx.helper

        source = self._large[name]
        if not any(node.output[0] == name for node in self.head):
            self.head.append(onnx.helper.make_node("Cast", [source], [name], to=DOUBLE))

    def schema(self, node: onnx.NodeProto) -> Schema | None:
        """Return the schema of a node."""
        domain = plain_domain(node.domain)
        return self.schemas.schema(domain, node.op_type, self.opsets.get(node.domain, self.opsets.get(domain, 1)))

    @property
    def schemas(self) -> Kernels:
        """The kernels and schemas for schema lookups."""
        return self.kernels or installed()


class Float64Graph:
    """One graph: the visible values, and the new nodes."""

    def __init__(self, work: _Widening, values: dict[str, TypedValue], casts: dict[str, str]) -> None:
        self.work = work
        self.values = values
        self.casts = casts
        self.nodes: list[onnx.NodeProto] = []
        self.opset = work.opsets.get("", work.opsets.get("ai.onnx", _OLDEST))

    def add(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node of the default domain and return the name of its output."""
        import onnx.helper

        output = self.work.fresh(op_type)
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def finish(self, name: str) -> None:
        """Rename the output of the last node to the name that other nodes read."""
        self.nodes[-1].output[0] = name

    def integers(self, *numbers: int) -> str:
        """Add a constant list of integers and return its name."""
        from onnx import numpy_helper

        return self.add("Constant", [], value=numpy_helper.from_array(np.array(numbers, np.int64)))

    def number(self, value: float) -> str:
        """Add a constant number and return its name."""
        from onnx import numpy_helper

        return self.add("Constant", [], value=numpy_helper.from_array(np.array(value, np.float64)))

    def reduce(self, op_type: str, source: str, axes: Iterable[int]) -> str:
        """Add a reduction that keeps its axes."""
        if self.opset >= _AXES_ARE_INPUTS:
            return self.add(op_type, [source, self.integers(*axes)])
        return self.add(op_type, [source], axes=list(axes))

    def dims(self, name: str) -> list[int | None] | None:
        """Return the dims of a value, as far as they are known."""
        return self._kind(name).dims

    def read(self, name: str) -> str:
        """Make a value available in float64, and return its name."""
        if self.work.large(name) is not None:
            self.work.cast_large(name)
        return name

    def node(self, node: onnx.NodeProto, twin: onnx.NodeProto) -> None:
        """Add the float64 form of a node; `twin` is the same node with inferred types in its subgraphs."""
        import onnx

        node = deepcopy(node)
        for attribute, other in zip(node.attribute, twin.attribute):
            bodies = [(attribute.g, other.g)] if attribute.type == onnx.AttributeProto.GRAPH else []
            if bodies and node.op_type not in BODIES:
                raise UnavailableError(f"{node.op_type} depends on its subgraph")
            for body, inferred in [*bodies, *zip(attribute.graphs, other.graphs)]:
                self.work.graph(body, inferred, self.values, self.casts)
        standard = node.domain in ("", "ai.onnx")
        large = _large_constant(node) if standard else None
        if large is not None:
            self.work.keep_large(node.output[0], large)
            return
        if standard and node.op_type in traits.RANDOM:
            self._draw(node)
            return
        if standard and node.op_type in ("Constant", "ConstantOfShape"):
            _widen_constants(node)
        if standard and self.opset >= STASHING.get(node.op_type, self.opset + 1):
            _stash_in_double(node)
        if standard and (node.op_type in BODIES or (node.op_type != BIT_CAST and self._sets_type(node))):
            self._append(node)
            return
        self._with_casts(node)

    def _draw(self, node: onnx.NodeProto) -> None:
        """Add a random operator in its own types: it would draw other numbers in float64."""
        if not seeded(node):
            raise UnavailableError(f"random numbers ({node.op_type})")
        for position, name in enumerate(node.input):
            if name and self._kind(name).is_float:
                node.input[position] = self._narrowed(name, self._kind(name), node, known=False)
            else:
                self.read(name)
        self.nodes.append(node)
        for position, name in enumerate(node.output):
            if name and self._kind(name).is_float:
                self._widen_output(node, position)

    def _append(self, node: onnx.NodeProto) -> None:
        for name in node.input:
            self.read(name)
        self.nodes.append(node)

    def _sets_type(self, node: onnx.NodeProto) -> bool:
        """Set the output type if it is determined by an attribute or another input; return whether that is so."""
        import onnx.helper

        if node.op_type in ("Constant", "CastLike", "ConstantOfShape"):
            return True
        name = FLOAT_BY_DEFAULT.get(node.op_type)
        if name is not None and all(attribute.name != name for attribute in node.attribute):
            node.attribute.append(onnx.helper.make_attribute(name, DOUBLE))
            return True
        found = [a for a in node.attribute if a.name in TYPE_ATTRIBUTES and a.i in FLOATS]
        for attribute in found:
            attribute.i = DOUBLE
        return bool(found)

    def _with_casts(self, node: onnx.NodeProto) -> None:
        """Add a node in float64 as far as the runtime has kernels, or else with casts around it."""
        schema = self.work.schema(node)
        inputs, outputs = _formal(node, schema)
        choice = self._choose(node, schema, inputs, outputs)
        if node.op_type in GATHERING and self.work.large(node.input[0]) is not None:
            choice = dict.fromkeys(choice, False)
        elif not all(choice.get(key, True) for key, name in zip(inputs, node.input) if self._kind(name).is_float):
            if self.work.kernels is not None and node.op_type not in self.work.keep and expand(self, node):
                return
            self.work.result.narrow.add(node.op_type)
        for position, (name, key) in enumerate(zip(node.input, inputs)):
            value = self._kind(name)
            if name and value.is_float and not choice.get(key, True):
                node.input[position] = self._narrowed(
                    name, value, node, known=schema is not None and node.op_type != BIT_CAST
                )
            else:
                self.read(name)
        self.nodes.append(node)
        for position, (name, key) in enumerate(zip(node.output, outputs)):
            if name and self._kind(name).is_float and not choice.get(key, True):
                self._widen_output(node, position)

    def _choose(
        self, node: onnx.NodeProto, schema: Schema | None, inputs: list[str], outputs: list[str]
    ) -> dict[str, bool]:
        """Return whether each type variable for floats can be float64."""
        kinds = self._kinds(node, inputs, outputs)
        floats = [key for key, kind in kinds.items() if widened(kind) != kind]
        if schema is None:
            return dict.fromkeys(floats, False)
        if node.op_type in self.work.keep or node.op_type == BIT_CAST:
            return dict.fromkeys(floats, False)
        allowed = _allowed(schema)
        wanted = [key for key in floats if widened(kinds[key]) in allowed.get(key, frozenset())]
        if self.work.kernels is None:
            return {key: key in wanted for key in floats}
        found = self.work.kernels.of(plain_domain(node.domain), node.op_type, schema.since)
        if not found:
            return {key: key in wanted for key in floats}
        names = _names(schema)
        actual = {key: (single(kind), names.get(key, frozenset({key}))) for key, kind in kinds.items()}
        chosen = choose(found, actual, wanted) or {}
        result = {key: chosen.get(key, False) for key in floats}
        settled = {key for constraints in found for key in constraints}
        for key in floats:
            # Type variables that kernels do not constrain must have the same type as the others.
            if not actual[key][1] & settled:
                result[key] = all(result.values())
        return result

    def _kinds(self, node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> dict[str, str]:
        """Return the types of the type variables of a node, and record the types of its outputs."""
        kinds: dict[str, str] = {}
        for name, key in (*zip(node.input, inputs), *zip(node.output, outputs)):
            value = self.values.get(name)
            if name and value is not None:
                kinds.setdefault(key, value.kind)
        for name, key in zip(node.output, outputs):
            # For operators outside the standard, which inference does not know, the schema has the type.
            if name and name not in self.values and key in kinds:
                self.values[name] = TypedValue(kinds[key])
            elif name and name not in self.values and "(" in key:
                self.values[name] = TypedValue(key)
                kinds[key] = key
        return kinds

    def _kind(self, name: str) -> TypedValue:
        return self.values.get(name, _UNKNOWN)

    def _narrowed(self, name: str, value: TypedValue, node: onnx.NodeProto, known: bool) -> str:
        """Return the name of a value cast to float32, or to its original type for an unknown operator."""
        if not value.kind.startswith("tensor("):
            raise UnavailableError(f"{node.op_type} has no float64 kernel")
        target = FLOAT if known else number_of(value.kind)
        large = self.work.large(name)
        if large is not None and number_of(value.kind) == target:
            return large
        key = f"{name}/{target}"
        if key not in self.casts:
            self.casts[key] = self.add("Cast", [large or name], to=target)
        return self.casts[key]

    def _widen_output(self, node: onnx.NodeProto, position: int) -> None:
        import onnx.helper

        name = node.output[position]
        if not self._kind(name).kind.startswith("tensor("):
            raise UnavailableError(f"{node.op_type} has no float64 kernel")
        node.output[position] = self.work.fresh(name)
        self.nodes.append(onnx.helper.make_node("Cast", [node.output[position]], [name], to=DOUBLE))


_UNKNOWN = TypedValue("")


def _elements(dims: Sequence[int | None] | None) -> int:
    """Return the number of elements of a value, with one for each unknown dim; 0 without a rank."""
    return 0 if dims is None else prod(1 if extent is None else extent for extent in dims)


def to_double(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Convert a tensor to float64, which represents all its values exactly."""
    return from_array(to_array(tensor).astype(np.float64), tensor.name)


def _stash_in_double(node: onnx.NodeProto) -> None:
    """Make an operator also compute internally in float64."""
    import onnx.helper

    kept = [attribute for attribute in node.attribute if attribute.name != "stash_type"]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("stash_type", DOUBLE)])


def _widen_constants(node: onnx.NodeProto) -> None:
    """Convert the value of a Constant or a ConstantOfShape."""
    import onnx.helper
    from onnx import numpy_helper

    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
        return
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.t.data_type in FLOATS:
            attribute.t.CopyFrom(to_double(attribute.t))
        elif attribute.name in ("value_float", "value_floats"):
            single = attribute.name == "value_float"
            array = np.array(attribute.f if single else list(attribute.floats), np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(array)))
        elif attribute.name == "sparse_value":
            raise UnavailableError("a sparse tensor")


def _large_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the external float tensor of a Constant, or None."""
    if node.op_type != "Constant":
        return None
    found = (a.t for a in node.attribute if a.name == "value" and a.t.data_type in FLOATS and a.t.external_data)
    return next(found, None)


def _formal(node: onnx.NodeProto, schema: Schema | None) -> tuple[list[str], list[str]]:
    """Return the type variable, or the fixed type, of each input and output."""
    if schema is None:
        return ["?"] * len(node.input), ["?"] * len(node.output)
    return _keys(schema.inputs, len(node.input)), _keys(schema.outputs, len(node.output))


def _keys(formal: tuple[Parameter, ...], count: int) -> list[str]:
    return [formal[min(position, len(formal) - 1)].variable if formal else "?" for position in range(count)]


def _allowed(schema: Schema) -> dict[str, frozenset[str]]:
    return {parameter.variable: parameter.types for parameter in (*schema.inputs, *schema.outputs)}


def _names(schema: Schema) -> dict[str, frozenset[str]]:
    """Return the names under which kernels may constrain each type variable: its own, and those of its parameters."""
    names: dict[str, set[str]] = {}
    for parameter in (*schema.inputs, *schema.outputs):
        names.setdefault(parameter.variable, {parameter.variable}).add(parameter.name)
    return {variable: frozenset(found) for variable, found in names.items()}
