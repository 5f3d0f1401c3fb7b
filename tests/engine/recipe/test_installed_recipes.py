"""Recipes and targets that an installed package brings by entry points."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.recipe import checked, recipe_lookup
from surgery.interface.command_line._installation import CHECKS
from surgery.model.targets import entry_points
from surgery.model.targets import shipped as targets

METADATA = "Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n"
ENTRIES = """[surgery.recipes]
acme = acme_models.recipes
gone = acme_models.nowhere.recipes

[surgery.targets]
acme = acme_models.targets
bare = acme_models
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution as pip leaves it, whose modules must not be imported."""
    info = tmp_path / "acme_models-1.0.dist-info"
    for folder in (info, tmp_path / "acme_models" / "recipes", tmp_path / "acme_models" / "targets"):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRIES)
    for part in ("recipes", "targets"):
        (tmp_path / "acme_models" / part / "__init__.py").write_text("raise RuntimeError('it was imported')\n")
    (tmp_path / "acme_models" / "__init__.py").touch()
    recipe = tmp_path / "acme_models" / "recipes"
    (recipe / "acme-clean.yaml").write_text("recipe: acme-clean\nsteps: [drop-identity]\n")
    (recipe / "tidy.yaml").write_text("recipe: not-tidy\nsteps: [drop-dropout]\n")
    profile = (targets.folder() / "ort-cpu.yaml").read_text()
    (tmp_path / "acme_models" / "targets" / "acme-chip.yaml").write_text(profile.replace("ort-cpu", "acme-chip"))
    monkeypatch.syspath_prepend(tmp_path)
    caches = (entry_points.installed, targets.names)
    for one in caches:
        one.cache_clear()
    yield tmp_path
    for one in caches:
        one.cache_clear()
    sys.modules.pop("acme_models", None)


def test_a_recipe_of_a_package_is_found_by_name(package: Path) -> None:
    assert "acme-clean" in recipe_lookup.names()
    assert recipes.load("acme-clean").path == package / "acme_models" / "recipes" / "acme-clean.yaml"
    # Others can use it, too, and its name is suggested.
    used = recipes.parse("recipe: r\nsteps: [{use: acme-clean}]\n")
    assert [step.recipe.name for step in used.steps] == ["acme-clean"]
    with pytest.raises(UsageError, match=r"no recipe 'acme-claen'; did you mean 'acme-clean'\?"):
        recipes.load("acme-claen")


def test_what_a_recipe_is_for_is_known_by_its_name(package: Path) -> None:
    file = package / "acme_models" / "recipes" / "acme-clean.yaml"
    file.write_text("recipe: acme-clean\nabout: For chips.\nsteps: [drop-identity]\n")
    assert checked.about("acme-clean") == "For chips."
    file.write_text("recipe: acme-clean\nabout: For chips.\nsteps: [drop-everything]\n")
    assert checked.about("acme-clean") == ""
    assert f"about: {checked.about('tidy')}" in (recipe_lookup.folder() / "tidy.yaml").read_text().splitlines()


def test_a_package_cannot_take_the_name_of_a_shipped_recipe() -> None:
    assert recipes.load("tidy").name == "tidy"


def test_what_packages_add_in_vain_is_reported() -> None:
    gone = "entry point 'gone' of acme-models 1.0 refers to 'acme_models.nowhere.recipes', but there is no such package"
    bare = "entry point 'bare' of acme-models 1.0 refers to 'acme_models', but there are no .yaml files in it"
    assert recipe_lookup.problems() == [
        f"surgery.recipes: {gone}",
        "surgery.recipes: 'tidy' of acme-models 1.0 is ignored, because surgery has a file of that name",
    ]
    assert targets.problems() == [f"surgery.targets: {bare}"]
    broken = [text for level, text, _ in CHECKS["recipes"]() if level == "broken"]
    assert broken == [*recipe_lookup.problems(), *targets.problems()]
    # A name that is not found may be that of a broken package.
    with pytest.raises(UsageError, match=re.escape(f"no recipe 'zzz'; {gone}; shipped are ")):
        recipes.load("zzz")
    with pytest.raises(UsageError, match=re.escape(f"no target 'zzz'; {bare}; there are ")):
        targets.find("zzz")


def test_a_target_of_a_package_is_found_by_name() -> None:
    assert "acme-chip" in targets.names()
    assert targets.find("acme-chip").name == "acme-chip"


def test_listing_recipes_does_not_import_the_package() -> None:
    assert "acme-clean" in recipe_lookup.names()
    assert not [name for name in sys.modules if name.startswith("acme_models.")]
