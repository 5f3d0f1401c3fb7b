"""The plan of each shipped recipe on each bundled model, applied, has the bytes of a plain run."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.breadth import sampled

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import recipe_lookup
from surgery.features.planning import following_run
from surgery.features.planning.plan_making import make
from surgery.model import storage

MODELS = 13
# `default` on each model, and each recipe on one, each time another.
PAIRS = list(
    dict.fromkeys(
        [
            *(("default", number) for number in range(MODELS)),
            *((name, place % MODELS) for place, name in enumerate(sorted(recipe_lookup.names()))),
        ]
    )
)


def test_every_bundled_model_is_used(short_models: Path) -> None:
    assert len(sorted(short_models.glob("*.onnx"))) == MODELS


@pytest.mark.parametrize(("name", "number"), sampled(PAIRS, 24))
def test_an_applied_plan_gives_the_bytes_of_a_plain_run(
    name: str, number: int, short_models: Path, tmp_path: Path
) -> None:
    model = sorted(short_models.glob("*.onnx"))[number]
    loaded = recipes.load(name)
    # What is verified is no part of the question, and takes most of the time. A measured speed varies between runs.
    expect = replace(loaded.expect, speed=None)
    recipe = replace(loaded, verify=replace(loaded.verify, mode="off"), model=None, expect=expect)
    planning = make(storage.load(model), recipe, name, folder=tmp_path)
    assert planning.failure is None
    where = tmp_path / "plan.json"
    following_run.require_unchanged(planning.plan, storage.load(model), recipe, where)
    follower = following_run.Follower(planning.plan, recipe, where)
    found = runner.apply(
        model,
        recipe,
        output=tmp_path / "planned.onnx",
        options=RunOptions(observer=follower, choice=follower, accept=follower.accept),
    )
    plain = runner.apply(model, recipe, output=tmp_path / "plain.onnx")
    assert found.ok == plain.ok == planning.ok
    if plain.ok:
        assert (tmp_path / "planned.onnx").read_bytes() == (tmp_path / "plain.onnx").read_bytes()
        assert (planning.plan.after.nodes, planning.plan.after.bytes) == (plain.figures.nodes, plain.figures.bytes)
