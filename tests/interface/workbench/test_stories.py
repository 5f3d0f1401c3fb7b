"""What people do with a model in the browser, each from the first click to the saved recipe, in Chromium."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.workbench_acts import add, choose, choose_tensor, message, operators, picture, saved, settle, steps, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

# A detector of a kind: features, a head of two layers, and an output that nobody normalized.
SMALL = """g (float[2, 3] image) => (float[2, 3] scores)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}, float[3, 3] v = {1, 2, 0, 0, 1, 0, 3, 0, 1}, float[3] b = {1, 2, 3}> {
    [features] f = MatMul(image, w)
    [active] a = Relu(f)
    [drop] d = Dropout(a)
    [head] h = MatMul(d, v)
    [bias] s = Add(h, b)
    [same] scores = Identity(s)
}"""
OUTPUTS = """g (float[n, 2, 4, 4] x) => (float[n, 2, 4, 4] y, float[n, 2, 4, 4] z)
<float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] one = {1, 1}, float[2] zero = {0, 0}, float[2] v = {2, 3}> {
    [conv] z = Conv(x, w)
    [norm] y = BatchNormalization(z, one, zero, zero, v)
}"""
AFTER = """g (float[2, 3] scores) => (int64[2] best) {
    [argmax] best = ArgMax<axis = 1, keepdims = 0>(scores)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(SMALL), path)
    return path


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, recipe=None, **options: open_page(serve(model, recipe), **options)


def run(model: onnx.ModelProto) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    image = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)
    return list(session.run(None, {session.get_inputs()[0].name: image}))


def test_dropout_is_removed_in_all_layers_by_one_act(opened: Any, short_models: Path, tmp_path: Path) -> None:
    model = tmp_path / "bert.onnx"
    model.write_bytes((short_models / "bert-dropout-tiny.onnx").read_bytes())
    page = opened(model)
    names = [node.name for node in onnx.load(model).graph.node if node.op_type == "Dropout"]
    assert len(names) == 7
    choose(page, names[2])
    add(page, "drop-dropout")
    assert steps(page) == ["drop-dropout"] and "7 removed" in page.locator("#wb-steps").inner_text()
    assert "verified" in page.locator("#wb-steps").inner_text()
    assert "Dropout" not in operators(saved(page, model))


def test_the_batch_becomes_dynamic(opened: Any, model: Path) -> None:
    page = opened(model)
    choose(page, "image")
    add(page, "set-dims", ports={"image": "batch, 3"})
    made = saved(page, model)
    assert [dim.dim_param or dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim] == ["batch", 3]
    session = onnxruntime.InferenceSession(made.SerializeToString())
    assert session.run(None, {"image": np.ones((5, 3), np.float32)})[0].shape == (5, 3)


def test_the_head_is_cut_and_a_softmax_added(opened: Any, model: Path) -> None:
    page = opened(model)
    choose_tensor(page, "active", "a")
    add(page, "set-outputs")
    choose(page, "a")
    add(page, "embed-postprocessing", activation="softmax")
    made = saved(page, model)
    assert operators(made) == ["MatMul", "Relu", "Softmax"]
    image = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)
    weight = np.array([[1, -2, 3], [4, 5, -6], [7, 8, 9]], np.float32)
    expected = np.exp(np.maximum(image @ weight, 0) - np.maximum(image @ weight, 0).max(1, keepdims=True))
    assert np.allclose(run(made)[0], expected / expected.sum(1, keepdims=True), atol=1e-6)


def test_an_operator_is_replaced_on_purpose(opened: Any, model: Path) -> None:
    page = opened(model)
    choose(page, "active")
    add(page, "replace-op", op="Abs", keeps="nothing")
    assert "intended" in page.locator("#wb-steps").inner_text()
    assert operators(saved(page, model))[1] == "Abs"


def test_a_refused_step_shows_the_value_and_the_nodes_and_changes_nothing(opened: Any, model: Path) -> None:
    page = opened(model)
    choose(page, "active")
    add(page, "replace-op", op="Sigmoid", keeps="close")
    assert steps(page) == [] and "Refused; nothing was changed" in message(page)
    assert re.search(r"scores\[.*\]: .* became ", message(page))
    page.get_by_role("button", name=re.compile("Show .* node")).click()
    until(page, "document.querySelector('.wb-chips li')?.textContent === 'active'")
    assert page.evaluate("view.selected") == page.evaluate("[...workbench.selection.chosen.values()][0]")
    choose(page, "drop")
    add(page, "drop-dropout")
    assert steps(page) == ["drop-dropout"]


def test_a_debug_output_is_inserted_and_looked_at(opened: Any, model: Path) -> None:
    page = opened(model)
    choose_tensor(page, "features", "f")
    add(page, "add-outputs")
    choose(page, "features")
    page.get_by_role("button", name="Look at values").click()
    page.wait_for_selector(".wb-values svg")
    picture(page)
    shown = page.locator("#wb-values").inner_text()
    assert "Values of f" in shown and "float32" in shown and "[2, 3]" in shown and "Min" in shown
    assert [output.name for output in saved(page, model).graph.output] == ["scores", "f"]


def test_it_says_why_a_fusion_is_not_made(opened: Any, tmp_path: Path) -> None:
    model = tmp_path / "small.onnx"
    onnx.save(text.parse(OUTPUTS), model)
    page = opened(model)
    choose(page, "conv")
    page.get_by_text("Not here:").click()
    refusal = page.locator("#wb-offers details[data-pass='fuse-conv-bn']")
    refusal.locator("summary").click()
    assert "c is a graph output" in refusal.inner_text()
    refusal.get_by_role("button", name="Why not?").click()
    until(page, "document.querySelector(\"[data-pass='fuse-conv-bn'] [role=status]\")")
    assert "is the graph output 'z'" in refusal.inner_text()
    picture(page)
    # What is in the way goes, and the fusion is made.
    choose(page, "z")
    add(page, "remove-outputs")
    choose(page, "conv")
    add(page, "fuse-conv-bn")
    assert operators(saved(page, model)) == ["Conv"]


def test_a_weight_is_swapped_from_a_file(opened: Any, model: Path) -> None:
    np.save(model.parent / "bias.npy", np.array([9, 9, 9], np.float32))
    page = opened(model)
    choose(page, "bias")
    add(page, "set-initializer", name="b", file="bias.npy", keeps="nothing")
    made = saved(page, model)
    before = run(onnx.load(model))[0]
    assert np.allclose(run(made)[0] - before, np.array([8, 7, 6]))


def test_a_second_model_is_merged_after_it(opened: Any, model: Path) -> None:
    onnx.save(text.parse(AFTER), model.parent / "after.onnx")
    page = opened(model)
    choose(page, "same")
    add(page, "merge", model="after.onnx", connect={"scores": "scores"})
    made = saved(page, model)
    assert operators(made)[-1] == "ArgMax" and [output.name for output in made.graph.output] == ["best"]
    assert run(made)[0].tolist() == run(onnx.load(model))[0].argmax(1).tolist()


def test_a_step_in_the_middle_is_undone(opened: Any, model: Path) -> None:
    page = opened(model)
    choose(page, "drop")
    add(page, "drop-dropout")
    choose(page, "active")
    add(page, "rename", nodes={"active": "relu"})
    choose(page, "same")
    add(page, "drop-identity")
    assert steps(page) == ["drop-dropout", "rename", "drop-identity"]
    page.get_by_role("button", name="Remove: step 2, rename").click()
    settle(page)
    assert steps(page) == ["drop-dropout", "drop-identity"]
    page.keyboard.press("Control+z")
    settle(page)
    assert steps(page) == ["drop-dropout", "rename", "drop-identity"]
    page.get_by_role("button", name="Off: step 1, drop-dropout").click()
    settle(page)
    page.get_by_role("button", name="Up: step 3, drop-identity").click()
    settle(page)
    page.get_by_role("button", name="Undo").click()
    settle(page)
    page.get_by_role("button", name="Redo").click()
    settle(page)
    assert steps(page) == ["drop-dropout", "drop-identity", "rename"]
    made = saved(page, model)
    assert operators(made).count("Dropout") == 1 and "relu" in [node.name for node in made.graph.node]


def test_a_wrong_snippet_is_pasted_and_mended(opened: Any, model: Path) -> None:
    page = opened(model)
    recipe = page.get_by_label("The recipe as YAML")
    recipe.fill("recipe: mine\nsteps:\n  - drop-dropout\n  - drop-identiti\n  - rename: {nodes: [1}\n")
    recipe.press("Control+Enter")
    page.wait_for_selector("#wb-problems li")
    picture(page)
    problems = page.locator("#wb-problems li").all_inner_texts()
    assert any("line 4" in one and "did you mean 'drop-identity'" in one for one in problems)
    assert steps(page) == [] and "drop-identiti" in recipe.input_value()
    page.locator("#wb-problems button").first.click()
    assert page.evaluate("document.activeElement.id") == "wb-recipe"
    start, end = page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]")
    assert recipe.input_value()[start:end] in recipe.input_value().split("\n")[3:5]
    recipe.fill("recipe: mine\nsteps:\n  - drop-dropout\n  # and\n  - drop-identity\n")
    page.get_by_role("button", name="Run the recipe as written").click()
    settle(page)
    assert steps(page) == ["drop-dropout", "drop-identity"] and "# and" in recipe.input_value()
    assert operators(saved(page, model)) == ["MatMul", "Relu", "MatMul", "Add"]


def test_it_is_reopened_after_kill_9(open_page: Any, model: Path) -> None:
    command = [sys.executable, "-m", "surgery", "open", str(model), "--no-browser"]

    def started() -> tuple[subprocess.Popen[str], Any]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert process.stdout is not None
        return process, open_page(process.stdout.readline().strip())

    def ended(process: subprocess.Popen[str]) -> None:
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    process, page = started()
    try:
        choose(page, "drop")
        add(page, "drop-dropout")
        process.send_signal(signal.SIGKILL)
        ended(process)
        page.get_by_role("button", name="Undo").click()
        page.wait_for_selector("#wb-message .wb-message")
        assert "The server does not answer. What was done is in its draft" in message(page)
        process, page = started()
        assert steps(page) == ["drop-dropout"] and "last session" in message(page)
        picture(page)
        assert "Dropout" not in operators(saved(page, model))
        page.get_by_role("button", name="End", exact=True).click()
        assert process.wait(30) == 0
    finally:
        process.kill()
        ended(process)


def test_two_tabs_show_the_same_steps(serve: Any, open_page: Any, model: Path) -> None:
    address = serve(model)
    first = open_page(address)
    second = open_page(address.partition("?")[0], context=first.context)
    choose(first, "drop")
    add(first, "drop-dropout")
    until(second, "document.querySelectorAll('#wb-steps > li').length === 1")
    assert steps(second) == ["drop-dropout"]
