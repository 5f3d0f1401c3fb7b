"""Splits whose parts are processed alike."""

from collections import deque
from itertools import pairwise

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._lanes import Bundle, Lanes, follow, ranges
from ._shared import split


@graph_pass("delay-split", parity=Parity.CLOSE)
def delay_split(graph: Graph) -> None:
    """Move operators that apply equally to all parts of a Split before the Split.

    Right because operators that treat each slice along an axis independently give the same slices before and after the
    Split: elementwise operators with operands that are the same for all parts, Transpose, Concat, Slice, Split and
    Softmax along another axis, and the Reshape that cuts the last dim into heads, where the parts become whole heads of
    one tensor. So queries, keys and values of a packed projection are cut into heads, transposed and rotated together.
    If one part needs a different permutation from the rest, it is transposed again after the Split.

    Adjacent parts may move while others stay; the pass only acts if this saves nodes.

    Example:
        g (float[B,S,12] x) => (float[B,2,S,2] q, float[B,2,S,2] k, float[B,2,2,S] v)
        <int64[3] sizes = {4, 4, 4}, int64[4] heads = {0, 0, 2, 2}>
        {
            a, b, c = Split<axis = 2>(x, sizes)
            d = Reshape(a, heads)
            e = Reshape(b, heads)
            f = Reshape(c, heads)
            q = Transpose<perm = [0, 2, 1, 3]>(d)
            k = Transpose<perm = [0, 2, 1, 3]>(e)
            v = Transpose<perm = [0, 2, 3, 1]>(f)
        }
    """
    todo = deque(graph.nodes("Split"))
    while todo:
        node = todo.popleft()
        if node.is_removed or len(node.outputs) < 2 or not _may_go_together(node):
            continue
        made: list[Value] = []
        with graph.site(node) as new:
            made = _delay(node, new)
        todo.extend(p for value in made if (p := value.producer) is not None and not p.is_removed)


def _may_go_together(node: Node) -> bool:
    """Return whether two adjacent parts have readers with the same operator; a cheap first test."""
    if not all(value.name for value in node.outputs):
        return False
    readers = [{reader.op for reader in value.consumers} for value in node.outputs]
    return any(one & other for one, other in pairwise(readers))


def _delay(node: Node, new: Builder) -> list[Value]:
    parts = _parts(node, new)
    for low, high in ranges(len(parts.values)):
        some = Bundle(parts.values[low:high], parts.axis, parts.rank, parts.sizes[low:high])
        lanes = follow(some)
        if lanes.steps and _saved(lanes, whole=len(some.values) == len(parts.values)) > 0:
            return _merge(node, parts, low, lanes, new)
    return []


def _parts(node: Node, new: Builder) -> Bundle:
    rank = node.required_input(0).rank
    new.require(rank, "the rank is not known")
    assert rank is not None
    axis, values = node.attr("axis", 0) % rank, tuple(node.outputs)
    extents = [None if value.shape is None else value.shape[axis] for value in values]
    sizes = tuple(extent for extent in extents if isinstance(extent, int) and extent > 0)
    new.require(len(sizes) == len(values), "the sizes of the parts are not known")
    return Bundle(values, axis, rank, sizes)


def _saved(lanes: Lanes, *, whole: bool) -> int:
    """Count the nodes removed; each bundle whose parts are read separately needs a Split, as the parts did before."""
    ends = lanes.ends()
    kept = 0 if whole else 1
    return sum(step.saved for step in lanes.steps) + 1 - kept - len(ends)


def _merge(node: Node, parts: Bundle, low: int, lanes: Lanes, new: Builder) -> list[Value]:
    source, start = node.required_input(0), lanes.start
    made: list[Value] = []
    if len(start.values) == len(parts.values):
        merged = source
    else:
        high = low + len(start.values)
        sizes = [*parts.sizes[:low], sum(start.sizes), *parts.sizes[high:]]
        pieces = split(source, parts.axis, sizes, new, node.opset)
        merged = pieces[low]
        for old, piece in zip((*parts.values[:low], *parts.values[high:]), (*pieces[:low], *pieces[low + 1 :])):
            new.replace(old, piece)
        made.append(merged)
    whole = {start.values[0]: merged}
    perms_after: dict[Value, tuple[list[int] | None, ...]] = {}
    for step in lanes.steps:
        inputs = [whole.get(value, value) if value is not None else None for value in step.nodes[0].inputs]
        for bundle, value in zip(step.outputs, step.make(new, inputs)):
            whole[bundle.values[0]] = value
            perms_after[bundle.values[0]] = step.perms_after
    for bundle in lanes.ends():
        pieces = split(whole[bundle.values[0]], bundle.axis, bundle.sizes, new, node.opset)
        made.append(pieces[0])
        _leave(bundle, pieces, perms_after.get(bundle.values[0], ()), new)
    return made


def _leave(bundle: Bundle, pieces: tuple[Value, ...], perms_after: tuple[list[int] | None, ...], new: Builder) -> None:
    for position, (old, piece) in enumerate(zip(bundle.values, pieces)):
        perm = perms_after[position] if perms_after else None
        new.replace(old, piece if perm is None else new.node("Transpose", piece, perm=perm))
