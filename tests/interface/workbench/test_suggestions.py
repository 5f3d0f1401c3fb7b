"""Suggestions in the recipe of the workbench: passes, options and values, with the keyboard and the mouse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.workbench_acts import picture, settle, steps, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

SMALL = "g (float[n, 3] x) => (float[n, 3] y) { [drop] d = Dropout(x) [last] y = Neg(d) }"

PLACES = {
    "st|": ([], "st", "key"),
    "steps:\n  - |": (["steps", 0], "", "key value"),
    "steps:\n- drop-|": (["steps", 0], "drop-", "key value"),
    "steps:\n  - drop-dead\n  - insert-after:\n      o|": (["steps", 0, "insert-after"], "o", "key"),
    "steps:\n  - replace-op: {nodes: a, |": (["steps", 0, "replace-op"], "", "key"),
    "steps:\n  - replace-op: {nodes: [a, b], keeps: cl|": (["steps", 0, "replace-op", "keeps"], "cl", "value"),
    "steps:\n  - replace-op:\n      keeps: |": (["steps", 0, "replace-op", "keeps"], "", "value"),
    "steps:\n  - repeat: 2\n    steps:\n      - dr|": (["steps", 0, "steps", 0], "dr", "key value"),
    "verify:\n  mode: |\nsteps: [drop-dead]": (["verify", "mode"], "", "value"),
    "verify: {mode: e|": (["verify", "mode"], "e", "value"),
    "steps: [drop-dead, dro|": (["steps", 0], "dro", "value"),
    "rules:\n  mine:\n    match: |\n      y = Relu(x)\nsteps:\n  - pass: dr|": (["steps", 0, "pass"], "dr", "value"),
    "about: |\n  say st|": None,
    "steps:  # st|": None,
    'about: "st|': None,
}


@pytest.fixture
def page(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> Any:
    onnx.save(text.parse(SMALL), tmp_path / "model.onnx")
    page = open_page(serve(tmp_path / "model.onnx"))
    page.get_by_label("The recipe as YAML").focus()
    until(page, "workbench.text.completion.schema")
    return page


def typed(page: Any, before: str, word: str) -> list[str]:
    """Type a word after a text; return the suggestions."""
    page.evaluate(
        "(text) => { const a = document.getElementById('wb-recipe'); a.value = text; a.focus(); "
        "a.setSelectionRange(text.length, text.length); }",
        before,
    )
    page.keyboard.type(word)
    return list(page.locator("#wb-complete [role=option] span").all_inner_texts()) if is_open(page) else []


def is_open(page: Any) -> bool:
    return bool(page.locator("#wb-complete").is_visible())


def value(page: Any) -> str:
    return str(page.get_by_label("The recipe as YAML").input_value())


def test_the_place_of_the_cursor_is_known(page: Any) -> None:
    for written, expected in PLACES.items():
        at = written.rindex("|")
        found = page.evaluate(
            "([text, at]) => surgeryViewer.yamlPlace(text, at)", [written[:at] + written[at + 1 :], at]
        )
        if expected is None:
            assert found is None, written
            continue
        path, word, kinds = expected
        said = " ".join(kind for kind in ("key", "value") if found[f"is{kind.title()}"])
        assert (found["path"], found["word"], said) == (path, word, kinds), written


def test_passes_options_and_values_are_suggested(page: Any) -> None:
    assert "insert-after" in typed(page, "steps:\n  - ", "ins") and "drop-dead" not in typed(
        page, "steps:\n  - ", "ins"
    )
    assert typed(page, "steps:\n  - replace-op: {", "ke") == ["keeps"]
    assert typed(page, "steps:\n  - replace-op: {nodes: a, keeps: ", "c")[0] == "close"
    assert typed(page, "steps:\n  - replace-op:\n      nodes: a\n      ", "attr")[0] == "attributes"
    assert set(typed(page, "verify: {mode: ", "e")) >= {"each", "end"}
    assert "accuracy" in typed(page, "steps: [drop-dead]\n", "acc")
    assert typed(page, "about: ", "st") == [] and typed(page, "steps:\n  - ", "qqq") == []


def test_a_recipe_is_written_with_suggestions_and_the_keyboard(page: Any) -> None:
    typed(page, "steps:\n  - ", "drop-dr")
    area = page.get_by_label("The recipe as YAML")
    chosen = area.get_attribute("aria-activedescendant")
    assert page.locator(f"#{chosen}").get_attribute("aria-selected") == "true"
    assert page.locator("#wb-complete-count").inner_text().endswith("suggestion")
    picture(page)
    page.keyboard.press("Enter")
    assert value(page) == "steps:\n  - drop-dropout" and not is_open(page)
    page.keyboard.press("Control+z")
    assert value(page) == "steps:\n  - drop-dr"  # one undo takes it back
    typed(page, "steps:\n  - drop-dropout\n  - replace-op: {nodes: last, op: Relu, ", "k")
    page.keyboard.press("Tab")
    assert value(page).endswith("op: Relu, keeps: ") and is_open(page)  # the values follow at once
    shown = page.locator("#wb-complete [role=option] span").all_inner_texts()
    assert shown == ["close", "exact", "nothing"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.keyboard.type("}")
    assert value(page).endswith("keeps: nothing}") and not is_open(page)
    page.keyboard.press("Control+Enter")
    settle(page)
    assert steps(page) == ["drop-dropout", "replace-op"]


def test_the_list_is_closed_and_asked_for(page: Any) -> None:
    assert typed(page, "steps:\n  - ", "dr")
    page.keyboard.press("Escape")
    assert not is_open(page) and value(page).endswith("- dr")
    page.keyboard.press("Enter")  # a new line again
    assert value(page).endswith("- dr\n")
    typed(page, "verify:\n  ", "")
    assert not is_open(page)
    page.keyboard.press("Control+Space")
    assert "rtol" in page.locator("#wb-complete [role=option] span").all_inner_texts()
    page.keyboard.type("rt")
    assert page.locator("#wb-complete [role=option] span").all_inner_texts()[0] == "rtol"
    page.locator("#wb-complete [role=option]").first.click()
    assert value(page) == "verify:\n  rtol: "
    assert typed(page, "steps:\n  - ", "dr")
    page.get_by_label("Folder, or name of an .onnx file").focus()
    assert not is_open(page)


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 820)])
def test_the_list_is_accessible_and_below_the_cursor(
    serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path, scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    onnx.save(text.parse(SMALL), tmp_path / "model.onnx")
    page = open_page(serve(tmp_path / "model.onnx"), color_scheme=scheme, width=width)
    page.get_by_label("The recipe as YAML").focus()
    until(page, "workbench.text.completion.schema")
    assert typed(page, "recipe: one\nsteps:\n  - drop-dead\n  - ", "fuse")
    page.locator("#wb-complete").scroll_into_view_if_needed()
    picture(page)
    box, area = (page.locator(one).bounding_box() for one in ("#wb-complete", "#wb-recipe"))
    line = page.evaluate("parseFloat(getComputedStyle(document.getElementById('wb-recipe')).lineHeight)")
    assert 3.5 * line < box["y"] - area["y"] < 6 * line and box["x"] >= area["x"]
    assert box["x"] + box["width"] <= area["x"] + area["width"] + 1
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
