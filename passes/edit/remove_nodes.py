"""Nodes removed or bypassed on request."""

from surgery import Builder, Graph, Keeps, Node, NodeSelector, Parity, UsageError, Value, graph_pass

from ._asked import asked, outer
from ._ways import require_alike


@graph_pass("remove-nodes", parity=Parity.INTENDED)
def remove_nodes(
    graph: Graph, *, nodes: NodeSelector, connect: dict[int, int] | None = None, keeps: Keeps = "nothing"
) -> None:
    """Remove nodes: consumers of their outputs read one of their inputs instead.

    Without `connect`, the first output is replaced by the only input that is not constant, or by the first of several
    that fits in type and shape. It is an error if another output is read, or if the input is known not to fit; where
    types or shapes are unknown, running the result shows it. Nodes that only the removed nodes needed are removed too.
    This changes the results, unless `keeps` declares otherwise.

    Options:
        nodes: The nodes.
        connect: The input that replaces each output, {output: input}, both counted from 0.
        keeps: The promise about the results, which is verified; by default, results are not compared.

    Example:
        # options: {nodes: {op: Clip}}
        g (float[2] x) => (float[2] y) <float low = {0}> { a = Exp(x) b = Clip(a, low) y = Neg(b) }
    """
    for node in outer(graph, graph.select(nodes)):
        if node.is_removed:
            continue  # removed together with a node that read it
        with asked(graph, node) as new:
            _short_circuit(node, new, connect)


def _short_circuit(node: Node, new: Builder, connect: dict[int, int] | None) -> None:
    ways = _ways(node) if connect is None else connect
    for position, output in enumerate(node.outputs):
        if not output.is_used:
            continue
        if position not in ways:
            todo = f"name the input that replaces it: connect: {{{position}: 0}}"
            raise UsageError(f"output {position} of '{node.label}' is read", todo=todo)
        source = node.input(ways[position])
        if source is None:
            raise UsageError(f"'{node.label}' has no input {ways[position]}", todo="correct 'connect'")
        require_alike(output, source)
        new.replace(output, source)
    if not any(output.is_used for output in node.outputs):
        new.remove(node)


def _ways(node: Node) -> dict[int, int]:
    """Find the input that replaces the first output."""
    given = {index: value for index, value in enumerate(node.inputs) if value is not None and not value.is_constant}
    if not given:
        raise UsageError(f"'{node.label}' has no input that could replace it", todo="name it in 'connect'")
    fitting = (index for index, value in given.items() if _fits(node.outputs[0], value))
    return {0: next(fitting, min(given))}


def _fits(old: Value, new: Value) -> bool:
    try:
        require_alike(old, new)
    except UsageError:
        return False
    return True


@graph_pass("bypass", parity=Parity.INTENDED)
def bypass(graph: Graph, *, start: str, end: str, keeps: Keeps = "nothing") -> None:
    """Bypass a part of the model: consumers of the tensor `end` read the tensor `start` instead.

    The nodes between the two are removed unless they are needed elsewhere. The known types and shapes of the tensors
    must agree. This changes the results, unless `keeps` declares otherwise.

    Options:
        start: The tensor that is read instead.
        end: The tensor that was read before; `start` must not depend on it.
        keeps: The promise about the results, which is verified; by default, results are not compared.

    Example:
        # options: {start: a, end: c}
        g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) c = Neg(b) y = Abs(c) }
    """
    before, after = graph.tensors([start])[0], graph.tensors([end])[0]
    if before == after:
        raise UsageError(f"'{start}' would replace itself", todo="name two tensors")
    if after.producer is None:
        raise UsageError(f"no node computes '{end}', so there is nothing to bypass", todo="name another tensor")
    if after.producer in graph.above([before]):
        raise UsageError(f"'{start}' is computed from '{end}'", todo="swap the two")
    require_alike(after, before)
    with asked(graph, after.producer) as new:
        new.replace(after, before)
