"""Written-out attention fused into one operator."""

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import Core, Heads, Repetition, Side, flat_apart, flat_behind, heads, repetition
from ._mask import clamped, expanded, fits, fits_rows, has_columns, hides_rows
from ._shared import Masks, hand_on, rewrite_cores


@graph_pass("fuse-attention", parity=Parity.CLOSE)
def fuse_attention(graph: Graph) -> None:
    """Fuse the nodes of scaled dot product attention into Attention, from opset 23.

    Right because this is the definition of the operator: softmax(scale * Q K^T + mask) V for each head,
    with fewer key and value heads than query heads if each serves a group of adjacent queries. If the heads are cut out
    of tensors of rank 3, the operator does that too, and returns the result flat again.

    Cases in which runtimes deviate from the written-out form are refused or avoided. A row that is completely masked by
    minus infinity gives NaN when written out and zeros in the operator. So a mask may contain minus infinity only if a
    Where replaces the NaN with zeros, or if the mask is known to be causal, so that each query sees itself. A bias that
    is computed has no infinity if bounds follow from constants, normalizations and bounded functions. The lowest number
    of the type, which ONNX Runtime treats as minus infinity, is halved in other masks, which still masks. A mask
    of one row, or not known to have a column for each key, is expanded, because ONNX Runtime 1.31 does not broadcast
    it.

    A factor of the scores for each head or row is applied to the queries.

    Example:
        <ir_version: 11, opset_import: ["" : 23]>
        g (float[B,S,4] q, float[B,T,4] k, float[B,T,4] v) => (float[B,S,4] y)
        <int64[4] cut = {0, 0, 2, 2}, int64[3] flat = {0, 0, 4}, float c = {0.7}>
        {
            qr = Reshape(q, cut)
            qh = Transpose<perm = [0, 2, 1, 3]>(qr)
            kr = Reshape(k, cut)
            kh = Transpose<perm = [0, 2, 3, 1]>(kr)
            vr = Reshape(v, cut)
            vh = Transpose<perm = [0, 2, 1, 3]>(vr)
            product = MatMul(qh, kh)
            scores = Mul(product, c)
            p = Softmax(scores)
            context = MatMul(p, vh)
            rows = Transpose<perm = [0, 2, 1, 3]>(context)
            y = Reshape(rows, flat)
        }
    """
    rewrite_cores(graph, 23, _fuse, explained=True)


def _require_softmax(node: Node, found: Core, new: Builder) -> None:
    dtype, rank = node.outputs[0].dtype, found.queries.rank
    new.require(rank == 4, "the attention is not of rank 4, or its rank is not known")
    new.require(node.attr("axis") in (-1, 3), "Softmax is not along the keys")
    new.require(new.target.computes("Attention", dtype, node.opset), "no runtime has the operator for this type")


@dataclass(frozen=True)
class Inputs:
    """The inputs of Attention: tensors of rank 4, or of rank 3 with `counts`, the numbers of query and key heads."""

    queries: Value
    keys: Value
    values: Value
    counts: tuple[int, int] | None


def _fuse(softmax: Node, found: Core, masks: Masks, new: Builder) -> Masks:
    _require_softmax(softmax, found, new)
    _, count, queries, _ = found.queries.shape or (None,) * 4
    new.require(isinstance(count, int), "the number of heads is not known")
    assert isinstance(count, int)
    inputs = _inputs(found, count, new)
    ready: Masks = {}
    if found.mask is not None:
        new.require(fits(found.mask, found), "the mask is not known to fit the scores")
        hides = hides_rows(found, found.mask)
        new.require(hides is not None and (found.guarded or not hides), "the mask may contain infinities")
        key = found.mask, found.queries if queries is None else queries, bool(hides)
        ready = {key: masks.get(key) or _prepared(found, inputs, new, keeps_infinity=bool(hides))}
    counts = {} if inputs.counts is None else {"q_num_heads": inputs.counts[0], "kv_num_heads": inputs.counts[1]}
    (mask,) = ready.values() or (None,)
    attributes = {"scale": found.scale, **counts}
    result = new.node("Attention", inputs.queries, inputs.keys, inputs.values, mask, attributes=attributes)
    hand_on(found.context, result, flat=inputs.counts is not None, new=new)
    return ready


def _inputs(found: Core, count: int, new: Builder) -> Inputs:
    if found.factor is not None:
        return _scaled(found, count, new)
    again = [None if found.keys.perm else repetition(found.keys.value), repetition(found.values)]
    k_times, v_times = (1 if part is None else part.times for part in again)
    new.require(k_times == v_times, "keys and values are repeated differently")
    shared = count // k_times
    sides = [Side(found.queries), found.keys, Side(found.values)]
    repeated = [None, *again]
    cut = [heads(side) if part is None else flat_apart(part.apart) for side, part in zip(sides, repeated)]
    if all(cut) and flat_behind(found.context) is not None:
        q, k, v = (part for part in cut if part is not None)
        new.require(_agree(q, k, v, count, shared), "the heads of queries, keys and values do not agree")
        return Inputs(q.flat, k.flat, v.flat, (count, shared))
    keys, values = (_once(side, part, new) for side, part in zip(sides[1:], again))
    extents = found.values.shape
    new.require(extents is not None and len(extents) == 4 and extents[1] == count, "the number of heads is not known")
    return Inputs(found.queries, keys, values, None)


def _scaled(found: Core, count: int, new: Builder) -> Inputs:
    """Return heads whose queries are multiplied by the factor of the scores."""
    assert found.factor is not None
    shared = (found.values.shape or ())[1:2] == (count,)
    new.require(shared and fits_rows(found.factor, found), "the factor of the scores is not known to fit the heads")
    queries = new.node("Mul", found.queries, found.factor)
    return Inputs(queries, _once(found.keys, None, new), found.values, None)


def _once(side: Side, repeated: Repetition | None, new: Builder) -> Value:
    """Return keys or values of rank 4 without repeated heads."""
    if repeated is None:
        return new.node("Transpose", side.value, perm=list(side.perm)) if side.perm else side.value
    lift = repeated.apart.producer
    axes = lift.input(1) if lift is not None and lift.op == "Unsqueeze" else None
    if lift is not None and axes is not None and axes.is_constant and axes.elements == (2,):
        return lift.required_input(0)
    return new.node("Squeeze", repeated.apart, new.constant(np.array([2], np.int64), "axes"))


def _agree(q: Heads, k: Heads, v: Heads, count: int, shared: int) -> bool:
    return q.count == count and k.count == v.count == shared and q.size == k.size


def _prepared(found: Core, inputs: Inputs, new: Builder, *, keeps_infinity: bool) -> Value:
    mask, axis = found.mask, 1 if inputs.counts else 2
    assert mask is not None and mask.shape is not None
    ready = mask if keeps_infinity else clamped(mask, new)
    rows = new.node("Shape", inputs.queries, start=axis, end=axis + 1) if mask.shape[-2] == 1 else None
    columns = None if has_columns(mask, found) else new.node("Shape", inputs.keys, start=axis, end=axis + 1)
    return expanded(ready, len(mask.shape), rows, columns, new)
