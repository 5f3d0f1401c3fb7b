"""The page of the workbench: for everybody, on every screen, in light and dark, whatever a model is called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

SMALL = """g (float[n, 3] x) => (float[n, 3] y) {
    [first] a = Abs(x)
    [drop] d = Dropout(a)
    [last] y = Neg(d)
}"""
SCRIPT = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse(SMALL), path)
    return path


def until(page: Any, expression: str) -> None:
    for _ in range(1200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def select(page: Any, name: str) -> None:
    names = "[...Array(view.model.n).keys()].map((row) => view.model.strings[view.model.name[row]])"
    page.evaluate(f"(name) => view.select({names}.indexOf(name))", name)
    page.wait_for_selector("#wb-offers details[data-pass]")


def act(page: Any, step: str) -> None:
    page.evaluate("(step) => workbench.act({act: 'add', step})", step)
    until(page, "document.body.dataset.drawn === String(workbench.state.version)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_view(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(serve(model), color_scheme=scheme)

    def check(view: str) -> None:
        found = axe.run(page).response["violations"]
        grave = [
            (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert grave == [], view

    check("nothing selected")
    select(page, "drop")
    page.locator("#wb-offers details[data-pass] summary").first.click()
    page.get_by_text("Not here:").click()
    check("offers")
    act(page, "drop-dropout")
    act(page, "rename: {nodes: {first: one}}")
    check("steps")
    page.evaluate("workbench.act({act: 'add', step: {'replace-op': {nodes: 'one', op: 'Sigmoid', keeps: 'close'}}})")
    page.wait_for_selector("#wb-message .wb-message")
    check("refused")
    page.get_by_label("The recipe as YAML").fill("steps: [nothing-like-it]")
    page.get_by_role("button", name="Run the recipe as written").click()
    page.wait_for_selector("#wb-problems li")
    check("mistakes")


def test_the_page_fits_a_tablet_and_a_small_laptop(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path
) -> None:
    page = open_page(serve(model))
    select(page, "drop")
    for width, height in ((1280, 800), (1024, 768), (820, 1180), (600, 960)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        graph = page.locator("#graph-view").bounding_box()
        assert graph["width"] >= 400 and graph["height"] >= 350, width
        save = page.get_by_role("button", name="Save model, recipe, report and provenance")
        save.scroll_into_view_if_needed()
        assert save.is_visible()


def test_everything_can_be_done_with_the_keyboard(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path
) -> None:
    page = open_page(serve(model))
    page.keyboard.press("/")
    page.keyboard.type("drop")
    page.keyboard.press("Enter")
    page.wait_for_selector("#wb-offers details[data-pass=drop-dropout]")
    page.locator("#wb-offers details[data-pass=drop-dropout] > summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(page, "workbench.state.version === 1 && document.body.dataset.busy === 'no'")
    page.keyboard.press("Control+z")
    until(page, "workbench.state.steps.length === 0")
    page.keyboard.press("Control+Shift+Z")
    until(page, "workbench.state.steps.length === 1")


def test_the_colors_of_the_graph_show_what_a_step_did(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path
) -> None:
    page = open_page(serve(model))
    act(page, "drop-dropout")
    rows = "[...Array(view.model.n).keys()].filter((row) => view.scene.status[row] === surgeryViewer.REMOVED)"
    assert page.evaluate(f"{rows}.map((row) => view.model.strings[view.model.name[row]])") == ["drop"]
    assert page.evaluate("view.model.states.length") == 2


def test_a_model_full_of_scripts_is_text(
    serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    model = text.parse(SMALL)
    for node in model.graph.node:
        node.name = SCRIPT + node.name
        node.doc_string = SCRIPT
    model.producer_name = SCRIPT
    path = tmp_path / "a<b>&c.onnx"
    onnx.save(model, path)
    page = open_page(serve(path))
    select(page, SCRIPT + "first")
    assert SCRIPT[:20] in page.locator(".wb-chips").inner_text()
    page.evaluate(
        "(name) => workbench.act({act: 'add', step: {'replace-op': {nodes: name, op: 'Sigmoid', keeps: 'close'}}})",
        SCRIPT + "first",
    )
    page.wait_for_selector("#wb-message .wb-message")
    assert page.locator("img").count() == 0 and page.get_by_role("heading", name="a<b>&c.onnx").is_visible()


def test_a_crash_of_native_code_is_one_line_in_the_page(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgery.interface.workbench.shared_session import SharedSession

    page = open_page(serve(model))

    def broken(*_: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(SharedSession, "values", broken)
    page.evaluate("workbench.values.show('a')")
    page.wait_for_selector("#wb-message .wb-message")
    assert "no more" in page.locator("#wb-message").inner_text()
    act(page, "drop-dropout")
    assert page.locator("#wb-steps > li").count() == 1


def test_the_saved_report_is_one_click_away(
    serve: Callable[..., str], open_page: Callable[..., Any], model: Path
) -> None:
    page = open_page(serve(model))
    act(page, "drop-dropout")
    act(page, "rename: {nodes: {first: one}}")
    page.get_by_role("button", name="Save model, recipe, report and provenance").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="edited/small.report.html").click()
    report = opened.value
    report.wait_for_selector("#graph-view .sv-toolbar")
    assert report.get_by_role("heading", name="small.onnx").count() == 1
    assert report.locator("[id^=step-]").count() >= 2
    # The page of a model is not trusted: it cannot ask the server for anything.
    state = "fetch('/api/state').then((answer) => answer.status, () => 'refused')"
    assert report.evaluate(state) == "refused" and report.evaluate("self.origin") == "null"
    assert page.locator("#wb-saved li").count() == 5
