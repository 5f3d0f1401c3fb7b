"""What the passes over attention build alike."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._core import Core, core, flat_behind, keeps
from ._written import explain

Masks = dict[Any, Value]
"""What takes the place of masks: by the mask, or by the mask and the number of queries where it depends on that."""


def rewrite_cores(
    graph: Graph, since: int, rewrite: Callable[[Node, Core, Masks, Builder], Masks], *, explained: bool = False
) -> None:
    """Rewrite each attention in a graph of that opset or a later one; all that have a mask share what replaces it.

    `rewrite` is given the Softmax, the attention around it and the masks that are prepared already in its graph; it
    returns those that it reads. With `explained`, attentions in forms that are not read are refused with a reason.
    """
    prepared: dict[Any, Masks] = defaultdict(dict)
    for node in graph.nodes("Softmax"):
        masks, ready = prepared[node.scope], Masks()
        with graph.site(node) as new:
            found = core(node)
            if found is not None:
                new.require(node.opset >= since, "the opset is older than that of the operator")
                ready = rewrite(node, found, masks, new)
            elif explained:
                explain(node)
        if node.is_removed:
            masks |= ready


def split(value: Value, axis: int, sizes: Sequence[int], new: Builder, opset: int) -> tuple[Value, ...]:
    """Split a value into parts of these sizes; they became an input in opset 13."""
    if opset < 13:
        return new.nodes("Split", value, outputs=len(sizes), axis=axis, split=list(sizes))
    return new.nodes("Split", value, new.constant(np.array(sizes, np.int64), "sizes"), outputs=len(sizes), axis=axis)


def hand_on(context: Value, result: Value, *, flat: bool, new: Builder) -> None:
    """Let what reads the context of an attention read its result; a flat one takes the place of the heads joined."""
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
    """Let what reads the context read a flat result, cut into heads again where the heads are not joined after it."""
    if flat_behind(context) is not None:
        hand_on(context, result, flat=True, new=new)
        return
    heads = new.node("Reshape", result, ints(new, 0, 0, count, size))
    new.replace(context, new.node("Transpose", heads, perm=[0, 2, 1, 3]))


def ints(new: Builder, *items: int) -> Value:
    """Add a constant row of int64."""
    return new.constant(np.array(items, np.int64), "ints")
