"""The pass my-pass."""

from surgery import Graph, Parity, graph_pass


# The name in recipes and on the command line, and the promised parity of the results:
# EXACT (the same bits), CLOSE (rounding only) or LOSSY. Each run verifies it. Here
# -(a - a) is -0, and a - a is 0.
@graph_pass("my-pass", parity=Parity.CLOSE)
def my_pass(graph: Graph) -> None:
    """Turn -(a - b) into b - a.

    Valid because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    # All Neg nodes, including those in subgraphs.
    for neg in graph.nodes("Neg"):
        difference = neg.required_input(0)
        sub = difference.producer
        if sub is None or sub.op != "Sub":
            continue
        # A site is one place of change: all of it is applied, or nothing if it refuses.
        with graph.site(neg) as new:
            dtype = difference.dtype
            floating = dtype is not None and dtype.is_floating_point()
            # 'surgery test' requires a case for each reason.
            new.require(floating, "not floating point")
            swapped = new.node("Sub", sub.required_input(1), sub.required_input(0))
            # Neg is removed, and so is Sub if nothing else reads its output.
            new.replace(neg.outputs[0], swapped)
