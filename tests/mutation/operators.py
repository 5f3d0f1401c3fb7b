"""Wrong rewrites of single operators: axes, attributes, one operator for another, baked shapes."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from mutation.draft import Draft, NodeProto, Unfit, attribute, drop_attribute, set_attribute
from mutation.kinds import kind

CONFUSED = {
    "Floor": "Ceil",
    "Ceil": "Round",
    "Round": "Floor",
    "Min": "Max",
    "Max": "Min",
    "And": "Or",
    "Or": "And",
    "Greater": "GreaterOrEqual",
    "GreaterOrEqual": "Greater",
    "Less": "LessOrEqual",
    "LessOrEqual": "Less",
    "ReduceMean": "ReduceSum",
    "ReduceSum": "ReduceMean",
    "ReduceMax": "ReduceMin",
    "ReduceL2": "ReduceL1",
    "Relu": "LeakyRelu",
    "LeakyRelu": "Relu",
    "Sigmoid": "HardSigmoid",
    "Tanh": "Sigmoid",
    "Erf": "Tanh",
    "Softmax": "LogSoftmax",
    "LogSoftmax": "Softmax",
    "MaxPool": "AveragePool",
    "Add": "Sub",
    "Mul": "Div",
    "Cos": "Sin",
    "Sin": "Cos",
    "Sinh": "Tan",
    "ArgMax": "ArgMin",
    "ArgMin": "ArgMax",
    "Xor": "Or",
    "Abs": "Neg",
    "GlobalAveragePool": "GlobalMaxPool",
    "GlobalMaxPool": "GlobalAveragePool",
    "Elu": "Celu",
    "Exp": "Softplus",
    "ReduceProd": "ReduceSum",
    "ReduceSumSquare": "ReduceL2",
    "ReduceLogSumExp": "ReduceLogSum",
    "Sub": "Add",
    "BitwiseAnd": "BitwiseOr",
    "BitwiseOr": "BitwiseXor",
    "Equal": "GreaterOrEqual",
    "IsNaN": "IsInf",
}


@kind("one operator for another")
def confused(d: Draft) -> None:
    node = d.choose(d.nodes(*CONFUSED))
    node.op_type = CONFUSED[node.op_type]


@kind("axis off by one", "exact", "close")
def axis_off(d: Draft) -> None:
    places = [node for node in d.nodes() if not node.domain and isinstance(attribute(node, "axis"), int)]
    listed = [node for node in d.nodes() if not node.domain and attribute(node, "axes")]
    given = [
        (node, slot)
        for node in d.nodes("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Squeeze", "Unsqueeze", "CumSum")
        for slot, name in enumerate(node.input)
        if slot == 1 and d.constant(name) is not None
    ]
    place = d.choose([*places, *listed, *given])
    step = 1 if d.rng.integers(2) else -1
    if not isinstance(place, NodeProto):
        node, slot = place
        value = d.constant(node.input[slot])
        assert value is not None
        node.input[slot] = d.add_constant(value + np.array(step, value.dtype))
    elif isinstance(attribute(place, "axis"), int):
        set_attribute(place, "axis", attribute(place, "axis") + step)
    else:
        set_attribute(place, "axes", [axis + step for axis in attribute(place, "axes")])


@kind("axis lost", "exact", "close")
def axis_lost(d: Draft) -> None:
    node = d.choose(node for node in d.nodes() if not node.domain and isinstance(attribute(node, "axis"), int))
    drop_attribute(node, "axis")


@kind("attribute lost")
def attribute_lost(d: Draft) -> None:
    places = []
    for node in d.nodes():
        if node.domain or not onnx.defs.has(node.op_type, d.opset):
            continue
        known = onnx.defs.get_schema(node.op_type, d.opset).attributes
        places += [(node, a.name) for a in node.attribute if a.name in known and not known[a.name].required]
    node, name = d.choose(p for p in places if p[0].op_type != "Constant")
    drop_attribute(node, name)


@kind("attribute changed")
def attribute_changed(d: Draft) -> None:
    """Change a number: one more, one less, a flag turned, a float grown by a tenth."""
    skipped = ("to", "dtype", "axis", "axes", "perm", "epsilon", "stash_type", "num_outputs", "kernel_shape", "group")
    places = [
        (node, item.name)
        for node in d.nodes()
        for item in node.attribute
        if item.type in (1, 2, 6, 7) and item.name not in skipped and node.op_type != "Constant"
    ]
    node, name = d.choose(places)
    set_attribute(node, name, _nearby(d, attribute(node, name)))


def _nearby(d: Draft, value: object) -> object:
    match value:
        case float():
            return value * 1.1 + (0.1 if value == 0 else 0.0)
        case int():
            return 1 - value if value in (0, 1) else value + (1 if d.rng.integers(2) else -1)
        case _:
            items = list(value)  # type: ignore[call-overload]
            if not items:
                raise Unfit
            place = int(d.rng.integers(len(items)))
            items[place] = _nearby(d, items[place])
            return items


@kind("padding moved to one side", "exact", "close")
def padding_moved(d: Draft) -> None:
    nodes = d.nodes("Conv", "MaxPool", "AveragePool", "ConvTranspose", "LpPool")
    node = d.choose(node for node in nodes if any(attribute(node, "pads", ())))
    pads = list(attribute(node, "pads"))
    half = len(pads) // 2
    set_attribute(node, "pads", [0] * half + [a + b for a, b in zip(pads[:half], pads[half:])])


@kind("bound of a Clip lost")
def clip_bound(d: Draft) -> None:
    node = d.choose(d.nodes("Clip"))
    if len(node.input) > 1:
        slot = d.choose(slot for slot in range(1, len(node.input)) if node.input[slot])
        node.input[slot] = ""
        while not node.input[-1]:
            node.input.pop()
    else:
        drop_attribute(node, d.choose(item.name for item in node.attribute))


@kind("erf replaced by its tanh approximation", "exact", "close")
def gelu_by_tanh(d: Draft) -> None:
    """Compute Gelu with tanh: its argument is x / sqrt(2) in the form with erf."""
    node = d.choose([*d.nodes("Erf"), *(n for n in d.nodes("Gelu") if attribute(n, "approximate", b"none") == b"none")])
    if node.op_type == "Gelu":
        set_attribute(node, "approximate", "tanh")
        return
    dtype = helper.tensor_dtype_to_np_dtype(d.dtype(node.input[0]))
    x, result = node.input[0], node.output[0]
    first, second = math.sqrt(2 / math.pi) * math.sqrt(2), math.sqrt(2 / math.pi) * 0.044715 * 2 * math.sqrt(2)
    square, a, b, c = (d.fresh("gelu") for _ in range(4))
    k, m = d.add_constant(np.array(first, dtype)), d.add_constant(np.array(second, dtype))
    made = [
        helper.make_node("Mul", [x, x], [square]),
        helper.make_node("Mul", [square, m], [a]),
        helper.make_node("Add", [a, k], [b]),
        helper.make_node("Mul", [x, b], [c]),
        helper.make_node("Tanh", [c], [result]),
    ]
    place = d.place(node)
    del d.graph.node[place]
    d.insert(place, *made)


# Baked shapes

EXTENTS = {"batch": 2, "sequence": 8, "height": 64, "width": 96}


@kind("dim pinned in the graph")
def dim_pinned(d: Draft) -> None:
    """Bake what was computed from the shape of an input for one extent of its free dims."""
    free = {dim.dim_param for port in d.graph.input for dim in port.type.tensor_type.shape.dim if dim.dim_param}
    if not free:
        raise Unfit
    slots = [(n, s) for n in d.nodes("Reshape", "Expand", "Tile", "Slice", "Range", "ConstantOfShape", "Resize", "Pad")
             for s in range(len(n.input)) if d.dtype(n.input[s]) == TensorProto.INT64]  # fmt: skip
    open_ones = [(n, s) for n, s in slots if d.constant(n.input[s]) is None and (n.op_type == "Range" or s > 0)]
    order = d.rng.permutation(len(open_ones))
    for index in order[:12]:
        node, slot = open_ones[int(index)]
        value = _evaluate(d, node.input[slot], dict.fromkeys(free, 6) | EXTENTS)
        if value is not None:
            node.input[slot] = d.add_constant(value)
            return
    raise Unfit


def _evaluate(d: Draft, name: str, extents: dict[str, int]) -> np.ndarray | None:
    """Compute a value that depends on shapes only, for given extents; None when it depends on more, or on none."""
    made = {output: node for node in d.graph.node for output in node.output}
    needed: dict[str, NodeProto] = {}
    feeds: dict[str, np.ndarray] = {}
    inputs = {port.name: port for port in d.graph.input}
    pending, by_shape = [name], set()
    while pending:
        value = pending.pop()
        if value in inputs and value in by_shape:
            port = inputs[value].type.tensor_type
            dims = [dim.dim_value or extents.get(dim.dim_param, 1) for dim in port.shape.dim]
            feeds[value] = np.zeros(dims, helper.tensor_dtype_to_np_dtype(port.elem_type))
        elif value in inputs or len(needed) > 60:
            return None
        elif value in made and made[value].output[0] not in needed:
            node = made[value]
            needed[node.output[0]] = node
            pending += [item for item in node.input if item]
            if node.op_type in ("Shape", "Size"):
                by_shape.update(node.input)
    if not feeds:
        return None
    nodes = [node for node in d.graph.node if node.output and node.output[0] in needed]
    ports = [inputs[value] for value in feeds]
    output = helper.make_tensor_value_info(name, TensorProto.INT64, None)
    initializers = [t for t in d.graph.initializer if any(t.name in node.input for node in nodes)]
    graph = helper.make_graph(nodes, "shapes", ports, [output], initializers)
    model = helper.make_model(graph, opset_imports=list(d.model.opset_import))
    try:
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
    except Exception:
        return None
