"""What can be added without a selection: the steps of a recipe, and every pass by its name or purpose."""

from pathlib import Path
from typing import Any

import onnx
import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.fixture
def page(serve: Any, open_page: Any, short_models: Path, tmp_path: Path) -> Any:
    model = tmp_path / "bert.onnx"
    model.write_bytes((short_models / "bert-dropout-tiny.onnx").read_bytes())
    return open_page(serve(model))


def added(page: Any) -> None:
    page.wait_for_selector("#wb-steps > li")
    page.wait_for_selector("body[data-busy=no]")


def test_the_steps_of_a_recipe_are_added_by_one_press(page: Any, tmp_path: Path) -> None:
    assert page.get_by_role("combobox", name="Recipe").input_value() == "default"
    page.get_by_role("button", name="Add", exact=True).click()
    added(page)
    assert page.locator("#wb-steps h3").inner_text().startswith("1. use default")
    assert "- use: default" in page.locator("#wb-recipe").input_value()
    page.get_by_role("button", name="Save model, recipe, report and provenance").click()
    page.wait_for_selector("#wb-saved li")
    made = onnx.load(tmp_path / "edited" / "bert.onnx")
    assert len(made.graph.node) < len(onnx.load(tmp_path / "bert.onnx").graph.node)


def test_a_pass_is_found_by_its_purpose(page: Any) -> None:
    page.get_by_text("Add a pass").click()
    page.wait_for_selector("#wb-whole details[data-pass]")
    search = page.get_by_label("Find a pass")
    search.fill("nonsense")
    assert page.get_by_text("No pass has these words.").is_visible()
    search.fill("remove dropout")
    shown = page.locator("#wb-whole details[data-pass]:visible")
    assert "drop-dropout" in shown.locator("summary b").all_inner_texts()
    form = page.locator("#wb-whole details[data-pass='drop-dropout']")
    form.locator("summary").first.click()
    form.get_by_role("button", name="Add drop-dropout").click()
    added(page)
    assert "7 removed" in page.locator("#wb-steps").inner_text()
    # The list is that of the model now.
    page.wait_for_function("() => workbench.whole.version === workbench.state.version")


def test_the_details_of_the_viewer_open_when_they_are_asked_for(page: Any) -> None:
    page.evaluate("view.select(0)")
    page.wait_for_selector("#wb-properties input")
    panel = page.get_by_role("complementary", name="Details")
    assert not panel.is_visible()
    page.get_by_role("button", name="Details", exact=True).click()
    assert panel.is_visible()
    page.evaluate("view.select(1)")
    assert panel.is_visible()
    page.get_by_role("button", name="Details", exact=True).click()
    assert not panel.is_visible()
