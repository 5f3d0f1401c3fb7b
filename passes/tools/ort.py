"""The graph optimizations of ONNX Runtime."""

from typing import Literal

from surgery import Graph, Parity, graph_pass, run_tool


@graph_pass("ort", parity=Parity.CLOSE, requires="onnxruntime")
def ort(
    graph: Graph, *, level: Literal["basic", "extended", "all"] = "basic", without: list[str] | None = None
) -> None:
    """Optimize with ONNX Runtime at a given level, and keep the model that it would run.

    "basic" stays within ONNX. "extended" makes operators of com.microsoft (FusedGemm, BiasGelu, Attention), which only
    ONNX Runtime has. "all" also changes the layout for the processor of this machine, with operators that other
    machines may not have. Functions are inlined, and Constants become initializers.

    Guarded because of known problems of version 1.31. Even at "basic", PadFusion replaces the zeros of a Pad by the
    minus infinity of MaxPool padding, DivMulFusion divides integers once instead of twice and loses dims, common
    subexpression elimination merges Bernoulli draws, and two quantizations with different scales become one. Large
    weights stay references, and folded ones are memory-mapped; folded tensors are returned in full.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            a = Identity(x)
            y = Relu(a)
        }

    Options:
        level: the optimization level.
        without: optimizers to disable, by their names in ONNX Runtime ("PadFusion"), which it does not check.
    """
    run_tool(graph, "ort", level=level, without=without or [])
