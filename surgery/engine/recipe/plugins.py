"""Plugins and other code of a recipe: lookup, trust checks, import.

A recipe is data unless it refers to Python code or a native library. A local file is run only if the caller trusts it;
an installed package is trusted already, because it was installed on purpose. Trust is given for one call, or
permanently in the user's configuration.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from surgery.base.errors import Problem, SurgeryError
from surgery.engine.recipe import trust
from surgery.engine.recipe.draft import Draft, PluginUse
from surgery.engine.recipe.fields import read_text
from surgery.engine.recipe.recipe_paths import below, is_file
from surgery.engine.registry.catalog import catalog
from surgery.engine.yaml.yaml_nodes import YamlNode, one_line, quoted

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PATTERN = rf"^{_MODULE.pattern}$|\.py$"
"""The pattern of plugin names, for the JSON schema."""
LONGEST = 1000
"""Maximum number of characters of a message with file names, because paths can be long."""


def read_plugin(node: YamlNode, draft: Draft) -> str:
    """Read one plugin: the name of a module, or the path of a `.py` file, resolved against the recipe's folder."""
    text = read_text(node, "the names of modules and the paths of .py files")
    is_path = text.endswith(".py")
    target = str(below(draft.folder, text)) if is_path else text
    if is_path and not is_file(Path(target)):
        raise ValueError(f"no plugin file {quoted(text)}")
    if not is_path and not _MODULE.fullmatch(text):
        raise ValueError(f"a plugin is an installed module or a .py file, not {quoted(text)}")
    draft.plugins.append(PluginUse(draft.path, text, target, node))
    return target


def read_local(node: YamlNode, draft: Draft, text: str, verb: str) -> Path:
    """Return the path of a code file, resolved against the recipe's folder, and record that the recipe needs it."""
    path = below(draft.folder, text)
    if not is_file(path):
        raise ValueError(f"no file {quoted(text)} in the recipe's folder")
    draft.local.append(PluginUse(draft.path, text, str(path), node, verb))
    return path


def local_code(use: PluginUse) -> Path | None:
    """Return the code of a plugin that is not installed: a file, or a package in the current folder; otherwise None."""
    if use.verb == "load" or use.target.endswith(".py"):
        return Path(use.target)
    try:
        spec = importlib.util.find_spec(use.target.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    # A package is identified by its folder: the hash of one file would not cover the others.
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin and spec.has_location else [])]
    here = Path.cwd().resolve()
    return next((Path(place) for place in places if Path(place).resolve().parent == here), None)


def refusals(uses: Sequence[PluginUse]) -> list[PluginUse]:
    """List the plugins that need the caller's trust and are not trusted in the user's configuration."""
    local = [(use, path) for use in uses if (path := local_code(use)) is not None]
    entries = trust.entries() if local else ()
    return [use for use, path in local if not trust.trusted(path, entries)]


def wants(use: PluginUse) -> str:
    """Return the message about the code that a recipe wants to run: the file, and its hash."""
    path = local_code(use)
    if path is None:
        return f"wants to {use.verb} {use.text}"
    digest = trust.digest(path)
    facts = f"sha256 {digest}, file {path.resolve()}" if digest else f"folder {path.resolve()}"
    entry = trust.changed(path, trust.entries())
    remark = f", which is not the file trusted at {entry.where}" if entry is not None else ""
    return f"wants to {use.verb} {use.text} ({facts}){remark}"


def how_to_trust() -> str:
    """Return the message about the two ways to trust local code."""
    return f"if you trust it, pass --trust, or add it to the list 'trust' in {trust.config_file()}"


def wishes(uses: Sequence[PluginUse]) -> str:
    """Return the message about the code that each recipe wants to run."""
    return ", ".join(f"{use.path} {wants(use)}" for use in uses)


def refusal(use: PluginUse) -> Problem:
    """Return untrusted code as a mistake, for a recipe with other mistakes."""
    return problem(use, f"the recipe {wants(use)}; {how_to_trust()}")


def import_plugins(uses: Sequence[PluginUse]) -> list[Problem]:
    """Import plugins, so that their passes are known; return failures as mistakes at the position of the plugin."""

    problems = []
    for use in uses:
        try:
            catalog.load_plugin(use.target)
        except SurgeryError as error:
            problems.append(problem(use, str(error)))
    return problems


def problem(use: PluginUse, message: str) -> Problem:
    """Return a mistake at the position of a plugin."""
    return Problem(use.path, use.at.line, use.at.column, one_line(message, LONGEST))
