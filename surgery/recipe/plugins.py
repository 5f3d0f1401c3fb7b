"""Plugins and other code that a recipe names: found, asked about, imported.

A recipe is data until it names Python or a native library. A local file is run only if the caller trusts it; an
installed package is trusted already, since somebody installed it. Trust is given for one call, or for good in the
user's configuration.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from surgery.errors import Problem, SurgeryError
from surgery.recipe import trust
from surgery.recipe.draft import Draft, PluginUse
from surgery.recipe.nodes import Node, one_line, quoted
from surgery.recipe.reader import Field, below, is_file, listed

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
LONGEST = 1000
"""So many characters may a message have that names files: a path can be long."""


def field(draft: Draft) -> Field:
    """Say what `plugins` takes: modules by name, `.py` files by path, which is resolved against the recipe's folder."""
    about = "Modules by name and .py files by path with more passes. A file that nobody installed needs trust."
    one = {"type": "string", "pattern": rf"^{_MODULE.pattern}$|\.py$"}
    return Field(lambda node: _plugins(draft, node), about, listed(one))


def _plugins(draft: Draft, node: Node) -> tuple[str, ...]:
    read = draft.text("plugins", "the names of modules and the paths of .py files")
    found = [(item, read(item)) for item in draft.items(node)]
    uses = [use for item, text in found if text is not None and (use := _plugin(draft, item, text)) is not None]
    draft.plugins += uses
    return tuple(use.target for use in uses)


def _plugin(draft: Draft, node: Node, text: str) -> PluginUse | None:
    if text.endswith(".py"):
        path = below(draft.folder, text)
        if is_file(path):
            return PluginUse(draft.path, text, str(path), node)
        draft.problem(node, f"no plugin file {quoted(text)}")
    elif _MODULE.fullmatch(text):
        return PluginUse(draft.path, text, text, node)
    else:
        draft.problem(node, f"a plugin is an installed module or a .py file, not {quoted(text)}")
    return None


def read_local(draft: Draft, node: Node, text: str, verb: str) -> Path | None:
    """Find a file of code, against the recipe's folder, and note that the recipe wants to run or load it."""
    path = below(draft.folder, text)
    if not is_file(path):
        draft.problem(node, f"no file {quoted(text)} in the recipe's folder")
        return None
    draft.local.append(PluginUse(draft.path, text, str(path), node, verb))
    return path


def local_code(use: PluginUse) -> Path | None:
    """Give what a plugin would run if nobody installed it: a file, or a package in the current folder."""
    if use.verb == "load" or use.target.endswith(".py"):
        return Path(use.target)
    try:
        spec = importlib.util.find_spec(use.target.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    # A package is its folder: the hash of one file would say nothing about the others.
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin and spec.has_location else [])]
    here = Path.cwd().resolve()
    return next((Path(place) for place in places if Path(place).resolve().parent == here), None)


def refusals(uses: Sequence[PluginUse]) -> list[PluginUse]:
    """List the plugins that need the caller's trust and are not in the list of the user's configuration."""
    local = [(use, path) for use in uses if (path := local_code(use)) is not None]
    entries = trust.entries() if local else ()
    return [use for use, path in local if not trust.trusted(path, entries)]


def wants(use: PluginUse) -> str:
    """Say what a recipe wants to run: the file, and the hash by which it can be recognised."""
    path = local_code(use)
    if path is None:
        return f"wants to {use.verb} {use.text}"
    digest = trust.digest(path)
    facts = f"sha256 {digest}, file {path.resolve()}" if digest else f"folder {path.resolve()}"
    entry = trust.changed(path, trust.entries())
    remark = f", which is not the file trusted at {entry.where}" if entry is not None else ""
    return f"wants to {use.verb} {use.text} ({facts}){remark}"


def how_to_trust() -> str:
    """Say both ways to trust local code."""
    return f"if you trust it, pass --trust, or add it to the list 'trust' in {trust.config_file()}"


def wishes(uses: Sequence[PluginUse]) -> str:
    """Say which recipe wants to run what."""
    return ", ".join(f"{use.path} {wants(use)}" for use in uses)


def refusal(use: PluginUse) -> Problem:
    """Make a mistake of code that is not trusted, for a recipe that has others."""
    return problem(use, f"the recipe {wants(use)}; {how_to_trust()}")


def import_plugins(uses: Sequence[PluginUse]) -> list[Problem]:
    """Import plugins, so that their passes are known; what goes wrong is a mistake at the place that names them."""
    from surgery.registry.declare import load_plugin

    problems = []
    for use in uses:
        try:
            load_plugin(use.target)
        except SurgeryError as error:
            problems.append(problem(use, str(error)))
        except (Exception, SystemExit) as error:
            problems.append(problem(use, f"plugin '{use.text}' cannot be imported: {type(error).__name__}: {error}"))
    return problems


def problem(use: PluginUse, message: str) -> Problem:
    """Make a mistake of a plugin, at the place that names it."""
    return Problem(use.path, use.at.line, use.at.column, one_line(message, LONGEST))
