"""Pages in Chromium: numbers in full rows, heads above their rows, labels, the graph on paper, and in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from support import drawings
from support.pictures import dots

import surgery
from surgery.interface.commands import main

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

CHANGED = drawings.changed()


@pytest.fixture(scope="module")
def made(short_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a result with its report and its view."""
    folder = tmp_path_factory.mktemp("layout")
    result = folder / "result.onnx"
    source = str(short_models / "bert-dropout-tiny.onnx")
    assert main(["apply", "default", source, "-o", str(result), "--report", str(folder / "report.html")]) == 0
    assert main(["view", str(result), "-o", str(folder / "view.html")]) == 0
    return folder


def drawn(page: Page) -> Page:
    page.wait_for_selector(".sv-toolbar")
    return page


@pytest.mark.parametrize(("width", "columns"), [(1280, 8), (820, 4), (390, 2)])
def test_the_numbers_fill_their_rows(made: Path, open_file: Callable[..., Page], width: int, columns: int) -> None:
    page = open_file(made / "report.html", width=width)
    rows: dict[float, int] = {}
    for box in page.locator(".facts > div").all():
        at = box.bounding_box()
        assert at is not None
        rows[at["y"]] = rows.get(at["y"], 0) + 1
    assert set(rows.values()) == {columns}


def test_the_head_of_a_table_stays_with_its_rows(made: Path, open_file: Callable[..., Page]) -> None:
    page = drawn(open_file(made / "report.html"))
    page.evaluate("document.querySelector('.steps tbody tr:last-child').scrollIntoView({block: 'center'})")
    head, last, contents = (
        page.locator(one).first.bounding_box() for one in (".steps thead th", ".steps tbody tr:last-child", ".contents")
    )
    assert head is not None and last is not None and contents is not None
    assert contents["y"] == 0 and head["y"] == pytest.approx(contents["height"], abs=1) and head["y"] < last["y"]
    assert page.evaluate("document.querySelectorAll('.wide.fits[tabindex]').length") == 0


def test_a_table_that_is_too_wide_scrolls_by_itself(made: Path, open_file: Callable[..., Page]) -> None:
    page = drawn(open_file(made / "report.html", width=390))
    wide = page.locator("#weights .wide:not(.fits)").first
    assert wide.get_attribute("tabindex") == "0"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_each_icon_of_the_toolbar_has_its_word(made: Path, open_file: Callable[..., Page], width: int) -> None:
    page = drawn(open_file(made / "report.html", width=width))
    buttons = [button for button in page.locator(".sv-toolbar .sv-button").all() if button.is_visible()]
    assert len(buttons) == (8 if width > 760 else 4)
    for button in buttons:
        word = button.inner_text().strip()
        # The visible word begins the accessible name, so that it can be spoken to a program.
        assert word and (button.get_attribute("aria-label") or "").startswith(word)


def test_a_small_graph_fills_the_view(open_viewer: Callable[..., Page]) -> None:
    page = open_viewer(CHANGED)
    scale = page.evaluate("view.camera.k")
    share = page.evaluate("Math.max(view.scene.width / view.camera.width, view.scene.height / view.camera.height)")
    assert scale > 1
    assert scale == pytest.approx(1.5) or scale * share > 0.9


def test_removed_constants_are_faint(browser: Any, open_viewer: Callable[..., Page]) -> None:
    def darkest(op: str) -> int:
        """Return the darkest green of the first removed node, drawn as an operator."""
        drawing = drawings.changed()
        page = open_viewer(drawing)
        node = page.evaluate("view.model.died.findIndex((died, at) => died >= 0 && view.scene.shown[at])")
        page.evaluate("([node, op]) => { view.model.strings[view.model.op[node]] = op; view.rebuild(); }", [node, op])
        page.wait_for_timeout(100)
        box = page.evaluate(
            """(node) => {
              const { camera, scene, canvas } = view, { left, top } = canvas.getBoundingClientRect();
              const [x, y] = camera.toScreen(scene.x[node], scene.y[node]), k = camera.k;
              const [width, height] = [k * scene.layout.width[node], k * scene.layout.height[node]];
              return { x: x + left, y: y + top, width, height };
            }""",
            node,
        )
        return min(green for _, green, _ in dots(browser, page.screenshot(clip=box)))

    assert darkest("Div") < 100 < 130 < darkest("Constant")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_prints_a_light_picture_of_its_graph(made: Path, open_file: Callable[..., Page], scheme: str) -> None:
    page = drawn(open_file(made / "report.html", width=680, color_scheme=scheme))
    page.emulate_media(media="print", color_scheme=scheme)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    picture = page.get_by_role("img", name="Graph of ")
    box = picture.bounding_box()
    assert box is not None and box["width"] <= 680 and 100 < box["height"] <= 480
    assert picture.locator("text").count() > 10
    assert picture.locator("> rect").first.get_attribute("fill") == "#fcfcfb"


def test_the_rows_of_steps_follow_their_head_on_paper(made: Path, open_file: Callable[..., Page]) -> None:
    page = drawn(open_file(made / "report.html", width=680))
    page.emulate_media(media="print")
    kept = page.evaluate(
        "[...document.querySelectorAll('.steps tr.has-more')].filter("
        "(row) => getComputedStyle(row).breakAfter === 'avoid'"
        " && !row.nextElementSibling.querySelector('details').open).length"
    )
    assert page.locator(".steps tr.has-more").count() > 5 and kept == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.steps thead')).breakInside") == "avoid"


def test_the_statement_of_a_model_is_a_section(made: Path, open_file: Callable[..., Page]) -> None:
    page = drawn(open_file(made / "view.html"))
    section = page.get_by_role("region", name="Provenance")
    assert "default, by surgery" in section.inner_text() and "numpy@" in section.inner_text()
    passes = section.get_by_role("rowheader").all_inner_texts()
    assert "drop-dropout" in passes
    assert "in-toto" not in page.locator("main").inner_text()


def test_a_foreign_statement_stays_metadata(tmp_path: Path, open_file: Callable[..., Page]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {y = Relu(x)}'
    )
    onnx.helper.set_model_props(model, {"surgery.provenance": '{"predicate": {"runDetails": {"builder": {"id": 1}}}}'})
    path = tmp_path / "page.html"
    path.write_text(surgery.view(model).html, encoding="utf-8")
    page = drawn(open_file(path))
    assert page.get_by_role("region", name="Provenance").count() == 0
    assert "runDetails" in page.locator("#summary").inner_text()


def test_the_frame_of_a_notebook_is_a_whole_page(browser: Any, made: Path, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>n</title>{surgery.view(made / 'result.onnx')._repr_html_()}", "utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(notebook.as_uri())
    frame = page.frames[1]
    frame.wait_for_selector(".sv-toolbar")
    frame.get_by_role("link", name="Operators").click()
    page.wait_for_timeout(200)
    # A link stays in the frame, and shows its section.
    assert frame.url == "about:srcdoc#operators" and page.url == notebook.as_uri()
    assert 0 <= frame.evaluate("document.getElementById('operators').getBoundingClientRect().top") < 200
    with page.expect_download() as saved:
        frame.get_by_role("button", name="Save SVG").click()
    assert saved.value.suggested_filename == "result.onnx.svg"
    assert said == []
    page.close()
