"""What people do in the page of the workbench, and pictures of it, which are kept in build/stories."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from support import ROOT
from surgery.interface import commands as cli

STORIES = ROOT / "build" / "stories"
_taken: Counter[str] = Counter()


def picture(page: Any) -> None:
    """Keep a picture of what a page shows now, under the name of the running test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].rpartition("::")[2]
    name = re.sub(r"\W+", "-", test.removeprefix("test_").replace("_", "-")).strip("-")
    if not _taken[name]:
        for old in STORIES.glob(f"{name}-[0-9]*.png"):
            old.unlink(missing_ok=True)
    _taken[name] += 1
    page.screenshot(path=STORIES / f"{name}-{_taken[name]}.png")


def until(page: Any, expression: str, given: Any = None) -> None:
    """Wait for an expression to hold; Playwright's own way needs `eval`, which the page forbids."""
    for _ in range(1200):
        if page.evaluate(expression, given):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def choose(page: Any, *names: str) -> None:
    """Select nodes, inputs and outputs by name, as clicks on them do, and wait for what is offered."""
    for number, name in enumerate(names):
        row = page.evaluate(
            "(name) => { const m = view.model; for (let r = 0; r < m.n; r++) if (m.died[r] < 0 && "
            "m.strings[m.name[r]] === name) return r; return -1; }",
            name,
        )
        assert row >= 0, name
        page.evaluate("([row, more]) => view.select(row, false, more)", [row, number > 0])
    page.wait_for_selector("#wb-offers details[data-pass]")


def choose_tensor(page: Any, node: str, tensor: str) -> None:
    """Select a tensor that a node makes."""
    choose(page, node)
    page.get_by_role("button", name=f"Tensor {tensor}").click()
    until(page, "(name) => document.querySelector('.wb-chips').textContent === name", tensor)
    page.wait_for_selector("#wb-offers details[data-pass]")


def settle(page: Any) -> None:
    """Wait for the end of an act, and keep a picture of it."""
    until(page, "document.body.dataset.busy === 'no'")
    until(page, "document.body.dataset.drawn === String(workbench.state.version)")
    picture(page)


def opened_form(page: Any, name: str) -> Any:
    """Open the form of an offer."""
    form = page.locator(f"#wb-offers details[data-pass='{name}']").first
    for fold in ("Selection:", "Whole model:"):
        more = page.locator("#wb-offers summary", has_text=fold)
        if not form.is_visible() and more.count():
            more.click()
    if form.get_attribute("open") is None:
        form.locator("> summary").click()
    return form


def add(page: Any, name: str, /, **fields: str | Mapping[str, str]) -> None:
    """Fill in the form of an offer, and add it."""
    form = opened_form(page, name)
    for field, value in fields.items():
        fill(form, field, value)
    picture(page)
    form.get_by_role("button", name=f"Add {name}").click()
    settle(page)


def fill(form: Any, field: str, value: str | Mapping[str, str]) -> None:
    """Fill in a field of a form: a mapping as rows."""
    group = form.locator(f"fieldset[data-option='{field}']")
    place = form.locator(f"[name='{field}']") if isinstance(value, str) else group
    if not place.is_visible():
        form.get_by_text("More options").click()
    if not isinstance(value, str):
        _fill_rows(group, value)
    elif place.evaluate("(e) => e.tagName") == "SELECT":
        place.select_option(value)
    else:
        place.fill(value)


def _fill_rows(group: Any, pairs: Mapping[str, str]) -> None:
    """Set the value in the row of each name; a name that has none gets a row."""
    names = group.locator("[data-part=name]").evaluate_all("(all) => all.map((one) => one.value)")
    for name, value in pairs.items():
        if name not in names:
            group.get_by_role("button", name="Add a row").click()
            names.append(name)
            group.locator("[data-part=name]").last.fill(name)
        group.locator("[data-part=value]").nth(names.index(name)).fill(value)


def steps(page: Any) -> list[str]:
    """Return the titles of the steps."""
    return [re.sub(r"^\d+\. ", "", title) for title in page.locator("#wb-steps h3 > span").all_inner_texts()]


def message(page: Any) -> str:
    """Return the message that the page shows."""
    return str(page.locator("#wb-message").inner_text()).strip()


def write_recipe(page: Any, text: str) -> None:
    """Write the recipe as text, and run it."""
    page.get_by_label("The recipe as YAML").fill(text)
    page.get_by_role("button", name="Run the recipe as written").click()
    settle(page)


def saved(page: Any, model: Path, *options: str) -> onnx.ModelProto:
    """Save, apply the saved recipe with the command line, and return the model, which is the same to the byte."""
    page.get_by_label("Folder, or name of an .onnx file").fill("edited")
    page.get_by_role("button", name="Save model, recipe, report and provenance").click()
    page.wait_for_selector("#wb-saved li")
    picture(page)
    made = model.parent / "edited" / model.name
    again = model.parent / "again.onnx"
    assert cli.main(["apply", str(made.with_suffix(".yaml")), str(model), "-o", str(again), *options]) == 0
    assert again.read_bytes() == made.read_bytes()
    return onnx.load(made)


def operators(model: onnx.ModelProto) -> list[str]:
    """Return the operators of a model in their order."""
    return [node.op_type for node in model.graph.node]
