"""The extents of each symbolic dim that the graph admits, by shapes inferred with symbols. Runs in a worker process.

A window must fit into its input, and a reflection into the axis that it reflects; where a tensor that was scaled down
and up again meets one that was not, only some multiples make the two equal; an initial state of fixed extent pins the
batch. The extents found here are tried first, and hold if the model accepts them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from surgery.operators import traits
from surgery.shapes.declarations import Extent
from surgery.storage.scopes import subgraphs

if TYPE_CHECKING:
    import onnx_ir as ir

MOST = 4096
"""The largest extent that is considered."""

_LONGEST = 4000
"""Maximum length of an expression that is parsed."""

_DEEPEST = 40
"""Maximum number of times that symbols of an expression are replaced by others in turn."""

_STRICT = {*traits.RECURRENT, "Concat", "Conv", "Reshape"}
"""Operators that require equal extents: none of their operands is broadcast."""

Shapes = Callable[["ir.Value | None"], "list[Extent] | None"]
Integers = npt.NDArray[np.int64]
Ratio = tuple[Integers, int]
"""Numerators with one common denominator."""


@dataclass(frozen=True)
class Demand:
    """A demand of a node on its operands: `left` is `right`, or at least `right`, or may be broadcast to it."""

    left: Extent
    right: Extent
    least: bool = False
    broadcast: bool = False


def admissible(
    graph: ir.Graph,
    names: Iterable[str],
    shape: Shapes,
    elements: Shapes,
    agreeing: Callable[[ir.Node], Iterable[tuple[Extent, Extent]]],
) -> dict[str, list[int]]:
    """Return the admitted extents up to `MOST` of each dim for which the graph does not admit all.

    `agreeing` yields the pairs of extents that an operator requires to agree. Demands of the main graph take precedence
    over those of branches and loops, not all of which run; a demand that contradicts earlier ones is ignored.
    """
    nodes = list(_nodes(graph))
    reader = _Reader(names, dict(pair for node in nodes for pair in _aliases(node, shape)))
    found: dict[str, npt.NDArray[np.bool_]] = {}
    for demand in dict.fromkeys(demand for node in nodes for demand in _demands(node, shape, elements, agreeing)):
        name, holds = reader.judge(demand)
        if name:
            both = holds & found.get(name, np.True_)
            if both.any():
                found[name] = both
    return {name: (np.flatnonzero(holds) + 1).tolist() for name, holds in found.items() if not holds.all()}


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph, then those of its subgraphs."""
    yield from graph
    for node in graph:
        for inner in subgraphs(node):
            yield from _nodes(inner)


def _aliases(node: ir.Node, shape: Shapes) -> Iterator[tuple[str, Extent]]:
    """Yield the output dims to which inference gave a new symbol, with extents that are equal to them.

    These are one of the two dims that are broadcast to each other, or the result of a window with the padding "SAME".
    """
    result = shape(node.outputs[0]) if node.outputs else None
    if result is None:
        return
    data = shape(node.inputs[0]) if node.inputs else None
    if traits.slides(node.op_type):
        if data is not None and len(data) == len(result) and _text(node, "auto_pad").startswith("SAME"):
            strides = _integers(node, "strides") or [1] * (len(data) - 2)
            for extent, fresh, stride in zip(data[2:], result[2:], strides):
                if isinstance(fresh, str) and fresh.isidentifier() and fresh != extent:
                    yield fresh, extent if stride == 1 else f"floor(({extent}) / {stride} + {stride - 1}/{stride})"
        return
    taken = {extent for value in node.inputs for extent in shape(value) or ()}
    shapes = [found for found in map(shape, node.inputs) if found is not None]
    for place, fresh in enumerate(reversed(result), 1) if node.op_type in traits.BROADCASTING else ():
        if isinstance(fresh, str) and fresh.isidentifier() and fresh not in taken:
            met = [found[-place] for found in shapes if len(found) >= place and found[-place] != 1]
            yield from ((fresh, extent) for extent in met[:1])


def _demands(
    node: ir.Node,
    shape: Shapes,
    elements: Shapes,
    agreeing: Callable[[ir.Node], Iterable[tuple[Extent, Extent]]],
) -> Iterator[Demand]:
    op = node.op_type
    data = shape(node.inputs[0]) if node.inputs else None
    if traits.slides(op) or op in ("Slice", "STFT"):
        yield from (Demand(extent, 1, least=True) for extent in shape(node.outputs[0]) or () if isinstance(extent, str))
    elif op == "Pad" and data is not None and _text(node, "mode") == "reflect":
        yield from _reflected(node, data, shape, elements)
    else:
        loose = op not in _STRICT
        pairs = (pair for pair in agreeing(node) if not loose or 1 not in pair)
        yield from (Demand(first, second, broadcast=loose) for first, second in pairs)


def _reflected(node: ir.Node, data: list[Extent], shape: Shapes, elements: Shapes) -> Iterator[Demand]:
    """Yield the demands of a reflection, which must be shorter than the axis that it reflects."""
    pads: list[Extent] | list[int] | None = _integers(node, "pads") or _integers(node, "paddings")
    if pads is None and len(node.inputs) > 1:
        pads = elements(node.inputs[1])
    axes: list[Extent] | None = list(range(len(data)))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = elements(node.inputs[3])
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return
    for place, axis in enumerate(axes):
        sides = [pad for pad in (pads[place], pads[place + len(axes)]) if isinstance(pad, int)]
        if isinstance(axis, int) and -len(data) <= axis < len(data) and max(sides, default=0) > 0:
            yield Demand(data[axis], max(sides) + 1, least=True)


def _integers(node: ir.Node, name: str) -> list[int] | None:
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return None
    value = attribute.value
    return [int(value)] if isinstance(value, int) else [int(item) for item in value]


def _text(node: ir.Node, name: str) -> str:
    attribute = node.attributes.get(name)
    return "" if attribute is None or attribute.is_ref() else str(attribute.value)


class _Reader:
    """Evaluates demands for all extents of a dim at once."""

    def __init__(self, names: Iterable[str], aliases: Mapping[str, Extent]) -> None:
        self.names = set(names)
        self.aliases = aliases
        self.extents: Integers = np.arange(1, MOST + 1)
        self.known: dict[Extent, tuple[str, Integers] | None] = {}

    def judge(self, demand: Demand) -> tuple[str, npt.NDArray[np.bool_]]:
        """Return the only dim of a demand, and the extents at which it holds; an empty name unless there is one dim."""
        left, right = self.read(demand.left), self.read(demand.right)
        nothing = "", np.ones(MOST, bool)
        if left is None or right is None:
            return nothing
        names = {name for name, _ in (left, right) if name}
        if len(names) != 1:
            return nothing
        (name,) = names
        if demand.least:
            return name, left[1] >= right[1]
        holds = left[1] == right[1]
        # Two extents that follow from the same dim are meant to be equal; one that meets a constant may be broadcast.
        loose = demand.broadcast and not (left[0] and right[0])
        return name, holds | (left[1] == 1) | (right[1] == 1) if loose else holds

    def read(self, extent: Extent) -> tuple[str, Integers] | None:
        """Return the only dim (or "") that an extent depends on, and its value for each extent of it; else None."""
        if extent not in self.known:
            self.known[extent] = self._read(extent)
        return self.known[extent]

    def _read(self, extent: Extent) -> tuple[str, Integers] | None:
        if isinstance(extent, int):
            return "", np.full(MOST, extent)
        if len(extent) > _LONGEST:
            return None
        used: set[str] = set()
        try:
            top, bottom = self._value(ast.parse(extent, mode="eval").body, used, _DEEPEST)
        except (SyntaxError, ValueError, RecursionError, OverflowError):
            return None
        return (min(used, default=""), top // bottom) if len(used) <= 1 else None

    def _value(self, tree: ast.expr, used: set[str], depth: int) -> Ratio:
        match tree:
            case ast.Constant(value=int() as value):
                return np.full(MOST, value), 1
            case ast.Name(id=name):
                return self._named(name, used, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                top, bottom = self._value(operand, used, depth)
                return -top, bottom
            case ast.BinOp(left=left, op=operator, right=right):
                return _combined(operator, self._value(left, used, depth), self._value(right, used, depth))
            case ast.Call(func=ast.Name(id=function), args=arguments) if arguments:
                return _called(function, [self._value(one, used, depth) for one in arguments])
        raise ValueError(ast.unparse(tree))

    def _named(self, name: str, used: set[str], depth: int) -> Ratio:
        if name in self.names:
            used.add(name)
            return self.extents, 1
        alias = self.aliases.get(name)
        if alias is None or not depth:
            raise ValueError(name)
        return self._value(ast.parse(str(alias), mode="eval").body, used, depth - 1)


def _combined(operator: ast.operator, left: Ratio, right: Ratio) -> Ratio:
    (a, below), (b, under) = left, right
    match operator:
        case ast.Add():
            return a * under + b * below, below * under
        case ast.Sub():
            return a * under - b * below, below * under
        case ast.Mult():
            return a * b, below * under
        case ast.Div() if b[0] > 0 and (b == b[0]).all():
            return a * under, below * int(b[0])
    raise ValueError("no such arithmetic")


def _called(function: str, values: list[Ratio]) -> Ratio:
    if function == "floor" and len(values) == 1:
        return values[0][0] // values[0][1], 1
    if function in ("Min", "Max"):
        bottom = reduce(np.lcm, (below for _, below in values), 1)
        choose = np.minimum if function == "Min" else np.maximum
        return reduce(choose, [top * (bottom // below) for top, below in values]), int(bottom)
    if function == "Mod" and len(values) == 2 and values[0][1] == values[1][1] == 1 and (values[1][0] > 0).all():
        return values[0][0] % values[1][0], 1
    raise ValueError(function)
