"""Recipes for integers keep their purpose with a target whose own operators hide what has kernels on integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import surgery

RNG = np.random.default_rng(0)


def weight(name: str, *dims: int) -> onnx.TensorProto:
    drawn = RNG.normal(size=dims) / np.sqrt(np.prod(dims[1:]))
    return numpy_helper.from_array(drawn.astype(np.float32), name)


def convolutions() -> onnx.ModelProto:
    """Three convolutions, each with a Relu, of 16 channels."""
    nodes, weights, value = [], [], "x"
    for number, (read, made) in enumerate([(3, 16), (16, 16), (16, 16)]):
        weights += [weight(f"w{number}", made, read, 3, 3), weight(f"b{number}", made)]
        nodes.append(helper.make_node("Conv", [value, f"w{number}", f"b{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        value = "y" if number == 2 else f"r{number}"
        nodes.append(helper.make_node("Relu", [f"c{number}"], [value]))
    return made_of(nodes, weights, ["n", 3, 16, 16], ["n", 16, 16, 16])


def layers() -> onnx.ModelProto:
    """Two linear layers of 128 features, each with a Relu."""
    nodes, weights, value = [], [], "x"
    for number in range(2):
        weights += [weight(f"w{number}", 128, 128), weight(f"b{number}", 128)]
        nodes.append(helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [f"c{number}"]))
        value = "y" if number == 1 else f"r{number}"
        nodes.append(helper.make_node("Relu", [f"c{number}"], [value]))
    return made_of(nodes, weights, ["n", 128], ["n", 128])


def made_of(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], dims: list[str | int], result: list[str | int]
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# The recipe, the options of its pass for small weights, the model, and the operators in float32 that must not remain.
QUANTIZED = {
    "int8": ("", convolutions, {"FusedConv"}),
    "int8-dynamic": ("{quantize-dynamic: {min_size: 0}}", layers, {"FusedGemm", "Gemm"}),
    "int4": ("{quantize-weights: {min_elements: 1, block: 32}}", layers, {"FusedGemm", "Gemm"}),
}


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_a_target_with_fused_operators_leaves_no_less_quantized(recipe: str, tmp_path: Path) -> None:
    options, model, kept = QUANTIZED[recipe]
    onnx.save(model(), tmp_path / "model.onnx")
    counts = []
    for target in ("", "target: ort-cpu\n"):
        changed = f", with: {options}" if options else ""
        text = f"recipe: r\n{target}verify: {{mode: 'off'}}\nsteps: [{{use: {recipe}{changed}}}]\n"
        (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
        made = tmp_path / f"made_{len(counts)}.onnx"
        result = surgery.apply(tmp_path / "model.onnx", tmp_path / "recipe.yaml", output=made)
        assert result.failure is None
        counts.append(Counter(node.op_type for node in onnx.load(made).graph.node))
    plain, targeted = counts
    for op in ("QuantizeLinear", "DynamicQuantizeLinear", "MatMulNBits"):
        assert targeted[op] == plain[op]
    assert sum(plain[op] for op in ("QuantizeLinear", "DynamicQuantizeLinear", "MatMulNBits")) >= 2
    assert not kept & set(targeted)


@pytest.mark.parametrize(
    ("opset", "bits", "kind"), [(21, 4, onnx.TensorProto.INT4), (21, 8, onnx.TensorProto.INT8), (17, 4, 0)]
)
def test_weights_for_tensorrt_are_dequantized_without_zero_points(opset: int, bits: int, kind: int) -> None:
    model = layers()
    model.opset_import[0].version, model.ir_version = opset, 10
    steps = [{"quantize-weights": {"bits": bits, "block": 32, "min_elements": 1}}]
    result = surgery.apply(model, {"steps": steps, "accuracy": {"budget": "cosine >= 0.9"}}, target="tensorrt")
    graph = result.proto.graph
    codes = {one.name: one.data_type for one in graph.initializer if one.data_type not in (1, 7)}
    made = [node for node in graph.node if node.op_type == "DequantizeLinear"]
    assert [*codes.values()] == ([kind] * 2 if kind else []) and len(made) == len(codes)
    assert all(len(node.input) == 2 and node.input[0] in codes for node in made)
    sizes = {one.i for node in made for one in node.attribute if one.name == "block_size"}
    assert sizes == ({32} if kind == onnx.TensorProto.INT4 else set())
