"""What people do with models that resist: custom operators, a layer unlike the others, overflow, crashes."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.workbench_acts import (
    add,
    choose,
    message,
    opened_form,
    operators,
    picture,
    saved,
    settle,
    steps,
    write_recipe,
)

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

SMALL = """g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}> {
    [product] p = MatMul(x, w)
    [active] a = Relu(p)
    [same] y = Identity(a)
}"""
LOUD = """g (float[2, 4] x) => (float[2, 4] y)
<float[4, 4] w = {1, 2, 0, 1, 0, 1, 3, 0, 2, 0, 1, 1, 1, 1, 0, 2}, float gain = {300}> {
    [product] p = MatMul(x, w)
    [active] a = Relu(p)
    [loud] l = Mul(a, gain)
    [energy] e = Mul(l, l)
    [mean] m = ReduceMean<axes = [-1], keepdims = 1>(e)
    [root] r = Sqrt(m)
    [norm] n = Div(l, r)
    [head] y = MatMul(n, w)
}"""
LEAST = -(2**31)
DIVIDING = f"""g (float[4] x) => (float[4] y, int32[1] z) <int32[1] a = {{{LEAST}}}, int32[1] b = {{1}}> {{
    [same] s = Identity(x)
    [active] y = Relu(s)
    [divide] z = Div(a, b)
}}"""
IMAGE = np.array([[1, 2, 3], [-1, 0, -2]], np.float32)


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, **options: open_page(serve(model, **options))


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[str], Path]:
    def store(model: str) -> Path:
        onnx.save(text.parse(model), tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return store


def transformer(layers: int = 4, shown: int = 3) -> str:
    """Return a transformer; the attention probabilities of the layer `shown`, counted from 1, are an output."""
    weights, lines, x = [], [], "x"
    for k in range(1, layers + 1):
        for part in "qkvo":
            elements = ", ".join("1" if row == column else f"0.{k}" for row in range(4) for column in range(4))
            weights.append(f"float[4, 4] w{part}{k} = {{{elements}}}")
        for part, perm in (("q", "0, 2, 1, 3"), ("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
            lines += [
                f"[layer{k}_{part}] {part}{k} = MatMul({x}, w{part}{k})",
                f"[layer{k}_{part}_heads] {part}r{k} = Reshape({part}{k}, cut)",
                f"[layer{k}_{part}_turned] {part}h{k} = Transpose<perm = [{perm}]>({part}r{k})",
            ]
        lines += [
            f"[layer{k}_product] s{k} = MatMul(qh{k}, kh{k})",
            f"[layer{k}_scaled] t{k} = Mul(s{k}, scale)",
            f"[layer{k}_softmax] p{k} = Softmax(t{k})",
            f"[layer{k}_context] c{k} = MatMul(p{k}, vh{k})",
            f"[layer{k}_back] b{k} = Transpose<perm = [0, 2, 1, 3]>(c{k})",
            f"[layer{k}_flat] f{k} = Reshape(b{k}, flat)",
            f"[layer{k}_out] o{k} = MatMul(f{k}, wo{k})",
            f"[layer{k}_sum] x{k} = Add({x}, o{k})",
        ]
        x = f"x{k}"
    constants = [*weights, "int64[4] cut = {0, 0, 2, 2}", "int64[3] flat = {0, 0, 4}", "float scale = {0.7}"]
    return (
        '<ir_version: 11, opset_import: ["": 23]>\n'
        f"g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 2, 3, 3] p{shown})\n"
        f"<{', '.join(constants)}> {{\n" + "\n".join(lines) + f"\n[last] y = Identity({x})\n}}"
    )


@pytest.fixture
def library(tmp_path: Path) -> str:
    """A library of custom operators in the folder of the model; one of them is NegPos."""
    extensions = pytest.importorskip("onnxruntime_extensions")
    shutil.copyfile(extensions.get_library_path(), tmp_path / "custom.so")
    return "custom.so"


def with_library(step: str) -> str:
    return f"recipe: custom\nverify: {{custom_op_library: ./custom.so}}\nsteps:\n  - {step}\n"


POSITIVE = """replace-subgraph:
      rule: {match: y = Relu(x), emit: "n, y = ai.onnx.contrib::NegPos(x)"}
      keeps: exact"""


def test_an_operator_is_replaced_by_a_custom_one(opened: Any, stored: Any, library: str, tmp_path: Path) -> None:
    model = stored(SMALL)
    page = opened(model, trust=True)
    choose(page, "active")
    add(page, "replace-op", op="ai.onnx.contrib::NegPos")
    # Nobody knows yet what it computes, and the page says what is missing.
    assert "NegPos is a custom operator that is in no --custom-op-library or" in message(page)
    assert "verify.custom_op_library" in message(page) and steps(page) == []
    write_recipe(page, with_library(POSITIVE))
    assert steps(page) == ["replace-subgraph"] and "equal" in page.locator("#wb-steps").inner_text()
    made = saved(page, model, "--trust")
    assert operators(made) == ["MatMul", "NegPos", "Identity"] and made.graph.node[1].domain == "ai.onnx.contrib"
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(tmp_path / library))
    [y] = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {"x": IMAGE})
    weight = np.array([[1, -2, 3], [4, 5, -6], [7, 8, 9]], np.float32)
    assert np.array_equal(y, np.maximum(IMAGE @ weight, 0))


def test_a_custom_operator_that_crashes_is_one_line_and_nothing_is_lost(opened: Any, stored: Any, library: str) -> None:
    model = stored(SMALL)
    page = opened(model, trust=True)
    choose(page, "same")
    add(page, "drop-identity")
    # NegPos has two outputs: with one of them it writes where nothing is, and its process is gone.
    step = "replace-op: {nodes: active, op: ai.onnx.contrib::NegPos}"
    write_recipe(page, with_library(f"drop-identity\n  - {step}"))
    assert "Refused; nothing was changed." in message(page) and "crashed with SIGSEGV" in message(page)
    assert steps(page) == ["drop-identity"] and step in page.get_by_label("The recipe as YAML").input_value()
    choose(page, "active")
    add(page, "rename", nodes={"active": "relu"})
    assert steps(page) == ["drop-identity", "rename"]
    assert [node.name for node in saved(page, model).graph.node] == ["product", "relu"]


def test_a_model_that_kills_its_process_is_one_line_and_nothing_is_lost(opened: Any, stored: Any) -> None:
    model = stored(DIVIDING)
    page = opened(model)
    choose(page, "same")
    add(page, "drop-identity")
    choose(page, "divide")
    add(page, "set-initializer", name="b", value="[-1]", keeps="nothing")
    said = [line for line in message(page).splitlines() if "crashed with SIGFPE" in line]
    assert len(said) == 1 and steps(page) == ["drop-identity"]
    add(page, "set-initializer", name="b", value="[-2]", keeps="nothing")
    assert steps(page) == ["drop-identity", "set-initializer"]
    made = saved(page, model)
    assert onnxruntime.InferenceSession(made.SerializeToString()).run(["z"], {"x": np.ones(4, np.float32)}) == [2**30]


def test_it_says_why_one_layer_is_not_fused_and_fuses_it(opened: Any, stored: Any) -> None:
    model = stored(transformer())
    page = opened(model)
    choose(page, "layer3_softmax")
    page.get_by_text("Not here:").click()
    refusal = page.locator("#wb-offers details[data-pass='fuse-attention']")
    refusal.locator("summary").click()
    assert "a value inside the attention is read elsewhere too" in refusal.inner_text()
    refusal.get_by_role("button", name="Why not?").click()
    page.wait_for_selector("[data-pass='fuse-attention'] [role=status]")
    picture(page)
    # The other layers are fused, and the step says which one is not.
    choose(page, "layer2_softmax")
    add(page, "fuse-attention")
    step = page.locator("#wb-steps > li")
    step.get_by_text("1 place left as before, and why").click()
    assert "layer3_softmax: a value inside the attention is read elsewhere too" in step.inner_text()
    step.get_by_role("button", name="Select 1 place left as before").click()
    page.wait_for_selector("#wb-offers details[data-pass]")
    assert page.locator(".wb-chips").inner_text() == "layer3_softmax"
    picture(page)
    # Its probabilities are an output of the model: without that, it is fused like the others.
    choose(page, "p3")
    add(page, "remove-outputs")
    choose(page, "layer3_softmax")
    add(page, "fuse-attention")
    assert steps(page) == ["fuse-attention", "remove-outputs", "fuse-attention"]
    assert operators(saved(page, model)).count("Attention") == 4


def test_the_model_becomes_float16_except_what_breaks(opened: Any, stored: Any) -> None:
    model = stored(LOUD)
    page = opened(model)
    choose(page, "head")
    add(page, "to-float16")
    # What overflows stays in float32 by itself, and the step says so.
    step = page.locator("#wb-steps > li")
    step.get_by_text("3 places left as before, and why").click()
    for node in ("energy", "mean", "root"):
        assert re.search(rf"{node}: it needs \d+ times of the budget alone", step.inner_text()), node
    picture(page)
    # The person wants these, and the head, in float32 whatever the inputs are.
    page.get_by_role("button", name="Undo").click()
    settle(page)
    choose(page, "energy", "mean", "root", "head")
    form = opened_form(page, "to-float16")
    form.get_by_text("More options").click()
    form.get_by_role("button", name="Use the selection: keep").click()
    picture(page)
    form.get_by_role("button", name="Add to-float16").click()
    settle(page)
    assert "keep: [energy, mean, root, head]" in page.get_by_label("The recipe as YAML").input_value()
    made = onnx.shape_inference.infer_shapes(saved(page, model))
    types = {value.name: value.type.tensor_type.elem_type for value in [*made.graph.value_info, *made.graph.output]}
    found = {re.sub("_1$", "", node.name): types[node.output[0]] for node in made.graph.node if node.op_type != "Cast"}
    wide, narrow = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    assert found == {
        **dict.fromkeys(("product", "active", "loud", "norm"), narrow),
        **dict.fromkeys(("energy", "mean", "root", "head"), wide),
    }
