"""Wrong rewrites of the wiring: what is read, in which order, what is left out, what callers see."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from mutation.draft import FLOATS, Draft, Unfit, attribute, bodies, pairs, set_attribute
from mutation.kinds import kind

ORDERED = ("Sub", "Div", "Pow", "Mod", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "BitShift", "PRelu")
UNARY = (
    *("Relu", "Clip", "Gelu", "Erf", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "Softplus", "HardSigmoid", "Abs"),
    *("HardSwish", "Celu", "Mish", "ThresholdedRelu", "Softsign", "Swish", "Softmax", "LogSoftmax", "Hardmax", "Neg"),
    *("Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Not", "Exp", "Cos", "Sin", "CumSum", "Reverse", "Trilu"),
)


@kind("operands swapped")
def operands_swapped(d: Draft) -> None:
    node = d.choose(node for node in d.nodes(*ORDERED) if node.input[0] != node.input[1])
    node.input[0], node.input[1] = node.input[1], node.input[0]


@kind("factors of a MatMul swapped")
def factors_swapped(d: Draft) -> None:
    node = d.choose(node for node in d.nodes("MatMul") if _square(d, node) and node.input[0] != node.input[1])
    node.input[0], node.input[1] = node.input[1], node.input[0]


def _square(d: Draft, node: NodeProto) -> bool:
    shapes = [d.shape(name) for name in node.input]
    return all(shape is not None and len(shape) > 1 and shape[-1] == shape[-2] for shape in shapes)


@kind("inputs of a Concat in another order")
def concat_order(d: Draft) -> None:
    node = d.choose(node for node in d.nodes("Concat") if len(set(node.input)) > 1)
    i, j = d.choose((i, j) for i, j in pairs(range(len(node.input))) if node.input[i] != node.input[j])
    node.input[i], node.input[j] = node.input[j], node.input[i]


@kind("branches of a Where swapped")
def where_swapped(d: Draft) -> None:
    node = d.choose(node for node in d.nodes("Where") if node.input[1] != node.input[2])
    node.input[1], node.input[2] = node.input[2], node.input[1]


@kind("mask inverted")
def mask_inverted(d: Draft) -> None:
    places = [(node, 0) for node in d.nodes("Where", "If")]
    places += [(node, slot) for node in d.nodes("And", "Or") for slot in (0, 1)]
    node, slot = d.choose(places)
    d.before(node, slot, "Not")


@kind("mask left out")
def mask_left_out(d: Draft) -> None:
    sums = {node.output[0]: node for node in d.nodes("Add", "Where", "Mul")}
    node = d.choose(sums[node.input[0]] for node in d.nodes("Softmax") if node.input[0] in sums)
    d.bypass(node, d.choose(range(len(node.input))) if node.op_type != "Where" else d.choose((1, 2)))


@kind("bias lost", "exact", "close")
def bias_lost(d: Draft) -> None:
    sums = [(node, slot) for node in d.nodes("Add") for slot in (0, 1) if _is_vector(d, node.input[slot])]
    sums = [(node, 1 - slot) for node, slot in sums]
    third = [(node, 2) for node in d.nodes("Conv", "ConvTranspose", "Gemm", "LayerNormalization") if _given(node, 2)]
    node, slot = d.choose(sums + third)
    if node.op_type == "Add":
        d.bypass(node, slot)
    else:
        del node.input[2:]


def _is_vector(d: Draft, name: str) -> bool:
    value = d.constant(name)
    return value is not None and value.ndim == 1 and value.size > 1


def _given(node: NodeProto, slot: int) -> bool:
    return len(node.input) > slot and bool(node.input[slot])


@kind("optional input lost")
def optional_input_lost(d: Draft) -> None:
    places = []
    for node in d.nodes():
        if node.domain or not onnx.defs.has(node.op_type, d.opset):
            continue
        schema = onnx.defs.get_schema(node.op_type, d.opset)
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        places += [(node, i) for i, p in enumerate(schema.inputs) if p.option == optional and _given(node, i)]
    node, slot = d.choose(places)
    node.input[slot] = ""
    while node.input and not node.input[-1]:
        node.input.pop()


@kind("residual dropped", "exact", "close")
def residual_dropped(d: Draft) -> None:
    found = [n for n in d.nodes("Add", "Sum") if len(n.input) == 2 and d.alike(*n.input) and n.input[0] != n.input[1]]
    node = d.choose(node for node in found if all(d.constant(name) is None for name in node.input))
    d.bypass(node, d.choose((0, 1)))


@kind("operator dropped")
def operator_dropped(d: Draft) -> None:
    d.bypass(d.choose(d.nodes(*UNARY)))


@kind("Transpose dropped")
def transpose_dropped(d: Draft) -> None:
    d.bypass(d.choose(d.nodes("Transpose")))


@kind("wrong perm")
def wrong_perm(d: Draft) -> None:
    places = []
    for node in d.nodes("Transpose"):
        rank = len(d.shape(node.input[0]) or ())
        perm = list(attribute(node, "perm", range(rank)[::-1]))
        places += [(node, perm, i, j) for i, j in pairs(range(len(perm)))]
    node, perm, i, j = d.choose(places)
    perm[i], perm[j] = perm[j], perm[i]
    set_attribute(node, "perm", perm)


@kind("two unlike nodes merged")
def wrong_merge(d: Draft) -> None:
    """Take two nodes for common subexpressions that only look alike: the same operator, types and shapes."""
    groups: dict[object, list[NodeProto]] = {}
    for node in d.nodes():
        known = d.types.get(node.output[0]) if node.output else None
        if node.op_type not in ("Constant", "Identity") and known is not None and known[1] is not None:
            groups.setdefault((node.op_type, known), []).append(node)
    first, second = d.choose(pair for group in groups.values() for pair in pairs(group[:12]))
    place = d.place(second)
    d.graph.node[place].CopyFrom(helper.make_node("Identity", [first.output[0]], [second.output[0]]))


@kind("stale value read")
def stale_value(d: Draft) -> None:
    """Let a reader of a node's result read what went into the node, as if the node were not there yet."""
    places = [
        (user, slot, node.input[0])
        for node in d.nodes("Add", "Mul", "LayerNormalization", "Relu", "BatchNormalization", "Softmax", "MatMul")
        for user in d.users(node.output[0])
        for slot, name in enumerate(user.input)
        if name == node.output[0] and d.alike(node.input[0], name)
    ]
    user, slot, name = d.choose(places)
    user.input[slot] = name


@kind("heads permuted", "exact", "close")
def heads_permuted(d: Draft) -> None:
    places = []
    for node in d.nodes("MatMul"):
        shape = d.shape(node.input[1])
        if shape is not None and len(shape) == 4 and isinstance(shape[1], int) and shape[1] > 1:
            places.append((node, shape[1]))
    node, heads = d.choose(places)
    order = d.add_constant(np.roll(np.arange(heads), 1))
    d.before(node, 1, "Gather", order, axis=1)


@kind("two outputs swapped")
def outputs_swapped(d: Draft) -> None:
    kinds = {o.name: (o.type.SerializeToString()) for o in d.graph.output}
    made = {name for node in d.graph.node for name in node.output}
    names = [(a, b) for a, b in pairs(list(kinds)) if kinds[a] == kinds[b] and {a, b} <= made]
    first, second = d.choose(names)
    other = {first: second, second: first}
    for node in d.graph.node:
        node.output[:] = [other.get(name, name) for name in node.output]
        node.input[:] = [other.get(name, name) for name in node.input]


@kind("outputs in another order", invalid=True)
def outputs_reordered(d: Draft) -> None:
    if len(d.graph.output) < 2:
        raise Unfit
    kept = list(d.graph.output)
    del d.graph.output[:]
    d.graph.output.extend([*kept[1:], kept[0]])


@kind("output dropped", invalid=True)
def output_dropped(d: Draft) -> None:
    if len(d.graph.output) < 2:
        raise Unfit
    del d.graph.output[int(d.rng.integers(len(d.graph.output)))]


@kind("output added", invalid=True)
def output_added(d: Draft) -> None:
    shown = set(d.output_names())
    name = d.choose(n for node in d.graph.node for n in node.output if n and n not in shown and d.dtype(n) in FLOATS)
    d.graph.output.append(helper.make_tensor_value_info(name, d.dtype(name), None))


@kind("output constant")
def output_constant(d: Draft) -> None:
    """Keep an output by name, type and shape, with nothing after it but zeros."""
    made = {name: node for node in d.graph.node for name in node.output}
    name = d.choose(name for name in d.output_names() if name in made and d.dtype(name) in (*FLOATS, 6, 7))
    node = made[name]
    zero = d.add_constant(np.zeros([], helper.tensor_dtype_to_np_dtype(d.dtype(name))))
    slot = list(node.output).index(name)
    d.after(node, slot, "Where", name)
    product = d.graph.node[d.place(node) + 1]
    inner, shape = product.input[0], d.fresh("shape")
    product.CopyFrom(helper.make_node("Expand", [zero, shape], [name]))
    d.insert(d.place(product), helper.make_node("Shape", [inner], [shape]))


@kind("interface changed", invalid=True)
def interface_changed(d: Draft) -> None:
    ports = [*d.graph.input, *d.graph.output]
    match d.choose(("renamed", "dtype", "dim", "order", "metadata")):
        case "renamed":
            port = d.choose(d.graph.input)
            old, port.name = port.name, d.fresh("renamed")
            for node in d.graph.node:
                node.input[:] = [port.name if name == old else name for name in node.input]
        case "dtype":
            port = d.choose(p for p in d.graph.input if p.type.tensor_type.elem_type == TensorProto.FLOAT)
            port.type.tensor_type.elem_type = TensorProto.DOUBLE
            cast = d.fresh("cast")
            for node in d.graph.node:
                node.input[:] = [cast if name == port.name else name for name in node.input]
            d.insert(0, helper.make_node("Cast", [port.name], [cast], to=TensorProto.FLOAT))
        case "dim":
            dim = d.choose(dim for port in ports for dim in port.type.tensor_type.shape.dim if dim.dim_param)
            dim.dim_value = 4
        case "order":
            if len(d.graph.input) < 2:
                raise Unfit
            kept = list(d.graph.input)
            del d.graph.input[:]
            d.graph.input.extend(kept[::-1])
        case _:
            if not d.model.metadata_props:
                raise Unfit
            d.model.metadata_props[0].value += "?"


@kind("branches of an If swapped")
def if_swapped(d: Draft) -> None:
    node = d.choose(d.nodes("If"))
    for item in node.attribute:
        item.name = {"then_branch": "else_branch", "else_branch": "then_branch"}[item.name]


@kind("one trip of a Loop too few")
def loop_trip(d: Draft) -> None:
    node = d.choose(node for node in d.nodes("Loop") if node.input[0])
    d.before(node, 0, "Sub", d.add_constant(np.array(1, np.int64)))


@kind("something in a body dropped")
def body_operator(d: Draft) -> None:
    places = [
        (body, i, node)
        for body in bodies(d.nodes("If", "Loop", "Scan", "SequenceMap"))
        for i, node in enumerate(body.node)
        if node.op_type in ("Add", "Mul", "Sub", "Relu", "Neg", "Not", "Abs", "Exp")
    ]
    body, place, node = d.choose(places)
    body.node[place].CopyFrom(helper.make_node("Identity", [d.choose(node.input)], [node.output[0]]))
