"""Optional steps: found in recipes, taken out, and put back; and the recipe written as a person would."""

from __future__ import annotations

from pathlib import Path

import pytest

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.recipe import PassStep, Recipe, RepeatStep, Step, UseStep, resolved
from surgery.features.tuning.optional_steps import (
    excluding,
    excluding_option,
    optional_steps,
    split_before,
    with_chosen,
)

TEXT = """
recipe: eight
on_failure: bisect
verify: {seed: 3}
accuracy: {budget: snr >= 30 dB}
steps:
  - use: tidy
  - repeat: 2
    steps:
      - drop-identity
      - quantize-dynamic: {min_size: 8}
  - use:
      recipe: inner
      steps:
        - drop-dead
        - quantize-static: {method: mse}
        - drop-identity
  - drop-identity
expect: {signature: unchanged}
"""


def names(steps: tuple[Step, ...]) -> list[object]:
    """List what steps run: the name of a pass, or a list of names."""
    found: list[object] = []
    for step in steps:
        match step:
            case PassStep():
                found.append(step.name)
            case RepeatStep():
                found.append(names(step.steps))
            case UseStep():
                found.append(step.recipe.name if step.recipe.name == "tidy" else names(step.recipe.steps))
    return found


@pytest.fixture
def recipe() -> Recipe:
    return recipes.parse(TEXT)


def test_lossy_and_named_steps_are_optional(recipe: Recipe) -> None:
    assert [(one.place, one.step.name) for one in optional_steps(recipe)] == [
        ((1, 1), "quantize-dynamic"),
        ((2, 1), "quantize-static"),
    ]
    every = optional_steps(recipe, ["drop-identity"])
    assert [one.place for one in every if one.step.name == "drop-identity"][-3:] == [(1, 0), (2, 2), (3,)]


def test_unknown_optional_steps_are_refused(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="has no step 'drop-identiti'; did you mean 'drop-identity'"):
        optional_steps(recipe, ["drop-identiti"])
    with pytest.raises(UsageError, match="has no lossy step"):
        optional_steps(recipes.parse("steps: [drop-identity]"))


def test_steps_not_chosen_are_removed(recipe: Recipe) -> None:
    optional = optional_steps(recipe)
    assert names(with_chosen(recipe, optional, {}).steps) == [
        "tidy",
        ["drop-identity"],
        ["drop-dead", "drop-identity"],
        "drop-identity",
    ]
    other = excluding(optional[1].step, [{"op": "Conv"}])
    found = with_chosen(recipe, optional, {1: other})
    assert names(found.steps)[2] == ["drop-dead", "quantize-static", "drop-identity"]
    assert optional_steps(found)[0].step.options["exclude"] == [{"op": "Conv"}]
    assert recipes.parse(TEXT) == recipe, "the recipe itself does not change"


def test_emptied_groups_of_steps_are_removed() -> None:
    recipe = recipes.parse("steps: [{repeat: 2, steps: [quantize-dynamic]}, drop-dead]")
    assert names(with_chosen(recipe, optional_steps(recipe), {}).steps) == ["drop-dead"]
    alone = recipes.parse("steps: [quantize-dynamic]")
    assert with_chosen(alone, optional_steps(alone), {}).steps == ()


def test_a_recipe_is_split_before_a_step(recipe: Recipe) -> None:
    before, after = split_before(recipe.steps, (2, 1))
    assert names(before) == ["tidy", ["drop-identity", "quantize-dynamic"], ["drop-dead"]]
    assert names(after) == [["quantize-static", "drop-identity"], "drop-identity"]
    before, after = split_before(recipe.steps, (1, 1))
    assert (names(before), names(after)[0]) == (["tidy"], ["drop-identity", "quantize-dynamic"])


def test_a_step_with_a_condition_is_not_split() -> None:
    text = "steps: [{use: {steps: [drop-dead, quantize-dynamic]}, when: {opset: '> 9'}}]"
    recipe = recipes.parse(text)
    before, after = split_before(recipe.steps, optional_steps(recipe)[0].place)
    assert (before, names(after)) == ((), [["drop-dead", "quantize-dynamic"]])


@pytest.mark.parametrize(
    ("name", "option"), [("quantize-dynamic", "exclude"), ("to-float16", "keep"), ("quantize-weights", None)]
)
def test_the_option_that_excludes_nodes(name: str, option: str | None) -> None:
    assert excluding_option(PassStep(name=name)) == option


@pytest.mark.parametrize("given", ["a", {"op": "Gemm"}, ["a", {"op": "Gemm"}]])
def test_exclusions_are_extended(given: object) -> None:
    step = recipes.single_step("quantize-dynamic", {"exclude": given}).steps[0]
    assert isinstance(step, PassStep)
    found = excluding(step, [{"name": ["b", "c"]}]).options["exclude"]
    assert found == [*(given if isinstance(given, list) else [given]), {"name": ["b", "c"]}]
    PassStep(name=step.name, options={"exclude": found}).bind()


def test_a_written_recipe_is_readable(recipe: Recipe, tmp_path: Path) -> None:
    optional = optional_steps(recipe)
    step = excluding(optional[0].step, [{"name": ["a", "b*"]}, {"op": "Gather"}])
    found = with_chosen(recipe, optional, {0: step})
    text = resolved.brief(found, "Why it is so.")
    assert text.startswith("# Why it is so.\nrecipe: eight\n")
    assert "verify: {seed: 3}\n" in text and "- use: tidy\n" in text
    assert '- quantize-dynamic: {exclude: [{name: [a, "b*"]}, {op: Gather}], min_size: 8}\n' in text
    assert "quantize-static" not in text
    read = recipes.parse(text)
    assert (read.steps, read.verify, read.on_failure) == (found.steps, found.verify, found.on_failure)


def test_a_nested_recipe_is_referenced_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "clean.yaml").write_text("steps: [drop-identity]")
    (tmp_path / "all.yaml").write_text("steps: [{use: clean.yaml}, quantize-dynamic]")
    recipe = recipes.load(tmp_path / "all.yaml")
    text = resolved.brief(recipe)
    assert f"use: {tmp_path / 'clean.yaml'}\n" in text
    assert recipes.parse(text).steps == recipe.steps


def test_a_changed_nested_recipe_keeps_its_changes(tmp_path: Path) -> None:
    (tmp_path / "clean.yaml").write_text("steps: [drop-identity, {fold-constants: {max_growth: 1MB}}, drop-no-op]")
    (tmp_path / "all.yaml").write_text(
        "steps: [{use: clean.yaml, without: drop-no-op, with: {fold-constants: {max_growth: 2MB}}}, quantize-dynamic]"
    )
    recipe = recipes.load(tmp_path / "all.yaml")
    text = resolved.brief(recipe)
    assert "without: [drop-no-op]" in text
    assert recipes.parse(text).steps == recipe.steps
