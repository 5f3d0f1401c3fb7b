"""Who imports whom in surgery: folders, floors, arrows and circles, counted from the source.

Every import counts, wherever it stands: at the top of a file, for type checking, inside a function. Run it to see the
figures of a tree: `python tests/support/imports.py [ROOT]`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import networkx

T = TypeVar("T", bound=Hashable)

ROOT = Path(__file__).parent.parent.parent


@cache
def modules(root: Path = ROOT) -> dict[str, Path]:
    """List the modules of surgery by their dotted names; the templates of passes are text."""
    found = {}
    for path in sorted((root / "surgery").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[:3] != ("surgery", "cli", "templates"):
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every name that a file imports, with the module that it is taken from."""
    return frozenset(_imported(ast.parse(path.read_text(encoding="utf-8"))))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if node.module:
                yield module
            yield from (f"{module}.{alias.name}" if node.module else f"{module}{alias.name}" for alias in node.names)


@cache
def arrows(root: Path = ROOT) -> dict[str, frozenset[str]]:
    """Return for each module the modules of surgery that it imports. The package itself only hands names on."""
    known = modules(root)
    return {
        module: frozenset(_homes(imports(path), known) - {module, "surgery"})
        for module, path in known.items()
        if module != "surgery"
    }


def _homes(names: frozenset[str], known: Mapping[str, Path]) -> set[str]:
    """Return the modules that are meant: of `from a.b import c` that is `a.b.c` where there is such a module."""
    within = {name for name in names if name in known}
    meant = {name for name in names if name.startswith("surgery.") and name not in known}
    holders = {name.rpartition(".")[0] for name in meant}
    outer = {name.rpartition(".")[0] for name in within}
    return {name for name in within if name not in outer or name in holders}


def circles(adjacent: Mapping[T, frozenset[T]]) -> list[list[T]]:
    """Return the sets of nodes that reach each other."""
    return [
        sorted(found, key=str) for found in networkx.strongly_connected_components(_digraph(adjacent)) if len(found) > 1
    ]


def _digraph(adjacent: Mapping[T, frozenset[T]]) -> networkx.DiGraph[T]:
    return networkx.DiGraph({node: list(others) for node, others in adjacent.items()})


def rooms(root: Path = ROOT) -> dict[str, frozenset[str]]:
    """Return the arrows between rooms: folders at any depth, and modules that are in none."""
    result: dict[str, set[str]] = {}
    for module, others in arrows(root).items():
        here = _room(module, root)
        result.setdefault(here, set()).update({_room(other, root) for other in others} - {here})
    return {room: frozenset(others) for room, others in result.items()}


def _room(module: str, root: Path) -> str:
    is_package = modules(root)[module].name == "__init__.py"
    parent = module if is_package else module.rpartition(".")[0]
    return module if parent == "surgery" else parent


def floors(adjacent: Mapping[str, frozenset[str]]) -> int:
    """Return how many floors the rooms stand on; a circle is one floor."""
    return int(networkx.dag_longest_path_length(networkx.condensation(_digraph(adjacent)))) + 1


def figures(root: Path) -> str:
    """Return the figures of a tree as lines of text."""
    between = rooms(root)
    lines = [f"{len(between)} rooms on {floors(between)} floors, {sum(map(len, between.values()))} arrows"]
    for what, found in (("rooms", circles(between)), ("files", circles(arrows(root)))):
        lines += [f"{len(found)} circles of {what}", *(f"    {', '.join(circle)}" for circle in found)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(figures(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT) + "\n")
