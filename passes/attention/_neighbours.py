"""Rotations of neighbours: the pairs of an interleaved rotary position embedding, and factors that each pair shares."""

from surgery import Builder, Node, Value

from ._shared import ints


def neighbours_turned(value: Value) -> tuple[Value, list[Node]] | None:
    """Return x and the nodes in between if each pair of neighbours (x1, x2) has become (-x2, x1); otherwise None."""
    join = value.producer
    stack = None if join is None or join.op != "Reshape" else join.required_input(0).producer
    if join is None or stack is None or stack.op != "Concat" or len(stack.inputs) != 2 or value.rank is None:
        return None
    rank = value.rank
    lifts = [stack.required_input(place).producer for place in (0, 1)]
    if stack.attr("axis") not in (-1, rank) or any(lift is None or not _adds_last(lift, rank) for lift in lifts):
        return None
    negated, even = (lift.required_input(0) for lift in lifts if lift is not None)
    minus, low = negated.producer, even.producer
    high = None if minus is None or minus.op != "Neg" else minus.required_input(0).producer
    if (
        minus is None
        or low is None
        or high is None
        or not (takes_each_second(low, 0, rank) and takes_each_second(high, 1, rank))
    ):
        return None
    data = low.required_input(0)
    size = (data.shape or (None,))[-1]
    whole = isinstance(size, int) and size % 2 == 0 and data.shape == value.shape
    if data != high.required_input(0) or not whole:
        return None
    return data, [join, stack, *(lift for lift in lifts if lift is not None), minus, low, high]


def _adds_last(lift: Node, rank: int) -> bool:
    """Return whether an Unsqueeze of a tensor of this rank adds the last axis."""
    axes = lift.input(1) if lift.op == "Unsqueeze" else None
    return axes is not None and axes.elements in ((-1,), (rank,))


def takes_each_second(cut: Node, first: int, rank: int) -> bool:
    """Return whether a Slice takes each second column, from the column `first` on."""
    if cut.op != "Slice":
        return False
    start, end, axis, step = (None if (given := cut.input(place)) is None else given.scalar for place in (1, 2, 3, 4))
    size = (cut.required_input(0).shape or (None,))[-1]
    whole = isinstance(end, int) and isinstance(size, int) and end >= size
    return start == first and whole and axis in (-1, rank - 1) and step == 2


def neighbours_repeat(join: Node) -> bool:
    """Return whether a Reshape puts elements next to a copy of themselves: [..., n, 1], expanded, becomes [..., 2n]."""
    pairs, after = join.required_input(0), join.outputs[0].shape
    spread = pairs.producer
    if spread is None or spread.op not in ("Expand", "Tile") or pairs.shape is None or after is None:
        return False
    before = spread.required_input(0).shape
    count = pairs.shape[-2] if len(pairs.shape) > 1 else None
    twice = isinstance(count, int) and pairs.shape[-1] == 2 and after == (*pairs.shape[:-2], 2 * count)
    return twice and before is not None and None not in before and before == (*pairs.shape[:-1], 1)


def single(join: Node, new: Builder) -> Value:
    """Return the elements that a Reshape puts next to a copy of themselves, once."""
    spread = join.required_input(0).producer
    assert spread is not None
    source = spread.required_input(0)
    lift = source.producer
    if lift is not None and _adds_last(lift, (source.rank or 0) - 1):
        return lift.required_input(0)
    return new.node("Squeeze", source, ints(new, -1))
