"""Whole pages in Chromium: accessibility with everything unfolded, on a screen and on a phone, and A4 paper."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surgery import cli

pytestmark = pytest.mark.slow

UNFOLD = "document.querySelectorAll('main details').forEach((each) => (each.open = true))"


@pytest.fixture(scope="module")
def pages(short_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report, a difference and a view."""
    folder = tmp_path_factory.mktemp("pages")
    model, result = str(short_models / "bert-dropout-tiny.onnx"), str(folder / "result.onnx")
    found = {kind: folder / f"{kind}.html" for kind in ("report", "difference", "view")}
    assert cli.main(["apply", "default", model, "-o", result, "--report", str(found["report"])]) == 0
    assert cli.main(["diff", model, result, "--html", str(found["difference"])]) == 0
    assert cli.main(["view", model, "--costs", "-o", str(found["view"])]) == 0
    return found


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_everybody_can_use_a_page(
    kind: str, width: int, scheme: str, pages: dict[str, Path], open_file: Callable[..., Any]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_file(pages[kind], width=width, color_scheme=scheme)
    page.wait_for_selector(".sv-toolbar")
    page.evaluate(UNFOLD)
    if kind != "view" and width > 1000:
        page.locator(".sv-site").first.click()
    found = [(each["id"], each["nodes"][0]["html"][:200]) for each in axe.Axe().run(page).response["violations"]]
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", ["report", "difference", "view"])
def test_a_page_prints_on_a4(kind: str, pages: dict[str, Path], open_file: Callable[..., Any]) -> None:
    # 180 mm between the margins, at 96 px an inch.
    page = open_file(pages[kind], width=680, height=1000)
    page.wait_for_selector(".sv-toolbar")
    page.emulate_media(media="print")
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((each) => each.getBoundingClientRect().right > 681"
        " && getComputedStyle(each).position !== 'absolute').map((each) => each.outerHTML.slice(0, 120))"
    )
    assert wide == []
    printed = page.pdf(prefer_css_page_size=True)
    boxes = set(re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", printed))
    assert {(round(float(width)), round(float(height))) for width, height in boxes} == {(595, 842)}
