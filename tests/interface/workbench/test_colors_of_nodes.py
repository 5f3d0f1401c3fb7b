"""Nodes are colored by cost, by time, and by what executes them, with a legend in words, in Chromium."""

import re
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

MODEL = f"""g (float[n, 3, 8, 8] x) => (float[n, 2, 6, 6] y) <float[2, 3, 3, 3] w = {{{", ".join("1" * 54)}}}> {{
    [drop] d = Dropout(x)
    [conv] c = Conv(d, w)
    [relu] r = Relu(c)
    [neg] y = Neg(r)
}}"""


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def page_of(model: str = MODEL, **options: Any) -> Any:
        onnx.save(text.parse(model), tmp_path / "small.onnx")
        return open_page(serve(tmp_path / "small.onnx"), **options)

    return page_of


def color(page: Any, kind: str) -> str:
    page.locator("#wb-heat").select_option(kind)
    until(page, "(kind) => document.body.dataset.heat === kind", kind)
    return str(page.locator("#wb-legend").inner_text())


def levels(page: Any) -> dict[str, int]:
    """Return the classes in which nodes are drawn."""
    found: dict[str, int] = page.evaluate(
        "Object.fromEntries([...Array(view.model.n).keys()].filter((row) => !view.model.isPort(row)).map("
        "(row) => [view.model.strings[view.model.name[row]], view.painter.families[row]]))"
    )
    return found


def test_the_most_expensive_node_has_the_strongest_color(opened: Any) -> None:
    page = opened()
    before = page.evaluate("view.palette.families[1].fill")
    found = color(page, "flops")
    page.wait_for_timeout(200)
    drawn = levels(page)
    assert drawn["conv"] == 6 and drawn["drop"] == 0 and 0 < drawn["relu"] < 6
    assert "Operations" in found and re.search(r"over .*FLOP: 1", found)
    page.get_by_text("Largest, of").click()
    first = page.locator("#wb-legend ol button").first
    assert first.inner_text().startswith("conv: 3888 FLOP")  # 36 places of 2 channels, 27 products each
    first.click()
    until(page, "document.querySelector('.wb-chips li')?.textContent === 'conv'")
    picture(page)
    assert "Bytes moved" in color(page, "bytes")
    page.locator("#wb-heat").select_option("")
    until(page, "document.body.dataset.heat === undefined")
    assert page.evaluate("view.palette.families[1].fill") == before and not page.locator("#wb-legend").is_visible()


def test_what_is_executed_and_what_the_runtime_merged_are_told_apart(opened: Any) -> None:
    page = opened()
    found = color(page, "executed")
    page.wait_for_timeout(200)
    drawn = levels(page)
    assert drawn["drop"] == 0 and drawn["neg"] == 1  # the runtime drops the Dropout
    assert "merged or removed by the runtime" in found and "CPU" in found and "nodes executed" in found
    picture(page)


def test_measured_times_are_shown_and_not_measured_again_by_themselves(opened: Any) -> None:
    page = opened()
    found = color(page, "seconds")
    assert "Time" in found and "s" in found and "without optimizations" in found
    choose(page, "drop")
    add(page, "drop-dropout")
    assert page.locator("#wb-heat").input_value() == "" and not page.locator("#wb-legend").is_visible()
    color(page, "flops")
    page.get_by_role("button", name="Undo").click()
    until(page, "workbench.state.steps.length === 0 && document.body.dataset.busy === 'no'")
    until(page, "document.body.dataset.drawn === String(workbench.state.version)")
    until(page, "view.heat && document.body.dataset.heat === 'flops'")
    assert levels(page)["conv"] == 6


def test_a_model_that_does_not_run_has_costs_and_one_line_for_the_rest(opened: Any) -> None:
    page = opened("g (float[n, 3] x) => (float[n, 3] y) <float[4] b = {1, 2, 3, 4}> { [add] y = Add(x, b) }")
    page.locator("#wb-heat").select_option("seconds")
    page.wait_for_selector("#wb-message .wb-message")
    assert "cannot be run" in message(page) and page.locator("#wb-heat").input_value() == ""
    color(page, "bytes")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_colors(opened: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(color_scheme=scheme)
    color(page, "flops")
    page.get_by_text("Largest, of").click()
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    for width, height in ((1280, 800), (820, 1180)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        picture(page)
