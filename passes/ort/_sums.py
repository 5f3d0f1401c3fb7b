"""Sums that ONNX Runtime's skip norms include: of two tensors, and of a bias for each channel."""

from dataclasses import dataclass

from surgery import Builder, Match, Node, Refusal, Value

Dims = tuple[int | str | None, ...]

TYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
"""The element types of the schemas. The kernels are also registered for double, which the schemas do not allow."""


@dataclass(frozen=True)
class SkipSum:
    """The sum of `input`, of `skip`, which has the same shape or lacks the batch, and of a bias, if any."""

    input: Value
    skip: Value
    bias: Value | None


def skip_norm(m: Match, new: Builder, op: str, shift: Value | None, *, always: bool) -> Value:
    """Build a skip norm that replaces the sum `m.x` and the norm over it, at the root of the match.

    `m.scale` is its factor for each channel, `shift` its shift. Other readers of the sum read the sum that the skip
    norm outputs. `always` ignores the preference of the target.
    """
    separate = new.target.prefers.get("skip_normalization") == "separate"
    m.require(always or not separate, "the target prefers separate nodes for the sum and the norm")
    epsilon = _epsilon(m.root)
    m.require(m.root.attr("axis", -1) in (-1, (m.x.rank or 0) - 1), "the norm is not over the last axis alone")
    m.require(m.root.attr("stash_type", 1) == 1, "the statistics are not in float")
    m.require(m.x.dtype is not None and m.x.dtype.name in TYPES, "the operator does not take this type")
    new.require_operator(op, m.x)
    total, reshape = _before_reshape(m.x)
    found = _sum(total, m.root)
    hidden = (total.shape or ())[-1:]
    for vector in (m.scale, shift):
        fits = vector is None or (vector.shape == hidden and vector.dtype == m.x.dtype)
        m.require(fits, "the scale or the shift does not have one element of this type for each channel")
        m.require(vector is None or vector.producer is None or vector.is_constant, "the scale or the shift is computed")
    replaced = m.root if reshape is None else reshape
    others = total.is_output or any(reader != replaced for reader in total.consumers)
    inputs = [found.input, found.skip, m.scale, *([] if op == SIMPLIFIED else [shift]), found.bias]
    outputs = new.nodes(op, *inputs, outputs=4 if others else 1, omitted=(1, 2) if others else (), epsilon=epsilon)
    if others:
        new.replace(total, outputs[3])
    if reshape is None:
        return outputs[0]
    return new.node("Reshape", outputs[0], reshape.input(1), attributes=dict(reshape.attributes))


def _before_reshape(value: Value) -> tuple[Value, Node | None]:
    """Return the normalized value and None; or the input of a Reshape that only the norm reads, and the Reshape."""
    node = value.producer
    if node is None or node.op != "Reshape" or node.opset < 5 or value.reads != 1 or value.is_output:
        return value, None
    rows = node.required_input(0)
    before, after = rows.shape, value.shape
    channels = before[-1] if before else None
    same_rows = isinstance(channels, int) and channels > 0 and after is not None and after[-1:] == (channels,)
    return (rows, node) if same_rows else (value, None)


SIMPLIFIED = "com.microsoft::SkipSimplifiedLayerNormalization"


def _epsilon(norm: Node) -> float:
    epsilon = float(norm.attr("epsilon", 1e-5))
    if epsilon < 0:
        raise Refusal("epsilon is negative")
    return epsilon


def _sum(value: Value, norm: Node) -> SkipSum:
    add, dims = value.producer, value.shape
    if add is not None and add.op == "Gemm" and add.input(2) is not None and add.required_input(2).shape == dims:
        raise Refusal("a Gemm adds the skip to its product already")
    if add is None or add.op != "Add" or add.scope is not norm.scope or add.opset < 7:
        raise Refusal("the normalized value is not a sum of two tensors")
    if dims is None or len(dims) not in (2, 3) or None in dims or not isinstance(dims[-1], int) or not dims[-1]:
        raise Refusal("the sum is not known to have two or three dims, and its channels")
    for found in _ways(add, dims):
        if found.input.shape == dims and _is_skip(found.skip.shape, dims):
            return found
    raise Refusal("the summands do not have the shape of the sum, or that shape without the batch")


def _ways(add: Node, dims: Dims) -> list[SkipSum]:
    """List the possible readings of a sum, those with a bias first."""
    first, second = add.required_input(0), add.required_input(1)
    orders = ((first, second), (second, first))
    ways = []
    for value, other in orders:
        inner = _inner(value, add)
        if inner is None:
            continue
        for one, two in (inner, inner[::-1]):
            if _is_bias(other, dims):
                ways.append(SkipSum(one, two, other))
            if _is_bias(two, dims):
                ways += [SkipSum(one, other, two), SkipSum(other, one, two)]
    return [*ways, *(SkipSum(value, other, None) for value, other in orders)]


def _inner(value: Value, reader: Node) -> tuple[Value, Value] | None:
    """Return the summands of an Add whose only reader is `reader`; otherwise None."""
    add = value.producer
    if add is None or add.op != "Add" or add.scope is not reader.scope or value.is_output or value.reads != 1:
        return None
    return add.required_input(0), add.required_input(1)


def _is_bias(value: Value, dims: Dims) -> bool:
    return value.shape == dims[-1:]


def _is_skip(shape: Dims | None, dims: Dims) -> bool:
    return shape == dims or (len(dims) == 3 and shape in (dims[1:], (1, *dims[1:])))
