"""Inferred shapes that the run of the original contradicts: no pass relies on them."""

from typing import Any

import pytest

from surgery import recipe as recipes
from surgery.engine import runner
from surgery.graph import text
from surgery.runtime.engine import Engine
from surgery.shapes import inference

# A wrong rule says that c has the dims of d, which has 3 rows; it has n + 1. The test for 9 rows fails at every size
# that is drawn, so no verdict shows that folding it is wrong.
MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 2] x, float[1, 2] e, float[3, 2] d) => (float[m, 2] y, bool[1] t, float[3, 2] z)
<int64[1] nine = {9}, int64[1] zero = {0}> {
    r = Relu(x)
    c = Concat<axis = 0>(r, e)
    s = Shape(c)
    rows = Gather(s, zero)
    t = Equal(rows, nine)
    y = Neg(c)
    a = Identity(d)
    z = Neg(a)
}"""


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_rule = inference._apply

    def guess(rule: Any, context: Any, node: Any) -> None:
        apply_rule(rule, context, node)
        if node.op_type == "Concat":
            node.outputs[0].shape = node.graph.inputs[2].shape

    monkeypatch.setattr(inference, "_apply", guess)
    # Workers are other processes, which have the right rule.
    monkeypatch.setattr(Engine, "analyse", lambda self, function, *, skeleton, **given: function(skeleton, **given))


def apply(steps: str, rows: str) -> runner.Result:
    recipe = recipes.parse(
        f"recipe: test\ninputs: {{dims: {{n: {rows}}}}}\non_failure: bisect\nsteps: {steps}", "t.yaml"
    )
    return runner.apply(text.parse(MODEL), recipe)


@pytest.mark.usefixtures("wrong_rule")
@pytest.mark.parametrize("steps", ["[fold-constants, drop-identity]", "[drop-identity, fold-constants]"])
def test_no_step_relies_on_a_shape_that_the_run_contradicts(steps: str) -> None:
    result = apply(steps, "[2, 6]")
    counts = [node.op_type for node in result.proto.graph.node]
    assert result.ok and "Equal" in counts and "Identity" not in counts
    assert not any(step.refused_sites for step in result.steps)


@pytest.mark.usefixtures("wrong_rule")
def test_a_step_relies_on_the_shape_where_no_run_contradicts_it() -> None:
    assert "Equal" not in [node.op_type for node in apply("[fold-constants]", "[2]").proto.graph.node]
