"""Reductions whose axes are removed or added afterwards."""

from surgery import RESHAPES, Builder, Graph, Node, Parity, graph_pass

from ._shared import has_parameters, reduced_axes

REDUCTIONS = (
    "ArgMax",
    "ArgMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)


@graph_pass("merge-reductions", parity=Parity.EXACT)
def merge_reductions(graph: Graph) -> None:
    """Merge a Reshape, Flatten, Squeeze or Unsqueeze that removes or adds the axes of a reduction into the reduction.

    Right because with keepdims = 1 a reduction gives the same elements as with keepdims = 0, and an axis of extent 1
    for each axis that it reduces. So if the next node drops the kept axes, or adds the dropped ones, the attribute can
    be changed instead. The shapes, which may be symbolic, must show that nothing else changes.

    Example:
        g (float[N,3,4] x) => (float[N,4] y) <int64[1] axis = {1}> {
            a = ReduceMax(x, axis)
            y = Squeeze(a, axis)
        }
    """
    for node in graph.nodes(*REDUCTIONS):
        readers = node.outputs[0].consumers
        if len(readers) == 1 and readers[0].op in RESHAPES and readers[0].required_input(0) == node.outputs[0]:
            with graph.site(readers[0]) as new:
                _merge(node, readers[0], new)


def _merge(node: Node, reader: Node, new: Builder) -> None:
    new.require(not node.outputs[0].is_output, "the reduction is a graph output")
    new.require(not has_parameters(node), "an attribute of the reduction is a parameter of the function")
    keeps = bool(node.attr("keepdims", 1))
    axes = _axes(node)
    shape, wanted = node.required_input(0).shape, reader.outputs[0].shape
    new.require(axes is not None and shape is not None and wanted is not None, "the axes or the shapes are not known")
    assert axes is not None and shape is not None and wanted is not None
    reduced = {axis % len(shape) for axis in axes} if shape else set()
    other = [dim if axis not in reduced else 1 for axis, dim in enumerate(shape) if not (keeps and axis in reduced)]
    new.require(None not in wanted and list(wanted) == other, "more changes than the axes of the reduction")
    attributes = {**node.attributes, "keepdims": int(not keeps)}
    new.replace(reader.outputs[0], new.at(node).node(node.op, *node.inputs, attributes=attributes))


def _axes(node: Node) -> tuple[int, ...] | None:
    """Return the axes that a node reduces; None if unknown or not given, which may mean all or none."""
    if node.op.startswith("Arg"):
        return (node.attr("axis", 0),)
    return reduced_axes(node) or None
