"""Groups: name scopes, functions and subgraphs as a tree of all rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Literal

from surgery.interface.drawing.module_paths import Path, common, paths
from surgery.interface.drawing.tracked_nodes import TrackedNodes

Kind = Literal["scope", "function", "subgraph", "repeat", "block"]


@dataclass(slots=True)
class Group:
    """A box that contains others. `parent` is -1 at the top level; `owner` is the row with a subgraph.

    A repeat has `count` equal instances, and each of its children belongs to an `instance`.
    """

    parent: int
    name: str
    kind: Kind
    owner: int = -1
    count: int = 1
    instance: int = 0


@dataclass
class Tree:
    """The groups, each after its parent, and the group of each row; -1 is the top level."""

    groups: list[Group] = field(default_factory=list)
    group: list[int] = field(default_factory=list)

    def children(self) -> dict[int, list[int]]:
        """Return the direct subgroups of each group, and of the top level."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, one in enumerate(self.groups):
            found[one.parent].append(number)
        return found

    def rows(self) -> dict[int, list[int]]:
        """Return the rows directly in each group."""
        found: dict[int, list[int]] = defaultdict(list)
        for row, number in enumerate(self.group):
            found[number].append(row)
        return found


def tree(found: TrackedNodes) -> Tree:
    """Group the rows by function, subgraph and name scope; boxes with a single item are left out."""
    return _pruned(_Builder(found).build())


class _Builder:
    def __init__(self, found: TrackedNodes) -> None:
        self.found = found
        self.paths = paths(found)
        self.tree = Tree(group=[-1] * len(found.rows))
        self._scopes: dict[int, int] = {}
        self._named: dict[tuple[int, str], int] = {}

    def build(self) -> Tree:
        rows: dict[int, list[int]] = defaultdict(list)
        for row, one in enumerate(self.found.rows):
            rows[one.scope].append(row)
        # A scope comes after the enclosing one, so that the place of its owner is known.
        for scope in range(len(self.found.scopes)):
            around = self._around(scope)
            base = self._base(scope, rows[scope])
            for row in rows[scope]:
                path = self.paths[row][len(base) :] if not self.found.rows[row].is_port else ()
                self.tree.group[row] = self._descend(around, path)
        return self.tree

    def _around(self, scope: int) -> int:
        """Return the group of a scope itself: that of a function or subgraph, or none."""
        one = self.found.scopes[scope]
        if one.is_function:
            return self._add(Group(-1, one.name, "function"))
        if one.owner == -1:
            return -1
        owner = self.found.rows[one.owner].node
        name = f"{owner.name.rpartition('/')[2] or owner.op}.{one.name}"
        return self._add(Group(self.tree.group[one.owner], name, "subgraph", owner=one.owner))

    def _base(self, scope: int, rows: list[int]) -> Path:
        """Return the leading part of the paths in a scope that only repeats the path of its owner."""
        one = self.found.scopes[scope]
        inner = [self.paths[row] for row in rows if not self.found.rows[row].is_port]
        if one.owner == -1 or not inner:
            return ()
        return common([self.paths[one.owner], *inner])

    def _descend(self, group: int, path: Path) -> int:
        for name in path:
            key = group, name
            if key not in self._named:
                self._named[key] = self._add(Group(group, name, "scope"))
            group = self._named[key]
        return group

    def _add(self, group: Group) -> int:
        self.tree.groups.append(group)
        return len(self.tree.groups) - 1


def _pruned(whole: Tree) -> Tree:
    """Dissolve scopes with at most one node, and merge each scope with its only subgroup."""
    groups = whole.groups
    rows = Counter(whole.group)
    inner = whole.children()
    into: dict[int, int] = {}
    for number in reversed(range(len(groups))):
        one = groups[number]
        kept = [child for child in inner[number] if child not in into]
        if one.kind != "scope":
            continue
        if not kept and rows[number] <= 1:
            into[number] = one.parent
            rows[one.parent] += rows[number]
        elif len(kept) == 1 and not rows[number] and groups[kept[0]].kind == "scope":
            child = groups[kept[0]]
            child.name = f"{one.name}/{child.name}"
            child.parent = one.parent
            into[number] = kept[0]
            inner[one.parent].append(kept[0])
    return _renumbered(whole, into)


def _renumbered(whole: Tree, into: dict[int, int]) -> Tree:
    """Remove groups that are replaced by others, and sort each group after its parent."""

    def target(number: int) -> int:
        while number in into:
            number = into[number]
        return number

    kept = Tree(group=[target(number) for number in whole.group])
    parents = {number: target(one.parent) for number, one in enumerate(whole.groups) if number not in into}
    return ordered(Tree([replace(one) for one in whole.groups], kept.group), parents)


def ordered(whole: Tree, parents: dict[int, int]) -> Tree:
    """Return the groups that are keys of `parents`, each after its parent, with new numbers."""
    inner: dict[int, list[int]] = defaultdict(list)
    for number, parent in parents.items():
        inner[parent].append(number)
    numbers = {-1: -1}
    groups: list[Group] = []
    pending = [*reversed(inner[-1])]
    while pending:
        number = pending.pop()
        numbers[number] = len(groups)
        groups.append(replace(whole.groups[number], parent=numbers[parents[number]]))
        pending.extend(reversed(inner[number]))
    return Tree(groups, [numbers[number] for number in whole.group])
