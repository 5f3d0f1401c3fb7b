"""Who imports whom in surgery: wings, folders, floors, arrows and circles, counted from the source.

Every import counts, wherever it stands: at the top of a file, for type checking, inside a function. Run it to see the
figures of a tree, which `support.weight` completes: `python tests/support/imports.py [ROOT]`.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import networkx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from support import weight

T = TypeVar("T", bound=Hashable)

ROOT = Path(__file__).parent.parent.parent

ORDER = {
    "base": ("", "workers", "operators"),
    "model": (
        *("remote", "wire", "storage", "checkpoints", "targets", "proto", "shapes"),
        *("runtime", "graph", "analysis", "patterns"),
    ),
    "verification": (
        *("inputs", "running", "comparing", "regions", "accuracy", "verdict", "signature"),
        "benchmarking",
    ),
    "engine": (*("yaml", "registry", "bridges", "recipe", "provenance", "why", "pipeline", "caching", "batching"),),
    "features": (
        *(
            "bisection",
            "inspection",
            "differences",
            "frameworks",
            "planning",
            "splitting",
            "tuning",
            "testing",
            "workbench",
        ),
    ),
    "interface": (
        *("pages", "layout", "drawing", "workbench", "report.formats", "report", "command_line"),
        *("commands", "docsgen"),
    ),
}
"""The wings, and the folders of each, from the bottom to the top. A folder imports from itself and from those before
it, and "" is what is directly in a wing."""


@cache
def modules(root: Path = ROOT) -> dict[str, Path]:
    """List the modules of surgery by their dotted names; the templates of passes are text."""
    found = {}
    for path in sorted((root / "surgery").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "templates" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> frozenset[str]:
    """Return every name that a file imports, with the module that it is taken from."""
    return weight.outline(path).imports


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


@cache
def rooms(root: Path = ROOT) -> dict[str, frozenset[str]]:
    """Return the arrows between rooms: folders at any depth, and modules that are in none.

    A folder of folders, with a docstring only, is no room.
    """
    result: dict[str, set[str]] = {}
    for module, others in arrows(root).items():
        if module.count(".") == 1 and weight.outline(modules(root)[module]).statements < 2:
            continue
        here = _room(module, root)
        result.setdefault(here, set()).update({_room(other, root) for other in others} - {here})
    return {room: frozenset(others) for room, others in result.items()}


def _room(module: str, root: Path) -> str:
    is_package = modules(root)[module].name == "__init__.py"
    parent = module if is_package else module.rpartition(".")[0]
    return module if parent == "surgery" else parent


def rank(room: str) -> tuple[int, int] | None:
    """Return the place of a room in the order of the wings and of the folders of its wing; None if it has none."""
    _, _, place = room.partition(".")
    wing, _, folder = place.partition(".")
    folders = ORDER.get(wing, ())
    return (list(ORDER).index(wing), folders.index(folder)) if folder in folders else None


def against_the_order(between: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """Return the arrows between rooms that point to a later one; what is in no wing, at the top, may import all."""
    return sorted(
        (room, other)
        for room, others in between.items()
        for other in others
        if (here := rank(room)) is not None and ((there := rank(other)) is None or there > here)
    )


def outside(between: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the arrows between wings: from outside, each is one room."""
    found: dict[str, set[str]] = {wing: set() for wing in ORDER}
    for room, others in between.items():
        if (wing := room.split(".")[1]) in ORDER:
            found[wing].update({other.split(".")[1] for other in others} - {wing})
    return {wing: frozenset(others) for wing, others in found.items()}


def inside(between: Mapping[str, frozenset[str]], wing: str) -> dict[str, frozenset[str]]:
    """Return the arrows between the rooms of a wing."""
    own = {room for room in between if room.split(".")[1] == wing}
    return {room: between[room] & own for room in own}


def size(between: Mapping[str, frozenset[str]]) -> tuple[int, int, int]:
    """Count rooms, floors and arrows."""
    return len(between), floors(between), sum(map(len, between.values()))


@cache
def crossing(root: Path = ROOT) -> frozenset[str]:
    """Return the names that some wing takes from another."""
    known = modules(root)
    found = set()
    for module, path in known.items():
        for name in imports(path) if module.count(".") else ():
            parts = name.split(".")
            if parts[0] == "surgery" and len(parts) > 2 and parts[1] != module.split(".")[1] and name not in known:
                found.add(name)
    return frozenset(found)


@cache
def passes(root: Path = ROOT) -> dict[str, frozenset[str]]:
    """Return for each file of passes/ the files that it imports from its folder."""
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in (root / "passes").rglob("*.py")}
    result = {}
    for module, path in files.items():
        folder = module.rpartition(".")[0]
        named = {f"{folder}.{name.lstrip('.').partition('.')[0]}" for name in imports(path) if name.startswith(".")}
        result[module] = frozenset((named & files.keys()) - {module})
    return result


def floors(adjacent: Mapping[str, frozenset[str]]) -> int:
    """Return how many floors the rooms stand on; a circle is one floor."""
    return int(networkx.dag_longest_path_length(networkx.condensation(_digraph(adjacent)))) + 1


def figures(root: Path) -> str:
    """Return the figures of a tree as lines of text."""
    between = rooms(root)
    first = sorted({path.relative_to(root / "surgery").parts[0] for path in modules(root).values()})
    folders = [name for name in first if not name.endswith(".py")]
    against = against_the_order(between) if set(folders) == set(ORDER) else None
    lines = [
        f"{len(folders)} folders on the first level: {', '.join(folders)}",
        "{} rooms on {} floors, {} arrows".format(*size(between)),
        "{} wings on {} floors, {} arrows".format(*size(outside(between))),
        *("    {}: {} rooms on {} floors, {} arrows".format(wing, *size(inside(between, wing))) for wing in ORDER),
        f"{len(crossing(root))} names that cross wings",
        "no wings, so no order of them" if against is None else f"{len(against)} arrows against the order",
    ]
    lines += [f"    {room} -> {other}" for room, other in against or ()]
    for what, found in (
        ("rooms", circles(between)),
        ("files", circles(arrows(root))),
        ("files of passes", circles(passes(root))),
    ):
        lines += [f"{len(found)} circles of {what}", *(f"    {', '.join(circle)}" for circle in found)]
    return "\n".join([*lines, *weight.figures(root, modules(root))])


if __name__ == "__main__":
    sys.stdout.write(figures(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT) + "\n")
