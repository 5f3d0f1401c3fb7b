"""The forms of the workbench: nodes as text at any place, mappings as rows, and mistakes where they are."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.workbench_acts import (
    add,
    choose,
    choose_tensor,
    fill,
    message,
    opened_form,
    operators,
    picture,
    saved,
    settle,
    steps,
    until,
)

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

SMALL = """g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) <float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}> {
    [product] p = MatMul(x, w)
    [active] a = LeakyRelu<alpha = 0.1>(p)
    [neg] y = Neg(a)
    [exp] z = Tanh(a)
}"""
IMAGE = np.array([[1, 2, 3], [-1, 0, -2]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(text.parse(SMALL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def page(serve: Callable[..., str], open_page: Callable[..., Any], model: Path) -> Any:
    return open_page(serve(model))


def drafted(page: Any, place: str) -> Any:
    """Choose a place for nodes as text; return the form."""
    form = opened_form(page, "insert-nodes")
    form.locator("[data-place]").select_option(place)
    return form


def run(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    import onnxruntime

    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": IMAGE}))


def test_nodes_as_text_are_put_after_before_and_in_place(page: Any, model: Path) -> None:
    choose_tensor(page, "product", "p")
    add(page, "insert-nodes", text="half = Mul(p, 0.5)\np = Clip(half, -1, 6)")
    choose(page, "active")
    form = drafted(page, "instead")
    area = form.locator("[name=text]")
    until(page, "document.querySelector('[name=text]').value.includes('LeakyRelu')")
    assert re.fullmatch(r"a = LeakyRelu<alpha = 0.1>\(p\w*\)", area.input_value())
    area.fill(area.input_value().replace("0.1", "0.5"))
    picture(page)
    form.get_by_role("button", name="Add insert-nodes").click()
    settle(page)
    choose(page, "neg")
    form = drafted(page, "before")
    until(page, "document.querySelector('[name=nodes]').value === 'neg'")
    area = form.locator("[name=text]")
    area.fill(area.input_value().replace("Identity", "Abs"))
    area.press("Control+Enter")
    settle(page)
    assert steps(page) == ["insert-nodes"] * 3
    made = saved(page, model)
    assert operators(made) == ["MatMul", "Mul", "Clip", "LeakyRelu", "Abs", "Neg", "Tanh"]
    weight = np.array([[1, -2, 3], [4, 5, -6], [7, 8, 9]], np.float32)
    clipped = np.clip(IMAGE @ weight / 2, -1, 6)
    active = np.where(clipped < 0, clipped / 2, clipped)
    assert np.allclose(run(made)[0], -np.abs(active)) and np.allclose(run(made)[1], np.tanh(active))


def test_mistakes_in_nodes_as_text_have_their_places(page: Any, model: Path) -> None:
    choose(page, "active")
    form = opened_form(page, "insert-nodes")
    area = form.locator("[name=text]")
    for wrong, said, chosen in (
        ("a = Abs(a)\na = Neg a)", "line 2, column 9: expected the end of the line", "a"),
        ("b = Abs(a)\na = Negg(b)", "line 2, column 5: ONNX has no operator 'Negg'; did you mean 'Neg'?", "Negg"),
        ("a = Add(a, aa)", "line 1, column 12: there is no tensor 'aa'; did you mean 'a'?", "aa"),
    ):
        area.fill(wrong)
        form.get_by_role("button", name="Add insert-nodes").click()
        until(page, "(said) => document.querySelector('.wb-mistakes').textContent.includes(said)", said)
        settle(page)
        assert steps(page) == [] and area.get_attribute("aria-invalid") == "true"
        until(page, "document.activeElement === document.querySelector('[name=text]')")
        start, end = page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]")
        assert area.input_value()[start:end] == chosen and said in message(page)
    area.fill("a = Add(a, a)")
    form.get_by_role("button", name="Add insert-nodes").click()
    settle(page)
    assert steps(page) == ["insert-nodes"] and operators(saved(page, model))[2] == "Add"


def test_a_place_that_has_no_draft_is_said(page: Any) -> None:
    page.evaluate("workbench.act({act: 'add', step: {'insert-nodes': {text: 'q = Abs(w)\\np = MatMul(x, q)'}}})")
    settle(page)
    choose(page, "neg")
    page.evaluate("workbench.selection.chosen.clear(); workbench.selection.chosen.set('nothing', -1)")
    drafted(page, "instead")
    until(page, "document.querySelector('.wb-mistakes').textContent.includes(\"no node and no tensor 'nothing'\")")


def test_mappings_are_rows_and_several_choices_are_boxes(page: Any, model: Path) -> None:
    choose(page, "x")
    form = opened_form(page, "set-dims")
    rows = form.locator("fieldset[data-option=ports]")
    assert rows.locator("[data-part=value]").input_value() == "2, 3"
    fill(form, "ports", {"x": "batch, 3"})
    form.get_by_role("button", name="Add set-dims").click()
    settle(page)
    assert "set-dims: {ports: {x: [batch, 3]}}" in page.get_by_label("The recipe as YAML").input_value()
    choose(page, "neg", "exp")
    add(page, "rename", nodes={"neg": "minus", "exp": "curve"})
    recipe = page.get_by_label("The recipe as YAML").input_value()
    assert "rename: {nodes: {neg: minus, exp: curve}}" in recipe
    choose(page, "product")
    form = opened_form(page, "set-initializer")
    form.get_by_text("More options").click()
    boxes = form.locator("fieldset[data-option=allow]").get_by_role("checkbox")
    assert boxes.count() == 2
    boxes.last.check()
    fill(form, "value", "[[1, 0], [0, 1], [2, 2]]")
    page.evaluate("workbench.act = (given) => { document.body.dataset.given = JSON.stringify(given); return true; }")
    form.get_by_role("button", name="Add set-initializer").click()
    until(page, "document.body.dataset.given")
    given = page.evaluate("JSON.parse(document.body.dataset.given)")["step"]["set-initializer"]
    assert given == {"name": "w", "value": [[1, 0], [0, 1], [2, 2]], "allow": ["dims"]}


def test_rows_are_added_filled_in_and_removed_with_the_keyboard(page: Any) -> None:
    choose(page, "neg")
    form = opened_form(page, "set-attribute")
    form.locator("[name=name]").focus()
    form = opened_form(page, "replace-op")
    form.get_by_text("More options").click()
    form.get_by_role("button", name="Add a row: attributes").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("alpha")
    page.keyboard.press("Tab")
    page.keyboard.type("0.25")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Remove attributes, row 1"
    form.locator("[name=op]").fill("LeakyRelu")
    form.locator("[name=op]").press("Enter")
    settle(page)
    assert "attributes: {alpha: 0.25}" in page.get_by_label("The recipe as YAML").input_value()
    choose(page, "neg")
    form = opened_form(page, "replace-op")
    form.get_by_text("More options").click()
    form.get_by_role("button", name="Add a row: attributes").click()
    form.get_by_role("button", name="Remove attributes, row 1").focus()
    page.keyboard.press("Space")
    assert form.locator("fieldset[data-option=attributes] [data-part]").count() == 0


VALUES = {
    "conv": "conv",
    "[1, batch, 224]": [1, "batch", 224],
    "{op: Relu, name: '*/a'}": {"op": "Relu", "name": "*/a"},
    "-0.5": -0.5,
    "true": True,
    "null": None,
    '["a, b", "c\\n"]': ["a, b", "c\n"],
    "[[1, 2], {int64: [0]}]": [[1, 2], {"int64": [0]}],
    "[1, 2": "[1, 2",
    "a: b": "a: b",
    "[]": [],
    "1e-5": 1e-5,
    "[a,]": ["a"],
}


def test_values_are_read_as_in_a_recipe(page: Any) -> None:
    for written, value in VALUES.items():
        assert page.evaluate("(text) => surgeryViewer.flow.parse(text)", written) == value, written
        assert page.evaluate("(v) => surgeryViewer.flow.parse(surgeryViewer.flow.show(v))", value) == value, written


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 820)])
def test_forms_with_rows_and_text_are_accessible_and_fit(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path, scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(serve(model), width=width, color_scheme=scheme)
    choose(page, "active")
    for name in ("insert-nodes", "replace-subgraph", "replace-op", "rename", "insert-before"):
        form = opened_form(page, name)
        more = form.get_by_text("More options")
        if more.count():
            more.click()
    found = axe.run(page).response["violations"]
    grave = [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found
             if one["impact"] in ("serious", "critical")]  # fmt: skip
    assert grave == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    side = page.locator("#wb-offers")
    assert side.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
    picture(page)


def test_lists_need_no_brackets_and_one_name_is_a_list(page: Any, model: Path) -> None:
    choose(page, "active")
    add(page, "insert-after", op="Clip", operands="0, 6")
    assert "op: Clip, nodes: active, operands: [0, 6]}" in page.locator("#wb-recipe").input_value()
    choose(page, "product")
    form = opened_form(page, "to-float16")
    fill(form, "ops_in_float32", "MatMul")
    form.get_by_role("button", name="Add to-float16").click()
    settle(page)
    assert "ops_in_float32: [MatMul]" in page.locator("#wb-recipe").input_value(), message(page)
