"""Passes that mean to change what a model computes, and passes that say how its ends follow from those before."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from surgery import Graph, Other, Parity, graph_pass


def _swap(graph: Graph, old: str, new: str) -> None:
    for node in graph.nodes(old):
        with graph.site(node) as edit:
            edit.replace(node.outputs[0], edit.node(new, *node.inputs))


@graph_pass("int-swap", parity=Parity.INTENDED)
def int_swap(graph: Graph, *, old: str = "Exp", new: str = "Tanh") -> None:
    """Take one operator for another."""
    _swap(graph, old, new)


@graph_pass("int-swap-honest")
def int_swap_honest(graph: Graph, *, old: str = "Tanh", new: str = "Exp") -> None:
    """Take one operator for another, and promise that nothing changes."""
    _swap(graph, old, new)


@graph_pass("int-nan", parity=Parity.INTENDED)
def int_nan(graph: Graph) -> None:
    """Divide by zero in place of Exp."""
    for node in graph.nodes("Exp"):
        with graph.site(node) as new:
            zero = new.constant(np.zeros(1, np.float32))
            new.replace(node.outputs[0], new.node("Div", new.node("Mul", node.inputs[0], zero), zero))


@graph_pass("int-does-not-run", parity=Parity.INTENDED)
def int_does_not_run(graph: Graph) -> None:
    """Add what cannot be broadcast, of which the checker knows nothing."""
    for node in graph.nodes("Exp"):
        with graph.site(node) as new:
            shape = new.node("Cast", new.constant(np.array([7.0, 11.0], np.float32)), to=7)
            wide = new.node("ConstantOfShape", shape)
            new.replace(node.outputs[0], new.node("Add", node.inputs[0], wide))


@graph_pass("int-unknown-op", parity=Parity.INTENDED)
def int_unknown_op(graph: Graph) -> None:
    """Take an operator that no runtime has."""
    _swap(graph, "Exp", "com.acme::Mystery")


@graph_pass("int-undeclared", parity=Parity.INTENDED)
def int_undeclared(graph: Graph) -> None:
    """Drop an output, which is not declared."""
    with graph.site() as new:
        new.drop_output(graph.outputs()[0])


@graph_pass("int-new-ends", parity=Parity.INTENDED, changes=("inputs", "outputs"))
def int_new_ends(graph: Graph) -> None:
    """Multiply the first output by an input that nobody gave before, and give out that too."""
    if len(graph.inputs()) > 1:
        return
    with graph.site() as new:
        factor = new.add_input("factor", ir.DataType.FLOAT, [4])
        new.add_output(new.node("Mul", graph.outputs()[0], factor), "product")


@graph_pass("int-proto", parity=Parity.INTENDED)
def int_proto(model: onnx.ModelProto) -> onnx.ModelProto:
    """Take Abs for Exp in the message."""
    for node in model.graph.node:
        node.op_type = "Abs" if node.op_type == "Exp" else node.op_type
    return model


# Relations


@graph_pass("rel-nhwc", parity=Parity.EXACT, changes=("dims",))
def rel_nhwc(graph: Graph, *, wrong: bool = False, invert: bool = True) -> None:
    """Take the image `x` as NHWC, under its name."""
    (x,) = (value for value in graph.inputs() if value.name == "x")
    n, c, h, w = x.shape or ()
    if any(node.op == "Transpose" for node in x.consumers):
        return
    with graph.site() as new:
        new.replace(x, new.node("Transpose", x, perm=[0, 3, 2, 1] if wrong else [0, 3, 1, 2]))
        new.set_port(x, dims=[n, h, w, c])
        new.outdates(x)
        inverse = "now = Transpose<perm=[0, 2, 3, 1]>(x)" if invert else ""
        new.relate_input("x", "x = Transpose<perm=[0, 3, 1, 2]>(now)", now="x", inverse=inverse)


@graph_pass("rel-bytes", changes=("inputs",))
def rel_bytes(graph: Graph, *, mean: float = 0.5) -> None:
    """Take bytes in place of the image `x`, which follows from them by a mean and a scale."""
    found = [value for value in graph.inputs() if value.name == "x"]
    for x in found:
        with graph.site() as new:
            pixels = new.add_input("pixels", ir.DataType.UINT8, list(x.shape or ()))
            scale, middle = new.constant(np.float32([255])), new.constant(np.float32([mean]))
            new.replace(x, new.node("Sub", new.node("Div", new.node("Cast", pixels, to=1), scale), middle))
            new.drop_input(x)
            new.relate_input(
                x,
                "f = Cast<to=1>(bytes) d = Div(f, scale) x = Sub(d, mean)",
                bytes=pixels,
                scale=np.float32([255]),
                mean=np.float32([0.5]),
            )


@graph_pass("rel-softmax", changes=("outputs",))
def rel_softmax(graph: Graph, *, axis: int = -1, said: bool = True, kept: bool = False) -> None:
    """Give out the softmax of `y`, in its place or next to it."""
    (y,) = (value for value in graph.outputs() if value.name == "y")
    if any(node.op == "Softmax" for node in y.consumers):
        return
    with graph.site() as new:
        soft = new.node("Softmax", y, axis=axis)
        new.add_output(soft, "probabilities")
        if not kept:
            new.drop_output(y)
        if said:
            new.relate_output("probabilities", "p = Softmax<axis=-1>(y)")


@graph_pass("rel-turned-output", parity=Parity.EXACT, changes=("dims",))
def rel_turned_output(graph: Graph, *, wrong: bool = False) -> None:
    """Give out `y` transposed, under its name and at its place."""
    (y,) = (value for value in graph.outputs() if value.name == "y")
    if y.producer is not None and y.producer.op == "Transpose":
        return
    with graph.site() as new:
        turned = new.node("Transpose", y, perm=[0, 1, 3, 2] if wrong else [0, 2, 3, 1])
        new.drop_output(y)
        new.add_output(turned, "y")
        new.relate_output("y", "now = Transpose<perm=[0, 2, 3, 1]>(y)")


@graph_pass("rel-nothing", changes=("inputs",))
def rel_nothing(graph: Graph) -> None:
    """Relate an input to one that is not there."""
    with graph.site() as new:
        new.add_input("idle", ir.DataType.FLOAT, [1])
        new.relate_input("x", "x = Identity(nobody)")


@graph_pass("rel-free", parity=Parity.EXACT, changes=("dims",))
def rel_free(model: onnx.ModelProto, *, axis: int = 0, dim: str = "n") -> onnx.ModelProto:
    """Open a dim of the first input, or give it a number."""
    found = model.graph.input[0].type.tensor_type.shape.dim[axis]
    found.Clear()
    if dim.isdigit():
        found.dim_value = int(dim)
    else:
        found.dim_param = dim
    for value in model.graph.output:
        value.type.tensor_type.shape.dim[axis].CopyFrom(found)
    del model.graph.value_info[:]
    return model


@graph_pass("int-join", parity=Parity.EXACT, changes=("inputs", "outputs"))
def int_join(graph: Graph, *, path: str, wrong: str = "") -> None:
    """Put another model after the first output; wrongly after the second one, or with Abs on top."""
    if len(graph.outputs()) > 2:
        return
    y, z = graph.outputs()
    with graph.site() as new:
        Other.read(graph, Path(path)).join(new, {"x": z if wrong == "feeds" else y}, "b/")
    if wrong == "feeds":
        graph.accounts = [replace(account, connect={"x": "y"}) for account in graph.accounts]
    if wrong == "computes":
        theirs = graph.outputs()[2]
        with graph.site() as new:
            new.replace(theirs, new.node("Abs", theirs))


@graph_pass("rel-mean", parity=Parity.EXACT, changes=("outputs",))
def rel_mean(graph: Graph) -> None:
    """Give out the mean of `y`, as operators from opset 18 on have it."""
    y = graph.outputs()[0]
    axes = np.array([1], np.int64)
    with graph.site() as new:
        new.add_output(new.node("ReduceMean", y, new.constant(axes)), "mean")
        new.relate_output("mean", "m = ReduceMean(y, axes)", axes=axes)
