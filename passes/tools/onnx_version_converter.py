"""The version converter of onnx."""

from surgery import Graph, Parity, graph_pass, run_tool


@graph_pass("onnx-version-converter", parity=Parity.CLOSE, requires="onnx")
def onnx_version_converter(graph: Graph, *, target: int = 21) -> None:
    """Convert the model to another opset with the version converter of onnx.

    Guarded because of known problems of version 1.23. It loses model-local functions but keeps their calls, which is
    repaired here, although the functions keep their opset; it does not convert all subgraphs; bounds of Clip and the
    value of Pad become floats regardless of the type; Resize and Upsample use other pixel positions; Hardmax keeps an
    axis whose meaning changed. It fails on operators without an adapter. The IR version is raised to the minimum for
    the opset. `upgrade-opset` has its own adapters, and reports the nodes that it cannot convert.

    Example:
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[N,C] x) => (float[N] y) {
            y = ReduceSum<axes = [1], keepdims = 0>(x)
        }

    Options:
        target: the target opset.
    """
    run_tool(graph, "onnx-version-converter", target=target)
