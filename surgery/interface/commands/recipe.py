"""Check recipes for mistakes, or show one with nested recipes and defaults filled in.

`check` lists every mistake of every file with line and column. `show` prints an equivalent recipe in which nested
recipes are inlined, defaults are explicit, and the origin of each pass is noted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import Problem, RecipeError, UsageError
from surgery.interface.command_line import _formats, _output, _places, _plugins

if TYPE_CHECKING:
    from surgery.engine.recipe import Recipe

_CHECK = "list all mistakes; exit with 2 if there are any"
_SHOW = "print a recipe with nested recipes, defaults and origins filled in"

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recipe`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = actions.add_parser("check", help=_CHECK, description=_CHECK)
    check.add_argument(
        "recipes",
        metavar="RECIPE",
        type=_places.recipe,
        nargs="+",
        help="a recipe file, or the name of a shipped recipe",
    )
    show = actions.add_parser("show", help=_SHOW, description=_SHOW)
    show.add_argument(
        "recipe", metavar="RECIPE", type=_places.recipe, help="a recipe file, or the name of a shipped recipe"
    )
    for action, run in ((check, _check), (show, _show)):
        _plugins.add_trust_argument(action)
        formats = FORMATS if action is check else _output.PLAIN
        action.add_argument("--format", choices=formats, default=argparse.SUPPRESS, help="output format")
        _plugins.add_argument(action)
        action.set_defaults(action=run)


def main(arguments: argparse.Namespace) -> int:
    """Check recipes, or show one."""
    _plugins.load(arguments)
    return int(arguments.action(arguments))


def _show(arguments: argparse.Namespace) -> int:
    from surgery.engine import recipe as recipes
    from surgery.engine.recipe import resolved

    if arguments.format not in _output.PLAIN:
        raise UsageError(f"--format {arguments.format} is for 'surgery recipe check'", todo="use text or json")
    recipe = recipes.load(arguments.recipe, trust=arguments.trust)
    if arguments.format == "json":
        _output.write_document(resolved.data(recipe))
    else:
        _output.write_text(resolved.text(recipe))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    checked = [_checked(name, arguments.trust) for name in arguments.recipes]
    if arguments.format == "json":
        _output.write_json({"recipes": checked})
    elif arguments.format not in _output.PLAIN:
        from surgery.interface.report.outcomes import of_recipes

        found = [
            (one["recipe"], [Problem(**item) for item in one["problems"]], one.get("message", "")) for one in checked
        ]
        _formats.write(arguments, of_recipes(found))
    else:
        for one in checked:
            if not (arguments.quiet and one["ok"]):
                _tell(one)
    return 0 if all(one["ok"] for one in checked) else UsageError.exit_code


def _checked(name: str, trust: bool) -> dict[str, Any]:
    """Load one recipe, and return its errors or a summary."""
    from surgery.engine import recipe as recipes
    from surgery.engine.recipe.schema import pass_steps

    try:
        recipe = recipes.load(name, trust=trust)
    except RecipeError as error:
        problems = [vars(problem) for problem in error.problems]
        return {"recipe": name, "ok": False, "problems": problems, "message": str(error)}
    except UsageError as error:
        text = str(error).removeprefix(f"'{name}' ")
        message = text if text.startswith(name) else f"{name}: {text}"
        return {"recipe": name, "ok": False, "problems": [], "message": message}
    count = len(list(pass_steps(recipe.steps)))
    return {"recipe": name, "ok": True, "problems": [], "steps": count, "remarks": _remarks(recipe)}


def _remarks(recipe: Recipe) -> list[str]:
    # Not an error: the command line may name another model, and CI may check recipes without their models.
    missing = recipe.model is not None and not Path(recipe.model).is_file()
    return [f"its model {recipe.model} does not exist"] if missing else []


def _tell(one: dict[str, Any]) -> None:
    if not one["ok"]:
        _output.say(str(one["message"]))
        return
    steps = f"{one['steps']} passes" if one["steps"] != 1 else "1 pass"
    _output.write_text(f"{one['recipe']}: {'; '.join([f'fine, {steps}', *one['remarks']])}\n")
