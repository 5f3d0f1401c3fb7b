"""The constant folding of onnx-graphsurgeon."""

from surgery import Graph, Parity, Size, graph_pass, run_tool


@graph_pass("graphsurgeon-fold", parity=Parity.CLOSE, requires="onnx-graphsurgeon")
def graphsurgeon_fold(graph: Graph, *, shapes: bool = True, max_folded: Size = 64 * 1024 * 1024) -> None:
    """Fold constants with onnx-graphsurgeon, clean up and sort.

    Guarded because of known problems of version 0.6.1. It draws random numbers when it folds, folds a partial Shape to
    the whole shape, ignores the start of a Shape, fails on a Constant with strings, inlines a branch without the
    initializer that it returns, and removes inputs with a default. It cannot represent optional and sequence types.
    Other features that it drops are restored. Weights stay references; folded ones are memory-mapped.

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
