"""A recipe that repeats until nothing changes leaves nothing for a second run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import surgery
from surgery.engine import recipe as recipes
from surgery.model.graph import text

KNOWN_ONLY_ANEW = """
g (float[batch,seq,4] x) => (float[length,1,4] y)
<int64[1] one = {1}, int64[1] four = {4}, int64[3] rows = {-1, 1, 4}, float[1,1,4] c = {1, 2, 3, 4}> {
    p = Reshape(x, rows)
    s = Shape(p)
    e = Expand(c, s)
    q = Exp(p)
    r = Relu(x)
    n = Shape<start = 1, end = 2>(x)
    t = Concat<axis = 0>(n, one, four)
    a = Reshape(r, t)
    b = Add(e, a)
    y = Mul(b, q)
}
"""
"""A batch of 1, as `a` says. When its Reshape reads -1, both Reshapes have the same dims, and the Expand goes."""

HARD_SWISH_LATE = """
g (float[N,4] x) => (float[N,4] y) <float two = {2}, float half = {0.5}> {
    s = HardSigmoid<alpha = 0.16666667>(x)
    t = Mul(x, two)
    u = Mul(t, half)
    y = Mul(u, s)
}
"""
"""A HardSwish, once the two factors are one and the product with it is gone."""

NUMBERS = ", ".join(map(str, range(300)))
TWICE_EQUAL = f"""
g (float[N,300] x) => (float[N,300] y) <float[300] b = {{{NUMBERS}}}, float[300] c = {{{NUMBERS}}}> {{
    r = Add(x, b)
    s = Add(x, c)
    y = Mul(r, s)
}}
"""
"""Two sums that are equal once their large biases are stored once."""

STEPS = "[simplify-expands, simplify-reshapes, drop-dead]"


def run(model: onnx.ModelProto | Path, recipe: str | recipes.Recipe, output: Path | None = None) -> surgery.Result:
    result = surgery.apply(model, recipe, output=output)
    assert result.ok
    return result


def unverified(steps: str) -> recipes.Recipe:
    return recipes.parse(f"recipe: test\nverify: {{mode: 'off'}}\n{steps}", "test.yaml")


def operators(result: surgery.Result) -> Counter[str]:
    return Counter(node.op_type for node in result.proto.graph.node)


def test_a_further_round_finds_what_only_shapes_inferred_anew_tell() -> None:
    once = run(text.parse(KNOWN_ONLY_ANEW), unverified(f"steps: {STEPS}"))
    assert operators(once)["Expand"] == 1
    repeated = run(text.parse(KNOWN_ONLY_ANEW), unverified(f"steps: [{{repeat: until-stable, steps: {STEPS}}}]"))
    assert operators(repeated)["Expand"] == 0


@pytest.mark.parametrize(
    ("recipe", "source", "expected"),
    [
        ("moves", KNOWN_ONLY_ANEW, {"Reshape": 2, "Exp": 1, "Relu": 1, "Add": 1, "Mul": 1}),
        ("default", HARD_SWISH_LATE, {"HardSwish": 1}),
        ("tidy", TWICE_EQUAL, {"Add": 1, "Mul": 1}),
    ],
)
def test_a_second_run_of_a_recipe_changes_nothing(
    recipe: str, source: str, expected: dict[str, int], tmp_path: Path
) -> None:
    first = run(text.parse(source), recipe, tmp_path / "first.onnx")
    assert operators(first) == expected
    second = run(tmp_path / "first.onnx", recipe)
    assert [step.name for step in second.steps if step.status != "unchanged"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "npu", "t5", "vision", "vit", "whisper"])
def test_a_shipped_recipe_finds_nothing_in_the_result_for_its_model(name: str, tmp_path: Path) -> None:
    shipped = recipes.load(name)
    recipe = replace(shipped, verify=replace(shipped.verify, mode="off", deployment="off"))
    assert recipe.model is not None  # each of these has one
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    run(Path(recipe.model), recipe, first)
    again = run(first, recipe, second)
    assert [step.name for step in again.steps if step.status == "committed"] == []
