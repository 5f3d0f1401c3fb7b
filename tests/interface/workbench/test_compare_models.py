"""A second model of the folder is compared in the same viewer, and on the same inputs, in Chromium."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.workbench_acts import add, choose, message, picture, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

FIRST = """g (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) {
    [drop] d = Dropout(x)
    [neg] y = Neg(d)
    [same] z = Abs(x)
}"""


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def page_of(**options: Any) -> Any:
        (tmp_path / "models").mkdir()
        onnx.save(text.parse(FIRST), tmp_path / "first.onnx")
        onnx.save(text.parse(FIRST.replace("Neg(d)", "Sigmoid(d)")), tmp_path / "models" / "other.onnx")
        onnx.save(text.parse(FIRST.replace("[drop] d = Dropout(x)", "").replace("(d)", "(x)")), tmp_path / "less.onnx")
        (tmp_path / "text.onnx").write_text("no model")
        return open_page(serve(tmp_path / "first.onnx"), **options)

    return page_of


def compare(page: Any, path: str) -> str:
    field = page.get_by_label("An .onnx file of the folder")
    field.fill(path)
    field.press("Enter")
    until(page, "(path) => document.body.dataset.compared === path", path)
    return str(page.locator("#wb-second-body").inner_text())


def nodes(page: Any, status: str) -> list[str]:
    """Return the names of the nodes that are shown as added or removed."""
    view = "workbench.second.view"
    rows = f"[...Array({view}.model.n).keys()].filter((row) => {view}.scene.status[row] === surgeryViewer.{status})"
    found: list[str] = page.evaluate(f"{rows}.map((row) => {view}.model.strings[{view}.model.name[row]])")
    return found


def test_nodes_of_one_model_only_are_in_colors_and_outputs_are_compared(opened: Any) -> None:
    page = opened()
    page.get_by_label("An .onnx file of the folder").focus()
    until(page, "document.querySelectorAll('#wb-second-files option').length === 4")
    found = compare(page, "models/other.onnx")
    assert "1 node only in this model, 1 node only in models/other.onnx" in found
    assert "Outputs: different" in found and "instead of" in found
    rows = page.locator("#wb-second-body tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["y", "z"] and "0 of" in rows[1] and "0 of" not in rows[0].split("\t")[1]
    assert page.evaluate("getComputedStyle(document.getElementById('graph-view')).display") == "none"
    assert nodes(page, "REMOVED") == ["neg"] and nodes(page, "ADDED") == ["neg"]
    picture(page)
    found = compare(page, "less.onnx")
    assert "1 node only in this model, 0 nodes only in less.onnx" in found and "Outputs: equal" in found
    assert nodes(page, "REMOVED") == ["drop"] and nodes(page, "ADDED") == []
    page.get_by_role("button", name="Back to the model").click()
    until(page, "!document.getElementById('graph-view').hidden && document.body.dataset.compared === undefined")
    choose(page, "drop")
    add(page, "drop-dropout")
    assert page.locator("#wb-steps > li").count() == 1


def test_it_is_compared_with_the_model_after_the_last_step(opened: Any) -> None:
    page = opened()
    choose(page, "drop")
    add(page, "drop-dropout")
    found = compare(page, "less.onnx")
    assert "0 nodes only in this model, 0 nodes only in less.onnx" in found and "Outputs: equal" in found
    page.get_by_role("button", name="Undo").click()
    until(page, "document.body.dataset.compared === undefined && document.body.dataset.busy === 'no'")
    assert page.locator("#graph-view").is_visible() and not page.locator("#graph-second").is_visible()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../first.onnx", "outside of the opened folder"),
        ("missing.onnx", "missing.onnx"),
        ("text.onnx", "text.onnx"),
    ],
)
def test_a_wrong_second_model_is_one_line(opened: Any, path: str, words: str) -> None:
    page = opened()
    field = page.get_by_label("An .onnx file of the folder")
    field.fill(path)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_selector("#wb-message .wb-message")
    assert words in message(page) and "\n" not in message(page).strip()
    assert page.locator("#graph-view").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_comparison(opened: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(color_scheme=scheme)
    compare(page, "models/other.onnx")
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    for width, height in ((1280, 800), (820, 1180)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.locator("#graph-second").bounding_box()["width"] >= 400
    picture(page)
