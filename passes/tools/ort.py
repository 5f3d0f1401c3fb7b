"""The graph optimizations of ONNX Runtime."""

from typing import Literal

from surgery import Graph, Parity, graph_pass, run_tool


@graph_pass("ort", parity=Parity.CLOSE, requires="onnxruntime")
def ort(
    graph: Graph, *, level: Literal["basic", "extended", "all"] = "basic", without: list[str] | None = None
) -> None:
    """Optimize with ONNX Runtime at a given level, and keep the model that it would run.

    "basic" stays within ONNX. "extended" makes operators of com.microsoft (FusedGemm, BiasGelu, Attention), which only
    ONNX Runtime has. "all" changes the layout too, for the very processor that this runs on, by operators that other
    machines may not have. Functions are inlined, and Constants become initializers.

    Guarded because of what is known of version 1.31. At "basic" already, PadFusion makes the zeros of a Pad those of a
    MaxPool, which are minus infinity, DivMulFusion divides integers once in the place of twice and forgets dims, common
    subexpressions merge Bernoulli draws, and two quantizations of different scales become one. Large weights stay
    references, and what is folded is read through a mapping; a folded tensor comes back whole.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            a = Identity(x)
            y = Relu(a)
        }

    Options:
        level: how far to go.
        without: optimizers to leave out, by the names of ONNX Runtime ("PadFusion"); it does not check them.
    """
    run_tool(graph, "ort", level=level, without=without or [])
