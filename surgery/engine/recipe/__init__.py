"""Recipes: YAML -> immutable values; all mistakes are reported at once, each with line, column and a suggestion.

The names below are imported on first use: the values of a recipe are light, but reading one needs a YAML parser.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.engine.recipe.checked import load as load
    from surgery.engine.recipe.count_condition import CountCondition as CountCondition
    from surgery.engine.recipe.loader import parse as parse
    from surgery.engine.recipe.loader import single_step as single_step
    from surgery.engine.recipe.recipe_lookup import names as names
    from surgery.engine.recipe.schema import Expect as Expect
    from surgery.engine.recipe.schema import PassStep as PassStep
    from surgery.engine.recipe.schema import Recipe as Recipe
    from surgery.engine.recipe.schema import RepeatStep as RepeatStep
    from surgery.engine.recipe.schema import Step as Step
    from surgery.engine.recipe.schema import UseStep as UseStep
    from surgery.engine.recipe.schema import When as When

_HOMES = {
    "CountCondition": "count_condition",
    "Expect": "schema",
    "PassStep": "schema",
    "Recipe": "schema",
    "RepeatStep": "schema",
    "Step": "schema",
    "UseStep": "schema",
    "When": "schema",
    "load": "checked",
    "names": "recipe_lookup",
    "parse": "loader",
    "single_step": "loader",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'surgery.engine.recipe' has no attribute '{name}'")
    return getattr(importlib.import_module(f"surgery.engine.recipe.{home}"), name)
