"""What a recipe expects of a model, or asks before a step, held against what the model has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from surgery.recipe.schema import Expect


def expectations(expected: Expect, ops: Mapping[str, int], opset: int, sites: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield what is expected of a model with these operators, in words, and whether it holds.

    `sites` counts those of a step; what is expected at the end says nothing of them.
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
