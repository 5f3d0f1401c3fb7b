"""The model on which a step of a recipe would run."""

from __future__ import annotations

import pytest

from surgery import Graph, graph_pass
from surgery.base.errors import PassError, UsageError
from surgery.engine.pipeline.run_until import Reached, run_until
from surgery.engine.recipe import parse
from surgery.model.graph import text
from surgery.model.storage import loading

MODEL = "g (float[N,2] x) => (float[N,2] y) { i = Identity(x) d = Dropout(i) r = Relu(d) y = Identity(r) }"


def reached(steps: str, name: str) -> Reached:
    return run_until(loading.opened(text.parse(MODEL)), parse(f"recipe: t\nsteps: {steps}", trust=True), name)


def ops(found: Reached) -> list[str]:
    return [node.op_type for node in found.proto.graph.node]


def test_the_steps_before_it_have_run() -> None:
    found = reached("[drop-identity, drop-dropout, drop-dead]", "drop-dropout")
    assert ops(found) == ["Dropout", "Relu"]
    assert found.step.name == "drop-dropout" == found.declared.name
    assert ops(reached("[drop-dropout, drop-identity, drop-dropout]", "drop-dropout")).count("Dropout") == 1
    nested = "[drop-dropout, {repeat: 2, steps: [drop-dead, drop-identity]}]"
    assert ops(reached(nested, "drop-identity")) == ["Identity", "Relu", "Identity"]


def test_a_step_that_there_is_not_or_that_does_not_run_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"no step 'drop-idenity'; did you mean 'drop-identity'\?.*drop-identity, drop-dead$"
    ):
        reached("[drop-identity, drop-dead, drop-identity]", "drop-idenity")
    with pytest.raises(UsageError, match="'drop-dead' does not run: its condition 'when' is false"):
        reached("[drop-identity, {pass: drop-dead, when: {ops: {Conv: '>= 1'}}}]", "drop-dead")


@graph_pass("breaks-before-others")
def breaks_before_others(graph: Graph) -> None:
    """Raise an error."""
    raise ValueError("no way")


def test_a_step_before_it_may_fail() -> None:
    with pytest.raises(PassError, match=r"step 'breaks-before-others' before it fails: .*no way"):
        reached("[drop-identity, breaks-before-others, drop-dead]", "drop-dead")
    assert ops(reached("[drop-dead, breaks-before-others]", "drop-dead")) == ["Identity", "Dropout", "Relu", "Identity"]
