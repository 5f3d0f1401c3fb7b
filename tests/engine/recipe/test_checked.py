"""Checked forms of shipped recipes are what their YAML files say, and are not used where these differ."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surgery.base.errors import RecipeError
from surgery.engine.recipe import Recipe, checked, loader, recipe_lookup
from surgery.engine.registry.catalog import catalog

NAMES = sorted(path.stem for path in recipe_lookup.folder().glob("*.yaml"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the shipped recipes, in the place of these."""
    copied = shutil.copytree(recipe_lookup.folder(), tmp_path / "recipes")
    monkeypatch.setattr(recipe_lookup, "folder", lambda: copied)
    return copied


@pytest.fixture
def yaml_is_read(monkeypatch):
    """The recipes that are loaded from YAML, in order."""
    found: list[str | Path] = []
    read = loader.load

    def load(name, **how):
        found.append(name)
        return read(name, **how)

    monkeypatch.setattr(loader, "load", load)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_checked_form_is_up_to_date(name):
    kept = (recipe_lookup.folder() / checked.FOLDER / f"{name}.json").read_text()
    assert kept == checked.text(name), "run: make docs"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_recipe_with_all_positions_and_types(name, yaml_is_read):
    found = checked.load(name)
    assert yaml_is_read == []
    # Positions do not count for equality, but are in the representation, as is whether a list is a tuple.
    assert repr(found) == repr(loader.load(name))
    assert found == loader.load(name)


def test_a_shipped_recipe_needs_no_pydantic_and_no_yaml_parser():
    script = (
        "import sys\n"
        "from surgery.engine.recipe import load\n"
        "from surgery.engine.recipe.schema import pass_steps\n"
        "for step in pass_steps(load('default').steps):\n"
        "    step.bind()\n"
        "print(sorted({'pydantic', 'ruamel.yaml'} & {*sys.modules}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "[]\n"


def test_a_changed_recipe_is_read_again(folder, yaml_is_read):
    path = folder / "tidy.yaml"
    path.write_text(path.read_text().replace("recipe: tidy", "recipe: tidier"))
    assert checked.load("tidy").name == "tidier"
    assert yaml_is_read == ["tidy"]


def test_a_recipe_is_read_again_if_one_that_it_uses_changed(folder, yaml_is_read):
    path = folder / "moves.yaml"
    path.write_text(path.read_text() + "# changed\n")
    assert "moves" in (folder / "default.yaml").read_text()
    assert checked.load("default") == loader.load("default")
    assert yaml_is_read[0] == "default"


def test_a_recipe_without_a_checked_form_is_read(folder, yaml_is_read):
    shutil.rmtree(folder / checked.FOLDER)
    assert checked.load("vision").name == "vision"
    assert yaml_is_read == ["vision"]


def test_a_file_is_read_even_if_it_has_the_name_of_a_shipped_recipe(tmp_path, monkeypatch, yaml_is_read):
    monkeypatch.chdir(tmp_path)
    Path("tidy").write_text("recipe: mine\nsteps: [drop-identity]\n")
    assert checked.load(Path("tidy")).name == "mine"
    assert checked.load("./tidy").name == "mine"
    assert yaml_is_read == [Path("tidy"), "./tidy"]


def test_a_pass_that_two_packages_have_is_reported_at_its_step(monkeypatch):
    monkeypatch.setattr(catalog, "clash", lambda name: "two passes" if name == "drop-identity" else None)
    with pytest.raises(RecipeError, match=r"default\.yaml:\d+:\d+: two passes"):
        checked.load("default")


def test_it_is_announced_once(monkeypatch):
    announced: list[Recipe] = []
    loaded = checked.load("tidy", on_read=announced.append)
    assert announced == [loaded]
    monkeypatch.setattr(catalog, "clash", lambda _: "two passes")
    announced.clear()
    with pytest.raises(RecipeError):
        checked.load("tidy", on_read=announced.append)
    assert [recipe.name for recipe in announced] == ["tidy"]


def test_the_forms_name_no_path_of_this_machine():
    for path in (recipe_lookup.folder() / checked.FOLDER).glob("*.json"):
        assert json.loads(path.read_text())["sha256"]
        assert str(Path.home()) not in path.read_text()
        assert str(recipe_lookup.folder()) not in path.read_text()
