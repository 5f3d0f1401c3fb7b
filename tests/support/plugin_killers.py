"""Passes that do to a process what a pass must not do, to show that the run survives them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx

from surgery import BlockedError, Builder, Graph, Match, Parity, UsageError, Value, graph_pass, pattern_pass

_hoard: list[np.ndarray] = []


@graph_pass("kill-raise", parity=Parity.EXACT)
def kill_raise(graph: Graph) -> None:
    """Raise."""
    print("looking")  # noqa: T201
    raise LookupError("no such luck")


@graph_pass("kill-raise-in-numpy", parity=Parity.EXACT)
def kill_raise_in_numpy(graph: Graph) -> None:
    """Let a library raise."""
    np.concatenate([])


@graph_pass("kill-usage", parity=Parity.EXACT)
def kill_usage(graph: Graph) -> None:
    """Find a mistake of the caller."""
    print("checking")  # noqa: T201
    raise UsageError("no such mode", where="here", todo="choose another")


@graph_pass("kill-blocked", parity=Parity.EXACT)
def kill_blocked(graph: Graph) -> None:
    """Find that the model does not allow the change, after a refusal."""
    with graph.site(graph.nodes("Relu")[0]) as site:
        site.require(False, "it is a Relu")
    raise BlockedError("the Relu is in the way")


@pattern_pass("kill-forget", match="y = Relu(x)", parity=Parity.EXACT)
def kill_forget(m: Match, new: Builder) -> Value:
    """Build a node, and do not return it."""
    new.node("Abs", m.x)


@pattern_pass("kill-name", match="y = Relu(x)", parity=Parity.EXACT)
def kill_name(m: Match, new: Builder) -> Value:
    """Return a name."""
    return "x"  # type: ignore[return-value]


@graph_pass("kill-abort", parity=Parity.EXACT)
def kill_abort(graph: Graph) -> None:
    """Abort the process, as a failed assertion in native code does."""
    os.abort()


@graph_pass("kill-exit", parity=Parity.EXACT)
def kill_exit(graph: Graph) -> None:
    """Leave by `sys.exit`."""
    sys.exit(7)


@graph_pass("kill-loop", parity=Parity.EXACT)
def kill_loop(graph: Graph) -> None:
    """Loop without end."""
    while True:
        pass


@graph_pass("kill-memory", parity=Parity.EXACT)
def kill_memory(graph: Graph) -> None:
    """Allocate without end."""
    while True:
        _hoard.append(np.ones(1 << 22))


@graph_pass("kill-children", parity=Parity.EXACT)
def kill_children(graph: Graph, *, note: str) -> None:
    """Start a process that sleeps, write down its number, and hang.

    Options:
        note: the file to write to
    """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


@graph_pass("kill-order", parity=Parity.EXACT)
def kill_order(graph: Graph) -> None:
    """Let a node read what is made from its own output."""
    relu, neg = graph.nodes("Relu")[0].ir, graph.nodes("Neg")[0].ir
    relu.replace_input_with(0, neg.outputs[0])


@graph_pass("kill-model-order", parity=Parity.EXACT)
def kill_model_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make a cycle in the message."""
    by_op = {node.op_type: node for node in model.graph.node}
    by_op["Relu"].input[0] = by_op["Neg"].output[0]
    return model


@graph_pass("kill-nonsense", parity=Parity.EXACT)
def kill_nonsense(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give a node an operator, an attribute and an input that do not exist."""
    node = model.graph.node[0]
    node.op_type = "Relu"
    node.input[:] = ["nowhere", "", "nor_there"]
    node.attribute.append(onnx.helper.make_attribute("alpha", 1.0))
    return model


@graph_pass("kill-return", parity=Parity.EXACT)
def kill_return(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return something else."""
    return "a model"  # type: ignore[return-value]


@graph_pass("right-print", parity=Parity.EXACT)
def right_print(graph: Graph) -> None:
    """Drop Identity nodes and talk about it."""
    for node in graph.nodes("Identity"):
        print("dropping", node.name)  # noqa: T201
        graph.replace(node.outputs[0], node.required_input(0))


@graph_pass("right-drop-identity-proto", parity=Parity.EXACT)
def right_drop_identity_proto(model: onnx.ModelProto) -> None:
    """Drop Identity nodes that make no output, in the message."""
    outputs = {output.name for output in model.graph.output}
    for node in [node for node in model.graph.node if node.op_type == "Identity" and node.output[0] not in outputs]:
        for other in model.graph.node:
            other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]
        model.graph.node.remove(node)
