"""Chains of arithmetic with constants."""

from collections import deque

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._layers import ELEMENTWISE, Affine, affine
from ._shared import SMALL, Array, fit_each

CANCELS = 256
"""Constants whose sum is smaller than its parts by this factor are kept: x + a - a may round x on purpose."""

STEPPING = {"Cast", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Round", "Sign"}
"""Operators that can turn a difference in the last digit into a whole step."""


@graph_pass("merge-constants", parity=Parity.CLOSE)
def merge_constants(graph: Graph) -> None:
    """Merge two adjacent additions of, or multiplications by, constants into one.

    Right up to rounding because (x·a)·b is x·(a·b) and (x + a) + b is x + (a + b), likewise with Div, Sub and Neg; the
    constant is computed in float64 and rounded once. Pairs whose intermediate value has other consumers stay, and so do
    two shifts that cancel, because adding and subtracting a large number is a way to round. Values that are rounded or
    compared directly afterwards also stay, because the last digit may matter there.

    Example:
        g (float[N,2] x) => (float[N,2] y) <float two = {2}, float[2] w = {3, 5}> {
            t = Mul(x, two)
            y = Div(t, w)
        }
    """
    todo = deque(graph.nodes(*ELEMENTWISE))
    while todo:
        node = todo.popleft()
        outer = None if node.is_removed else affine(node)
        inner = None if outer is None or outer.data.producer is None else _elementwise(outer.data.producer)
        if outer is None or inner is None or not _fits(inner, outer):
            continue
        with graph.site(node) as new:
            new.require(inner.node.scope is node.scope, "the chain crosses the boundary of a subgraph")
            alone = outer.data.reads == 1 and not outer.data.is_output
            new.require(alone, "the value in between is read by others")
            steps = any(reader.op in STEPPING for reader in node.outputs[0].consumers)
            new.require(not steps, "the result is rounded, and its last digit may matter")
            merged = _merge(inner, outer, new)
            new.replace(node.outputs[0], merged)
        if node.is_removed:
            todo.extend([*merged.consumers, *filter(None, [merged.producer])])


def _elementwise(node: Node) -> Affine | None:
    return affine(node) if node.op in ELEMENTWISE else None


def _fits(inner: Affine, outer: Affine) -> bool:
    """Return whether one operator can replace both."""
    factors = all(not step.shifts for step in (inner, outer))
    shifts = all(bool((np.abs(step.factor) == 1).all()) and step.factor.size == 1 for step in (inner, outer))
    return factors or shifts


def _merge(inner: Affine, outer: Affine, new: Builder) -> Value:
    # A factor of one or a shift of zero may still enlarge the result: the constant gets the broadcast shape of all.
    shape = np.broadcast_shapes(*(array.shape for step in (inner, outer) for array in (step.factor, step.shift)))
    with np.errstate(all="ignore"):
        factor = inner.factor * outer.factor
        parts = (outer.factor * inner.shift, outer.shift)
        shift = np.asarray(parts[0] + parts[1])
    data, like = inner.data, _constant(inner, outer)
    if not inner.shifts and not outer.shifts:
        adds = any(step.node.op in ("Add", "Sub") for step in (inner, outer))
        kept = not adds or not outer.node.outputs[0].shows_sign_of_zero
        new.require(kept, "a consumer divides by the result, where the sign of an added zero matters")
        return new.node("Mul", data, _rounded(np.broadcast_to(factor, shape), like, new))
    new.require((np.abs(shift) * CANCELS >= np.abs(parts[0]) + np.abs(parts[1])).all(), "the two constants cancel")
    constant = _rounded(np.broadcast_to(shift, shape), like, new)
    return new.node("Add", data, constant) if factor.item() == 1 else new.node("Sub", constant, data)


def _constant(inner: Affine, outer: Affine) -> list[Value]:
    """List the constants of both."""
    return [value for step in (inner, outer) for value in step.node.inputs if value is not None and value.is_constant]


def _rounded(exact: Array, constants: list[Value], new: Builder) -> Value:
    arrays = [array for value in constants if (array := value.constant) is not None]
    if not arrays:
        raise Refusal("a value is negated twice")
    rounded = fit_each(exact, arrays[0])
    new.require(
        rounded.nbytes <= max(SMALL, *(array.nbytes for array in arrays)), "the constant would make the file grow"
    )
    return new.constant(rounded, constants[0].name)
