"""What one run of a model costs, estimated from its graph and shapes, and what else takes time in verification.

How many sets of inputs are made follows from this, and must be the same on every machine and however busy it is: time
is not measured. The estimate is in seconds of one present-day core, right to a factor of about three.

Needs a row in `_PRODUCTS` for each operator with multiply-accumulates in `operations`, unless it is in `_FEW_PRODUCTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from surgery.operators.forms import Schema
from surgery.operators.operations import has_products
from surgery.operators.use import Index, Use, View

_PER_NODE, _PER_PRODUCT, _PER_ELEMENT, _PER_BYTE = 2.5e-6, 5e-11, 1e-9, 3e-10
"""Seconds for a node, a multiplication within a sum of products, an element of a result, a byte of weights."""

_PER_NODE_OF_SESSION = 6e-5
"""Seconds that ONNX Runtime takes for a node when it makes a session, without optimizations."""

PROBE, PROBE_NODE = 0.02, 3e-4
"""Seconds to try a point of the search, and for each node of the model: shapes are inferred anew."""

INFERRED_NODE, INFERRED_NODE_BY_ONNX = 4e-4, 1e-4
"""Seconds that surgery's inference, and onnx's, takes for a node."""

REGION, REGION_TWIN, REGION_ELEMENT, REGION_NODE = 1e-2, 1e-4, 2.5e-8, 1.5e-4
"""Seconds to compare a region, one that computes what another one does, an element that it is given, and to find the
regions for a node of the model."""

_TURNS = 8
"""How often the body of a loop is taken to run."""

_UNKNOWN = 256
"""Elements of a value of which nothing is known."""

_FEW = 16
"""Elements of a shape, and of what is most often cut out of something larger."""

_LENGTH = 64
"""Terms of a sum, or positions, of which nothing is known."""


def estimate(view: View, weights: int, inputs: Iterable[str]) -> float:
    """Return the seconds that one run takes with the shapes of a view; `weights` in bytes.

    Inputs that no node reads must be made all the same.
    """
    given = sum(math.prod(view.shapes.get(name, ())) for name in inputs)
    return reading(weights) + _PER_ELEMENT * given + _Estimate(view).seconds()


def reading(weights: int) -> float:
    """Return the seconds that one run takes for so many bytes of weights."""
    return weights * _PER_BYTE


def opening(index: Index) -> float:
    """Return the seconds that it takes to make a session of a model."""
    return _PER_NODE_OF_SESSION * len(index.nodes)


class _Estimate:
    """A walk over the nodes; what shape inference did not find out is guessed from the operands."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.guessed: dict[str, int] = {}
        index = view.index
        elements = {shape: math.prod(shape) for shape in set(view.shapes.values())}
        known = {name: elements[shape] for name, shape in view.shapes.items()}
        # What is guessed is not larger than what is known.
        self.most = max((size for name, size in known.items() if name not in index.constants), default=_UNKNOWN)
        self.known = {name: math.prod(tensor.dims) for name, tensor in index.constants.items()} | known

    def seconds(self) -> float:
        total = 0.0
        index = self.view.index
        for (node, depth), op, names in zip(index.nodes, index.operators, index.outputs):
            known = [self.known.get(name) for name in names]
            length, result = 0, 0
            if op in _PRODUCTS or None in known:
                length, result = self.guess(op, Use(self.view, node, 0))
            sizes = [min(result, self.most) if size is None else size for size in known]
            self.guessed.update(zip(names, sizes))
            products = length * sizes[0] if sizes else 0
            seconds = _PER_NODE + _PER_ELEMENT * sum(sizes) + _PER_PRODUCT * products
            total += _TURNS ** min(depth, 4) * seconds if depth else seconds
        return total

    def guess(self, op: str, use: Use) -> tuple[int, int]:
        """Return how many products make an element of the result, and how many elements it may have."""
        if op in _PRODUCTS:
            return _PRODUCTS[op](self, use)
        return 0, _RESULTS.get(op, _Estimate.largest)(self, use)

    def size(self, use: Use, index: int = 0) -> int:
        """Return how many elements an operand has."""
        if not use.has(index):
            return 0
        shape = use.shape(index)
        return self.guessed.get(use.node.input[index], _UNKNOWN) if shape is None else math.prod(shape)

    def largest(self, use: Use) -> int:
        """Return the most elements of an operand that is no constant."""
        names, constants = use.node.input, self.view.index.constants
        return max((self.size(use, place) for place, name in enumerate(names) if name not in constants), default=1)


def _matmul(walk: _Estimate, use: Use) -> tuple[int, int]:
    """Each element of the result is a sum over the last dim of the first operand."""
    first, second = use.shape(0), use.shape(1)
    length = first[-1] if first else second[-2] if second and len(second) > 1 else _LENGTH
    if use.node.op_type == "Gemm" and first and use.attr("transA", 0):
        length = first[0]
    columns = second[-1] if second else _LENGTH
    return length, walk.size(use) // max(1, length) * columns


def _convolution(walk: _Estimate, use: Use) -> tuple[int, int]:
    """Each element of the result is a sum over a kernel."""
    kernel = use.shape(3 if use.node.op_type == "QLinearConv" else 1)
    if not kernel or len(kernel) < 3:
        return 9 * _LENGTH, walk.largest(use)
    group, stride = int(use.attr("group", 1)), math.prod(use.attr("strides", [1]))
    if use.node.op_type == "ConvTranspose":
        result = walk.size(use) // max(1, kernel[0]) * kernel[1] * group * stride
        return kernel[0] // max(1, group) * math.prod(kernel[2:]) // max(1, stride), result
    return math.prod(kernel[1:]), walk.size(use) // max(1, kernel[1] * group) * kernel[0] // max(1, stride)


def _recurrent(walk: _Estimate, use: Use) -> tuple[int, int]:
    """Each step multiplies by both matrices; counted as if it were per element of the result."""
    hidden, data = int(use.attr("hidden_size", _LENGTH)), use.shape(0)
    width = data[-1] if data else _LENGTH
    gates = {"LSTM": 4, "GRU": 3}.get(use.node.op_type, 1)
    return gates * (width + hidden), walk.size(use) // max(1, width) * hidden


def _attention(walk: _Estimate, use: Use) -> tuple[int, int]:
    """Each position of the query meets each of the keys, in the scores and in their product with the values."""
    key = use.shape(1) if use.has(1) else use.shape(0)
    past = use.shape(4) or use.shape(3)
    length = key[-2] if key and len(key) > 1 else _LENGTH
    return 2 * (length + (past[-2] if past and len(past) > 1 else 0)), walk.size(use)


def _einsum(walk: _Estimate, use: Use) -> tuple[int, int]:
    first = use.shape(0)
    return max(first, default=1) if first is not None else _LENGTH, walk.largest(use)


def _gather(walk: _Estimate, use: Use) -> int:
    table = use.shape(0) if use.node.op_type == "Gather" else None
    return walk.size(use, 1) * (math.prod(table[1:]) if table else 1)


def _part(walk: _Estimate, use: Use) -> int:
    """One of the parts that a tensor is split into, of three in a sequence."""
    return walk.size(use) // (3 if use.node.op_type == "SequenceAt" else max(1, len(use.node.output)))


def _few(walk: _Estimate, use: Use) -> int:
    return _FEW


_PRODUCTS: dict[str, Callable[[_Estimate, Use], tuple[int, int]]] = {
    **dict.fromkeys(
        ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm", "MatMulNBits"), _matmul
    ),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "DeformConv", "FusedConv"), _convolution),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    "Einsum": _einsum,
}
"""How many products make an element of the result, and how many elements it has when shape inference does not know."""

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
"""Operators with multiply-accumulates that are taken for elementwise: few of them make an element, or they are rare."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report that an operator has sums of products which the estimate does not know."""
    if has_products(schema.key) and schema.name not in _PRODUCTS.keys() | _FEW_PRODUCTS:
        yield "sums of products"


_RESULTS: dict[str, Callable[[_Estimate, Use], int]] = {
    **dict.fromkeys(("Shape", "Size", "Range", "Slice"), _few),
    **dict.fromkeys(("Split", "SequenceAt"), _part),
    **dict.fromkeys(("Gather", "GatherElements"), _gather),
}
"""How many elements the result of other operators has, when it is not as large as the largest operand."""
