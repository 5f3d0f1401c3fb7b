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

    Guarded because of what is known of version 0.8.1. It merges random draws, lets factors overflow, takes a division
    by a norm for LpNormalization (which differs at zero), moves a Pad of other axes into a Conv, scales channels that
    broadcasting has not made yet, drops tensors without elements from a Concat, and makes constants of inputs that
    have a default. Weights whose values it is not given are merged when they have the same shape, so that it sees
    large ones as inputs. It loses doc strings and metadata of the model, which are put back.

    Example:
        g (float[2,3] x) => (float[6] y) {
            s = Shape(x)
            n = ReduceProd<keepdims = 1>(s)
            y = Reshape(x, n)
        }

    Options:
        skip_folding: do not fold constants.
        skip_optimizations: do not run fusions and eliminations.
        skip_passes: fusions and eliminations to leave out, by their names.
        extra_passes: passes that are not run otherwise, by their names (`onnxsim --list-other-optimizers`).
        subgraphs: simplify the branches of If and the bodies of loops as well.
        inline_functions: put the bodies of model-local functions in the place of their calls.
        input_shapes: fix the dims of inputs. The signature changes with it, and the step is taken back unless only
            names of dims are lost.
        max_folded: the largest constant to fold into the model.
        weights: how many bytes of weights it is given by value; when the model has more that it could use, it sees
            none of the large ones, and leaves them alone.
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
