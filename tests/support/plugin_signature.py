"""Passes that change a signature: as they declare, beyond what they declare, and wrongly."""

import onnx

from surgery import Graph, Parity, graph_pass


def _wrong_scale(graph: Graph) -> None:
    """Take another value for a factor: what every pass with `wrong` does on top."""
    for node in graph.nodes("Mul"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Add", *node.inputs))


def _rename(graph: Graph) -> None:
    """Call the first input `pixels` and the first output `scores`."""
    for value, name in ((graph.inputs()[0], "pixels"), (graph.outputs()[0], "scores")):
        if value.name != name:
            with graph.site() as new:
                new.rename(value, name)


@graph_pass("sig-rename", parity=Parity.EXACT, changes=("names",))
def sig_rename(graph: Graph) -> None:
    """Rename an input and an output."""
    _rename(graph)


@graph_pass("sig-rename-undeclared", parity=Parity.EXACT, changes=("outputs",))
def sig_rename_undeclared(graph: Graph) -> None:
    """Rename an input and an output, and declare another change."""
    _rename(graph)


@graph_pass("sig-rename-wrong", changes=("names",))
def sig_rename_wrong(graph: Graph) -> None:
    """Rename, and compute something else."""
    _rename(graph)
    _wrong_scale(graph)


@graph_pass("sig-rename-exp", changes=("names",))
def sig_rename_exp(graph: Graph) -> None:
    """Rename, and take Neg for Exp."""
    _rename(graph)
    for node in graph.nodes("Exp"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Neg", *node.inputs))


@graph_pass("sig-rename-taken", changes=("names",))
def sig_rename_taken(graph: Graph, *, name: str = "z") -> None:
    """Rename the first output to a name that is taken."""
    with graph.site() as new:
        new.rename(graph.outputs()[0], name)


@graph_pass("sig-rename-proto", parity=Parity.EXACT, changes=("names",))
def sig_rename_proto(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rename the first input in the message, without a way to say so."""
    old = model.graph.input[0].name
    model.graph.input[0].name = "pixels"
    for node in model.graph.node:
        node.input[:] = ["pixels" if name == old else name for name in node.input]
    return model


@graph_pass("sig-swap-proto", changes=("names",))
def sig_swap_proto(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give two outputs the names of each other: their order changes too."""
    first, second = model.graph.output[0].name, model.graph.output[1].name
    swap = {first: second, second: first}
    for node in model.graph.node:
        node.output[:] = [swap.get(name, name) for name in node.output]
    return model


@graph_pass("sig-drop-output", parity=Parity.EXACT, changes=("outputs",))
def sig_drop_output(graph: Graph) -> None:
    """Drop the first of several outputs."""
    outputs = graph.outputs()
    if len(outputs) > 1:
        with graph.site() as new:
            new.drop_output(outputs[0])


@graph_pass("sig-drop-output-wrong", changes=("outputs",))
def sig_drop_output_wrong(graph: Graph) -> None:
    """Drop the first output, and compute the others wrongly."""
    sig_drop_output(graph)
    for node in graph.nodes("Exp"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Neg", *node.inputs))


@graph_pass("sig-add-output", parity=Parity.EXACT, changes=("outputs",))
def sig_add_output(graph: Graph, *, name: str = "m") -> None:
    """Let an interior value be an output too."""
    for node in graph.nodes():
        for value in node.outputs:
            if value.name == name and not value.is_output:
                with graph.site() as new:
                    new.add_output(value)


@graph_pass("sig-fresh-output", changes=("outputs",))
def sig_fresh_output(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give something out that the model never computed."""
    if all(value.name != "fresh" for value in model.graph.output):
        model.graph.node.append(onnx.helper.make_node("Tanh", ["s"], ["fresh"]))
        model.graph.output.append(onnx.helper.make_tensor_value_info("fresh", 1, [4]))
    return model


@graph_pass("sig-drop-read-input", changes=("inputs",))
def sig_drop_read_input(graph: Graph) -> None:
    """Try to drop an input that is read."""
    with graph.site() as new:
        new.drop_input(graph.inputs()[0])


@graph_pass("sig-bind-input", parity=Parity.EXACT, changes=("inputs",))
def sig_bind_input(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the input `s` a value once and for all."""
    kept = [value for value in model.graph.input if value.name != "s"]
    if len(kept) < len(model.graph.input):
        model.graph.initializer.append(onnx.helper.make_tensor("s", 1, [4], [2.0, 0.5, -1.0, 3.0]))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


@graph_pass("sig-new-input", changes=("inputs",))
def sig_new_input(model: onnx.ModelProto) -> onnx.ModelProto:
    """Read something that nobody gave before."""
    model.graph.input.append(onnx.helper.make_tensor_value_info("extra", 1, [4]))
    return model


@graph_pass("sig-fix-batch", parity=Parity.EXACT, changes=("dims",))
def sig_fix_batch(model: onnx.ModelProto, *, batch: int = 5) -> onnx.ModelProto:
    """Let `batch` be a number."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "batch":
                dim.dim_value = batch
    return model


@graph_pass("sig-name-batch", parity=Parity.EXACT, changes=("dims",))
def sig_name_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Call `batch` otherwise."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "batch":
                dim.dim_param = "n"
    return model


@graph_pass("sig-double", changes=("types",))
def sig_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Take the first input as double, and cast it."""
    port = model.graph.input[0]
    if port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        port.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        for node in model.graph.node:
            node.input[:] = ["as_float" if name == port.name else name for name in node.input]
        model.graph.node.insert(0, onnx.helper.make_node("Cast", [port.name], ["as_float"], to=1))
    return model
