"""Inferred shapes that the run of the original contradicts: no pass relies on them."""

from typing import Any, cast

import onnx_ir as ir
import pytest

from surgery import recipe as recipes
from surgery.engine import runner
from surgery.engine.doubting import Doubting
from surgery.graph import text
from surgery.runtime.engine import Engine
from surgery.shapes import inference
from surgery.verification.comparing.observed_shapes import Observed

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


class Runs:
    """What a verifier shows of two runs: a has n rows, b twice as many and c three more."""

    observed = (
        Observed({"a": (2, 4), "b": (4,), "c": (5, 1), "d": (7,)}, frozenset("a")),
        Observed({"a": (5, 4), "b": (10,), "c": (8, 1), "d": (9,)}, frozenset("a")),
    )


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("b", ["2*n"], {}),
        ("b", ["n + 2"], {"b": (0,)}),  # as in the first run
        ("c", ["n + 3", 1], {}),
        ("c", ["n + 3", 2], {"c": (1,)}),
        ("c", [5, "n"], {"c": (0, 1)}),
        ("c", ["n + 3"], {"c": None}),
        ("d", ["unknown"], {}),
        ("d", [None], {}),
        ("d", ["max(n, 7)"], {}),  # not read
    ],
)
def test_a_shape_is_doubted_that_is_not_so_in_each_run(name: str, dims: list[Any], expected: dict[str, Any]) -> None:
    doubting = Doubting()
    doubting.learn(cast(Any, Runs()), {"a": ir.Shape(["n", 4]), name: ir.Shape(dims)})
    assert doubting.found == expected
