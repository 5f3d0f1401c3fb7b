"""Passes that run on a change which is still being judged, and what becomes of them when it is wrong."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.breadth import sampled
from test_repeating import KNOWN_ONLY_ANEW

from surgery import Graph, Parity, graph_pass
from surgery.base.errors import UsageError
from surgery.engine import recipe
from surgery.engine.pipeline import judging, pipeline, runner, speculation
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.verification.signature.tracker import SignatureTracker

MODEL = """g (float[n,2] x) => (float[n,2] y) {
    i = Identity(x) a = Relu(i) b = Relu(a) d = Dropout(b) c = Cast<to=1>(d) y = Neg(c) }"""


@graph_pass("abs-for-relu", parity=Parity.EXACT)
def abs_for_relu(graph: Graph) -> None:
    """Turn each Relu into another function, which is wrong."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Abs", node.required_input(0)))


CALLS: list[Graph] = []


@graph_pass("abs-once", parity=Parity.EXACT)
def abs_once(graph: Graph) -> None:
    """Turn a Relu into another function when it runs for the first time."""
    if not CALLS:
        CALLS.append(graph)
        for node in graph.nodes("Relu"):
            with graph.site(node) as new:
                new.replace(node.outputs[0], new.node("Abs", node.required_input(0)))


@pytest.fixture(autouse=True)
def _ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let passes of a test run as standard ones do, and judging take long enough for others to run ahead."""
    monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))
    judged = judging.Verifying.judge

    def slowly(self: judging.Verifying, candidate: Candidate, *rest: Any) -> Candidate:
        time.sleep(0.3)
        return judged(self, candidate, *rest)

    monkeypatch.setattr(judging.Verifying, "judge", slowly)
    yield


def run(steps: str, more: str = "") -> runner.Result:
    return runner.apply(text.parse(MODEL), recipe.parse(f"recipe: t\n{more}\nsteps: {steps}"))


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def outcomes(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.name, step.status) for step in result.steps]


@pytest.mark.slow
def test_steps_are_recorded_in_their_order() -> None:
    result = run("[drop-identity, drop-dead, drop-dropout, drop-no-op]")
    assert outcomes(result) == [
        ("drop-identity", "committed"),
        ("drop-dead", "unchanged"),
        ("drop-dropout", "committed"),
        ("drop-no-op", "committed"),
    ]
    assert [(step.nodes_before, step.nodes_after) for step in result.steps] == [(6, 5), (5, 5), (5, 4), (4, 2)]
    assert all(step.verdict is None or step.verdict.status == "equal" for step in result.steps)


def test_a_change_is_checked_while_the_previous_one_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: dict[str, threading.Event] = defaultdict(threading.Event)
    find, judged = judging.Verifying.find, judging.Verifying.judge

    def told(self: judging.Verifying, candidate: Candidate) -> list[str]:
        checked[candidate.step.name].set()
        return find(self, candidate)

    def waiting(self: judging.Verifying, candidate: Candidate, *rest: Any) -> Candidate:
        assert checked["drop-dropout"].wait(60)
        return judged(self, candidate, *rest)

    monkeypatch.setattr(judging.Verifying, "find", told)
    monkeypatch.setattr(judging.Verifying, "judge", waiting)
    result = run("[drop-identity, drop-dropout]")
    assert outcomes(result) == [("drop-identity", "committed"), ("drop-dropout", "committed")]


def test_steps_after_a_wrong_change_are_rolled_back_and_repeated() -> None:
    result = run("[drop-identity, {pass: abs-for-relu, on_failure: rollback}, drop-dropout, drop-dead, drop-no-op]")
    assert outcomes(result) == [
        ("drop-identity", "committed"),
        ("abs-for-relu", "rolled_back"),
        ("drop-dropout", "committed"),
        ("drop-dead", "unchanged"),
        ("drop-no-op", "committed"),
    ]
    assert ops(result.proto) == ["Relu", "Neg"]
    assert [(step.nodes_before, step.nodes_after) for step in result.steps] == [(6, 5), (5, 5), (5, 4), (4, 4), (4, 2)]


def test_a_wrong_change_ends_the_run_at_its_step() -> None:
    result = run("[drop-identity, abs-for-relu, drop-dropout, drop-no-op]")
    assert outcomes(result) == [("drop-identity", "committed"), ("abs-for-relu", "failed")]
    assert result.exit_code == 1 and "Dropout" in ops(result.proto) and "Abs" not in ops(result.proto)


def test_a_wrong_change_is_kept_with_on_failure_keep() -> None:
    result = run("[{pass: abs-for-relu, on_failure: keep}, drop-identity]")
    assert outcomes(result) == [("abs-for-relu", "committed"), ("drop-identity", "failed")]
    assert "Abs" in ops(result.proto)


@pytest.mark.slow
def test_rounds_that_roll_back_the_same_change_end() -> None:
    result = run("[{repeat: until-stable, steps: [drop-identity, {pass: abs-for-relu, on_failure: rollback}]}]")
    assert outcomes(result)[:2] == [("drop-identity", "committed"), ("abs-for-relu", "rolled_back")]
    assert set(outcomes(result)[2:]) <= {("drop-identity", "unchanged"), ("abs-for-relu", "rolled_back")}
    assert len(result.steps) in (4, 6)
    assert ops(result.proto) == ["Relu", "Relu", "Dropout", "Cast", "Neg"]


@pytest.mark.slow
def test_steps_that_are_repeated_after_a_wrong_change_are_repeated_until_nothing_changes() -> None:
    # The first round is still being judged when the last one ends.
    steps = "[{pass: abs-once, on_failure: rollback}, simplify-expands, simplify-reshapes, drop-dead]"
    repeated = f"recipe: t\nsteps: [{{repeat: until-stable, steps: {steps}}}]"
    result = runner.apply(text.parse(KNOWN_ONLY_ANEW), recipe.parse(repeated))
    assert ("abs-once", "rolled_back") in outcomes(result)
    assert "Expand" not in ops(result.proto)


@graph_pass("relu-for-last-abs", parity=Parity.EXACT)
def relu_for_last_abs(graph: Graph) -> None:
    """Turn each Abs into a Relu, if there is no Relu."""
    for node in [] if [*graph.nodes("Relu")] else graph.nodes("Abs"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], new.node("Relu", node.required_input(0)))


def test_a_round_that_only_changed_what_was_rolled_back_is_the_last() -> None:
    # While the round runs, all sites of the first step are assumed to hold; one of them does.
    result = run("[{pass: abs-for-relu, on_failure: bisect}, {repeat: until-stable, steps: [relu-for-last-abs]}]")
    assert outcomes(result) == [("abs-for-relu", "committed"), ("relu-for-last-abs", "unchanged")]
    assert ops(result.proto) == ["Identity", "Relu", "Abs", "Dropout", "Cast", "Neg"]


def test_a_condition_waits_for_the_previous_verdict() -> None:
    steps = "[{pass: abs-for-relu, on_failure: rollback}, {pass: drop-dropout, when: {ops: {Abs: '>= 1'}}}]"
    assert outcomes(run(steps)) == [("abs-for-relu", "rolled_back"), ("drop-dropout", "skipped")]


def test_expectations_wait_too() -> None:
    result = run("[{pass: abs-for-relu, on_failure: rollback}]", "expect: {ops: {Abs: 0}}")
    assert result.ok


def test_an_invalid_custom_op_library_ends_the_run(tmp_path: Path) -> None:
    library = tmp_path / "no_library.so"
    library.write_bytes(b"nothing")
    with pytest.raises(UsageError, match="not a library"):
        runner.apply(
            text.parse(MODEL),
            recipe.parse(f"verify: {{custom_op_library: {library}}}\nsteps: [drop-identity, drop-dropout]", trust=True),
        )


@graph_pass("bogus-attribute", parity=Parity.EXACT)
def bogus_attribute(graph: Graph) -> None:
    """Give each Relu an attribute that it does not have, which the checker refuses."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            new.set_attribute(node, "bogus", 1)


@pytest.mark.parametrize(("mode", "runs_ahead"), sampled([("each", False), ("end", True)], 2))
def test_large_models_run_ahead_only_with_deferred_verification(
    mode: str, runs_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation, "FEW_WEIGHTS", -1)
    ahead: list[str] = []
    run_ahead = pipeline.Pipeline._run_ahead

    def noted(self: pipeline.Pipeline, *change: Any) -> None:
        ahead.append(change[-1].step.name)
        run_ahead(self, *change)

    monkeypatch.setattr(pipeline.Pipeline, "_run_ahead", noted)
    steps = "[drop-identity, {pass: bogus-attribute, on_failure: rollback}, drop-dropout, drop-no-op]"
    result = run(steps, f"verify: {{mode: {mode}, compare: whole}}")
    assert outcomes(result)[:4] == [
        ("drop-identity", "committed"),
        ("bogus-attribute", "rolled_back"),
        ("drop-dropout", "committed"),
        ("drop-no-op", "committed"),
    ]
    assert outcomes(result)[4:] == ([("(end)", "committed")] if mode == "end" else [])
    assert "checker" in result.steps[1].message
    assert bool(ahead) is runs_ahead
    assert ops(result.proto) == ["Relu", "Neg"]


def test_regions_are_compared_before_the_previous_change_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_ahead, judged = SignatureTracker.compare_ahead, judging.Verifying.judge
    all_compared = threading.Semaphore(0)

    def noted(self: SignatureTracker, *change: Any) -> bool:
        needs_whole = compare_ahead(self, *change)
        all_compared.release()
        return needs_whole

    def waits(self: judging.Verifying, candidate: Candidate, *rest: Any) -> Candidate:
        if candidate.step.name == "drop-identity":
            assert all(all_compared.acquire(timeout=60) for _ in range(3))
        return judged(self, candidate, *rest)

    monkeypatch.setattr(SignatureTracker, "compare_ahead", noted)
    monkeypatch.setattr(judging.Verifying, "judge", waits)
    result = run("[drop-identity, drop-dropout, drop-no-op]")
    assert [status for _, status in outcomes(result)] == ["committed"] * 3


def test_a_failure_while_running_ahead_does_not_affect_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(SignatureTracker, "compare_ahead", fails)
    result = run("[drop-identity, drop-dropout]")
    assert [status for _, status in outcomes(result)] == ["committed"] * 2
