"""Decoder attention: key and value heads shared by groups of queries, after keys and values of earlier runs."""

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Value

from ._core import Core, Heads, Side, flat_apart, heads, repetition

Dim = int | str | None


@dataclass(frozen=True)
class State:
    """Keys or values of this run, of earlier runs, and both concatenated; each is [batch, heads, length, size].

    `times` is the number of query heads that share a head. If `is_apart`, `fresh` has an axis of size 1 after its
    heads.
    """

    fresh: Value
    past: Value | None
    whole: Value
    times: int
    is_apart: bool = False

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The dims of the keys or values of this run, [batch, heads, length, size]."""
        extents = self.fresh.shape
        return extents if extents is None or not self.is_apart else (*extents[:2], *extents[3:])

    @property
    def total(self) -> tuple[Dim, ...] | None:
        """The dims of the keys or values of all runs together."""
        return self.shape if self.is_apart else self.whole.shape


def state(value: Value, queries: Value) -> State:
    """Separate keys or values from their repetition and past; a single head for all queries needs no repetition."""
    found = repetition(value)
    whole, times = unrepeated(value)
    if found is not None and times == 1:
        return State(found.apart, None, found.apart, found.times, is_apart=True)
    extents, wanted = value.shape, queries.shape
    if extents is not None and wanted is not None and len(extents) == len(wanted) == 4 and extents[1] == 1:
        times = wanted[1] if isinstance(wanted[1], int) else times
    concat = whole.producer
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or concat.attr("axis") not in (2, -2):
        return State(whole, None, whole, times)
    return State(concat.required_input(1), concat.required_input(0), whole, times)


def unrepeated(value: Value) -> tuple[Value, int]:
    """Return heads before they are repeated, and how often each of them is (1: not repeated)."""
    node, found = value.producer, repetition(value)
    lift = None if found is None else found.apart.producer
    if found is not None and lift is not None and lift.op == "Unsqueeze" and lift.required_input(0).rank == 4:
        return lift.required_input(0), found.times
    if node is None or node.op != "Gather" or node.attr("axis", 0) != 1:
        return value, 1
    data, wanted = node.required_input(0), node.required_input(1)
    count = (data.shape or (None,) * 2)[1]
    indices = wanted.constant
    if indices is None or indices.ndim != 1 or not isinstance(count, int) or count < 1 or indices.size % count:
        return value, 1
    times = indices.size // count
    return (data, times) if np.array_equal(indices, np.repeat(np.arange(count), times)) else (value, 1)


@dataclass(frozen=True)
class Decoder:
    """Self attention with shared heads and known dims; queries are [batch, count * times, length, size]."""

    core: Core
    keys: State
    values: State
    batch: Dim
    length: Dim
    total: Dim
    count: int
    size: int

    @property
    def past(self) -> int | str:
        """The number of keys from earlier runs."""
        found = 0 if self.keys.past is None else (self.keys.past.shape or (None,) * 4)[2]
        assert found is not None
        return found

    @property
    def takes_any_bias(self) -> bool:
        """Whether the kernel needs no `query_seqlens`: no past, a single query, or batch size 1."""
        return self.keys.past is None or self.length == 1 or self.batch == 1


def decoder(found: Core, new: Builder) -> Decoder:
    """Read the keys and values of an attention and check that all dims agree."""
    new.require(not found.keys.perm, "keys are not in heads when they are transposed")
    keys, values = (state(value, found.queries) for value in (found.keys.value, found.values))
    new.require(keys.times == values.times, "keys and values are repeated differently")
    new.require(
        keys.times > 1 or found.sink is not None,
        "keys and values are not shared by groups of queries: use MultiHeadAttention",
    )
    queries, total = found.queries.shape, keys.total
    known = queries is not None and len(queries) == 4 and total is not None and len(total) == 4
    new.require(known and None not in (queries or ()) and None not in (total or ()), "the dims are not known")
    assert queries is not None and total is not None
    batch, count, length, size = queries
    shared = total[1]
    ints = isinstance(count, int) and isinstance(size, int) and isinstance(shared, int)
    new.require(ints, "the number of heads is not known")
    assert isinstance(count, int) and isinstance(size, int) and isinstance(shared, int)
    fresh = (batch, shared, length, size)
    agree = count == shared * keys.times and keys.shape == values.shape == fresh
    new.require(agree, "queries, keys and values of this run are not of the same batch, length and size")
    new.require((keys.past is None) == (values.past is None), "only one of keys and values has a past")
    for part in (keys.past, values.past):
        extents = None if part is None else part.shape
        fits = part is None or (extents is not None and extents[:2] == fresh[:2] and extents[3:] == fresh[3:])
        new.require(fits and (extents is None or extents[2] is not None), "the past is not known to fit")
    pasts = [part.past for part in (keys, values) if part.past is not None]
    alike = found.is_paired or len({part.shape for part in pasts}) < 2
    new.require(alike, "keys and values have pasts of different lengths")
    return Decoder(found, keys, values, batch, length, total[2], shared, size)


def fresh_columns(part: State, new: Builder) -> Value:
    """Return keys or values of this run as [batch, length, heads * size]."""
    if not part.is_apart:
        return flattened(part.fresh, new)
    cut, extents = flat_apart(part.fresh), part.shape
    if cut is not None:
        return cut.flat
    rows = new.node("Transpose", part.fresh, perm=[0, 3, 2, 1, 4])
    assert extents is not None and isinstance(extents[1], int) and isinstance(extents[3], int)
    return new.node("Reshape", rows, new.constant(np.array([0, 0, extents[1] * extents[3]], np.int64), "flat"))


def flattened(value: Value, new: Builder) -> Value:
    """Return heads [batch, heads, length, size] as [batch, length, heads * size]."""
    cut: Heads | None = heads(Side(value))
    if cut is not None:
        return cut.flat
    extents, turn = value.shape, value.producer
    assert extents is not None and isinstance(extents[1], int) and isinstance(extents[3], int)
    if extents[1] == 1 and turn is not None and turn.op == "Reshape":
        return new.node("Reshape", value, new.constant(np.array([0, -1, extents[3]], np.int64), "flat"))
    if turn is not None and turn.op == "Transpose" and turn.attr("perm") == [0, 2, 1, 3]:
        rows = turn.required_input(0)
    else:
        rows = new.node("Transpose", value, perm=[0, 2, 1, 3])
    target = new.constant(np.array([0, 0, extents[1] * extents[3]], np.int64), "flat")
    return new.node("Reshape", rows, target)


def is_causal_only(new: Builder) -> bool:
    """Return whether the target prefers GroupQueryAttention only where the mask hides future keys and no others."""
    return new.target.prefers.get("group_query_attention") == "causal"
