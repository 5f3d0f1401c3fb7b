"""The bundled transformers with fewer layers: to most tests, what a third layer has to say is what the second said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from support import ROOT

BUNDLED = ROOT / "models"
_BEHIND: dict[str, tuple[int, Callable[[int], str]]] = {
    "bert-dropout-tiny": (12, "/model/encoder/layer.{}/output/LayerNorm/Add_1_output_0".format),
    "bert-tiny": (12, lambda layer: f"layer_norm_{2 * layer + 2}"),
    "bert-tiny.dy": (12, lambda layer: f"layer_norm_{2 * layer + 2}"),
    "bert-tiny.ts": (12, "/model/encoder/layer.{}/output/LayerNorm/LayerNormalization_output_0".format),
    "gpt2-tiny": (12, lambda layer: f"add_{192 * layer + 288}"),
    "llama-tiny": (8, "/model/model/layers.{}/Add_1_output_0".format),
    "llama-tiny.dy": (8, lambda layer: f"add_{322 * layer + 424}"),
    "t5-enc-tiny": (6, "/model/encoder/block.{}/layer.1/Add_output_0".format),
    "vit-tiny": (12, "/model/layers.{}/Add_1_output_0".format),
}
"""How many layers a model has, and what the value is called that the layer of a number makes."""


def shortened(name: str, layers: int = 2) -> onnx.ModelProto:
    """Return a bundled model in which what the last layer made is made by an earlier one, without those between."""
    count, behind = _BEHIND[name]
    model = onnx.load(BUNDLED / f"{name}.onnx")
    graph = model.graph
    # A norm at the very end makes the output itself.
    made = {output for node in graph.node for output in node.output}
    kept, last = behind(layers - 1), behind(count - 1)
    last = last if last in made else graph.output[0].name
    assert {kept, last} <= made, (name, kept, last)
    for node in graph.node:
        node.output[:] = [{kept: last, last: ""}.get(output, output) for output in node.output]
        node.input[:] = [last if value == kept else value for value in node.input]
    _keep_what_is_read(graph)
    return model


def without_residuals(name: str) -> onnx.ModelProto:
    """Return a bundled convolutional net without the blocks whose result is added to what they read."""
    model = onnx.load(BUNDLED / f"{name}.onnx")
    place = {output: number for number, node in enumerate(model.graph.node) for output in node.output}
    reads: dict[str, str] = {}
    for node in model.graph.node:
        node.input[:] = [reads.get(value, value) for value in node.input]
        if node.op_type == "Add" and all(value in place for value in node.input):
            reads[node.output[0]] = min(node.input, key=place.__getitem__)
    assert reads, name
    _keep_what_is_read(model.graph)
    return model


def _keep_what_is_read(graph: onnx.GraphProto) -> None:
    wanted, nodes = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            nodes.append(node)
    initializers = [tensor for tensor in graph.initializer if tensor.name in wanted]
    known = [value for value in graph.value_info if value.name in wanted]
    for field, left in ((graph.node, nodes[::-1]), (graph.initializer, initializers), (graph.value_info, known)):
        items = [type(item).FromString(item.SerializeToString()) for item in left]
        del field[:]
        field.extend(items)


def write(folder: Path) -> Path:
    """Write all bundled models to a folder, those short that can be, under the names that they have."""
    for path in BUNDLED.glob("*.onnx"):
        if path.stem in _BEHIND:
            onnx.save(shortened(path.stem), folder / path.name)
        else:
            (folder / path.name).symlink_to(path)
    return folder
