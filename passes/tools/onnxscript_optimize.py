"""The optimizer of onnxscript."""

from surgery import Graph, Parity, Size, graph_pass, run_tool


@graph_pass("onnxscript-optimize", parity=Parity.CLOSE, requires="onnxscript")
def onnxscript_optimize(
    graph: Graph,
    *,
    iterations: int = 2,
    inline_functions: bool = True,
    max_input: Size = 8192,
    max_folded: Size = 256 * 1024,
) -> None:
    """Optimize with onnxscript: inline functions, fold constants, remove unused nodes, apply its default rules.

    Guarded because of known problems of version 0.7.2. It draws random numbers when it folds (Bernoulli, Dropout in
    training), loses the bounds of Clips before opset 11, prefers the smaller of two contradicting bounds, treats a
    Gather of a reshaped Shape as one dim, and writes attributes that the model's opset does not have. Weights stay
    references.

    Example:
        g (float[2,3] x) => (float[6] y)
        <int64[1] two = {2}, int64[1] three = {3}>
        {
            n = Mul(two, three)
            y = Reshape(x, n)
        }

    Options:
        iterations: the maximum number of iterations over the model.
        inline_functions: replace calls of model-local functions by their bodies.
        max_input: do not fold nodes that read a larger constant, in bytes.
        max_folded: do not fold nodes whose result is larger, in bytes.
    """
    run_tool(
        graph,
        "onnxscript-optimize",
        num_iterations=iterations,
        inline=inline_functions,
        input_size_limit=max_input,
        output_size_limit=max_folded,
    )
