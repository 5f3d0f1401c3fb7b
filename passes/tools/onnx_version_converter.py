"""The version converter of onnx."""

from surgery import Graph, Parity, graph_pass, run_tool


@graph_pass("onnx-version-converter", parity=Parity.CLOSE, requires="onnx")
def onnx_version_converter(graph: Graph, *, target: int = 21) -> None:
    """Convert the model to another opset with the version converter of onnx.

    Guarded because of what is known of version 1.23. It loses model-local functions and leaves their calls, which is
    put right here though the functions keep their own opset; it does not convert subgraphs everywhere; bounds of Clip
    and the value of Pad become floats whatever they bound; Resize and Upsample place pixels otherwise; Hardmax keeps an
    axis that came to mean something else. Where it has no adapter it stops. The IR version is raised to the least that
    the opset asks for. `upgrade-opset` goes up with adapters of its own, and says at which node it cannot.

    Example:
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[N,C] x) => (float[N] y) {
            y = ReduceSum<axes = [1], keepdims = 0>(x)
        }

    Options:
        target: the opset to reach.
    """
    run_tool(graph, "onnx-version-converter", target=target)
