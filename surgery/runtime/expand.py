"""Expansions of operators without a float64 kernel in ONNX Runtime to operators that have one.

Convolution and average pooling use windows: one slice of the padded input for each position in the window, as in
im2col.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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

_OLDEST = 11
"""The first opset in which Pad and Slice take their parameters as inputs."""


class Scope(Protocol):
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


def expand(scope: Scope, node: onnx.NodeProto) -> bool:
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

    def slices(self, scope: Scope, source: str) -> Iterator[str]:
        """Add one slice of the padded input for each position in the window, when it is asked for."""
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


def _conv(scope: Scope, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    """Multiply the weights with the slices of the input."""
    weights = scope.dims(node.input[1])
    if weights is None or None in weights:
        return False
    made, per_group, *kernel = (int(extent or 0) for extent in weights)
    windows = _Windows.of(attributes, kernel)
    if windows is None or not made * per_group:
        return False
    rank, groups = len(kernel), attributes.get("group", 1)
    slices = windows.slices(scope, scope.read(node.input[0]))
    first = next(slices)
    extents = scope.add("Shape", [first])
    multiply = _by_position if per_group >= _WIDE else _joined
    weight = scope.read(node.input[1])
    multiplied = multiply(scope, chain([first], slices), weight, (groups, made // groups, per_group))
    batch = scope.add("Gather", [extents, scope.integers(0)])
    spatial = scope.add("Gather", [extents, scope.integers(*range(2, 2 + rank))])
    shape = scope.add("Concat", [batch, scope.integers(made), spatial], axis=0)
    result = scope.add("Reshape", [multiplied, shape])
    if len(node.input) > 2 and node.input[2]:
        bias = scope.add("Reshape", [scope.read(node.input[2]), scope.integers(1, made, *[1] * rank)])
        scope.add("Add", [result, bias])
    return True


def _joined(scope: Scope, slices: Iterable[str], weight: str, sizes: tuple[int, int, int]) -> str:
    """Multiply the weights with many slices at once, the columns of im2col, and add up."""
    groups, made, read = sizes
    rows = scope.add("Reshape", [weight, scope.integers(groups, made, read, -1)])
    total, place, left = "", 0, iter(slices)
    while items := list(islice(left, max(1, _ROWS // read))):
        columns = [scope.add("Reshape", [item, scope.integers(0, groups, read, 1, -1)]) for item in items]
        joined = scope.add("Concat", columns, axis=3) if len(columns) > 1 else columns[0]
        matrix = scope.add("Reshape", [joined, scope.integers(0, groups, read * len(items), -1)])
        part = scope.add("Slice", [rows, *map(scope.integers, (place, place + len(items), 3))])
        place += len(items)
        summand = scope.add("MatMul", [scope.add("Reshape", [part, scope.integers(groups, made, -1)]), matrix])
        total = scope.add("Add", [total, summand]) if total else summand
    return total


def _by_position(scope: Scope, slices: Iterable[str], weight: str, sizes: tuple[int, int, int]) -> str:
    """Multiply the weights at each position in the window with its slice, and add up: a fraction of the memory."""
    groups, made, read = sizes
    rows = scope.add("Reshape", [weight, scope.integers(groups, made, read, -1)])
    stack = scope.add("Transpose", [rows], perm=[3, 0, 1, 2])
    total = ""
    for place, item in enumerate(slices):
        matrix = scope.add("Reshape", [item, scope.integers(0, groups, read, -1)])
        each = scope.add("Slice", [stack, *map(scope.integers, (place, place + 1, 0))])
        summand = scope.add("MatMul", [scope.add("Reshape", [each, scope.integers(groups, made, read)]), matrix])
        total = scope.add("Add", [total, summand]) if total else summand
    return total


def _average_pool(scope: Scope, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
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


def _global_average_pool(scope: Scope, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
    dims = scope.dims(node.input[0])
    if dims is None:
        return False
    scope.reduce("ReduceMean", scope.read(node.input[0]), range(2, len(dims)))
    return True


def _instance_normalization(scope: Scope, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
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


_EXPANSIONS: dict[str, Callable[[Scope, onnx.NodeProto, dict[str, Any]], bool]] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalAveragePool": _global_average_pool,
    "InstanceNormalization": _instance_normalization,
}
