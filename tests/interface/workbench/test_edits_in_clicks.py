"""The clicks that ten common edits take, as docs/explanation/edits-in-clicks.md has them, done with a mouse."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.utils
import pytest
from onnx import numpy_helper
from support import ROOT

from surgery.model.graph import text

MODEL = """g (float[2, 3] image) => (float[2, 3] scores)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}, float[3] b = {1, 2, 3}> {
    [features] f = MatMul(image, w)
    [active] a = LeakyRelu<alpha = 0.2>(f)
    [drop] d = Dropout(a)
    [bias] scores = Add(d, b)
}"""


class Hand:
    """A mouse and a keyboard, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def select(self, name: str) -> None:
        """Click a node, an input or an output in the graph."""
        self.page.evaluate("view.fit(true)")
        at = self.page.evaluate(
            "(name) => { const m = view.model, box = view.canvas.getBoundingClientRect(); let row = 0; "
            "while (m.died[row] >= 0 || m.strings[m.name[row]] !== name) row++; "
            "const [left, top, right, bottom] = view.scene.rectangle(row), middle = (left + right) / 2; "
            "const [x, y] = view.camera.toScreen(middle, (top + bottom) / 2); return [x + box.left, y + box.top]; }",
            name,
        )
        self.page.mouse.click(*at)
        self.clicks += 1
        self.page.wait_for_selector("#wb-offers details[data-pass]")
        assert self.page.locator(".wb-chips li").all_inner_texts() == [name]

    def press(self, target: Any) -> None:
        """Click a button, or a field."""
        target.click()
        self.clicks += 1

    def type(self, key: str, value: str) -> None:
        """Click the field of a property, and type another value."""
        field = self.page.locator(f"input[data-property='{key}']")
        self.press(field)
        field.press("Control+a")
        field.press_sequentially(value)
        field.press("Enter")

    def act(self, key: str) -> None:
        self.press(self.page.locator(f"button[data-property='{key}']"))


def insert(hand: Hand) -> None:
    hand.select("bias")
    form = hand.page.locator("#wb-offers details[data-pass='insert-after']")
    hand.press(form.locator("> summary"))
    hand.press(form.locator("[name='op']"))
    hand.page.keyboard.type("Softmax")
    hand.page.keyboard.press("Enter")


def selected(name: str, do: Callable[[Hand], None]) -> Callable[[Hand], None]:
    def edit(hand: Hand) -> None:
        hand.select(name)
        do(hand)

    return edit


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def dims(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


EDITS: dict[str, tuple[Callable[[Hand], None], Callable[[onnx.ModelProto], bool]]] = {
    "Remove a node": (
        selected("drop", lambda hand: hand.act("remove")),
        lambda model: operators(model) == ["MatMul", "LeakyRelu", "Add"],
    ),
    "Cut the model after a node": (
        selected("active", lambda hand: hand.act("cut-after")),
        lambda model: operators(model) == ["MatMul", "LeakyRelu"] and model.graph.output[0].name == "a",
    ),
    "Rename an input": (
        selected("image", lambda hand: hand.type("tensor:image", "pixels")),
        lambda model: model.graph.input[0].name == "pixels",
    ),
    "Rename an output": (
        selected("scores", lambda hand: hand.type("tensor:scores", "logits")),
        lambda model: model.graph.output[0].name == "logits",
    ),
    "Make the batch dynamic": (
        selected("image", lambda hand: hand.type("dims:image", "batch, 3")),
        lambda model: dims(model.graph.input[0]) == dims(model.graph.output[0]) == ["batch", 3],
    ),
    "Make a tensor an output": (
        selected("features", lambda hand: hand.act("output")),
        lambda model: [one.name for one in model.graph.output] == ["scores", "f"],
    ),
    "Change an attribute": (
        selected("active", lambda hand: hand.type("attribute:alpha", "0.5")),
        lambda model: model.graph.node[1].attribute[0].f == 0.5,
    ),
    "Change a weight": (
        selected("bias", lambda hand: hand.type("weight:b", "4, 5, 6")),
        lambda model: any(numpy_helper.to_array(one).tolist() == [4, 5, 6] for one in model.graph.initializer),
    ),
    "Replace an operator": (
        selected("active", lambda hand: hand.type("operator", "Relu")),
        lambda model: operators(model)[1] == "Relu",
    ),
    "Insert an operator": (insert, lambda model: operators(model)[-1] == "Softmax"),
}


PAGE = (ROOT / "docs" / "explanation" / "edits-in-clicks.md").read_text(encoding="utf-8")
ROWS = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.split("\n") if line.startswith("| ")]
CLICKS = {row[0]: row[1:] for row in ROWS[2:]}
SCRIPTS = dict(re.findall(r"^### ([^\n]+)\n\n```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_the_page_has_these_edits_and_surgery_needs_the_fewest_clicks() -> None:
    assert list(EDITS) == list(CLICKS) == list(SCRIPTS)
    for ours, theirs, _ in CLICKS.values():
        assert int(ours) <= int(theirs)


@pytest.mark.parametrize("edit", EDITS)
def test_a_script_makes_the_same_edit_in_the_lines_that_the_page_says(
    edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), "model.onnx")
    exec(compile(SCRIPTS[edit], "edits-in-clicks.md", "exec"), {"onnx": onnx, "np": np})
    made = onnx.load("edited.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert EDITS[edit][1](made)
    assert re.match(rf"1 click, {len(SCRIPTS[edit].splitlines())} lines?$", CLICKS[edit][2])


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_takes_the_clicks_that_the_page_says(edit: str, serve: Any, open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(MODEL), path)
    page = open_page(serve(path))
    hand = Hand(page)
    do, is_done = EDITS[edit]
    do(hand)
    for _ in range(600):
        if page.locator("#wb-steps > li").count():
            break
        page.wait_for_timeout(50)
    page.get_by_role("button", name="Save model, recipe, report and provenance").click()
    page.wait_for_selector("#wb-saved li")
    assert is_done(onnx.load(tmp_path / "edited" / "small.onnx"))
    assert str(hand.clicks) == CLICKS[edit][0]
