"""Values are looked at on one's own inputs, which can become those of the verification, in Chromium."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.workbench_acts import add, choose, message, picture, settle, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MODEL = """g (float[n, 3] x) => (float[n, 3] y) {
    [drop] d = Dropout(x)
    [neg] y = Neg(d)
}"""
WORDS = """g (int64[b, s] input_ids, int64[b, s] attention_mask) => (int64[b, s] y) {
    [masked] y = Mul(input_ids, attention_mask)
}"""


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def page_of(model: str, **options: Any) -> Any:
        path = tmp_path / "small.onnx"
        onnx.save(text.parse(model), path)
        return open_page(serve(path), **options)

    return page_of


def use(page: Any, path: str) -> None:
    if page.locator("#wb-inputs").get_attribute("open") is None:
        page.get_by_text("Choose other inputs").click()
    page.get_by_label("File or folder").fill(path)
    page.get_by_role("button", name="Use the file").click()


def elements(page: Any) -> list[str]:
    """Return the first elements in the original, of the look that is shown."""
    rows = "document.querySelectorAll('#wb-values details tbody tr')"
    found: list[str] = page.evaluate(f"[...{rows}].map((row) => row.cells[1].textContent)")
    return found


def test_values_are_looked_at_on_a_file_and_steps_verified_on_it(opened: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.array([[1, 2, 3]], np.float32))
    np.savez(tmp_path / "wrong.npz", q=np.array([[1, 2, 3]], np.float32))
    page = opened(MODEL)
    choose(page, "neg")
    page.get_by_role("button", name="Look at values").click()
    page.wait_for_selector("#wb-values-body table")
    page.get_by_text("Choose other inputs").click()
    until(page, "document.querySelectorAll('#wb-inputs-files option').length === 2")
    use(page, "wrong.npz")
    page.wait_for_selector("#wb-message .wb-message")
    assert "wrong.npz" in message(page) and "'x'" in message(page)
    use(page, "mine.npz")
    until(page, "document.getElementById('wb-inputs-now').textContent.includes('mine.npz')")
    until(page, "document.querySelectorAll('#wb-values details tbody tr').length === 3")
    assert elements(page) == ["-1", "-2", "-3"]
    picture(page)
    page.get_by_role("button", name="Verify steps on them too").click()
    until(page, "document.body.dataset.busy === 'no'")
    assert "the recipe has no step" in message(page)
    choose(page, "drop")
    add(page, "drop-dropout")
    page.get_by_role("button", name="Verify steps on them too").click()
    settle(page)
    assert "mine.npz" in page.get_by_label("The recipe as YAML").input_value()
    page.get_by_role("button", name="Use those of the verification").click()
    until(page, "document.getElementById('wb-inputs-now').textContent.includes('verified on')")
    assert not page.get_by_role("button", name="Verify steps on them too").is_visible()


def test_text_is_looked_at_as_numbers_of_tokens(opened: Any) -> None:
    page = opened(WORDS)
    choose(page, "masked")
    page.get_by_role("button", name="Look at values").click()
    page.wait_for_selector("#wb-values-body table")
    page.get_by_text("Choose other inputs").click()
    field = page.get_by_label("Text as numbers of tokens")
    field.fill("hello world")
    page.get_by_role("button", name="Use the tokens").click()
    page.wait_for_selector("#wb-message .wb-message")
    assert "tokens are whole numbers" in message(page)
    field.fill("101 7592 102")
    field.press("Enter")
    until(page, "document.querySelectorAll('#wb-values details tbody tr').length === 3")
    assert elements(page) == ["101", "7592", "102"]


def test_an_image_is_looked_at(opened: Any, tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image").new("RGB", (6, 4), (255, 0, 51)).save(tmp_path / "photo.png")
    page = opened("g (float[1, 3, 4, 6] image) => (float[1, 3, 4, 6] y) { [same] y = Identity(image) }")
    choose(page, "same")
    page.get_by_role("button", name="Look at values").click()
    page.wait_for_selector("#wb-values-body canvas")
    page.get_by_text("Choose other inputs").click()
    page.get_by_text("How images become inputs").click()
    page.get_by_label("mean").fill("0.5")
    use(page, "photo.png")
    until(page, "document.getElementById('wb-inputs-now').textContent.includes('photo.png')")
    until(page, "document.querySelectorAll('#wb-values details tbody tr').length === 16")
    assert elements(page)[0] == "0.5"
    pixel = "[...document.querySelector('#wb-values canvas').getContext('2d').getImageData(0, 0, 1, 1).data]"
    assert page.evaluate(pixel) == [255, 0, 51, 255]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_choice_of_inputs(opened: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(MODEL, color_scheme=scheme)
    page.get_by_text("Choose other inputs").click()
    page.get_by_text("How images become inputs").click()
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    page.set_viewport_size({"width": 820, "height": 1180})
    page.get_by_role("button", name="Use the tokens").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page)
