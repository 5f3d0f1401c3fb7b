"""What the passes over attention build alike."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._core import Core, core

Masks = dict[Value, Value]
"""Masks, each with what takes its place."""


def rewrite_cores(graph: Graph, since: int, rewrite: Callable[[Node, Core, Masks, Builder], Masks]) -> None:
    """Rewrite each attention in a graph of that opset or a later one; all that have a mask share what replaces it.

    `rewrite` is given the Softmax, the attention around it and the masks that are prepared already in its graph; it
    returns those that it reads.
    """
    prepared: dict[Any, Masks] = defaultdict(dict)
    for node in graph.nodes("Softmax"):
        if node.opset < since:
            continue
        masks, ready = prepared[node.scope], Masks()
        with graph.site(node) as new:
            found = core(node)
            if found is not None:
                ready = rewrite(node, found, masks, new)
        if node.is_removed:
            masks |= ready


def split(value: Value, axis: int, sizes: Sequence[int], new: Builder, opset: int) -> tuple[Value, ...]:
    """Split a value into parts of these sizes; they became an input in opset 13."""
    if opset < 13:
        return new.nodes("Split", value, outputs=len(sizes), axis=axis, split=list(sizes))
    return new.nodes("Split", value, new.constant(np.array(sizes, np.int64), "sizes"), outputs=len(sizes), axis=axis)
