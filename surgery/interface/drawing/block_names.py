"""The names of blocks and repeats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from surgery.base.operators.operations import MOVING, has_products
from surgery.interface.drawing.group_tree import Tree
from surgery.interface.drawing.tracked_nodes import TrackedNodes

_NAMED = 3
"""Maximum number of operators in the name of a block."""

_NUMBER = re.compile(r"\d+")


def name_blocks(found: TrackedNodes, full: Tree) -> None:
    """Name each block by the operators in it, most significant first."""
    counts: list[Counter[str]] = [Counter() for _ in full.groups]
    for row, number in enumerate(full.group):
        if number != -1 and not found.rows[row].is_port:
            counts[number][found.rows[row].node.op] += 1
    for number in reversed(range(len(full.groups))):
        one = full.groups[number]
        if one.parent != -1:
            counts[one.parent] += counts[number]
        if one.kind == "block":
            one.name = _of_operators(counts[number])


def _of_operators(operators: Counter[str]) -> str:
    """Return a name with a few of the operators: those with products first, those that only move data last."""
    ranked = sorted(operators, key=lambda op: (not has_products(op), op in MOVING, -operators[op], op))
    named = [f"{operators[op]} {op}" if operators[op] > 1 else op for op in ranked[:_NAMED]]
    return ", ".join([*named, *(["…"] if len(ranked) > _NAMED else [])]) or "block"


def tell_apart(whole: Tree) -> None:
    """Add numbers to groups of one room with the same name; for example, a scope and a function may share one."""
    for inner in whole.children().values():
        taken = {whole.groups[number].name for number in inner}
        seen: set[str] = set()
        counts: Counter[str] = Counter()
        for number in inner:
            name = free = whole.groups[number].name
            while free in seen or (free != name and free in taken):
                counts[name] += 1
                free = f"{name} ({counts[name] + 1})"
            whole.groups[number].name = free
            seen.add(free)


def pattern(name: str) -> str:
    """Return a name with each number replaced by a star."""
    return _NUMBER.sub("*", name)


def shared_name(names: Sequence[str]) -> str:
    """Return one name for several groups: "layer.1-11" for layer.1 to layer.11, or a star for differing numbers."""
    signs = {pattern(name) for name in names}
    if len(signs) > 1:
        return min(names)
    parts = signs.pop().split("*")
    numbers = [[int(number) for number in _NUMBER.findall(name)] for name in names]
    written = [parts[0]]
    for place, part in enumerate(parts[1:]):
        written += [_span([one[place] for one in numbers]), part]
    return "".join(written)


def _span(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if first == last and len(set(numbers)) == 1:
        return str(first)
    return f"{first}-{last}" if [*numbers] == [*range(first, last + 1)] else "*"
