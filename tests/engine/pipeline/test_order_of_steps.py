"""In which order a pipeline runs steps, how often, and what it records; without verification."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgery.base.errors import PassError
from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import pipeline as module
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.pipeline.step_cache_interface import Judged, NoCache
from surgery.engine.recipe.schema import PassStep, RepeatStep
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n] x) => (float[n] y) { a = Identity(x) b = Relu(a) c = Identity(b) d = Dropout(c) y = Neg(d) }"""


def pipeline(steps: str, **more: Any) -> Pipeline:
    recipe = recipes.parse(steps if "\n" in steps else f"recipe: r\nsteps: [{steps}]\n", "r.yaml")
    return Pipeline(storage.from_proto(text.parse(MODEL)), recipe, trusted=True, contained=False, **more)


def run(steps: str, **more: Any) -> Pipeline:
    made = pipeline(steps, **more)
    try:
        made.run(made._recipe.steps)
        made.expect()
    finally:
        made.close()
    return made


def recorded(made: Pipeline) -> list[tuple[str, str]]:
    return [(record.name, record.status) for record in made.journal.records]


IDENTITY, DROPOUT = "drop-identity", "drop-dropout"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (f"{IDENTITY}, {DROPOUT}", [(IDENTITY, "committed"), (DROPOUT, "committed")]),
        (f"{IDENTITY}, {IDENTITY}", [(IDENTITY, "committed"), (IDENTITY, "unchanged")]),
        (f"{{pass: {IDENTITY}, when: {{nodes: 9}}}}, {DROPOUT}", [(IDENTITY, "skipped"), (DROPOUT, "committed")]),
        (f"{{pass: {IDENTITY}, when: {{nodes: 5, ops: {{Identity: '> 1'}}}}}}", [(IDENTITY, "committed")]),
        (f"{{pass: {IDENTITY}, when: {{nodes: 5, ops: {{Identity: 1}}}}}}", [(IDENTITY, "skipped")]),
        (f"{{repeat: 2, when: {{nodes: 9}}, steps: [{IDENTITY}]}}", []),
        (f"{{use: {{steps: [{IDENTITY}]}}, when: {{opset: 18}}}}, {DROPOUT}", [(DROPOUT, "committed")]),
        # A round that changes nothing is the last one.
        (f"{{repeat: 3, steps: [{IDENTITY}]}}", [(IDENTITY, "committed"), (IDENTITY, "unchanged")]),
        (f"{{repeat: 1, steps: [{IDENTITY}]}}", [(IDENTITY, "committed")]),
        (f"{{repeat: until-stable, steps: [{IDENTITY}, {DROPOUT}]}}",
         [(IDENTITY, "committed"), (DROPOUT, "committed"), (IDENTITY, "unchanged"), (DROPOUT, "unchanged")]),
    ],
)  # fmt: skip
def test_steps_run_in_order(steps: str, expected: list[tuple[str, str]]) -> None:
    assert recorded(run(steps)) == expected


def test_a_skipped_step_says_where_it_is() -> None:
    (record,) = run(f"{{pass: {IDENTITY}, when: {{nodes: 9}}}}").journal.records
    assert (record.message, record.where) == ("its condition 'when' is false", "r.yaml:2")
    assert (record.nodes_before, record.nodes_after) == (5, 5)
    made = pipeline(DROPOUT)
    assert made._skipped(PassStep(IDENTITY)).where == ""
    made.close()


def growing(graph: Graph) -> None:
    """Add a node."""
    (end,) = (node for node in graph.nodes() if node.outputs[0].is_output)
    with graph.site(end) as new:
        new.replace(end.outputs[0], new.node("Neg", new.node("Neg", end.outputs[0])))


def swinging(graph: Graph) -> None:
    """Turn Relu into Abs, and back."""
    for node in graph.nodes("Relu", "Abs"):
        with graph.site(node) as new:
            other = "Abs" if node.op == "Relu" else "Relu"
            new.replace(node.outputs[0], new.node(other, node.required_input(0)))


def declared(name: str, function: Any, **more: Any) -> PassStep:
    return PassStep(name, declared=Pass(name, Parity.EXACT, "graph", function), **more)


def repeat(step: PassStep, on_failure: Any = None, times: int | None = None) -> Pipeline:
    made = pipeline(IDENTITY)
    try:
        made.run((RepeatStep(times, (step,), on_failure=on_failure, path="r.yaml", line=7),))
    finally:
        made.close()
    return made


def test_a_round_that_returns_to_an_earlier_model_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROUNDS", 6)
    made = repeat(declared("swing", swinging))
    assert recorded(made) == [("swing", "committed")] * 2
    assert made.model.state.ops["Relu"] == 1
    assert len(repeat(declared("swing", swinging), times=9).journal.records) == 2


def test_a_pass_that_always_changes_something_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROUNDS", 3)
    for on_failure in (None, "abort"):
        with pytest.raises(PassError, match="still changing after 3 rounds; a pass always finds") as error:
            repeat(declared("grow", growing), on_failure)
        assert error.value.where == "r.yaml:7"
    made = repeat(declared("grow", growing), "rollback")
    assert recorded(made) == [*[("grow", "committed")] * 3, ("(repeat)", "unchanged")]
    last = made.journal.records[-1]
    assert last.message.startswith("still changing after 3 rounds, and ended; ") and last.where == "r.yaml:7"
    assert recorded(repeat(declared("grow", growing), times=2)) == [("grow", "committed")] * 2


EXPECTED = """recipe: r
steps:
  - use: {recipe: inner, steps: [drop-identity], expect: {ops: {Identity: 0}, signature: unchanged}}
  - drop-dropout
expect: {nodes: 3, ops: {Relu: 1}, signature: unchanged, target: openvino, empty: allowed}
"""


def test_expectations_of_used_recipes_are_recorded_with_their_names() -> None:
    made = run(EXPECTED)
    assert [(one.what, one.ok) for one in made.journal.expectations] == [
        ("inner: Identity: == 0 (found 0)", True),
        ("inner: signature: unchanged", True),
        ("Relu: == 1 (found 1)", True),
        ("nodes: == 3 (found 2)", False),
        ("empty: allowed", True),
        ("signature: unchanged", True),
        ("target: openvino", True),
    ]
    assert [one.target for one in made.journal.expectations][-2:] == ["", "openvino"]
    assert made.journal.expectations[3].where.startswith("r.yaml:5:") and made.speed is None
    assert run(IDENTITY).journal.expectations == []


class Recording:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def begin(self, stored: Any, proto: onnx.ModelProto) -> None:
        self.seen.append(len(proto.graph.node))

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        self.seen.append((len(proto.graph.node), record.name, number))


def test_committed_steps_are_numbered_by_their_records() -> None:
    recorder = Recording()
    run(f"{DROPOUT}, {{pass: {IDENTITY}, when: {{nodes: 9}}}}, {DROPOUT}, {IDENTITY}", recorder=recorder, earlier=4)
    assert recorder.seen == [5, (4, DROPOUT, 4), (2, IDENTITY, 7)]


def test_a_pipeline_stops_before_a_step() -> None:
    made = pipeline(f"{IDENTITY}, {DROPOUT}", until=DROPOUT)
    with pytest.raises(module.Arrived) as arrived:
        made.run(made._recipe.steps)
    assert arrived.value.step.name == DROPOUT and recorded(made) == [(IDENTITY, "committed")]
    made.close()


def raising(graph: Graph) -> None:
    """Raise."""
    raise KeyError("x")


@pytest.mark.parametrize(
    ("on_failure", "status", "stops"),
    [
        ("abort", "failed", True),
        ("rollback", "rolled_back", False),
        ("bisect", "rolled_back", False),
        ("keep", "failed", True),
    ],
)
def test_a_step_that_fails_stops_the_run_unless_it_is_undone(on_failure: Any, status: str, stops: bool) -> None:
    made = pipeline(IDENTITY)
    try:
        step = declared("raise", raising, on_failure=on_failure)
        if stops:
            with pytest.raises(module.Abort):
                made.run((step,))
        else:
            made.run((step,))
    finally:
        made.close()
    assert recorded(made) == [("raise", status)] and made.failed is not None and "KeyError" in made.failed.complaint


def test_what_a_trusted_run_did_is_not_cached() -> None:
    class Cache(NoCache):
        def note(self, step: PassStep, judged: Judged, record: StepRecord, before: Any, after: Any) -> None:
            pytest.fail("noted")

    assert recorded(run(IDENTITY, cache=Cache())) == [(IDENTITY, "committed")]


def test_a_recipe_without_a_loss_has_to_be_as_fast_only_if_it_is_to_be_faster() -> None:
    made = pipeline(f"{IDENTITY}, to-float16")
    found = made._speed(1.0, made._recipe, made.model.state, 0)
    assert (found.found, found.ok, found.ratio) == ("not measured: no lossy step changed the model", True, None)
    assert made._speed(1.1, made._recipe, made.model.state, 0).found == "the same model"
    made.close()
    made = pipeline(IDENTITY)
    assert made._speed(1.0, made._recipe, made.model.state, 0).found == "the same model"
    made.close()
