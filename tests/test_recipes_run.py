"""The shipped recipes on the models that they name: everything holds, less is left, and a second run is idle."""

import pytest

from surgery import recipe as recipes
from surgery import runner

WITH_MODEL = [name for name in recipes.names() if recipes.load(name).model is not None]


def test_each_architecture_has_a_recipe() -> None:
    assert {"bert", "gpt2", "llama", "t5", "vision", "vit", "whisper"} == set(WITH_MODEL)


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_recipe_holds_on_its_model(name: str) -> None:
    recipe = recipes.load(name)
    assert recipe.model is not None
    result = runner.apply(recipe.model, recipe)
    assert result.ok
    assert result.steps[-1].nodes_after < 0.7 * result.steps[0].nodes_before
