"""Constraints of a graph on the symbolic dims of its inputs: equal dims, and sums of others. Runs in a worker process.

Shapes are inferred with symbols. If an operator requires two dims to agree, and they are different expressions, these
must be equal: a mask that is added to scores over past and present keys is as long as both together. Two dims that meet
in a broadcast may also differ if one is 1; the constraints are tried, and hold if the model accepts them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.workers import stage
from surgery.model.shapes.declarations import Extent
from surgery.verification.inputs.admissible import admissible, listed
from surgery.verification.inputs.aliases import aliases
from surgery.verification.inputs.broadcasts import ELEMENTWISE, PRODUCTS, broadcasts, einsum_pairs, meeting
from surgery.verification.inputs.comparisons import compared
from surgery.verification.inputs.contrib_constraints import contrib_pairs
from surgery.verification.inputs.demands import demands, every_node
from surgery.verification.inputs.dims import Implied, Joint, Linear, Solved, symbols_of
from surgery.verification.inputs.factors import stored
from surgery.verification.inputs.joint import joint, renamed

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from surgery.model.shapes.facts import Fact

Pair = tuple[Extent, Extent]

MOST_EXTENTS = 4
"""Maximum number of extents of constants that are tried for one dim."""


def dim_constraints(skeleton: bytes, dims: Mapping[str, list[Extent]], names: Sequence[str]) -> Implied:
    """Return what the graph implies for the dims `names`; `dims` are the dims of the graph inputs."""
    import onnx

    from surgery.model.shapes.inference import Inference
    from surgery.model.storage import ir_from_proto

    stage("shape inference")
    model = onnx.load_model_from_string(skeleton)
    symbols = symbols_of(names)
    _rename(model, dims, symbols)
    parsed = ir_from_proto(model)
    facts = Inference(parsed, arithmetic=True).everything()
    back = {symbol: name for name, symbol in symbols.items()}
    met = [(node, list(_pairs(node, facts))) for node in parsed.graph]
    pairs = [pair for _, found in met for pair in found]
    solution = solve(iter(pairs), list(back))
    ties = {
        back[symbol]: {back.get(other, ""): times for other, times in form.items()} for symbol, form in solution.items()
    }
    strict = {name for node, found in met if not broadcasts(node) for name in _names(found, back)}
    loose = {name for node, found in met if broadcasts(node) for name in _names(found, back)}
    return {
        "ties": ties,
        "sizes": {back[symbol]: found for symbol, found in extents(pairs, list(back)).items()},
        "broadcast": sorted(back[symbol] for symbol in loose - strict),
        "shapes": {value.name: shape for value in facts if value.name and (shape := _shape(value, facts)) is not None},
        **_solved(parsed.graph, facts, back, solution),
    }


def _solved(
    graph: ir.Graph, facts: Mapping[ir.Value, Fact], names: Mapping[str, str], ties: Mapping[str, Linear]
) -> Solved:
    """Solve the demands of a graph for each dim by itself, and for several together.

    `names` are the names of the symbols, `ties` the symbols that follow from others.
    """

    def shape(value: ir.Value | None) -> list[Extent] | None:
        return _shape(value, facts)

    def elements(value: ir.Value | None) -> list[Extent] | None:
        return _elements(value, facts)

    wanted = demands(graph, shape, elements, lambda node: _pairs(node, facts))
    equal = aliases(every_node(graph), shape, elements)
    admitted = admissible(names, wanted, equal)
    loose = [symbol for symbol in names if symbol not in ties]
    follow: dict[str, Extent] = {symbol: text(form) for symbol, form in ties.items()}
    groups = joint(loose, wanted, {**equal, **follow}, admitted)
    return {
        "meets": meeting(graph, shape, elements, names, equal),
        "compared": compared(every_node(graph), shape, elements, names, follow, equal),
        "admits": {names[symbol]: listed(holds) for symbol, holds in admitted.items()},
        "joint": [_named(group, names) for group in groups],
    }


def _named(group: Joint, names: Mapping[str, str]) -> Joint:
    """Return a group of dims with their names in place of symbols."""
    return {
        "names": [names[symbol] for symbol in group["names"]],
        "points": [{names[symbol]: extent for symbol, extent in point.items()} for point in group["points"]],
        "demands": [renamed(demand, names) for demand in group["demands"]],
    }


def _names(pairs: Iterable[Pair], names: Container[str]) -> Iterator[str]:
    """Yield the dims that must agree with something else."""
    for first, second in pairs:
        if first != second:
            yield from (extent for extent in (first, second) if isinstance(extent, str) and extent in names)


def extents(pairs: Sequence[Pair], names: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers that each name must equal somewhere, regardless of what else it must equal."""
    known = {name: name for name in names}
    found: dict[str, list[int]] = {}
    for pair in dict.fromkeys(pairs):
        number = next((extent for extent in pair if isinstance(extent, int) and extent > 1), None)
        form = next((linear(extent, known) for extent in pair if isinstance(extent, str)), None)
        if number is None or form is None:
            continue
        rest = number - form.pop("", 0)
        if list(form.values()) == [1] and rest > 0:
            (name,) = form
            if rest not in found.setdefault(name, []):
                found[name].append(rest)
    return {name: numbers[:MOST_EXTENTS] for name, numbers in found.items()}


def _rename(model: onnx.ModelProto, dims: Mapping[str, list[Extent]], symbols: Mapping[str, str]) -> None:
    """Rename the dims of the inputs to symbols for arithmetic; drop the declared shapes of other values."""
    for value in model.graph.input:
        shape = value.type.tensor_type.shape
        for dim, extent in zip(shape.dim, dims.get(value.name, ())):
            if isinstance(extent, int):
                continue
            form = linear(extent, symbols)
            dim.dim_param = symbols.get(extent) or (text(form) if form is not None else "")
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def _pairs(node: ir.Node, facts: Mapping[ir.Value, Fact]) -> Iterator[Pair]:
    """Yield the pairs of extents that an operator requires to agree."""
    shapes = [_shape(value, facts) for value in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    op = node.op_type
    if node.domain == "com.microsoft":
        yield from contrib_pairs(node, shapes, lambda index: _elements(node.inputs[index], facts))
    if broadcasts(node):
        yield from _broadcast(node, shapes, facts)
    elif op in PRODUCTS and len(known) >= 2 and shapes[0] and shapes[1]:
        yield from _product(node, shapes[0], shapes[1])
    elif op == "Concat" and len({len(shape) for shape in known}) == 1:
        yield from _joined(node, known)
    elif op == "Conv" and shapes[0] and shapes[1] and len(shapes[0]) > 2 and isinstance(shapes[1][1], int):
        group = node.attributes["group"].as_int() if "group" in node.attributes else 1
        yield shapes[0][1], shapes[1][1] * group
    elif op == "Reshape" and shapes[0] is not None:
        yield from _reshaped(shapes[0], _elements(node.inputs[1], facts))
    elif op in traits.RECURRENT and shapes[0] and len(shapes[0]) == 3:
        yield from _batched(node, shapes)
        yield from _weighed(shapes)


def _broadcast(node: ir.Node, shapes: Sequence[list[Extent] | None], facts: Mapping[ir.Value, Fact]) -> Iterator[Pair]:
    if node.op_type == "Einsum":
        yield from einsum_pairs(node, shapes)
    elif node.op_type == "Expand" and len(shapes) == 2 and shapes[0] is not None:
        yield from zip(reversed(shapes[0]), reversed(_elements(node.inputs[1], facts) or ()))
    elif node.op_type in ELEMENTWISE:
        for first, second in pairwise(shape for shape in shapes if shape is not None):
            yield from zip(reversed(first), reversed(second))


def _joined(node: ir.Node, shapes: Sequence[list[Extent]]) -> Iterator[Pair]:
    axis = node.attributes["axis"].as_int() % max(1, len(shapes[0]))
    for first, second in pairwise(shapes):
        yield from (pair for place, pair in enumerate(zip(first, second)) if place != axis)


def _product(node: ir.Node, first: list[Extent], second: list[Extent]) -> Iterator[Pair]:
    if any(name in node.attributes and node.attributes[name].as_int() for name in ("transBatchA", "transBatchB")):
        return
    if len(first) < 2 or len(second) < 2:
        yield first[-1], second[0 if len(second) == 1 else -2]
        return
    flips = [name in node.attributes and bool(node.attributes[name].as_int()) for name in ("transA", "transB")]
    yield first[-2 if flips[0] else -1], second[-1 if flips[1] else -2]
    yield from zip(reversed(first[:-2]), reversed(second[:-2]))


def _weighed(shapes: Sequence[list[Extent] | None]) -> Iterator[Pair]:
    """Yield the features of the data paired with those of the weights, and those of the states likewise."""
    data, inward, back = shapes[0], *(shape if shape and len(shape) == 3 else None for shape in shapes[1:3])
    if data and inward:
        yield data[-1], inward[-1]
    for state in shapes[5:7]:
        if state and back and len(state) == 3:
            yield state[-1], back[-1]


def _batched(node: ir.Node, shapes: Sequence[list[Extent] | None]) -> Iterator[Pair]:
    """Yield the batch of the data paired with the batches of the initial states and of the lengths."""
    first = "layout" in node.attributes and bool(node.attributes["layout"].as_int())
    assert shapes[0] is not None
    batch = shapes[0][0 if first else 1]
    for place in traits.RECURRENT[node.op_type]:
        found = shapes[place] if place < len(shapes) else None
        if found and len(found) in (1, 3):
            yield batch, found[0 if first or len(found) == 1 else 1]


def _reshaped(data: list[Extent], target: list[Extent] | None) -> Iterator[Pair]:
    """Yield the pair that makes the numbers of elements before and after equal; common factors cancel."""
    if target is None or -1 in target or 0 in target:
        return
    before, after = Counter(data), Counter(target)
    left, right = [*(before - after).elements()], [*(after - before).elements()]
    names = [extent for extent in (*left, *right) if isinstance(extent, str)]
    if len(names) == 1 and left and right:
        first, second = (1, 1)
        for extent in left:
            first *= extent if isinstance(extent, int) else 1
        for extent in right:
            second *= extent if isinstance(extent, int) else 1
        bound, other = (first, second) if names[0] in left else (second, first)
        if bound and other % bound == 0:
            yield names[0], other // bound
    elif len(left) == len(right) == 1:
        yield left[0], right[0]


def _shape(value: ir.Value | None, facts: Mapping[ir.Value, Fact]) -> list[Extent] | None:
    fact = facts.get(value) if value is not None else None
    if fact is None or fact.shape is None:
        return None
    return [dim if isinstance(dim, int) else str(dim.value) for dim in fact.shape]


def _elements(value: ir.Value | None, facts: Mapping[ir.Value, Fact]) -> list[Extent] | None:
    """Return the elements of a small integer tensor, if they are known."""
    if value is None:
        return None
    fact = facts.get(value)
    if fact is not None and fact.data is not None:
        return list(fact.data)
    constant = stored(value)
    if constant is None or constant.size > 16 or not constant.dtype.is_integer():
        return None
    return [int(item) for item in constant.numpy().reshape(-1)]


def solve(pairs: Iterator[Pair], names: Sequence[str]) -> dict[str, Linear]:
    """Solve the equations for some names, expressing later names by earlier ones and sums by their parts."""
    known = {name: name for name in names}
    found: dict[str, Linear] = {}
    for first, second in pairs:
        if first == second or 1 in (first, second):
            continue
        left, right = linear(first, known), linear(second, known)
        if left is None or right is None:
            continue
        rest = _substituted(_sum(left, right, -1), found)
        name = next((name for name in reversed(names) if abs(rest.get(name, 0)) == 1 and _positive(rest, name)), None)
        if name is None:
            continue
        times = rest.pop(name)
        form = {other: -count * times for other, count in rest.items()}
        found = {other: _substituted(old, {name: form}) for other, old in found.items()}
        found[name] = form
    return found


def _positive(form: Linear, name: str) -> bool:
    """Return whether solving for a name gives no difference of dims, which could come out below 1."""
    times = form[name]
    rest = [-count * times for other, count in form.items() if other != name]
    return bool(rest) and all(count > 0 for count in rest)


def _substituted(form: Linear, known: Mapping[str, Linear]) -> Linear:
    result: Linear = {}
    for name, times in form.items():
        result = _sum(result, known.get(name, {name: 1}), times)
    return result


def _sum(first: Linear, second: Linear, times: int) -> Linear:
    total = {name: first.get(name, 0) + times * second.get(name, 0) for name in {**first, **second}}
    return {name: count for name, count in total.items() if count}


def linear(extent: Extent, symbols: Mapping[str, str]) -> Linear | None:
    """Parse an expression as a sum of symbols times integers, with names as symbols; None if it is not one."""
    if isinstance(extent, int):
        return {"": extent} if extent else {}
    if extent in symbols:
        return {symbols[extent]: 1}
    try:
        return _read(ast.parse(extent, mode="eval").body, symbols)
    except SyntaxError:
        return None


def _read(tree: ast.expr, symbols: Mapping[str, str]) -> Linear | None:
    match tree:
        case ast.Constant(value=int() as value):
            return {"": value} if value else {}
        case ast.Name(id=name) if name in symbols:
            return {symbols[name]: 1}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _read(operand, symbols)
            return None if inner is None else _sum({}, inner, -1)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _read(left, symbols), _read(right, symbols)
            if first is None or second is None:
                return None
            match operator:
                case ast.Add():
                    return _sum(first, second, 1)
                case ast.Sub():
                    return _sum(first, second, -1)
                case ast.Mult() if set(first) <= {""}:
                    return _sum({}, second, first.get("", 0))
                case ast.Mult() if set(second) <= {""}:
                    return _sum({}, first, second.get("", 0))
    return None


def text(form: Linear) -> str:
    """Write a sum as an expression."""
    return " + ".join(f"{times}*{name}" if name else str(times) for name, times in form.items()) or "0"
