"""Right rewrites of whole models that keep every bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mutation.draft import Draft, NodeProto, Unfit
from mutation.rebuilt import is_float, node, rank_of, rebuild, whole


@rebuild("sums and products commuted", "exact", "Add", "Mul")
def _commuted(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    return [node(n.op_type, [n.input[1], n.input[0]], n.output)]


@rebuild("difference as a sum", "exact", "Sub")
def _difference(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    part = new()
    return [node("Neg", [n.input[1]], [part]), node("Add", [n.input[0], part], n.output)]


@rebuild("Neg as a product", "exact", "Neg")
def _negated(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    return [node("Mul", [n.input[0], d.add_constant(np.array(-1, np.float32))], n.output)]


@rebuild("turned there and back", "exact", "Erf", "Relu", "Tanh", "Sigmoid", "Clip", "Neg", "Sqrt", "Cos", "Sin")
def _turned(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    rank = rank_of(d, n.input[0])
    if rank < 2:
        return None
    there, done = new(), new()
    made = type(n)()
    made.CopyFrom(n)
    made.input[0], made.output[0] = there, done
    turn, back = [*range(1, rank), 0], [rank - 1, *range(rank - 1)]
    return [
        node("Transpose", [n.input[0]], [there], perm=turn),
        made,
        node("Transpose", [done], n.output, perm=back),
    ]


@rebuild("detour through double", "exact", "MatMul", "Conv", "Add")
def _double(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not is_float(d, n.input[0]):
        return None
    wide, back = new(), new()
    made = type(n)()
    made.CopyFrom(n)
    made.input[0] = back
    return [
        node("Cast", [n.input[0]], [wide], to=TensorProto.DOUBLE),
        node("Cast", [wide], [back], to=TensorProto.FLOAT),
        made,
    ]


@rebuild("minus zero added", "exact", "MatMul", "Conv", "Gemm")
def _minus_zero(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not is_float(d, n.output[0]):
        return None
    made = type(n)()
    made.CopyFrom(n)
    made.output[0] = new()
    return [made, node("Add", [made.output[0], d.add_constant(np.array(-0.0, np.float32))], n.output)]


@rebuild(
    "each operator in an If", "exact", "Erf", "Relu", "Tanh", "Sigmoid", "Clip", "Neg", "Sqrt", "LayerNormalization"
)
def _in_if(d: Draft, n: NodeProto, new: Callable[[], str]) -> list[NodeProto] | None:
    if not is_float(d, n.output[0]):
        return None
    kind = helper.make_tensor_value_info
    inner = type(n)()
    inner.CopyFrom(n)
    del inner.output[1:]
    inner.output[0] = new()
    other = new()
    then = helper.make_graph([inner], "then", [], [kind(inner.output[0], TensorProto.FLOAT, None)])
    otherwise = helper.make_graph(
        [node("Identity", [n.input[0]], [other])], "otherwise", [], [kind(other, TensorProto.FLOAT, None)]
    )
    true = d.add_constant(np.array(True))
    return [node("If", [true], n.output[:1], then_branch=then, else_branch=otherwise)]


@whole("Identity after every node")
def _identities(d: Draft) -> None:
    made = []
    for number, n in enumerate(list(d.graph.node)):
        if n.op_type == "Constant" or len(n.output) > 1:
            made.append(n)
            continue
        inner = f"inner_{number}"
        made += [node(n.op_type, n.input, [inner], domain=n.domain), node("Identity", [inner], n.output)]
        made[-2].attribute.extend(n.attribute)
    copies = [type(n).FromString(n.SerializeToString()) for n in made]
    del d.graph.node[:]
    d.graph.node.extend(copies)


@whole("interior names changed")
def _renamed(d: Draft) -> None:
    kept = {port.name for port in (*d.graph.input, *d.graph.output)}
    names = {t.name: f"r{i}" for i, t in enumerate(d.graph.initializer) if t.name not in kept}
    made = [name for n in d.graph.node for name in n.output if name and name not in kept]
    names |= {name: f"v{i}" for i, name in enumerate(made)}
    if any(attribute.g.node for n in d.graph.node for attribute in n.attribute):
        raise Unfit
    for n in d.graph.node:
        n.name = ""
        n.input[:] = [names.get(name, name) for name in n.input]
        n.output[:] = [names.get(name, name) for name in n.output]
    for tensor in d.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    del d.graph.value_info[:]


@whole("constants as initializers, initializers as constants")
def _exchanged(d: Draft) -> None:
    given = {port.name for port in d.graph.input}
    constants = [n for n in d.graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"]
    tensors = [t for t in d.graph.initializer if t.name not in given]
    if not constants and not tensors:
        raise Unfit
    made = [node("Constant", [], [tensor.name], value=tensor) for tensor in tensors]
    names = {n.output[0] for n in constants}
    kept = [n for n in d.graph.node if not (n.op_type == "Constant" and n.output[0] in names)]
    stored = [t for t in d.graph.initializer if t.name in given]
    stored += [numpy_helper.from_array(numpy_helper.to_array(n.attribute[0].t), n.output[0]) for n in constants]
    copies = [type(n).FromString(n.SerializeToString()) for n in (*made, *kept)]
    del d.graph.node[:], d.graph.initializer[:]
    d.graph.node.extend(copies)
    d.graph.initializer.extend(stored)


@whole("dead nodes added")
def _dead(d: Draft) -> None:
    name = d.choose(name for n in d.graph.node for name in n.output[:1] if is_float(d, name))
    d.graph.node.append(node("Exp", [name], ["dead"]))


@whole("every shared node copied for each reader")
def _copied(d: Draft) -> None:
    readers: dict[str, list[NodeProto]] = {}
    for n in d.graph.node:
        for name in dict.fromkeys(n.input):
            readers.setdefault(name, []).append(n)
    made: list[NodeProto] = []
    changed = 0
    for n in d.graph.node:
        copies = []
        if len(n.output) == 1 and n.op_type != "Constant" and changed < 100:
            for number, reader in enumerate(readers.get(n.output[0], ())[1:]):
                copy = type(n).FromString(n.SerializeToString())
                copy.name, copy.output[0] = "", f"{n.output[0]}_copy_{number}"
                reader.input[:] = [copy.output[0] if name == n.output[0] else name for name in reader.input]
                copies.append(copy)
        # What a copied node reads is what the node itself reads, which was settled before.
        made += [n, *copies]
        changed += bool(copies)
    if not changed:
        raise Unfit
    kept = [type(n).FromString(n.SerializeToString()) for n in made]
    del d.graph.node[:]
    d.graph.node.extend(kept)
