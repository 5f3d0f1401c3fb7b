"""Predicates of plugins and packages, in `when` and `expect`."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

import surgery
from surgery.base.errors import RecipeError, SurgeryError
from surgery.engine.pipeline import runner
from surgery.engine.provenance.recipe_closure import closure_of
from surgery.engine.recipe import loader
from surgery.engine.registry import catalog
from surgery.model.graph import text

MODEL = "g (float[n] x) => (float[n] y) { i = Identity(x) d = Dropout(i) y = Relu(d) }"
PREDICATES = """
import os
from surgery import Graph, predicate

@predicate("{0}-has-dropout")
def has_dropout(graph: Graph) -> bool:
    return bool(graph.nodes("Dropout"))

@predicate("{0}-edits")
def edits(graph: Graph) -> bool:
    for node in graph.nodes("Identity"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], node.inputs[0])
    return not graph.nodes("Identity")

@predicate("{0}-raises")
def raises(graph: Graph) -> bool:
    print("thinking")
    raise ValueError("no idea")

@predicate("{0}-ends")
def ends(graph: Graph) -> bool:
    os._exit(5)

@predicate("{0}-counts")
def counts(graph: Graph) -> int:
    return len(graph.nodes())
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predicates") / "conditions.py"
    path.write_text(PREDICATES.format("test"))
    return path


def recipe(plugin: Path, rest: str) -> surgery.engine.recipe.Recipe:
    return loader.parse(f"recipe: r\nplugins: [{plugin}]\n{rest}", plugin.parent / "r.yaml", trust=True)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_step_runs_when_its_predicate_matches(plugin: Path, wanted: bool) -> None:
    when = f"{{predicates: {{test-has-dropout: {str(wanted).lower()}}}}}"
    found = runner.apply(text.parse(MODEL), recipe(plugin, f"steps: [{{pass: drop-identity, when: {when}}}]"))
    assert found.ok and [step.status for step in found.steps] == ["committed" if wanted else "skipped"]


def test_a_predicate_sees_the_model_before_its_step(plugin: Path) -> None:
    again = "{pass: drop-identity, when: {predicates: {test-has-dropout: true}}}"
    found = runner.apply(text.parse(MODEL), recipe(plugin, f"steps: [drop-dropout, {again}]"))
    assert [step.status for step in found.steps] == ["committed", "skipped"]


def test_predicates_work_in_expectations(plugin: Path) -> None:
    steps = "steps: [{pass: drop-dropout, expect: {predicates: {test-has-dropout: false}}}]"
    found = runner.apply(
        text.parse(MODEL), recipe(plugin, f"{steps}\nexpect: {{predicates: {{test-has-dropout: true}}}}")
    )
    assert [(one.what, one.ok) for one in found.expectations] == [
        ("drop-dropout: test-has-dropout: false (found false)", True),
        ("test-has-dropout: true (found false)", False),
    ]
    assert not found.ok


def test_changes_by_a_predicate_are_discarded(plugin: Path) -> None:
    model = text.parse(MODEL)
    found = runner.apply(model, recipe(plugin, "steps: [{pass: drop-dropout, when: {predicates: {test-edits: true}}}]"))
    assert [node.op_type for node in found.proto.graph.node] == ["Identity", "Relu"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "predicate 'test-raises' raised ValueError: no idea (conditions.py:19)"),
        ("ends", "predicate 'test-ends' ended the process with exit code 5"),
        ("counts", "predicate 'test-counts' returned int, not True or False"),
    ],
)
def test_a_failing_predicate_is_reported_in_one_line(plugin: Path, name: str, words: str) -> None:
    with pytest.raises(SurgeryError) as caught:
        runner.apply(
            text.parse(MODEL),
            recipe(plugin, f"steps: [{{pass: drop-identity, when: {{predicates: {{test-{name}: true}}}}}}]"),
        )
    assert words in str(caught.value)


def test_an_unknown_predicate_is_reported_with_its_place(plugin: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(plugin, "steps: [{pass: drop-identity, when: {predicates: {test-has-dropuot: true}}}]")
    assert "r.yaml:3:" in str(caught.value) and "did you mean 'test-has-dropout'?" in str(caught.value)


def test_a_result_depends_on_the_source_of_its_predicates(plugin: Path) -> None:
    files = closure_of(recipe(plugin, "steps: [drop-identity]\nexpect: {predicates: {test-edits: true}}")).files
    assert "predicate:test-edits" in files


def test_packages_add_predicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_conditions.py").write_text(PREDICATES.format("acme"))
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = importlib.metadata.EntryPoint("acme", "acme_conditions", "surgery.predicates")
    original = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: [entry] if group == "surgery.predicates" else original(group=group),
    )
    monkeypatch.setattr(catalog.discovery, "_title", lambda distribution: "acme 1.0")
    fresh = catalog.Catalog()
    monkeypatch.setattr(catalog, "catalog", fresh)
    monkeypatch.setattr("surgery.engine.registry.declare.catalog", fresh)
    monkeypatch.delitem(sys.modules, "acme_conditions", raising=False)
    assert "acme-has-dropout" in fresh.predicates()
