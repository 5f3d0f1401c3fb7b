"""Shapes, types and shape contents of a whole model, by the operator rules of onnx-shape-inference.

The rules come from that package, the traversal is our own. The package's traversal stops entirely at the first node
that it rejects, trusts the model's declarations of intermediate values, lets a value carried by a Loop keep its first
shape, and spends most of its time on renaming dims. Some of its rules guess; `surgery.model.shapes.corrections` takes
those guesses back, so that all results hold in every run of the model.

One assumption remains: a symbolic dim is at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import onnx_ir as ir
from onnx_shape_inference import registry

from surgery.model.shapes import contrib, ml, older
from surgery.model.shapes.context import Context, as_content
from surgery.model.shapes.corrections import correct
from surgery.model.shapes.facts import NO_DOUBTS, Dim, Doubts, Fact, declarable, dims, symbolic
from surgery.model.shapes.linear import names
from surgery.model.shapes.own_rules import tell
from surgery.model.shapes.shape_contents import follow
from surgery.model.shapes.symbols import element, normal, number
from surgery.model.storage.ir_scopes import captured, nested, scopes, subgraphs, values
from surgery.model.wire.long_attributes import named


@dataclass(frozen=True)
class _State:
    """The parts of a value that inference writes to."""

    type: ir.TypeProtocol | None
    shape: ir.Shape | None
    constant: ir.TensorProtocol | None

    @classmethod
    def of(cls, value: ir.Value) -> _State:
        return cls(value.type, value.shape, value.const_value)

    def restore(self, value: ir.Value) -> None:
        value.type, value.shape = self.type, self.shape
        if value.const_value is not self.constant:
            value.const_value = self.constant


@contextmanager
def _put_back(touched: Iterable[ir.Value]) -> Iterator[dict[ir.Value, _State]]:
    """Restore values when the block ends; yield their states before it."""
    before = {value: _State.of(value) for value in touched}
    try:
        yield before
    finally:
        for value, state in before.items():
            state.restore(value)


_DEEPEST_CALL = 32
"""Maximum depth of nested function calls that are followed; each takes several frames of the stack."""

_FOLLOWED_NODES = 10_000
"""Maximum number of nodes of function bodies that are visited, in addition to four for each node of the main graph:
nested calls can reach 2^29."""


@cache
def _collect() -> None:
    """Load the rules of the package, and our own on top of them."""
    registry.collect()
    contrib.register()
    ml.register()
    older.register()


class Inference:
    """The inference of one model. Generated symbols are never used twice.

    The name of a dim is only a name, whatever it looks like; with `arithmetic`, "n + 1" is one more than n. Dims of
    which there are `doubts` are unknown, and so are the elements of these values.
    """

    def __init__(self, model: ir.Model, *, arithmetic: bool = False, doubts: Doubts = NO_DOUBTS) -> None:
        self._doubts = doubts
        self._symbolic = partial(symbolic, arithmetic=arithmetic)
        _collect()
        self._model = model
        self._main = Context(dict(model.opset_imports))
        self._contexts: dict[ir.Graph, Context] = {}
        self._declared: dict[ir.Value, ir.Shape] = {}
        self._called: dict[ir.Value, list[ir.Shape | None]] | None = None
        """The shapes of values in each call or iteration, if they are wanted. Then carried shapes are doubted, too."""
        self._budget = _FOLLOWED_NODES + 4 * len(model.graph)
        everything = values(scopes(model))
        self._main.reserve_symbol_names(
            name
            for value in everything
            for dim in self._symbolic(value.shape) or ()
            if isinstance(dim, ir.SymbolicDim) and dim.value
            for name in names(dim.value)
        )

    def everything(self) -> dict[ir.Value, Fact]:
        """Infer the whole model, and leave it unchanged."""
        found: dict[ir.Value, Fact] = {}
        with self._walked() as (graphs, before):
            for graph in graphs:
                context = self._contexts.setdefault(graph, self._main)
                for value in values([graph]):
                    found[value] = self._fact(context, value, before[value])
        return found

    def contradictions(self) -> dict[ir.Value, list[Dim]]:
        """Infer the whole model, and return the values that declare another shape, with the dims that they have.

        A declared number is contradicted by another one, and by an expression in the names of dims; a declared name is
        not. In the body of a function, any call may contradict a declaration, and only what calls have in common
        replaces it. The inputs of the model declare what they take.
        """
        called: dict[ir.Value, list[ir.Shape | None]] = {}
        self._called = called
        found: dict[ir.Value, list[Dim]] = {}
        with self._walked() as (graphs, before):
            for value in values(graphs):
                declared = dims(self._symbolic(before[value].shape))
                if declared is None or value.is_initializer() or value in self._model.graph.inputs:
                    continue
                shapes = [self._known(shape) for shape in called.get(value) or [value.shape]]
                right = _without_contradiction(declared, [shape for shape in shapes if shape is not None])
                if right != [*declared]:
                    found[value] = declarable(right)
        return found

    @contextmanager
    def _walked(self) -> Iterator[tuple[list[ir.Graph], dict[ir.Value, _State]]]:
        """Infer the whole model, and put it back when the block ends; yield the graphs, and the declarations."""
        graphs = list(scopes(self._model))
        with _put_back(values(graphs)) as before:
            for value in before:
                value.shape = self._symbolic(value.shape)
            for graph in graphs:
                self._forget_declarations(graph)
            self._walk(self._main, self._model.graph, ())
            for function in self._model.functions.values():
                # Infer what holds in every call of it: nothing is known about its inputs.
                context = self._main.child(dict(function.opset_imports), dict(function.attributes.items()))
                self._contexts[function.graph] = context
                self._walk(context, function.graph, (function.identifier(),))
            yield graphs, before

    def _known(self, shape: ir.Shape | None) -> list[Dim] | None:
        """Return the dims of an inferred shape, with None for those that are not known."""
        found = dims(self._normal(shape))
        if found is None:
            return None
        return [None if isinstance(dim, str) and self.is_made_up(dim) else dim for dim in found]

    def one(self, node: ir.Node, known: Callable[[ir.Value], Fact]) -> dict[ir.Value, Fact]:
        """Infer the outputs of a new node from the known facts about its inputs."""
        context = self._contexts.get(node.graph, self._main) if node.graph is not None else self._main
        inner = list(nested(subgraphs(node)))
        inputs = {value: known(value) for value in (*node.inputs, *captured(inner)) if value is not None}
        with _put_back([*inputs, *node.outputs, *values(inner)]) as before:
            for value, fact in inputs.items():
                value.type = fact.type or value.type
                value.shape = self._symbolic(value.shape) if fact.shape is None else fact.shape
                if self._is_default(value):
                    value.const_value = None
                context.forget(value)
                if fact.data is not None and value.shape is not None:
                    context.know(value, as_content([*map(element, fact.data)], value.shape.numpy()), value.dtype)
            for graph in inner:
                for value in values([graph]):
                    value.shape = self._symbolic(value.shape)
                self._contexts[graph] = context
                self._forget_declarations(graph)
            self._node(context, node, ())
            return {value: self._fact(context, value, before[value]) for value in [*node.outputs, *values(inner)]}

    def is_made_up(self, dim: str) -> bool:
        """Return whether a dim is known only by a symbol that inference generated."""
        return any(self._main.is_generated_symbol(name) for name in names(dim))

    def _forget_declarations(self, graph: ir.Graph) -> None:
        """Drop declared shapes that a rule can infer more reliably, and defaults that a caller can replace.

        A rule that finds nothing gets the declared shape back, so that more is known downstream.
        """
        for node in graph:
            if self._can_infer(node):
                for value in node.outputs:
                    if value.shape is not None and value.name not in self._doubts:
                        self._declared[value] = value.shape
                    value.shape = None
        for value in graph.inputs:
            if self._is_default(value):
                value.const_value = None

    def _is_default(self, value: ir.Value) -> bool:
        """Return whether a caller can replace an initializer."""
        return value.is_initializer() and value.is_graph_input() and self._model.ir_version >= 4

    def _can_infer(self, node: ir.Node) -> bool:
        return registry.has(node.domain, node.op_type) or _call(node) in self._model.functions

    def _fact(self, context: Context, value: ir.Value, declared: _State) -> Fact:
        if value.is_initializer():
            return Fact(value.type, self._symbolic(value.shape))
        data = context.elements.get(value)
        known = None if value.name in self._doubts else self._symbolic(declared.shape)
        return Fact(
            value.type,
            self._normal(self._merged(value.shape, known)),
            None if data is None else tuple(map(number, data)),
        )

    def _merged(self, found: ir.Shape | None, declared: ir.Shape | None) -> ir.Shape | None:
        """Fill in unknown parts of an inferred shape from the declared one."""
        if found is None or declared is None or len(found) != len(declared):
            return declared if found is None else found
        merged: list[int | ir.SymbolicDim] = []
        for here, there in zip(found, declared):
            known = isinstance(here, int) or (here.value is not None and not self.is_made_up(here.value))
            better = isinstance(there, int) and not isinstance(here, int)
            named = not isinstance(there, int) and there.value is not None
            merged.append(there if better or (named and not known) else here)
        return ir.Shape(merged)

    @staticmethod
    def _normal(shape: ir.Shape | None) -> ir.Shape | None:
        """Return a shape with its dims in normal form, so that equal dims have equal texts."""
        if shape is None or all(isinstance(dim, int) or dim.value is None or dim.value.isidentifier() for dim in shape):
            return shape
        return ir.Shape([dim if isinstance(dim, int) or not dim.value else element(normal(dim.value)) for dim in shape])

    def _walk(self, context: Context, graph: ir.Graph, calls: tuple[Any, ...]) -> None:
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.shape = ir.Shape(value.const_value.shape.numpy())
                value.type = value.type or ir.TensorType(value.const_value.dtype)
        for value in graph.inputs:
            _name_dims(context, value)
        for node in graph:
            self._node(context, node, calls)

    def _node(self, context: Context, node: ir.Node, calls: tuple[Any, ...]) -> None:
        for graph in subgraphs(node):
            _enter(context, node, graph)
            if self._called is not None and not node.domain and node.op_type == "Loop":
                self._walk_loop(context, node, graph, calls)
            else:
                self._walk(context, graph, calls)
        for value in node.inputs:
            if value is not None:
                _name_dims(context, value)
        if node.op_type == "Constant" and (tensor := _held_tensor(node)) is not None:
            # The package's rule asks onnx-ir for the tensor, which then renames it.
            _write_constant(node.outputs[0], tensor)
            return
        _hand_out_types(node)
        self._outputs(context, node, calls)
        if not calls:  # what a function body declares may not hold in the call that is being followed
            self._declare_unknown(node)
            self._drop_doubtful(context, node)

    def _drop_doubtful(self, context: Context, node: ir.Node) -> None:
        """Forget the dims of a node's outputs that a run contradicts, before other nodes read them."""
        for value in node.outputs if self._doubts else ():
            axes = self._doubts.get(value.name or "", ())
            if axes == ():
                continue
            context.forget(value)
            value.const_value = None
            if axes is None or value.shape is None:
                value.shape = None
            else:
                kept = (ir.SymbolicDim(None) if axis in axes else dim for axis, dim in enumerate(value.shape))
                value.shape = ir.Shape(kept)

    def _outputs(self, context: Context, node: ir.Node, calls: tuple[Any, ...]) -> None:
        """Infer the outputs of a node, of which an earlier inference may have known more, for other operands."""
        before = [value.shape for value in node.outputs]
        for value in node.outputs:
            context.forget(value)
        rule = registry.get(node.domain, node.op_type, context.get_opset_version(node.domain))
        try:
            if rule is not None:
                _apply(rule, context, node)
            elif self._follows(node, calls):
                self._enter_function(context, node, calls)
        except Exception:  # the rule gives up: nothing is known about this node
            for value, shape in zip(node.outputs, before):
                value.shape = shape
                context.forget(value)

    def _declare_unknown(self, node: ir.Node) -> None:
        """Give the outputs that no rule knows their declared shapes."""
        for value in node.outputs:
            if value.shape is None and value in self._declared:
                value.shape = self._declared[value].copy()

    def _note_call(self, body: Sequence[ir.Graph]) -> None:
        for value in values(body) if self._called is not None else ():
            self._note(value, value.shape)

    def _note(self, value: ir.Value, *shapes: ir.Shape | None) -> None:
        """Record shapes of a value in one call, or in one iteration."""
        assert self._called is not None
        self._called.setdefault(value, []).extend(shapes)

    def _walk_loop(self, context: Context, node: ir.Node, graph: ir.Graph, calls: tuple[Any, ...]) -> None:
        """Follow the body of a Loop whose carried values declare other shapes than they have in the first iteration.

        They keep that shape if each iteration does; other dims are unknown.
        """
        wrong = [
            (value, actual.shape, result)
            for value, actual, result in zip(graph.inputs[2:], node.inputs[2:], graph.outputs[1:])
            if actual is not None and _differ(value.shape, actual.shape)
        ]
        for value, first, _ in wrong:
            value.shape = first
        self._walk(context, graph, calls)
        grown = [(value, _shared(first, result.shape)) for value, first, result in wrong]
        if any(value.shape != shape for value, shape in grown):
            for value, shape in grown:
                self._note(value, value.shape, shape)
                value.shape = shape
            self._walk(context, graph, calls)

    def _follows(self, node: ir.Node, calls: tuple[Any, ...]) -> bool:
        """Return whether a node is a function call that is worth following: not too deep, not too often."""
        function = self._model.functions.get(_call(node))
        if function is None or _call(node) in calls or len(calls) >= _DEEPEST_CALL or self._budget <= 0:
            return False
        self._budget -= len(function)
        return True

    def _enter_function(self, context: Context, node: ir.Node, calls: tuple[Any, ...]) -> None:
        """Infer the outputs of a call through the function body, which is restored afterwards."""
        function = self._model.functions[_call(node)]
        given = {key: item for key, item in node.attributes.items() if not item.is_ref()}
        inner = context.child(dict(function.opset_imports), {**dict(function.attributes.items()), **given})
        body = [function.graph, *function.graph.subgraphs()]
        with _put_back(values(body)):
            for graph in body:
                for value in (output for child in graph for output in child.outputs):
                    value.shape = value.type = value.const_value = None
            for formal, actual in zip(function.inputs, node.inputs):
                formal.shape, formal.type = (None, None) if actual is None else (actual.shape, actual.type)
                if actual is not None:
                    formal.const_value = ir.convenience.get_const_tensor(actual)
                    if actual in context.elements:
                        inner.elements[formal] = context.elements[actual]
            self._walk(inner, function.graph, (*calls, _call(node)))
            results = [(value.type, value.shape, inner.content(value)) for value in function.outputs]
            self._note_call(body)
        for value, (type_, shape, content) in zip(node.outputs, results):
            value.type = value.type or type_
            if shape is not None:
                context.set_shape(value, shape)
            if content is not None:
                context.know(value, content, value.dtype)


def _without_contradiction(declared: Sequence[Dim], shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """Return declared dims, with what the inferred shapes have in common in place of dims that one contradicts."""
    if any(len(shape) != len(declared) for shape in shapes):
        same = all(len(shape) == len(shapes[0]) for shape in shapes)
        return [_common(column) for column in zip(*shapes)] if same else [*declared]
    return [
        _common(column) if any(_contradicts(dim, old) for dim in column) else old
        for old, column in zip(declared, zip(*shapes) if shapes else [()] * len(declared))
    ]


def _differ(declared: ir.Shape | None, known: ir.Shape | None) -> bool:
    """Return whether a declared number or rank is not the known one."""
    if declared is None or known is None:
        return False
    if len(declared) != len(known):
        return True
    return any(
        isinstance(here, int) and isinstance(there, int) and here != there for here, there in zip(declared, known)
    )


def _shared(first: ir.Shape | None, last: ir.Shape | None) -> ir.Shape | None:
    """Return the dims that two shapes have in common; None if their ranks differ or are unknown."""
    if first is None or last is None or len(first) != len(last):
        return None
    return ir.Shape([here if here == there else ir.SymbolicDim(None) for here, there in zip(first, last)])


def _contradicts(dim: Dim, declared: Dim) -> bool:
    return isinstance(declared, int) and dim not in (None, declared)


def _common(column: Sequence[Dim]) -> Dim:
    return column[0] if all(dim == column[0] for dim in column) else None


def _apply(rule: Callable[[Context, ir.Node], None], context: Context, node: ir.Node) -> None:
    """Infer the outputs of a node by our own rules, or else by the package's rule."""
    refers = any(item.is_ref() for item in node.attributes.data.values())
    with _resolved(node, context.resolved_attrs) if refers else nullcontext():
        if not (follow(context, node) or tell(context, node)):
            rule(context, node)
            correct(context, node)


def _held_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the dense tensor in the attribute `value` of a Constant, or None."""
    attribute = node.attributes.get("value")
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def _write_constant(value: ir.Value, tensor: ir.TensorProtocol) -> None:
    value.const_value = tensor
    value.shape = ir.Shape(tensor.shape.numpy())
    if value.type is None:
        value.type = ir.TensorType(tensor.dtype)


def _name_dims(context: Context, value: ir.Value) -> None:
    """Give each anonymous dim of a value a symbol for calculations."""
    if value.shape is not None:
        context.name_anonymous_dims(value)


def _call(node: ir.Node) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


@contextmanager
def _resolved(node: ir.Node, given: dict[str, ir.Attr] | None) -> Iterator[None]:
    """Give a node of a function body the attribute values of the call; raise ValueError if one is not known."""
    references = {name: item for name, item in node.attributes.items() if item.is_ref()}
    try:
        for name, item in references.items():
            actual = (given or {}).get(item.ref_attr_name or "")
            if actual is None or actual.value is None:
                raise ValueError(f"attribute {name} is a parameter")
            node.attributes[name] = named(name, actual)
        yield
    finally:
        node.attributes.update(references)


def _hand_out_types(node: ir.Node) -> None:
    """Give the outputs of If, Loop and Scan the types that they have in the subgraph, even if shapes are unknown."""
    if node.domain or node.op_type not in ("If", "Loop", "Scan"):
        return
    first = 1 if node.op_type == "Loop" else 0
    for graph in subgraphs(node):
        for value, inner in zip(node.outputs, graph.outputs[first:]):
            value.type = value.type or inner.type


def _enter(context: Context, node: ir.Node, graph: ir.Graph) -> None:
    """Give the inputs of a subgraph the types and shapes of the values that they are bound to."""
    if node.domain or node.op_type not in ("Loop", "Scan"):
        return
    loop = node.op_type == "Loop"
    # Scan of opset 8 takes sequence lengths as its first input, and has a batch axis everywhere.
    batched = not loop and context.get_opset_version("") < 9
    outer = node.inputs[1 if batched else 0 :]
    scanned = 0 if loop else node.attributes["num_scan_inputs"].as_int()
    axes = node.attributes.get("scan_input_axes")
    for index, (value, actual) in enumerate(zip(graph.inputs, outer)):
        if actual is None:
            continue
        with suppress(ValueError):
            value.type = value.type or actual.type
        # Each iteration of a Loop may change the shapes of the carried values; Scan keeps them.
        if loop or batched or actual.shape is None:
            continue
        extents = list(actual.shape)
        position = index - (len(outer) - scanned)
        if position >= 0 and extents:
            del extents[axes.as_ints()[position] if axes is not None else 0]
        if value.shape is None or len(value.shape) != len(extents):
            value.shape = ir.Shape(extents)
        else:
            value.shape = ir.Shape(
                [
                    here if isinstance(here, int) and not isinstance(there, int) else there
                    for here, there in zip(value.shape, extents)
                ]
            )
