"""onnxsim, the ONNX simplifier."""

from surgery import Graph, Parity, Size, graph_pass, run_tool


@graph_pass("onnxsim", parity=Parity.CLOSE, requires="onnxsim")
def onnxsim(
    graph: Graph,
    *,
    skip_folding: bool = False,
    skip_optimizations: bool = False,
    skip_passes: list[str] | None = None,
    extra_passes: list[str] | None = None,
    subgraphs: bool = False,
    inline_functions: bool = False,
    input_shapes: dict[str, list[int]] | None = None,
    max_folded: Size = 64 * 1024 * 1024,
    weights: Size = 256 * 1024 * 1024,
) -> None:
    """Simplify with onnxsim: infer shapes, fold constants and run its fusions until nothing changes.

    Guarded because of known problems of version 0.8.1. It merges random draws, lets factors overflow, turns a division
    by a norm into LpNormalization (which differs at zero), moves a Pad of other axes into a Conv, scales channels that
    only exist after broadcasting, drops empty tensors from a Concat, and turns inputs with a default into constants. It
    would merge weights of the same shape whose values it does not get, so it gets large weights as inputs. It loses doc
    strings and metadata of the model, which are restored.

    Example:
        g (float[2,3] x) => (float[6] y) {
            s = Shape(x)
            n = ReduceProd<keepdims = 1>(s)
            y = Reshape(x, n)
        }

    Options:
        skip_folding: do not fold constants.
        skip_optimizations: do not run fusions and eliminations.
        skip_passes: fusions and eliminations to skip, by name.
        extra_passes: additional passes to run, by name (`onnxsim --list-other-optimizers`).
        subgraphs: simplify the branches of If and the bodies of loops as well.
        inline_functions: replace calls of model-local functions by their bodies.
        input_shapes: fix the dims of inputs. This changes the signature, so the step is rolled back unless only names
        of dims are lost.
        max_folded: the largest constant to fold into the model.
        weights: the maximum bytes of weights to pass by value; if the model has more weights that it could use, no
        large weight is passed or changed.
    """
    run_tool(
        graph,
        "onnxsim",
        budget=weights,
        skip_constant_folding=skip_folding,
        perform_optimization=not skip_optimizations,
        skipped_optimizers=skip_passes,
        extra_optimizers=extra_passes,
        include_subgraph=subgraphs,
        inline_functions=inline_functions,
        overwrite_input_shapes=input_shapes,
        tensor_size_threshold=f"{max_folded}B",
    )
