"""Inputs of com.microsoft's MultiHeadAttention: flat queries, keys and values, or keys and values cut into heads."""

from dataclasses import dataclass, replace

import numpy as np

from surgery import Builder, Value

from ._columns import Biased, Columns, biased, columns, joint_bias, laid_out, on_products
from ._core import Core, Repetition, Side, flat_apart, repetition
from ._decoder import flattened, is_causal_only
from ._dependence import Dependence
from ._linear import Array
from ._shared import ints

GROUPED = "com.microsoft::GroupQueryAttention"


@dataclass(frozen=True)
class State:
    """Keys or values: the side that this run computes, and the `past` of earlier runs before it.

    `whole` is the concatenation of both, [batch, heads, sequence, size]; None if only this attention reads it.
    """

    fresh: Side
    past: Value | None
    whole: Value | None


@dataclass(frozen=True)
class Operands:
    """The inputs of the operator in order, and the size of the heads of its result.

    `presents` are the values to replace with its further outputs. `keys_axis` is the axis of the keys in the
    second input.
    """

    inputs: tuple[Value | None, ...]
    scale: float
    size: int
    past: tuple[Value, Value] | None
    presents: tuple[Value, Value] | None
    keys_axis: int = 1


def operands(found: Core, dependence: Dependence, opset: int, new: Builder, *, factor: Value | None = None) -> Operands:
    """Return queries, keys and values as operands; a `factor` of the scores is applied to the queries."""
    shape = found.queries.shape or (None,) * 4
    new.require(isinstance(shape[1], int) and isinstance(shape[3], int), "the number of heads is not known")
    if not found.keys.perm and repetition(found.keys.value) is not None:
        return _repeated(found, opset, new, factor)
    if factor is not None:
        return _in_heads(found, None, opset, new, factor=factor)
    queries = columns(Side(found.queries), scaled=True)
    states = _state(found.keys), _state(Side(found.values))
    keys, values = columns(states[0].fresh, scaled=True), columns(states[1].fresh)
    if queries is not None and keys is not None and values is not None:
        flat = _flat(found, (queries, keys, values), states, dependence, opset, new)
        if flat is not None:
            return flat
    return _in_heads(found, queries, opset, new)


def _repeated(found: Core, opset: int, new: Builder, factor: Value | None) -> Operands:
    """Return operands with keys and values that are repeated for each query of a group, flat where they were."""
    queries = found.queries
    shared = new.target.has(GROUPED, queries.dtype) and not is_causal_only(new)
    new.require(not shared, "keys and values are shared by groups of queries: use GroupQueryAttention")
    given = _in_heads(found, columns(Side(queries), scaled=True) if factor is None else None, opset, new, factor=factor)
    parts = repetition(found.keys.value), repetition(found.values)
    flat = [_repeated_flat(part, new) for part in parts if part is not None and flat_apart(part.apart) is not None]
    if len(flat) < 2:
        return given
    return replace(given, inputs=(given.inputs[0], *flat, *given.inputs[3:]), keys_axis=1)


def _repeated_flat(part: Repetition, new: Builder) -> Value:
    """Repeat flat keys or values [batch, sequence, count * size] head by head."""
    cut = flat_apart(part.apart)
    assert cut is not None
    apart = new.node("Reshape", cut.flat, ints(new, 0, 0, part.count, 1, cut.size))
    wide = new.node("Expand", apart, ints(new, 1, 1, 1, part.times, 1))
    return new.node("Reshape", wide, ints(new, 0, 0, part.count * part.times * cut.size))


def _state(side: Side) -> State:
    """Separate keys or values from their past."""
    value, node = side.value, side.value.producer
    is_kept = not side.perm and not side.count and (value.is_output or len(value.consumers) > 1)
    if not is_kept:
        return State(side, None, None)
    if node is None or node.op != "Concat" or len(node.inputs) != 2 or node.attr("axis") not in (2, -2):
        return State(side, None, value)
    return State(Side(node.required_input(1)), node.required_input(0), value)


def _flat(
    found: Core,
    parts: tuple[Columns, Columns, Columns],
    states: tuple[State, State],
    dependence: Dependence,
    opset: int,
    new: Builder,
) -> Operands | None:
    """Return flat operands, or None if the parts do not fit together."""
    queries, keys, values = parts
    if not queries.count == keys.count == values.count or queries.size != keys.size:
        return None
    batches = {None if part.flat.shape is None else part.flat.shape[0] for part in parts}
    if len(batches) != 1 or None in batches:
        return None
    past, presents = _cache(found, parts, states, dependence)
    if past is None and any(state.past is not None for state in states):
        return None
    scale = found.scale * queries.factor * keys.factor
    sums = biased(parts)
    bias = new.constant(joint_bias(parts, sums), "packed_bias") if sums else None
    inputs = (*laid_out(on_products(parts, sums), new, opset), bias)
    return Operands(inputs, scale, values.size, past, presents)


def _cache(
    found: Core, parts: tuple[Columns, Columns, Columns], states: tuple[State, State], dependence: Dependence
) -> tuple[tuple[Value, Value] | None, tuple[Value, Value] | None]:
    """Return the past keys and values, and the present ones, which concatenate the past and this run.

    The kernel reads the past only if it writes both present values.
    """
    wholes = [state.whole for state in states]
    if wholes[0] is None or wholes[1] is None or wholes[0] == wholes[1] or _keys_scaled(parts):
        return None, None
    presents = wholes[0], wholes[1]
    read = [part.flat for part in parts] + ([] if found.mask is None else [found.mask]) + [*found.more]
    if any(whole.scope is not found.context.scope for whole in presents) or dependence.any_on(read, set(presents)):
        return None, None
    pasts = [state.past for state in states]
    if pasts[0] is None and pasts[1] is None:
        return None, presents
    if pasts[0] is None or pasts[1] is None:
        return None, None
    if not all(_is_past(past, part) for past, part in zip((pasts[0], pasts[1]), parts[1:])):
        return None, None
    if (pasts[0].shape or ())[2] != (pasts[1].shape or ())[2] and not found.is_paired:
        return None, None
    return (pasts[0], pasts[1]), presents


def _keys_scaled(parts: tuple[Columns, Columns, Columns]) -> bool:
    """Return whether the keys are scaled before they are cut into heads, so that the kept keys contain the factor."""
    return parts[1].factor != 1


def _is_past(past: Value, part: Columns) -> bool:
    extents, flat = past.shape, part.flat.shape
    if extents is None or flat is None or len(extents) != 4 or extents[2] is None:
        return False
    return (extents[0], extents[1], extents[3]) == (flat[0], part.count, part.size)


def flat_operands(found: Core, new: Builder) -> Operands:
    """Return queries, keys and values of rank 3 as operands with a single head."""
    side, queries, values = found.keys, found.queries.shape, found.values.shape
    places, dims = side.perm or (0, 1, 2), side.value.shape or ()
    assert queries is not None and values is not None
    keys = [dims[place] for place in places]
    agree = (
        None not in (*dims, *queries)
        and keys[0] == queries[0] == values[0]
        and keys[1] == values[1]
        and keys[2] == queries[2]
    )
    new.require(agree, "the heads of queries, keys and values do not agree")
    size = values[2]
    new.require(isinstance(queries[2], int) and isinstance(size, int), "the size of the heads is not known")
    assert isinstance(size, int)
    turned = new.node("Transpose", side.value, perm=list(side.perm)) if side.perm else side.value
    return Operands((found.queries, turned, found.values), found.scale, size, None, None)


def _in_heads(found: Core, queries: Columns | None, opset: int, new: Builder, factor: Value | None = None) -> Operands:
    """Return flat queries, and keys and values of rank 4, as operands."""
    side, shape, extents = found.keys, found.queries.shape, found.values.shape
    new.require(not side.count, "keys are not cut into heads like queries and values")
    keys = new.node("Transpose", side.value, perm=list(side.perm)) if side.perm else side.value
    places = side.perm or (0, 1, 2, 3)
    dims = side.value.shape or ()
    known = extents is not None and len(dims) == len(extents) == 4 and None not in extents
    turned = tuple(dims[place] for place in places) if known else ()
    same = known and turned[:2] == (extents or ())[:2] and found.is_paired
    new.require(same, "keys and values are not known to be of the same shape")
    assert extents is not None and shape is not None
    alike = (turned[0], turned[1], turned[3]) == (shape[0], shape[1], shape[3])
    new.require(alike, "the heads of queries, keys and values do not agree")
    if turned[3] != extents[3]:
        return _of_two_sizes(found, new, factor)
    if queries is None or queries.flat.shape is None or queries.flat.shape[0] != shape[0]:
        assert isinstance(shape[1], int) and isinstance(shape[3], int)
        scaled = found.queries if factor is None else new.node("Mul", found.queries, factor)
        rows = new.node("Transpose", scaled, perm=[0, 2, 1, 3])
        target = new.constant(np.array([0, 0, shape[1] * shape[3]], np.int64), "flat")
        inputs = (new.node("Reshape", rows, target), keys, found.values)
        return Operands(inputs, found.scale, shape[3], None, None, keys_axis=2)
    sums = biased([queries])
    (flat,) = laid_out(on_products([queries], sums), new, opset)
    bias = None
    if sums:
        bias = new.constant(np.concatenate([joint_bias([queries], sums), *[_zeros(queries, sums)] * 2]), "bias")
    given = (flat, keys, found.values, bias)
    return Operands(given, found.scale * queries.factor, queries.size, None, None, keys_axis=2)


def _of_two_sizes(found: Core, new: Builder, factor: Value | None) -> Operands:
    """Return flat operands for values in heads of another size than keys, which the kernel only reads flat."""
    size = (found.values.shape or ())[3]
    plain = isinstance(size, int) and not found.keys.perm and factor is None
    new.require(plain, "values are in heads of another size than keys")
    assert isinstance(size, int)
    inputs = tuple(flattened(value, new) for value in (found.queries, found.keys.value, found.values))
    return Operands(inputs, found.scale, size, None, None)


def _zeros(queries: Columns, sums: dict[Value, Biased]) -> Array:
    """Return zero biases for keys or values already cut into heads, to which the kernel adds no bias."""
    return np.zeros(queries.width, sums[queries.flat].bias.dtype)
