"""Expansions of operators without a float64 kernel in ONNX Runtime to operators that have one.

Convolution and average pooling use windows: one slice of the padded input for each position in the window, as in
im2col.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import onnx

_END = 2**63 - 1

_MOST_OFFSETS = 1024
"""Maximum number of positions in a window; operators with larger windows are not expanded."""

_WIDE = 16
"""Number of channels from which a convolution is a sum of products by position; fewer make its products too small."""

_ROWS = 64
"""Number of rows of im2col, a channel at a position each, that are multiplied at once: all may take gigabytes."""

_TILE, _MOST_TILES = 1 << 22, 8
"""Number of elements that are made of some rows of an input, for each of its items, before they are multiplied; and the
maximum number of such tiles, each of which takes nodes of its own."""

_OLDEST = 11
"""The first opset in which Pad and Slice take their parameters as inputs."""


class ExpandedGraph(Protocol):
    """The interface of the graph to which nodes are added. Values are identified by name."""

    @property
    def opset(self) -> int:
        """The opset of the default domain."""
        ...

    def dims(self, name: str) -> list[int | None] | None:
        """Return the dims of a value, as far as they are known."""
        ...

    def read(self, name: str) -> str:
        """Make a value available in float64, and return its name."""
        ...

    def add(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node of the default domain and return the name of its output."""
        ...

    def integers(self, *numbers: int) -> str:
        """Add a constant list of integers and return its name."""
        ...

    def number(self, value: float) -> str:
        """Add a constant number and return its name."""
        ...

    def reduce(self, op_type: str, source: str, axes: Iterable[int]) -> str:
        """Add a reduction that keeps its axes."""
        ...

    def finish(self, name: str) -> None:
        """Rename the output of the last node to the name that other nodes read."""
        ...


def expand(scope: ExpandedGraph, node: onnx.NodeProto) -> bool:
    """Add an equivalent expansion of a node to a scope; return whether that is possible."""
    import onnx.helper

    build = _EXPANSIONS.get(node.op_type)
    if build is None or node.domain not in ("", "ai.onnx") or scope.opset < _OLDEST or len(node.output) != 1:
        return False
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if not build(scope, node, attributes):
        return False
    scope.finish(node.output[0])
    return True


@dataclass(frozen=True)
class _Windows:
    """The parameters of sliding windows, per spatial axis."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    begins: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, attributes: dict[str, Any], kernel: Sequence[int]) -> _Windows | None:
        """Read the attributes of a node; return None if they depend on the input sizes or are not supported."""
        rank = len(kernel)
        strides = attributes.get("strides", [1] * rank)
        dilations = attributes.get("dilations", [1] * rank)
        pads = attributes.get("pads", [0] * 2 * rank)
        mode = attributes.get("auto_pad", b"NOTSET")
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            if any(stride != 1 for stride in strides):
                return None
            totals = [(size - 1) * step for size, step in zip(kernel, dilations)]
            first = [total // 2 if mode == b"SAME_UPPER" else total - total // 2 for total in totals]
            pads = [*first, *(total - begin for total, begin in zip(totals, first))]
        elif mode == b"VALID":
            pads = [0] * 2 * rank
        if prod(kernel) > _MOST_OFFSETS or attributes.get("ceil_mode", 0) or min(pads) < 0:
            return None
        return cls(kernel, strides, dilations, pads[:rank], pads[rank:])

    def slices(self, scope: ExpandedGraph, source: str) -> Iterator[str]:
        """Add one slice of the padded input for each position in the window, when it is asked for."""
        if prod(self.kernel) == prod(self.strides) == 1 and not any((*self.begins, *self.ends)):
            yield source
            return
        if any((*self.begins, *self.ends)):
            source = scope.add("Pad", [source, scope.integers(0, 0, *self.begins, 0, 0, *self.ends)])
        axes = scope.integers(*range(2, 2 + len(self.kernel)))
        steps = scope.integers(*self.strides)
        for offset in product(*(range(size) for size in self.kernel)):
            starts = [at * step for at, step in zip(offset, self.dilations)]
            # Counted from the end, so that the input size need not be known.
            after = [(size - 1 - at) * step for size, at, step in zip(self.kernel, offset, self.dilations)]
            ends = scope.integers(*(-extent if extent else _END for extent in after))
            yield scope.add("Slice", [source, scope.integers(*starts), ends, axes, steps])


@dataclass(frozen=True)
class _Tile:
    """The rows from `first` to `last` of an input, along its first spatial axis, and the windows on them.

    The last one has all rows that are left, also those that no declared shape knows of.
    """

    first: int
    last: int
    windows: _Windows

    @classmethod
    def cut(cls, windows: _Windows, rows: int, made: int) -> list[_Tile]:
        """Cut an input of so many rows, of which so many elements are made; return nothing if that is not worth it."""
        reach = (windows.kernel[0] - 1) * windows.dilations[0] + 1
        results = (rows + windows.begins[0] + windows.ends[0] - reach) // windows.strides[0] + 1
        step = max(1, results * _TILE // made, -(-results // _MOST_TILES))
        found = [cls._of(windows, rows, reach, place, min(place + step, results)) for place in range(0, results, step)]
        return found if len(found) > 1 and all(tile.first < min(rows, tile.last) for tile in found) else []

    @classmethod
    def _of(cls, windows: _Windows, rows: int, reach: int, begin: int, end: int) -> _Tile:
        """Return what the rows from `begin` to `end` of the result are computed from."""
        first = begin * windows.strides[0] - windows.begins[0]
        last = (end - 1) * windows.strides[0] - windows.begins[0] + reach
        begins, ends = [max(0, -first), *windows.begins[1:]], [max(0, last - rows), *windows.ends[1:]]
        return cls(max(0, first), last if last < rows else _END, replace(windows, begins=begins, ends=ends))

    def of(self, scope: ExpandedGraph, source: str) -> str:
        """Add the rows of an input."""
        return scope.add("Slice", [source, *map(scope.integers, (self.first, self.last, 2))])


def _conv(scope: ExpandedGraph, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    """Multiply the weights with the slices of the input, some rows at a time if it is large."""
    weights = scope.dims(node.input[1])
    if weights is None or None in weights:
        return False
    made, per_group, *kernel = (int(extent or 0) for extent in weights)
    windows = _Windows.of(attributes, kernel)
    if windows is None or not made * per_group:
        return False
    groups = attributes.get("group", 1)
    source, weight = scope.read(node.input[0]), scope.read(node.input[1])
    multiply = _ByPosition if per_group >= _WIDE else _JoinedProduct
    product_of = multiply(scope, weight, groups, made // groups, per_group)
    bias = ""
    if len(node.input) > 2 and node.input[2]:
        bias = scope.add("Reshape", [scope.read(node.input[2]), scope.integers(1, made, *[1] * len(kernel))])
    tiles = _tiles(scope.dims(node.input[0]), windows, product_of.positions)
    parts = [_convolved(scope, tile.of(scope, source), tile.windows, product_of, bias) for tile in tiles]
    if parts:
        scope.add("Concat", parts, axis=2)
    else:
        _convolved(scope, source, windows, product_of, bias)
    return True


def _tiles(dims: list[int | None] | None, windows: _Windows, positions: int) -> list[_Tile]:
    """Return the tiles of an input; none if its dims are unknown, or if it is small."""
    known = [extent for extent in (dims or [])[1:] if extent is not None]
    made = prod(known) * min(positions, prod(windows.kernel))
    return _Tile.cut(windows, known[1], made) if len(known) == len(windows.kernel) + 1 and made > _TILE else []


def _convolved(scope: ExpandedGraph, source: str, windows: _Windows, product_of: _Product, bias: str) -> str:
    """Add the convolution of an input, or of some of its rows."""
    slices = windows.slices(scope, source)
    first = next(slices)
    extents = scope.add("Shape", [first])
    multiplied = product_of.add(chain([first], slices))
    batch = scope.add("Gather", [extents, scope.integers(0)])
    spatial = scope.add("Gather", [extents, scope.integers(*range(2, 2 + len(windows.kernel)))])
    shape = scope.add("Concat", [batch, scope.integers(product_of.made), spatial], axis=0)
    result = scope.add("Reshape", [multiplied, shape])
    return scope.add("Add", [result, bias]) if bias else result


class _Product:
    """The products of the weights of a convolution with slices of its input, a number of `positions` at a time."""

    positions = 1

    def __init__(self, scope: ExpandedGraph, weight: str, groups: int, made: int, read: int) -> None:
        self.scope = scope
        self.made = groups * made
        self._sizes = groups, made, read
        self._rows = scope.add("Reshape", [weight, scope.integers(groups, made, read, -1)])

    def add(self, slices: Iterable[str]) -> str:
        """Add the products with one slice for each position, and their sum."""
        raise NotImplementedError

    def _sum(self, summands: Iterable[str]) -> str:
        total = ""
        for summand in summands:
            total = self.scope.add("Add", [total, summand]) if total else summand
        return total


class _JoinedProduct(_Product):
    """Multiplies the weights with many slices at once, the columns of im2col."""

    def __init__(self, scope: ExpandedGraph, weight: str, groups: int, made: int, read: int) -> None:
        super().__init__(scope, weight, groups, made, read)
        self.positions = max(1, _ROWS // read)
        self._parts: list[str] = []

    def add(self, slices: Iterable[str]) -> str:
        return self._sum(self._summands(iter(slices)))

    def _summands(self, left: Iterator[str]) -> Iterator[str]:
        groups, _, read = self._sizes
        number = 0
        while items := list(islice(left, self.positions)):
            columns = [self._reshaped(item, 0, groups, read, 1, -1) for item in items]
            joined = self.scope.add("Concat", columns, axis=3) if len(columns) > 1 else columns[0]
            matrix = self._reshaped(joined, 0, groups, read * len(items), -1)
            yield self.scope.add("MatMul", [self._part(number, len(items)), matrix])
            number += 1

    def _reshaped(self, item: str, *form: int) -> str:
        return self.scope.add("Reshape", [item, self.scope.integers(*form)])

    def _part(self, number: int, count: int) -> str:
        """Return the weights at some positions, for all tiles."""
        if number == len(self._parts):
            groups, made, _ = self._sizes
            begin = number * self.positions
            part = self.scope.add("Slice", [self._rows, *map(self.scope.integers, (begin, begin + count, 3))])
            self._parts.append(self._reshaped(part, groups, made, -1))
        return self._parts[number]


class _ByPosition(_Product):
    """Multiplies the weights at each position in the window with its slice: a fraction of the memory."""

    def __init__(self, scope: ExpandedGraph, weight: str, groups: int, made: int, read: int) -> None:
        super().__init__(scope, weight, groups, made, read)
        self._stack = scope.add("Transpose", [self._rows], perm=[3, 0, 1, 2])
        self._each: list[str] = []

    def add(self, slices: Iterable[str]) -> str:
        return self._sum(self._summand(place, item) for place, item in enumerate(slices))

    def _summand(self, place: int, item: str) -> str:
        groups, _, read = self._sizes
        matrix = self.scope.add("Reshape", [item, self.scope.integers(0, groups, read, -1)])
        return self.scope.add("MatMul", [self._at(place), matrix])

    def _at(self, place: int) -> str:
        """Return the weights at a position, for all tiles."""
        if place == len(self._each):
            each = self.scope.add("Slice", [self._stack, *map(self.scope.integers, (place, place + 1, 0))])
            self._each.append(self.scope.add("Reshape", [each, self.scope.integers(*self._sizes)]))
        return self._each[place]


def _average_pool(scope: ExpandedGraph, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    """Divide the sum over each window by the number of elements in it."""
    windows = _Windows.of(attributes, attributes["kernel_shape"])
    if windows is None:
        return False
    source = scope.read(node.input[0])
    total = scope.add("Sum", [*windows.slices(scope, source)])
    if attributes.get("count_include_pad", 0) or not any((*windows.begins, *windows.ends)):
        scope.add("Div", [total, scope.number(float(prod(windows.kernel)))])
        return True
    ones = scope.add("Expand", [scope.number(1.0), scope.add("Shape", [source])])
    scope.add("Div", [total, scope.add("Sum", [*windows.slices(scope, ones)])])
    return True


def _global_average_pool(scope: ExpandedGraph, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    dims = scope.dims(node.input[0])
    if dims is None:
        return False
    scope.reduce("ReduceMean", scope.read(node.input[0]), range(2, len(dims)))
    return True


def _instance_normalization(scope: ExpandedGraph, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    """Subtract the mean over the spatial axes, and divide by the standard deviation."""
    dims = scope.dims(node.input[0])
    if dims is None:
        return False
    source, form, axes = scope.read(node.input[0]), scope.integers(1, -1, *[1] * (len(dims) - 2)), range(2, len(dims))
    centred = scope.add("Sub", [source, scope.reduce("ReduceMean", source, axes)])
    variance = scope.reduce("ReduceMean", scope.add("Mul", [centred, centred]), axes)
    # The attribute is a float32, as is the number that the runtime adds.
    deviation = scope.add("Sqrt", [scope.add("Add", [variance, scope.number(attributes.get("epsilon", 1e-5))])])
    scale, bias = (scope.add("Reshape", [scope.read(name), form]) for name in node.input[1:3])
    scope.add("Add", [scope.add("Mul", [scope.add("Div", [centred, deviation]), scale]), bias])
    return True


_EXPANSIONS: dict[str, Callable[[ExpandedGraph, onnx.NodeProto, dict[str, Any]], bool]] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalAveragePool": _global_average_pool,
    "InstanceNormalization": _instance_normalization,
}
