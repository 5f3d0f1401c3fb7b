"""Pin everything that the result of a recipe depends on in a lock file, or check such a file.

A lock holds digests of the recipe with all files that it names, of the source of each pass and of surgery itself, and
the versions of packages. 'surgery apply RECIPE MODEL --locked' refuses to run if one of them changed, and otherwise
writes the same bytes again. For CI, 'surgery lock RECIPE --check' exits with 1 if a lock is out of date.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output, _places, _plugins

if TYPE_CHECKING:
    from surgery.engine.recipe import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lock`."""
    parser.add_argument(
        "recipe", metavar="RECIPE", type=_places.locked_recipe, help="a recipe file, or the name of a shipped recipe"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_places.lock,
        help="the lock file (default: the recipe's name with .lock next to it, for a shipped recipe in this folder)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; list what changed, and exit with 1 if so")
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write or check a lock."""
    from surgery.engine import recipe as recipes
    from surgery.engine.provenance import lock

    _plugins.load(arguments)
    recipe = recipes.load(arguments.recipe, trust=arguments.trust)
    path = Path(arguments.output) if arguments.output is not None else lock.default_path(recipe)
    return _check(recipe, path, arguments) if arguments.check else _write(recipe, path, arguments)


def _check(recipe: Recipe, path: Path, arguments: argparse.Namespace) -> int:
    from surgery.engine.provenance import lock

    found = lock.changes(lock.read(path), lock.pins(recipe))
    if arguments.format == "json":
        _output.write_json(
            {"format_version": 1, "lock": str(path), "ok": not found, "changes": [one.to_json() for one in found]}
        )
    elif found:
        for one in found:
            _output.write(str(one), wrap=False)
        _output.messages().print(f"{path} is out of date; update it with 'surgery lock'", soft_wrap=True)
    else:
        _output.messages().print(f"{path} is up to date", soft_wrap=True)
    return int(bool(found))


def _write(recipe: Recipe, path: Path, arguments: argparse.Namespace) -> int:
    from surgery.engine.provenance import lock
    from surgery.model import storage

    pins = lock.pins(recipe)
    exists = path.exists()
    storage.check_target(path, force=True)
    found = lock.changes(lock.read(path), pins) if exists else []
    storage.write_texts({path: lock.text_of(pins)})
    if arguments.format == "json":
        _output.write_json(
            {"format_version": 1, "lock": str(path), "changes": [one.to_json() for one in found], "pins": pins}
        )
        return 0
    for one in found:
        _output.write(str(one), wrap=False)
    counts = f"{len(pins['files'])} files, {len(pins['passes'])} passes, {len(pins['packages'])} packages"
    _output.messages().print(f"{'updated' if exists else 'wrote'} {path}: {counts}", soft_wrap=True)
    return 0
