"""Plugins and other code that a recipe names: found, asked about, imported.

A recipe is data until it names Python or a native library. A local file is run only if the caller trusts it; an
installed package is trusted already, since somebody installed it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from surgery.errors import Problem, SurgeryError
from surgery.recipe.draft import Draft, PluginUse
from surgery.recipe.nodes import Node, one_line, quoted
from surgery.recipe.reader import below, is_file

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DIGITS = 12

TRUST = "pass --trust if you trust it"


def read_plugins(draft: Draft, node: Node) -> tuple[str, ...]:
    """Read `plugins`: modules by name, `.py` files by path, which is resolved against the recipe's folder."""
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


def local_file(use: PluginUse) -> Path | None:
    """Give the file that a plugin would run if nobody installed it: a `.py`, or a module in the current folder."""
    if use.verb == "load" or use.target.endswith(".py"):
        return Path(use.target)
    try:
        spec = importlib.util.find_spec(use.target.split(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin and spec.has_location else [])]
    here = Path.cwd().resolve()
    if any(Path(place).resolve().parent == here for place in places):
        return Path(spec.origin or use.target)
    return None


def refusals(uses: Sequence[PluginUse]) -> list[PluginUse]:
    """List the plugins that need the caller's trust."""
    return [use for use in uses if local_file(use) is not None]


def wants(use: PluginUse) -> str:
    """Say what a recipe wants to run, with a hash by which the file can be recognised."""
    path = local_file(use)
    if path is None or not is_file(path):
        return f"wants to {use.verb} {use.text}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
    return f"wants to {use.verb} {use.text} (sha256 {digest}…)"


def wishes(uses: Sequence[PluginUse]) -> str:
    """Say which recipe wants to run what."""
    return ", ".join(f"{use.path} {wants(use)}" for use in uses)


def import_plugins(uses: Sequence[PluginUse]) -> list[Problem]:
    """Import plugins, so that their passes are known; what goes wrong is a mistake at the place that names them."""
    from surgery.registry import load_plugin

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
    return Problem(use.path, use.at.line, use.at.column, one_line(message))
