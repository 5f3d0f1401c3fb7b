"""Right rewrites of whole models: the same mathematics in another form, at every place where it fits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
from onnx import TensorProto, helper

from mutation.draft import Draft, NodeProto, Unfit, attribute, set_attribute

Place = Callable[[Draft, NodeProto, Callable[[], str]], list[NodeProto] | None]
REBUILT: dict[str, tuple[str, Callable[[Draft], None]]] = {}


def rebuild(name: str, promise: str, *ops: str) -> Callable[[Place], Place]:
    """Register a rewrite that puts other nodes for one node, wherever it can."""

    def register(place: Place) -> Place:
        def edit(d: Draft) -> None:
            numbers = count()
            made: list[NodeProto] = []
            changed = 0
            for node in list(d.graph.node):
                fits = (not ops or node.op_type in ops) and not node.domain
                nodes = place(d, node, lambda: f"rebuilt_{next(numbers)}") if fits else None
                changed += nodes is not None
                made += [node] if nodes is None else nodes
            if not changed:
                raise Unfit
            copies = [type(node).FromString(node.SerializeToString()) for node in made]
            del d.graph.node[:]
            d.graph.node.extend(copies)

        REBUILT[name] = (promise, edit)
        return place

    return register


def whole(name: str, promise: str = "exact") -> Callable[[Callable[[Draft], None]], Callable[[Draft], None]]:
    """Register a rewrite of the whole model."""

    def register(edit: Callable[[Draft], None]) -> Callable[[Draft], None]:
        REBUILT[name] = (promise, edit)
        return edit

    return register


node = helper.make_node


def is_float(d: Draft, name: str) -> bool:
    return d.dtype(name) == TensorProto.FLOAT


def rank_of(d: Draft, name: str) -> int:
    shape = d.shape(name)
    return -1 if shape is None else len(shape)


def _axes(d: Draft, op: str, axes: list[int]) -> tuple[list[str], dict[str, list[int]]]:
    """Give the axes of a reduction as the opset wants them."""
    if d.opset >= (13 if op == "ReduceSum" else 18):
        return [d.add_constant(np.array(axes, np.int64))], {}
    return [], {"axes": axes}


def _last(d: Draft, n: NodeProto) -> bool:
    axis = attribute(n, "axis", -1 if d.opset >= 13 else 1)
    return axis in (-1, rank_of(d, n.input[0]) - 1) and rank_of(d, n.input[0]) > 0


@rebuild("Softmax spelled out", "close", "Softmax")
def _softmax(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not _last(d, n):
        return None
    top, apart, power, total = (new() for _ in range(4))
    most, most_axes = _axes(d, "ReduceMax", [-1])
    summed, sum_axes = _axes(d, "ReduceSum", [-1])
    return [
        node("ReduceMax", [n.input[0], *most], [top], **most_axes),
        node("Sub", [n.input[0], top], [apart]),
        node("Exp", [apart], [power]),
        node("ReduceSum", [power, *summed], [total], **sum_axes),
        node("Div", [power, total], n.output),
    ]


@rebuild("Softmax as exp of LogSoftmax", "close", "Softmax")
def _log_softmax(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    log = new()
    made = node("LogSoftmax", n.input, [log])
    made.attribute.extend(n.attribute)
    return [made, node("Exp", [log], n.output)]


@rebuild("LayerNormalization spelled out", "close", "LayerNormalization")
def _layer_norm(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not _last(d, n) or len(n.output) > 1:
        return None
    mean, apart, square, spread, safe, root, ready, scaled = (new() for _ in range(8))
    axes, listed = _axes(d, "ReduceMean", [-1])
    epsilon = d.add_constant(np.array(attribute(n, "epsilon", 1e-5), np.float32))
    made = [
        node("ReduceMean", [n.input[0], *axes], [mean], **listed),
        node("Sub", [n.input[0], mean], [apart]),
        node("Mul", [apart, apart], [square]),
        node("ReduceMean", [square, *axes], [spread], **listed),
        node("Add", [spread, epsilon], [safe]),
        node("Sqrt", [safe], [root]),
        node("Div", [apart, root], [ready]),
        node("Mul", [ready, n.input[1]], [scaled] if len(n.input) > 2 else n.output),
    ]
    return made + ([node("Add", [scaled, n.input[2]], n.output)] if len(n.input) > 2 else [])


@rebuild("BatchNormalization spelled out", "close", "BatchNormalization")
def _batch_norm(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    given = [d.constant(name) for name in n.input[1:]]
    rank = rank_of(d, n.input[0])
    if any(value is None for value in given) or rank < 2:
        return None
    scale, shift, mean, variance = (value.astype(np.float64) for value in given if value is not None)
    factor = scale / np.sqrt(variance + attribute(n, "epsilon", 1e-5))
    shape = (-1, *(1,) * (rank - 2))
    k = d.add_constant(factor.astype(np.float32).reshape(shape))
    c = d.add_constant((shift - mean * factor).astype(np.float32).reshape(shape))
    product = new()
    return [node("Mul", [n.input[0], k], [product]), node("Add", [product, c], n.output)]


@rebuild("sums in another order", "close", "Add")
def _sums(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    inner = d.producer(n.input[0])
    if inner is None or inner.op_type != "Add" or not is_float(d, n.output[0]):
        return None
    part = new()
    return [node("Add", [inner.input[1], n.input[1]], [part]), node("Add", [inner.input[0], part], n.output)]


def _weight(d: Draft, n: NodeProto) -> np.ndarray | None:
    """Return the constant matrix that a MatMul multiplies by, also when it is transposed or copied first."""
    name, turned = n.input[1], False
    for _ in range(3):
        value = d.constant(name)
        if value is not None:
            good = value.ndim == 2 and value.dtype == np.float32
            return (value.T if turned else value) if good else None
        made = d.producer(name)
        if made is None or made.op_type not in ("Transpose", "Identity"):
            return None
        turned ^= made.op_type == "Transpose"
        name = made.input[0]
    return None


@rebuild("weights scaled before, results after", "close", "MatMul")
def _prescaled(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    weight = _weight(d, n)
    if weight is None:
        return None
    product, w, k = new(), d.add_constant(weight * np.float32(3)), d.add_constant(np.array(3, np.float32))
    return [node("MatMul", [n.input[0], w], [product]), node("Div", [product, k], n.output)]


@rebuild("MatMul of the transposed", "close", "MatMul")
def _transposed(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    rank = rank_of(d, n.input[0])
    if rank < 2 or rank != rank_of(d, n.input[1]):
        return None
    perm = [*range(rank - 2), rank - 1, rank - 2]
    a, b, c = new(), new(), new()
    return [
        node("Transpose", [n.input[0]], [a], perm=perm),
        node("Transpose", [n.input[1]], [b], perm=perm),
        node("MatMul", [b, a], [c]),
        node("Transpose", [c], n.output, perm=perm),
    ]


@rebuild("MatMul in two halves that are summed", "close", "MatMul")
def _halves(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    weight = _weight(d, n)
    rank = rank_of(d, n.input[0])
    if weight is None or rank < 2 or weight.shape[0] < 2:
        return None
    middle = weight.shape[0] // 2
    zero, half, end, axis = (
        d.add_constant(np.array([value], np.int64)) for value in (0, middle, weight.shape[0], rank - 1)
    )
    a, b, c, e = new(), new(), new(), new()
    return [
        node("Slice", [n.input[0], zero, half, axis], [a]),
        node("Slice", [n.input[0], half, end, axis], [b]),
        node("MatMul", [a, d.add_constant(weight[:middle])], [c]),
        node("MatMul", [b, d.add_constant(weight[middle:])], [e]),
        node("Add", [c, e], n.output),
    ]


@rebuild("MatMul as a Gemm of rows", "close", "MatMul")
def _gemm(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    weight = _weight(d, n)
    if weight is None or rank_of(d, n.input[0]) != 3:
        return None
    rows, flat, product, shape, first, target = (new() for _ in range(6))
    flatten = d.add_constant(np.array([-1, weight.shape[0]], np.int64))
    start, stop = d.add_constant(np.array([0], np.int64)), d.add_constant(np.array([2], np.int64))
    width = d.add_constant(np.array([weight.shape[1]], np.int64))
    return [
        node("Reshape", [n.input[0], flatten], [rows]),
        node("Gemm", [rows, d.add_constant(weight.T)], [product], transB=1),
        node("Shape", [n.input[0]], [shape]),
        node("Slice", [shape, start, stop], [first]),
        node("Concat", [first, width], [target], axis=0),
        node("Reshape", [product, target], n.output),
        node("Identity", [flatten], [flat]),
    ]


@rebuild("factor moved into a MatMul", "close", "Mul", "Div")
def _factor(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    product = d.producer(n.input[0])
    factor = d.constant(n.input[1])
    if product is None or product.op_type != "MatMul" or factor is None or factor.size != 1 or factor.ndim > 1:
        return None
    scaled = new()
    return [
        node(n.op_type, [product.input[0], n.input[1]], [scaled]),
        node("MatMul", [scaled, product.input[1]], n.output),
    ]


@rebuild("division as a product", "close", "Div")
def _reciprocal(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not is_float(d, n.output[0]):
        return None
    part = new()
    return [node("Reciprocal", [n.input[1]], [part]), node("Mul", [n.input[0], part], n.output)]


@rebuild("Pow 2 as a product", "close", "Pow")
def _square(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    power = d.constant(n.input[1])
    if power is None or power.size != 1 or float(power.reshape(-1)[0]) != 2.0:
        return None
    return [node("Mul", [n.input[0], n.input[0]], n.output)]


@rebuild("Sqrt as Pow", "close", "Sqrt")
def _root(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not is_float(d, n.output[0]):
        return None
    return [node("Pow", [n.input[0], d.add_constant(np.array(0.5, np.float32))], n.output)]


@rebuild("Sigmoid by Tanh", "close", "Sigmoid")
def _sigmoid(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    half = d.add_constant(np.array(0.5, np.float32))
    a, b, c = new(), new(), new()
    return [
        node("Mul", [n.input[0], half], [a]),
        node("Tanh", [a], [b]),
        node("Mul", [b, half], [c]),
        node("Add", [c, half], n.output),
    ]


@rebuild("Tanh by Sigmoid", "close", "Tanh")
def _tanh(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    one, two = d.add_constant(np.array(1, np.float32)), d.add_constant(np.array(2, np.float32))
    a, b, c = new(), new(), new()
    return [
        node("Mul", [n.input[0], two], [a]),
        node("Sigmoid", [a], [b]),
        node("Mul", [b, two], [c]),
        node("Sub", [c, one], n.output),
    ]


@rebuild("mean as a sum", "close", "ReduceMean")
def _mean(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    shape = d.shape(n.input[0])
    axes = attribute(n, "axes") if len(n.input) < 2 else d.constant(n.input[1])
    if shape is None or axes is None or any(not isinstance(shape[axis], int) for axis in axes):
        return None
    extent = np.prod([shape[axis] for axis in axes], dtype=np.float32)
    total = new()
    given, listed = _axes(d, "ReduceSum", [int(axis) for axis in axes])
    made = node("ReduceSum", [n.input[0], *given], [total], keepdims=attribute(n, "keepdims", 1), **listed)
    return [made, node("Div", [total, d.add_constant(np.array(extent, np.float32))], n.output)]


@rebuild("Conv of 1 x 1 as a MatMul", "close", "Conv")
def _pointwise(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    weight = d.constant(n.input[1])
    if weight is None or weight.shape[2:] != (1, 1) or attribute(n, "group", 1) != 1:
        return None
    if any(attribute(n, "pads", ())) or any(step != 1 for step in attribute(n, "strides", ())):
        return None
    a, b = new(), new()
    made = [
        node("Transpose", [n.input[0]], [a], perm=[0, 2, 3, 1]),
        node("MatMul", [a, d.add_constant(weight[:, :, 0, 0].T)], [b]),
    ]
    if len(n.input) > 2:
        c = new()
        made.append(node("Add", [b, n.input[2]], [c]))
        b = c
    return [*made, node("Transpose", [b], n.output, perm=[0, 3, 1, 2])]


@rebuild("kernel grown by zeros", "close", "Conv")
def _grown(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    weight = d.constant(n.input[1])
    if weight is None or attribute(n, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    if any(step != 1 for step in attribute(n, "dilations", ())):
        return None
    rank = weight.ndim - 2
    wide = d.add_constant(np.pad(weight, [(0, 0), (0, 0), *[(1, 1)] * rank]))
    made = type(n)()
    made.CopyFrom(n)
    made.input[1] = wide
    set_attribute(made, "pads", [pad + 1 for pad in attribute(n, "pads", [0] * (2 * rank))])
    set_attribute(made, "kernel_shape", [size + 2 for size in weight.shape[2:]])
    return [made]


@rebuild("bias of a Conv added after it", "close", "Conv")
def _outer_bias(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    bias = d.constant(n.input[2]) if len(n.input) > 2 else None
    rank = rank_of(d, n.input[0])
    if bias is None or rank < 3:
        return None
    made = type(n)()
    made.CopyFrom(n)
    del made.input[2:]
    made.output[0] = new()
    column = d.add_constant(bias.reshape(-1, *(1,) * (rank - 2)))
    return [made, node("Add", [made.output[0], column], n.output)]


@rebuild("products of one value merged", "close", "MatMul")
def _merged(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    """Compute the MatMuls that read one value (queries, keys, values) at once; the first of them makes all."""
    group = [m for m in d.users(n.input[0]) if m.op_type == "MatMul" and m.input[0] == n.input[0]]
    group = [m for m in group if _weight(d, m) is not None]
    if len(group) < 2 or _weight(d, n) is None:
        return None
    if n.output != group[0].output:
        return []
    weights = [_weight(d, m) for m in group]
    product = new()
    made = [node("MatMul", [n.input[0], d.add_constant(np.concatenate(weights, axis=1))], [product])]
    sizes = [weight.shape[1] for weight in weights if weight is not None]
    outputs = [m.output[0] for m in group]
    if d.opset >= 13:
        split = d.add_constant(np.array(sizes, np.int64))
        return [*made, node("Split", [product, split], outputs, axis=-1)]
    return [*made, node("Split", [product], outputs, axis=-1, split=sizes)]
