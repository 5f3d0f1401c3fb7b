"""What a run of `default` did to bundled models, asked in the viewer."""

import json
from pathlib import Path
from typing import Any

import pytest

from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns the drawing document of a run of `default` on a bundled model."""
    from surgery.interface import drawing as drawings

    known: dict[str, Any] = {}

    def of(model: str) -> Any:
        if model not in known:
            history = drawings.History()
            runner.apply(ROOT / "models" / model, recipe.load("default"), options=RunOptions(history=history))
            known[model] = json.loads(json.dumps(drawings.document(history)))
        return known[model]

    return of


def changed_nodes(drawing: Any) -> set[int]:
    nodes = drawing["nodes"]
    born_or_died = {k for k in range(len(nodes["op"])) if nodes["born"][k] > 0 or nodes["died"][k] >= 0}
    return born_or_died | set(drawing["altered"]["node"])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert-dropout-tiny.onnx", "resnet-tiny.onnx"])
def test_changed_nodes_are_reached_by_clicks(open_viewer: Any, drawn: Any, model: str) -> None:
    drawing = drawn(model)
    page = open_viewer(drawing)
    listed = page.evaluate(
        "surgeryViewer.changes(view.model).flatMap((pass) => pass.kinds.flatMap((kind) =>"
        " kind.sites.flatMap((site) => [...site.added, ...site.altered, ...site.removed])))"
    )
    changed = changed_nodes(drawing)
    assert changed and len(changed & set(listed)) >= 0.95 * len(changed)
    # A site is one click where it is the only one of its kind, else two: its kind, then its place.
    kinds = page.locator(".sv-pass").count()
    for at in range(min(kinds, 12)):
        group = page.locator(".sv-pass").nth(at)
        fold = group.locator(".sv-kind > summary")
        if fold.count():
            fold.first.click()
        group.locator(".sv-site").first.click()
        assert page.evaluate("view.selected") in changed
        assert page.evaluate("view.scene.shown[view.selected]") == 1


@pytest.mark.slow
def test_links_lead_to_successors_and_origins_of_a_node(open_viewer: Any, drawn: Any) -> None:
    page = open_viewer(drawn("bert-dropout-tiny.onnx"))
    panel = page.get_by_role("complementary", name="Details")

    def ask(query: str) -> str:
        page.keyboard.press("/")
        page.get_by_role("combobox", name="Search").fill(query)
        page.wait_for_selector(".sv-result")
        page.keyboard.press("Enter")
        return panel.inner_text()

    # "What became of layer 3's Dropout?"
    text = ask("op:Dropout layer.3")
    assert "Removed by drop-dropout" in text and "Became" in text
    # "Which pass made this, and from what?"
    text = ask("is:added")
    assert "Made by" in text and "Made from" in text
    # And its original leads back to it in one click.
    made = page.evaluate("view.selected")
    panel.locator("section:has(h4:text-is('Made from')) .sv-node-link").first.click()
    assert made in page.evaluate("view.model.descendants(view.selected)")


@pytest.mark.slow
def test_each_state_of_a_run_can_be_drawn(open_viewer: Any, drawn: Any) -> None:
    drawing = drawn("resnet-tiny.onnx")
    page = open_viewer(drawing)
    for state, known in enumerate(drawing["states"]):
        alive = page.evaluate(
            "(state) => { view.setState(state); let alive = 0; for (let node = 0; node < view.model.n; node++)"
            " if (!view.model.isPort(node) && [1, 2, 3].includes(view.scene.status[node])) alive++; return alive; }",
            state,
        )
        assert alive == known["nodes"]
