"""Steps that are compared as one: where regions do not decide, one run of the whole model decides for several steps."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery import Graph, Parity, Result, graph_pass
from surgery.engine import recipe
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import runner, speculation
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.model.runtime.engine import EngineName, RunOutcome
from surgery.verification.verdict import change_verifier
from surgery.verification.verdict.whole_models import WholeModels

MODEL = """g (float[n,2] x) => (float[n,2] y) {
    i = Identity(x) a = Relu(i) b = Relu(a) d = Dropout(b) c = Cast<to=1>(d) y = Neg(c) }"""

SCALED = """g (float[n,2] x) => (float[n,2] y) <float z = {3}> {
    i = Identity(x) a = Tanh(i) y = Mul(a, z) }"""


DROPPED = SCALED.replace("y = Mul(a, z)", "b = Mul(a, z) y = Dropout(b)")


def _insert(graph: Graph, op: str, *more: float) -> None:
    """Put an operator before each Tanh."""
    for node in graph.nodes("Tanh"):
        with graph.site(node) as new:
            constants = [new.constant(np.array(number, np.float32)) for number in more]
            new.set_input(node, 0, new.node(op, node.required_input(0), *constants))


@graph_pass("scale-exactly", parity=Parity.EXACT)
def scale_exactly(graph: Graph) -> None:
    """Multiply by a number close to 1, which is not exact."""
    _insert(graph, "Mul", 1.0000001)


@graph_pass("scale-closely", parity=Parity.CLOSE)
def scale_closely(graph: Graph) -> None:
    """Multiply by a number close to 1."""
    _insert(graph, "Mul", 1.0000001)


@graph_pass("wrong-sign", parity=Parity.EXACT)
def wrong_sign(graph: Graph) -> None:
    """Change the sign, which is wrong."""
    _insert(graph, "Neg")


@graph_pass("wrong-sign-closely", parity=Parity.CLOSE)
def wrong_sign_closely(graph: Graph) -> None:
    """Change the sign, which is wrong."""
    _insert(graph, "Neg")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Let no region decide, passes of a test run as standard ones do, and note the models that run as a whole."""
    monkeypatch.setattr(change_verifier, "REGION_NODE", 1e9)
    monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))
    found: list[bytes] = []
    run_model = WholeModels.run

    def noted(self: WholeModels, candidate: bytes, engine: EngineName) -> RunOutcome:
        found.append(candidate)
        return run_model(self, candidate, engine)

    monkeypatch.setattr(WholeModels, "run", noted)
    yield found


def run(steps: str, model: str = MODEL) -> Result:
    return runner.apply(text.parse(model), recipe.parse(f"recipe: t\non_failure: rollback\nsteps: {steps}"))


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def statuses(result: Result) -> list[str | None]:
    return [step.verdict.status.value if step.verdict is not None else None for step in result.steps]


def test_exact_steps_take_one_run(ran: list[bytes]) -> None:
    result = run("[drop-identity, drop-dead, drop-dropout, drop-no-op]")
    assert len(ran) == 1 and ops(result.proto) == ["Relu", "Neg"]
    verdicts = [step.verdict for step in result.steps if step.verdict is not None]
    assert [verdict.together for verdict in verdicts] == [2, 1, 0]
    assert verdicts[0].message.endswith("compared as one with the next 2 steps, up to drop-no-op")
    assert verdicts[1].message.endswith("compared as one with the next step, up to drop-no-op")
    assert "as one" not in verdicts[2].message
    assert result.end is not None and result.end.status == "equal"


def test_a_wrong_step_among_exact_steps_is_found(ran: list[bytes]) -> None:
    result = run("[drop-identity, wrong-sign, drop-dropout]", DROPPED)
    assert [step.status for step in result.steps] == ["committed", "rolled_back", "committed"]
    assert ops(result.proto) == ["Tanh", "Mul"] and result.ok


def test_a_wrong_step_among_rounding_steps_is_found(ran: list[bytes]) -> None:
    result = run("[scale-closely, wrong-sign-closely, drop-identity]", SCALED)
    assert [step.status for step in result.steps] == ["committed", "rolled_back", "committed"]
    assert ops(result.proto) == ["Mul", "Tanh", "Mul"] and result.ok


def test_exact_steps_are_not_excused_by_rounding_steps(ran: list[bytes]) -> None:
    result = run("[drop-identity, scale-exactly, scale-closely]", SCALED)
    assert [step.status for step in result.steps] == ["committed", "rolled_back", "committed"]
    assert statuses(result) == ["equal", "different", "close"]


def test_exact_steps_after_a_rounding_step_must_keep_its_bits(ran: list[bytes]) -> None:
    result = run("[scale-closely, scale-exactly, drop-identity]", SCALED)
    assert [step.status for step in result.steps] == ["committed", "rolled_back", "committed"]
    assert ops(result.proto) == ["Mul", "Tanh", "Mul"]


def test_exact_steps_before_a_rounding_step_are_compared_without_it(ran: list[bytes]) -> None:
    result = run("[drop-identity, drop-dropout, scale-closely]", DROPPED)
    assert statuses(result) == ["equal", "equal", "close"] and len(ran) == 2
    assert [step.verdict.together for step in result.steps if step.verdict is not None] == [1, 0, 0]


def test_wrong_steps_that_cancel_out_are_accepted_together(ran: list[bytes]) -> None:
    result = run("[wrong-sign, {pass: wrong-sign, when: {ops: {Neg: 1}}}]", SCALED)
    assert [step.status for step in result.steps] == ["rolled_back", "skipped"]
    result = run("[wrong-sign, wrong-sign]", SCALED)
    assert [step.status for step in result.steps] == ["committed"] * 2
    assert result.end is not None and result.end.status == "equal"


@pytest.mark.parametrize("more", ["", ", drop-dropout", ", drop-dropout, scale-closely"])
def test_stated_results_do_not_depend_on_the_cache(ran: list[bytes], tmp_path: Path, more: str) -> None:
    onnx.save(text.parse(DROPPED), tmp_path / "m.onnx")
    first, then = (recipe.parse(f"steps: [drop-identity, scale-closely{tail}]") for tail in ("", more))
    runner.apply(
        tmp_path / "m.onnx", first, options=RunOptions(cache=Steps(CacheFolder(tmp_path / "cache", pytest.fail)))
    )
    known = runner.apply(
        tmp_path / "m.onnx", then, options=RunOptions(cache=Steps(CacheFolder(tmp_path / "cache", pytest.fail)))
    )
    new = runner.apply(tmp_path / "m.onnx", then)
    assert known.steps[0].cached and [step.stated() for step in known.steps] == [step.stated() for step in new.steps]
    assert known.end is not None and new.end is not None and known.end.status == new.end.status


def test_models_that_fill_the_memory_are_compared_immediately(
    ran: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation, "_MOST_HELD", 0)
    result = run("[drop-identity, drop-dropout, drop-no-op]")
    assert [step.verdict.together for step in result.steps if step.verdict is not None] == [0, 0, 0]
    assert len(ran) == 3 and statuses(result) == ["equal"] * 3


def test_a_rounding_step_runs_once_for_the_exact_steps_after_it(ran: list[bytes]) -> None:
    result = run("[scale-closely, drop-identity, drop-dropout]", DROPPED)
    assert statuses(result) == ["close"] * 3
    # What the last step left, for the first one and again for its bits; and what these have to be.
    assert len(ran) == 3 and len(set(ran)) == 2
