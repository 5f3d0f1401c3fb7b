"""Attention over the heads, groups and states that its inputs are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import Heads, Side, flat_apart, flat_behind, heads, repetition
from ._decoder import unrepeated
from ._dependence import Dependence
from ._shared import hand_on

OPERATOR = "Attention"
_STATES = range(4, 7)
"""Inputs of Attention: keys and values of earlier runs, and from opset 24 the lengths of those of this run."""


@graph_pass("simplify-attention", parity=Parity.CLOSE)
def simplify_attention(graph: Graph) -> None:
    """Let Attention cut heads, share keys and values, and append them to those of earlier runs.

    Exporters compute the inputs of Attention from opset 23 with other nodes. The operator does the same work:

    - It cuts tensors of rank 3 into heads, and returns its result flat again (`q_num_heads`, `kv_num_heads`).
    - It takes fewer heads of keys and values than of queries. Each then serves a group of adjacent queries, as after an
      Expand or Gather that repeats each head.
    - It concatenates keys and values of earlier runs (`past_key`, `past_value`) with those of this run and returns the
      concatenations, which other nodes may read too.

    Right because scores, mask and result are unchanged. With `is_causal`, the first query sees only the first key, but
    with a past it sees all keys of the past too; such attentions keep their Concat. A mask that is computed from the
    concatenations would be needed before the operator returns them.

    ONNX Runtime 1.32 reads tensors of rank 3, shared heads and states in place. Its kernels of GroupQueryAttention and
    MultiHeadAttention are not faster than that of Attention, so recipes keep this operator where the opset has it.

    Example:
        <ir_version: 11, opset_import: ["" : 23]>
        g (float[B,S,8] q, float[B,S,4] k, float[B,S,4] v, float[B,1,P,4] pk, float[B,1,P,4] pv)
          => (float[B,S,8] y, float[B,1,T,4] kw, float[B,1,T,4] vw)
        <int64[4] cut = {0, 0, -1, 4}, int64[2] twice = {0, 0}, int64[3] flat = {0, 0, 8}>
        {
            qr = Reshape(q, cut)
            qh = Transpose<perm = [0, 2, 1, 3]>(qr)
            kr = Reshape(k, cut)
            kh = Transpose<perm = [0, 2, 1, 3]>(kr)
            vr = Reshape(v, cut)
            vh = Transpose<perm = [0, 2, 1, 3]>(vr)
            kw = Concat<axis = 2>(pk, kh)
            vw = Concat<axis = 2>(pv, vh)
            kg = Gather<axis = 1>(kw, twice)
            vg = Gather<axis = 1>(vw, twice)
            context = Attention(qh, kg, vg)
            rows = Transpose<perm = [0, 2, 1, 3]>(context)
            y = Reshape(rows, flat)
        }
    """
    dependence = Dependence(graph)
    for node in graph.nodes(OPERATOR):
        with graph.site(node) as new:
            _simplify(node, dependence, new)


@dataclass(frozen=True)
class Part:
    """Keys or values in heads, before each of them is repeated `times` times.

    `heads` concatenates the `past` with this run. If `is_apart`, it has an axis of size 1 after the heads.
    """

    heads: Value
    times: int = 1
    past: Value | None = None
    is_apart: bool = False

    @property
    def fresh(self) -> Value:
        """The keys or values of this run."""
        maker = self.heads.producer
        return self.heads if self.past is None or maker is None else maker.required_input(1)

    @property
    def flat(self) -> Heads | None:
        """The tensor of rank 3 that those of this run are cut from."""
        return flat_apart(self.heads) if self.is_apart else heads(Side(self.fresh))

    @property
    def past_length(self) -> int | str | None:
        """The number of keys or values of earlier runs, if it is known."""
        extents = None if self.past is None else self.past.shape
        return None if extents is None or len(extents) != 4 else extents[2]


Parts = tuple[Part, Part]
"""Keys and values."""


def _simplify(node: Node, dependence: Dependence, new: Builder) -> None:
    queries, keys, values = (node.required_input(place) for place in range(3))
    new.require(queries.rank == 4, "queries are of rank 3, or their rank is not known")
    free = all(node.input(place) is None for place in _STATES) and not any(one.is_used for one in node.outputs[1:3])
    shared = (_part(keys), _part(values)) if free else (Part(keys), Part(values))
    new.require(shared[0].times == shared[1].times, "keys and values are repeated differently")
    parts = shared if _has_past(node, shared, dependence) else _without_past(shared)
    cut = heads(Side(queries)), parts[0].flat, parts[1].flat
    is_flat = None not in cut and flat_behind(node.outputs[0]) is not None
    if not is_flat and parts[0].times == 1 and parts[0].past is None:
        _refuse(node, shared, new)
    inputs = [queries, *(_in_heads(part, new) for part in parts)]
    counts: dict[str, int] = {}
    if is_flat:
        found = [one for one in cut if one is not None]
        counts = {"q_num_heads": found[0].count, "kv_num_heads": found[1].count}
        inputs = [one.flat for one in found]
    _replace(node, parts, inputs, counts, new)


def _part(value: Value) -> Part:
    """Read keys or values, without their repetition for groups of queries."""
    whole, times = unrepeated(value)
    found = repetition(value)
    if found is not None and times == 1 and found.times > 1:
        return Part(found.apart, found.times, is_apart=True)
    concat = whole.producer
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or concat.attr("axis") not in (2, -2):
        return Part(whole, times)
    return Part(whole, times, concat.required_input(0))


def _has_past(node: Node, parts: Parts, dependence: Dependence) -> bool:
    """Return whether the operator may concatenate keys and values with those of earlier runs."""
    wholes = {part.heads for part in parts}
    read = [node.required_input(0), node.input(3), *(one for part in parts for one in (part.past, part.fresh))]
    return (
        None not in {part.past for part in parts}
        and _have_one_length(parts)
        and not node.attr("is_causal")
        and len(wholes) == 2
        and all(whole.scope is node.scope for whole in wholes)
        and not dependence.any_on([one for one in read if one is not None], wholes)
    )


def _have_one_length(parts: Parts) -> bool:
    """Return whether the pasts of keys and values are equally long, as those of this run and both together are.

    The operator requires as many values as keys, although the dims of the pasts may have different names.
    """
    lengths = {part.past_length for part in parts}
    fresh = [(part.fresh.shape or (None,) * 4)[2] for part in parts if part.past is not None]
    return None not in lengths and (len(lengths) == 1 or (None not in fresh and len(set(fresh)) == 1))


def _without_past(parts: Parts) -> Parts:
    return replace(parts[0], past=None), replace(parts[1], past=None)


def _refuse(node: Node, parts: Parts, new: Builder) -> None:
    """Refuse an attention that no rewrite applies to."""
    pasts = [part.past for part in parts if part.past is not None]
    new.require(pasts, "keys and values are not repeated or concatenated, and heads are not cut out of flat tensors")
    alike = len(pasts) == 2 and _have_one_length(parts)
    new.require(alike, "the pasts of keys and values are not known to be equally long")
    new.require(not node.attr("is_causal"), "is_causal would show the keys of the past to each query")
    new.require(not pasts, "keys and values are the same, or other inputs are computed from them")


def _in_heads(part: Part, new: Builder) -> Value:
    """Return the keys or values of this run as [batch, heads, length, size]."""
    if not part.is_apart:
        return part.fresh
    return new.node("Squeeze", part.heads, new.constant(np.array([2], np.int64), "axes"))


def _replace(node: Node, parts: Parts, inputs: list[Value], counts: dict[str, int], new: Builder) -> None:
    states = [node.input(place) for place in _STATES]
    replaced = {place: value for place, value in enumerate(node.outputs) if value.is_used}
    if parts[0].past is not None:
        states = [part.past for part in parts]
        replaced |= {place: part.heads for place, part in enumerate(parts, 1)}
    count = max(replaced) + 1
    unused = set(range(count)) - set(replaced)
    attributes = {**node.attributes, **counts}
    operands = (*inputs, node.input(3), *states)
    results = new.nodes(OPERATOR, *operands, outputs=count, omitted=unused, attributes=attributes)
    for place, value in replaced.items():
        if place:
            new.replace(value, results[place])
    hand_on(node.outputs[0], results[0], flat=bool(counts), new=new)
