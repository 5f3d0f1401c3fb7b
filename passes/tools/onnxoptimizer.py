"""The passes of onnxoptimizer."""

from surgery import Graph, OptimizerPass, Parity, Size, graph_pass, run_tool


@graph_pass("onnxoptimizer", parity=Parity.CLOSE, requires="onnxoptimizer")
def onnxoptimizer(
    graph: Graph, *, passes: list[OptimizerPass] | None = None, weights: Size = 256 * 1024 * 1024
) -> None:
    """Run passes of onnxoptimizer by name, in order.

    Guarded because of what is known of version 0.4.2. Some passes change results: eliminate_nop_dropout hands on the
    data in the place of the mask, fuse_pad_into_conv takes any padding for zeros, fuse_pad_into_pool counts it in the
    mean, eliminate_slice_after_shape forgets where a Shape starts, eliminate_common_subexpression merges random draws.
    Some end the process (eliminate_if_with_const_cond), some stop at a Transpose without perm. All of them lose
    model-local functions and whatever the tool's own graph has no place for; that is put back. Without values to
    compare, eliminate_duplicate_initializer merges all weights of one shape, so that the tool sees large ones as
    inputs.

    Each pass that changes something is a site, so that `on_failure: bisect` keeps all but the wrong ones.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            a = Identity(x)
            b = Relu(a)
            y = Relu(b)
        }

    Options:
        passes: their names; when none are given, the tool's own set of fusions and eliminations.
        weights: how many bytes of weights it is given by value, for fuse_bn_into_conv and fuse_qkv; when the model has
            more that they could use, it sees none of the large ones, and these passes leave them alone.
    """
    run_tool(graph, "onnxoptimizer", passes=passes, budget=weights)
