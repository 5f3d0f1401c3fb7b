"""Compare a model with the expectations of a recipe, or with the condition of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from surgery.recipe.schema import Expect


def expectations(expected: Expect, ops: Mapping[str, int], opset: int, sites: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield each expectation of a model with these operators, in words, and whether it holds.

    `sites` is the number of sites of a step; expectations at the end do not mention sites.
    """
    yield from comparisons(expected.ops, expected.nodes, expected.opset, ops, opset)
    if expected.sites is not None:
        yield f"sites: {expected.sites} (found {sites})", expected.sites.holds(sites)


def comparisons(
    ops: Mapping[str, Any], nodes: Any, opset: Any, counts: Mapping[str, int], version: int
) -> Iterator[tuple[str, bool]]:
    """Yield each comparison in words, with what was found, and whether it holds."""
    for name, comparison in ops.items():
        count = counts.get(name, 0)
        yield f"{name}: {comparison} (found {count})", comparison.holds(count)
    if nodes is not None:
        total = sum(counts.values())
        yield f"nodes: {nodes} (found {total})", nodes.holds(total)
    if opset is not None:
        yield f"opset: {opset} (found {version})", opset.holds(version)
