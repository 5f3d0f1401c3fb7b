"""The shipped recipes on the models that they name: everything holds, less is left, and a second run is idle."""

import pytest
from support import installed
from support.breadth import sampled

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.model.graph import text

WITH_MODEL = [name for name in recipes.names() if recipes.load(name).model is not None]


def test_each_architecture_has_a_recipe() -> None:
    assert {"bert", "gpt2", "llama", "npu", "t5", "vision", "vit", "whisper"} == set(WITH_MODEL)


@pytest.mark.parametrize("name", sampled(WITH_MODEL[::-1], 8))
def test_a_recipe_succeeds_on_its_model(name: str) -> None:
    recipe = recipes.load(name)
    assert recipe.model is not None
    result = runner.apply(recipe.model, recipe)
    assert result.ok
    assert result.steps[-1].nodes_after < 0.7 * result.steps[0].nodes_before


@pytest.mark.skipif(not installed.centers_exactly(), reason="LayerNormalization of the installed runtime is inexact")
def test_a_norm_that_centers_its_input_is_fused() -> None:
    spelled = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[n, 8] x) => (float[n, 8] y)
    <float two = {2}, float tiny = {1e-6}, float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}> {
        u = ReduceMean<axes = [-1]>(x)
        d = Sub(x, u)
        q = Pow(d, two)
        v = ReduceMean<axes = [-1]>(q)
        e = Add(v, tiny)
        r = Sqrt(e)
        c = Div(d, r)
        m = Mul(c, s)
        y = Add(m, s)
    }"""
    result = runner.apply(text.parse(spelled), "modern")
    assert [node.op_type for node in result.proto.graph.node] == ["LayerNormalization"]
