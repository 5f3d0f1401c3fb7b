"""A tensor is looked at before and after a step: figures, histograms, the difference and images, in Chromium."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.workbench_acts import add, choose, choose_tensor, picture, settle, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

IMAGE = """g (float[1, 3, 8, 8] image) => (float[1, 3, 8, 8] y) <float[1] two = {2}, float[1] three = {3}> {
    [scaled] s = Mul(image, two)
    [same] i = Identity(s)
    [moved] y = Add(i, three)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "image.onnx"
    onnx.save(text.parse(IMAGE), path)
    return path


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, recipe=None, **options: open_page(serve(model, recipe), **options)


def look(page: Any) -> str:
    page.get_by_role("button", name="Look at values").click()
    page.wait_for_selector("#wb-values-body table")
    return shown(page)


def shown(page: Any) -> str:
    return str(page.locator("#wb-values").inner_text())


def pixel(page: Any, number: int) -> list[int]:
    script = (
        "(k) => [...document.querySelectorAll('#wb-values canvas')[k].getContext('2d').getImageData(0, 0, 8, 8).data]"
    )
    return list(page.evaluate(script, number))


def test_a_changed_weight_is_seen_in_figures_and_images(opened: Any, model: Path) -> None:
    np.save(model.parent / "weight.npy", np.array([2.5], np.float32))
    page = opened(model)
    choose(page, "scaled")
    assert "No step has changed the model yet" in look(page) and page.locator("#wb-values canvas").count() == 1
    add(page, "set-initializer", name="two", file="weight.npy", keeps="nothing")
    assert page.get_by_text("before the last change of the steps").is_visible()
    page.get_by_role("button", name="Run again").click()
    until(page, "document.querySelectorAll('#wb-values canvas').length === 3")
    found = shown(page)
    assert "Largest difference" in found and "Largest at [0, " in found and "became" in found
    assert "Cosine similarity 1" in found  # a factor does not turn it
    label = page.locator("#wb-values svg[role=img]").get_attribute("aria-label")
    assert "original and changed" in label
    assert pixel(page, 0) != pixel(page, 1) and max(pixel(page, 2)[:12]) > 0
    page.get_by_text("First 16 of 192 elements").click()
    cells = page.locator("#wb-values details tbody tr").first.locator("td").all_inner_texts()
    before, after = (float(cell) for cell in cells)
    assert after == pytest.approx(before * 1.25, rel=1e-2)
    picture(page)
    page.get_by_role("button", name="Close the values").click()
    assert not page.locator("#wb-values").is_visible()


def test_a_tensor_of_one_side_says_so(opened: Any, model: Path) -> None:
    page = opened(model)
    choose_tensor(page, "same", "i")
    add(page, "insert-after", op="Abs")
    assert "1 added" in page.locator("#wb-steps li").first.inner_text()
    made = page.evaluate("workbench.state.steps[0].changed.added.nodes[0]")
    choose(page, made)
    assert "The original has no tensor of this name" in look(page)
    choose(page, "scaled")
    assert "All elements are equal, to the bit" in look(page)


def test_a_tensor_is_looked_at_after_a_chosen_step(opened: Any, model: Path) -> None:
    for number in (3, 4):
        np.save(model.parent / f"{number}.npy", np.array([number], np.float32))
    page = opened(model)
    for number in (3, 4):
        choose(page, "scaled")
        add(page, "set-initializer", name="two", file=f"{number}.npy", keeps="nothing")
    choose_tensor(page, "scaled", "s")
    look(page)
    cells = "[...document.querySelector('#wb-values details tbody tr').cells].map((cell) => cell.textContent)"
    for step, factor in (("", 2.0), ("0", 1.5), ("1", 2.0)):
        page.get_by_label("Changed model: after").select_option(step)
        until(page, "document.querySelector('#wb-values-body table') !== null")
        _, before, after = page.evaluate(cells)
        assert float(after) == pytest.approx(float(before) * factor, rel=1e-2), step


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_values(opened: Any, model: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    np.save(model.parent / "weight.npy", np.array([2.5], np.float32))
    page = opened(model, color_scheme=scheme)
    choose(page, "scaled")
    add(page, "set-initializer", name="two", file="weight.npy", keeps="nothing")
    choose(page, "moved")
    look(page)
    page.get_by_text("First 16 of 192 elements").click()
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    for width, height in ((1280, 800), (820, 1180)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.locator("#wb-values").bounding_box()["width"] <= width
    settle(page)
    picture(page)
