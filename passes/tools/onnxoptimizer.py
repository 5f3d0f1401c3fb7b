"""The passes of onnxoptimizer."""

from surgery import Graph, OptimizerPass, Parity, Size, graph_pass, run_tool


@graph_pass("onnxoptimizer", parity=Parity.CLOSE, requires="onnxoptimizer")
def onnxoptimizer(
    graph: Graph, *, passes: list[OptimizerPass] | None = None, weights: Size = 256 * 1024 * 1024
) -> None:
    """Run passes of onnxoptimizer by name, in order.

    Guarded because of known problems of version 0.4.2. Some passes change results: eliminate_nop_dropout returns the
    data instead of the mask, fuse_pad_into_conv treats any padding as zeros, fuse_pad_into_pool includes it in the
    mean, eliminate_slice_after_shape ignores the start of a Shape, eliminate_common_subexpression merges random draws.
    Some crash the process (eliminate_if_with_const_cond), some fail on a Transpose without perm. All of them lose
    model-local functions and other features that the tool's graph cannot represent; these are restored. Without values
    to compare, eliminate_duplicate_initializer would merge all weights of one shape, so the tool gets large weights as
    inputs.

    Each pass that changes something is a site, so that `on_failure: bisect` keeps all but the wrong ones.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            a = Identity(x)
            b = Relu(a)
            y = Relu(b)
        }

    Options:
        passes: their names; by default, the tool's set of fusions and eliminations.
        weights: the maximum bytes of weights to pass by value, for fuse_bn_into_conv and fuse_qkv; if the model has
        more weights for them, no large weight is passed, and these passes skip them.
    """
    run_tool(graph, "onnxoptimizer", passes=passes, budget=weights)
