"""The constant folding of onnx-graphsurgeon."""

from surgery import Graph, Parity, Size, graph_pass, run_tool


@graph_pass("graphsurgeon-fold", parity=Parity.CLOSE, requires="onnx-graphsurgeon")
def graphsurgeon_fold(graph: Graph, *, shapes: bool = True, max_folded: Size = 64 * 1024 * 1024) -> None:
    """Fold constants with onnx-graphsurgeon, clean up and sort.

    Guarded because of what is known of version 0.6.1. It draws random numbers when it folds, makes the constant of a
    whole shape of a Shape that takes a part of it, forgets where a Shape starts, stops at a Constant that lists texts,
    inlines a branch without the initializer that it gives, and takes the inputs away that have a default. It has no
    place for optional and sequence types. What it drops of the rest is put back. Weights stay references; one that is
    folded is read through a mapping.

    Example:
        g (float[2,3] x) => (float[6] y)
        <int64[1] two = {2}, int64[1] three = {3}>
        {
            n = Mul(two, three)
            y = Reshape(x, n)
        }

    Options:
        shapes: fold Shape where the shape is known, too.
        max_folded: the largest constant to fold.
    """
    run_tool(graph, "graphsurgeon-fold", fold_shapes=shapes, size_threshold=max_folded)
