"""Attention sinks: a column of logits, one for each head, that takes part in the Softmax and is dropped after it."""

from dataclasses import dataclass

from surgery import Node, Value


@dataclass(frozen=True)
class Sink:
    """The scores before the column `logits` [1, heads, 1, 1] is appended, and the probabilities without it."""

    scores: Value
    logits: Value
    probabilities: Value


def sink(softmax: Node) -> Sink | None:
    """Read the Concat before a Softmax and the Slice after it; None without them.

    The greatest score of each row may be subtracted before the Softmax, which does not change the result.
    """
    joined = _not_reduced(softmax.required_input(0))
    concat, after = joined.producer, _only(softmax.outputs[0])
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or after is None or after.op != "Slice":
        return None
    scores, column = concat.required_input(0), concat.required_input(1)
    rank, shape = scores.rank, scores.shape
    if rank != 4 or shape is None or concat.attr("axis") not in (-1, 3) or (column.shape or ())[-1:] != (1,):
        return None
    if _only(scores) != concat or not _drops_last(after, shape[-1]):
        return None
    expand = column.producer
    logits = column if expand is None or expand.op != "Expand" else expand.required_input(0)
    known = logits.shape is not None and logits.shape == (1, shape[1], 1, 1)
    return Sink(scores, logits, after.outputs[0]) if known else None


def _only(value: Value) -> Node | None:
    """Return the only node that reads a value in the same graph; None if there are others, or if it is an output."""
    readers = value.consumers
    alone = len(readers) == 1 and not value.is_output and readers[0].scope is value.scope
    return readers[0] if alone else None


def _not_reduced(value: Value) -> Value:
    """Step over the subtraction of the greatest element of each row."""
    sub = value.producer
    if sub is None or sub.op != "Sub" or _only(value) is None:
        return value
    joined, greatest = sub.required_input(0), sub.required_input(1).producer
    if greatest is None or greatest.op != "ReduceMax" or greatest.input(0) != joined or not greatest.attr("keepdims"):
        return value
    given = greatest.input(1)
    axes = greatest.attr("axes") if given is None else given.elements
    inner = set(joined.consumers) == {sub, greatest} and _only(greatest.outputs[0]) == sub and not joined.is_output
    return joined if inner and axes is not None and list(axes) in ([-1], [3]) else value


def _drops_last(cut: Node, columns: int | str | None) -> bool:
    """Return whether a Slice of rank 4 takes all columns but the last one."""
    start, end, axis, step = (None if (given := cut.input(place)) is None else given.elements for place in (1, 2, 3, 4))
    whole = start == (0,) and axis in ((-1,), (3,)) and step in (None, (1,))
    return whole and end is not None and (end == (-1,) or (columns is not None and end == (columns,)))
