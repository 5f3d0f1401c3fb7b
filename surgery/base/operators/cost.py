"""The cost of one run of a model, estimated from its graph and shapes, and of other steps of verification.

The number of generated input sets depends on this estimate, and must be the same on every machine under any load, so
time is not measured. The estimate is in seconds on one present-day core, accurate to a factor of about three.

Needs a row in `_PRODUCTS` for each operator with multiply-accumulates in `operations`, unless it is in `_FEW_PRODUCTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.base.operators.forms import Schema
from surgery.base.operators.operations import has_products
from surgery.base.operators.use import InputUse, TypedIndex

if TYPE_CHECKING:
    import onnx

_PER_NODE, _PER_PRODUCT, _PER_ELEMENT, _PER_BYTE = 2.5e-6, 5e-11, 1e-9, 3e-10
"""Seconds per node, per multiplication within a sum of products, per result element, and per byte of weights."""

_PER_NODE_OF_SESSION = 6e-5
"""Seconds per node for creating an ONNX Runtime session without optimizations."""

_PER_BYTE_OF_LIST = 1.7e-8
"""Seconds per byte of the lists of tree ensembles for creating a session."""

_TURNS = 8
"""Assumed number of iterations of a loop, if it is unknown or smaller."""

_NO_LIMIT = 1 << 20
"""A number of iterations from which only the condition ends a loop."""

_DEEPEST = 4
"""Number of nested loops whose iterations are multiplied."""

_UNKNOWN = 256
"""Assumed number of elements of an unknown value."""

_FEW = 16
"""Assumed number of elements of a shape, and of a typical slice."""

_LENGTH = 64
"""Assumed number of terms of a sum, or of positions, if unknown."""


Elements = Callable[[str], "Sequence[float | str] | None"]
"""Returns the elements of a small tensor, as far as they follow from shapes."""


def estimate(view: TypedIndex, weights: int, inputs: Iterable[str], elements: Elements) -> float:
    """Return the estimated seconds of one run with the shapes of a view; `weights` is in bytes.

    Inputs that no node reads count too, because they must be generated.
    """
    given = sum(math.prod(view.shapes.get(name, ())) for name in inputs)
    return reading(weights) + _PER_ELEMENT * given + _Estimate(view, elements).seconds()


def reading(weights: int) -> float:
    """Return the estimated seconds of one run for reading this many bytes of weights."""
    return weights * _PER_BYTE


def opening(nodes: int) -> float:
    """Return the estimated seconds for creating a session of a model with so many nodes, without its long lists."""
    return _PER_NODE_OF_SESSION * nodes


def listing(size: int) -> float:
    """Return the estimated seconds of a new session for this many bytes of long lists, such as those of ensembles."""
    return _PER_BYTE_OF_LIST * size


class _Estimate:
    """A walk over the nodes; shapes that inference does not know are guessed from the operands."""

    def __init__(self, view: TypedIndex, elements: Elements) -> None:
        self.view = view
        self.elements = elements
        self.times = [1]
        self.guessed: dict[str, int] = {}
        index = view.index
        counts = {shape: math.prod(shape) for shape in set(view.shapes.values())}
        known = {name: counts[shape] for name, shape in view.shapes.items()}
        # Guessed sizes are limited by the largest known size.
        self.most = max((size for name, size in known.items() if name not in index.constants), default=_UNKNOWN)
        self.known = {name: math.prod(tensor.dims) for name, tensor in index.constants.items()} | known

    def seconds(self) -> float:
        total = 0.0
        index = self.view.index
        is_flat = all(not depth for _, depth in index.nodes)
        for (node, depth), op, names in zip(index.nodes, index.operators, index.outputs):
            sizes = [self.known.get(name, -1) for name in names]
            products = 0
            if op in _PRODUCTS or -1 in sizes:
                length, result = self.guess(op, InputUse(self.view, node, 0))
                guess = min(result, self.most)
                sizes = [guess if size < 0 else size for size in sizes]
                self.guessed.update(zip(names, sizes))
                products = length * sizes[0] if sizes else 0
            seconds = _PER_NODE + _PER_ELEMENT * sum(sizes) + _PER_PRODUCT * products
            total += seconds if is_flat else self.repeated(node, depth) * seconds
        return total

    def repeated(self, node: onnx.NodeProto, depth: int) -> int:
        """Return how often a node is assumed to run. The nodes of a body follow the node that has it."""
        while len(self.times) <= depth:
            self.times.append(self.times[-1] * (_TURNS if len(self.times) <= _DEEPEST else 1))
        if node.op_type in ("Loop", "Scan"):
            turns = max(_TURNS, self.turns(node)) if depth < _DEEPEST else 1
            self.times[depth + 1 :] = [self.times[depth] * turns]
        else:
            del self.times[depth + 1 :]
        return self.times[depth]

    def turns(self, node: onnx.NodeProto) -> int:
        """Return the number of iterations of a loop, 0 if it is unknown."""
        use = InputUse(self.view, node, 0)
        if node.op_type == "Scan":
            shape, axis = use.shape(len(node.input) - 1), use.attr("scan_input_axes", [0])[-1]
            return shape[axis] if shape and axis < len(shape) else 0
        # A loop with a computed condition may end long before the limit.
        found = self.elements(node.input[0]) if use.has(0) and (not use.has(1) or use.constant(1) is not None) else None
        count = found[0] if found else 0
        return int(count) if isinstance(count, (int, float)) and count < _NO_LIMIT else 0

    def guess(self, op: str, use: InputUse) -> tuple[int, int]:
        """Return the number of products per result element, and a guess of the number of result elements."""
        if op in _PRODUCTS:
            return _PRODUCTS[op](self, use)
        return 0, _RESULTS.get(op, _Estimate.largest)(self, use)

    def size(self, use: InputUse, index: int = 0) -> int:
        """Return the number of elements of an operand."""
        if not use.has(index):
            return 0
        shape = use.shape(index)
        return self.guessed.get(use.node.input[index], _UNKNOWN) if shape is None else math.prod(shape)

    def largest(self, use: InputUse) -> int:
        """Return the number of elements of the largest operand that is not constant."""
        names, constants = use.node.input, self.view.index.constants
        return max((self.size(use, place) for place, name in enumerate(names) if name not in constants), default=1)


def _matmul(walk: _Estimate, use: InputUse) -> tuple[int, int]:
    """Count a sum over the last dim of the first operand for each result element."""
    first, second = use.shape(0), use.shape(1)
    length = first[-1] if first else second[-2] if second and len(second) > 1 else _LENGTH
    if use.node.op_type == "Gemm" and first and use.attr("transA", 0):
        length = first[0]
    columns = second[-1] if second else _LENGTH
    return length, walk.size(use) // max(1, length) * columns


def _convolution(walk: _Estimate, use: InputUse) -> tuple[int, int]:
    """Count a sum over the kernel for each result element."""
    kernel = use.shape(3 if use.node.op_type == "QLinearConv" else 1)
    if not kernel or len(kernel) < 3:
        return 9 * _LENGTH, walk.largest(use)
    group, stride = int(use.attr("group", 1)), math.prod(use.attr("strides", [1]))
    if use.node.op_type == "ConvTranspose":
        result = walk.size(use) // max(1, kernel[0]) * kernel[1] * group * stride
        return kernel[0] // max(1, group) * math.prod(kernel[2:]) // max(1, stride), result
    return math.prod(kernel[1:]), walk.size(use) // max(1, kernel[1] * group) * kernel[0] // max(1, stride)


def _recurrent(walk: _Estimate, use: InputUse) -> tuple[int, int]:
    """Count the multiplications by both matrices in each step, per result element."""
    hidden, data = int(use.attr("hidden_size", _LENGTH)), use.shape(0)
    width = data[-1] if data else _LENGTH
    gates = {"LSTM": 4, "GRU": 3}.get(use.node.op_type, 1)
    return gates * (width + hidden), walk.size(use) // max(1, width) * hidden


def _attention(walk: _Estimate, use: InputUse) -> tuple[int, int]:
    """Count the products of each query position with all keys, in the scores and in the product with the values."""
    key = use.shape(1) if use.has(1) else use.shape(0)
    past = use.shape(4) or use.shape(3)
    length = key[-2] if key and len(key) > 1 else _LENGTH
    return 2 * (length + (past[-2] if past and len(past) > 1 else 0)), walk.size(use)


def _einsum(walk: _Estimate, use: InputUse) -> tuple[int, int]:
    first = use.shape(0)
    return max(first, default=1) if first is not None else _LENGTH, walk.largest(use)


def _gather(walk: _Estimate, use: InputUse) -> int:
    table = use.shape(0) if use.node.op_type == "Gather" else None
    return walk.size(use, 1) * (math.prod(table[1:]) if table else 1)


def _part(walk: _Estimate, use: InputUse) -> int:
    """Return the size of one part of a split tensor; a sequence is assumed to have three parts."""
    return walk.size(use) // (3 if use.node.op_type == "SequenceAt" else max(1, len(use.node.output)))


def _few(walk: _Estimate, use: InputUse) -> int:
    return _FEW


_PRODUCTS: dict[str, Callable[[_Estimate, InputUse], tuple[int, int]]] = {
    **dict.fromkeys(
        ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm", "MatMulNBits"), _matmul
    ),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "DeformConv", "FusedConv"), _convolution),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    "Einsum": _einsum,
}
"""The number of products per result element, and the number of result elements if shape inference does not know it."""

_FEW_PRODUCTS = frozenset(
    {
        "AveragePool",
        "DynamicQuantizeMatMul",
        "GridSample",
        "LRN",
        "LpPool",
        "MatMulIntegerToFloat",
        "MaxPool",
        "Resize",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)
"""Operators with multiply-accumulates that are treated as elementwise: with few products per element, or rare."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator with sums of products that the estimate does not cover."""
    if has_products(schema.key) and schema.name not in _PRODUCTS.keys() | _FEW_PRODUCTS:
        yield "sums of products"


_RESULTS: dict[str, Callable[[_Estimate, InputUse], int]] = {
    **dict.fromkeys(("Shape", "Size", "Range", "Slice"), _few),
    **dict.fromkeys(("Split", "SequenceAt"), _part),
    **dict.fromkeys(("Gather", "GatherElements"), _gather),
}
"""The number of result elements of other operators, if it differs from that of the largest operand."""
