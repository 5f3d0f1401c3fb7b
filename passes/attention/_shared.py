"""Helpers shared by the attention passes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._core import Core, core, flat_behind, keeps
from ._written import explain, with_factor

Masks = dict[Any, Value]
"""Replacements of masks, by the mask, or by the mask and the number of queries if they depend on that number."""


def rewrite_cores(
    graph: Graph, since: int, rewrite: Callable[[Node, Core, Masks, Builder], Masks], *, explained: bool = False
) -> None:
    """Rewrite each attention in graphs of opset `since` or later; attentions with the same mask share its replacement.

    `rewrite` receives the Softmax, the attention around it and the masks already prepared in its graph, and returns
    the masks that it uses. With `explained`, attentions in unsupported forms are refused with a reason.
    """
    prepared: dict[Any, Masks] = defaultdict(dict)
    for node in graph.nodes("Softmax"):
        masks, ready = prepared[node.scope], Masks()
        with graph.site(node) as new:
            found = core(node) or (with_factor(node) if explained else None)
            if found is not None:
                new.require(node.opset >= since, "the opset is older than that of the operator")
                ready = rewrite(node, found, masks, new)
            elif explained:
                explain(node)
        if node.is_removed:
            masks |= ready


def split(value: Value, axis: int, sizes: Sequence[int], new: Builder, opset: int) -> tuple[Value, ...]:
    """Split a value into parts of these sizes, which are an attribute before opset 13 and an input from then on."""
    if opset < 13:
        return new.nodes("Split", value, outputs=len(sizes), axis=axis, split=list(sizes))
    return new.nodes("Split", value, new.constant(np.array(sizes, np.int64), "sizes"), outputs=len(sizes), axis=axis)


def hand_on(context: Value, result: Value, *, flat: bool, new: Builder) -> None:
    """Replace the context of an attention with its result; a `flat` result replaces the joined heads instead."""
    join = flat_behind(context) if flat else None
    if join is None:
        new.replace(context, result)
        return
    after, wanted = join.outputs[0].shape, join.required_input(1)
    if after is not None and len(after) == 3 and keeps(join, 2):
        new.replace(join.outputs[0], result)
        return
    elements = wanted.elements if wanted.is_constant else ()
    new.require(elements is not None and 0 not in elements[2:], "the Reshape after the heads copies a dim of theirs")
    attributes = dict(join.attributes)
    new.replace(join.outputs[0], new.node("Reshape", result, wanted, attributes=attributes))


def hand_on_flat(context: Value, result: Value, count: int, size: int, new: Builder) -> None:
    """Replace the context with a flat result, which is cut into heads again if the heads are not joined afterwards."""
    if flat_behind(context) is not None:
        hand_on(context, result, flat=True, new=new)
        return
    heads = new.node("Reshape", result, ints(new, 0, 0, count, size))
    new.replace(context, new.node("Transpose", heads, perm=[0, 2, 1, 3]))


def ints(new: Builder, *items: int) -> Value:
    """Add a one-dimensional constant of type int64."""
    return new.constant(np.array(items, np.int64), "ints")
