"""Decoder attention with shared heads fused into ONNX Runtime's operator."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, data_type, graph_pass, is_finite

from ._causal import Hidden, hidden
from ._core import core
from ._decoder import Decoder, decoder, flattened, fresh_columns, is_causal_only
from ._dependence import Dependence
from ._mask import clamped, expanded, fits, has_columns, hides_rows, is_shared, reduced, visible_rows
from ._shared import hand_on_flat, ints
from ._written import explain

OPERATOR = "com.microsoft::GroupQueryAttention"

Ready = dict[Any, Value]
"""Values that several attentions share: lengths by the dims, biases and masked rows by the mask."""


@graph_pass("fuse-group-query-attention", parity=Parity.CLOSE)
def fuse_group_query_attention(graph: Graph) -> None:
    """Fuse self attention whose keys and values are shared by groups of queries into GroupQueryAttention.

    Right because the kernel of ONNX Runtime (group_query_attention.cc, gqa_attention_base.h of 1.32) computes
    softmax(scale * Q K^T + bias) V for each query head with the key and value head of its group, appends the keys and
    values of this run to those of earlier runs, and returns the concatenations. All sequences of a batch have the same
    length here, so `seqlens_k` is one less than the number of keys for all of them. Padding on either side is hidden
    by the mask, which becomes the `attention_bias`.

    The kernel also applies a soft cap of the scores, c * tanh(x / c), before the mask. A sink of each head, a logit
    that takes part in the Softmax and whose column is dropped afterwards, is an input; with it, fully masked rows are
    zero in both forms.

    Cases in which the kernel deviates from the written-out form are avoided:

    - Without keys of earlier runs, or with a single query or batch size 1, `causal` is 0 and the whole mask becomes the
      bias, whatever it hides. A fully masked row is uniform in both forms. Minus infinity needs a Where in the graph
      that replaces the NaN of fully masked rows with zeros; these rows become zeros after the operator. The lowest
      number of the type is halved, as in fuse-attention.
    - A mask that is minus infinity for future keys and adds a bias to the other scores becomes `causal` with that bias:
      each query sees at least itself, so no row is fully masked.
    - With keys of earlier runs, several queries and a larger batch, the kernel needs `query_seqlens`, all equal to the
      length of this run, and `causal`. The mask must hide future keys by a comparison of positions (Range) in the
      graph; if it hides nothing else, there is no bias. A sliding window becomes `local_window_size`.
    - If the mask hides more, a row may be fully masked, as with left padding. All keys then have equal weight in the
      written-out form, but the kernel ignores future keys. Such rows become the mean of all values, by a Where after
      the operator; or zeros, where they are zeros in the written-out form. The mask must add either 0 or a number so
      low that it absorbs the scores.

    Empty sequences and batches are an error in the kernel. The head size must be a multiple of 8.

    The kernel of CUDA is always causal, and has no fast path with a bias. The target `ort-cuda` prefers the operator
    only where a causal mask, or a sliding window of one, is the whole mask; fuse-multi-head-attention fuses the others.

    Example:
        # target: ort-cpu
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[B,S,32] q, float[B,S,16] k, float[B,S,16] v) => (float[B,S,32] y)
        <int64[4] cut_q = {0, 0, 4, 8}, int64[4] cut = {0, 0, 2, 8}, int64[4] twice = {0, 0, 1, 1},
         int64[4] groups = {0, 0, 1, 2}, int64[3] flat = {0, 0, 32}, float c = {0.3}>
        {
            qr = Reshape(q, cut_q)
            qh = Transpose<perm = [0, 2, 1, 3]>(qr)
            kr = Reshape(k, cut)
            kh = Transpose<perm = [0, 2, 1, 3]>(kr)
            vr = Reshape(v, cut)
            vh = Transpose<perm = [0, 2, 1, 3]>(vr)
            kg = Gather<axis = 1>(kh, twice)
            vg = Gather<axis = 1>(vh, twice)
            kt = Transpose<perm = [0, 1, 3, 2]>(kg)
            product = MatMul(qh, kt)
            scores = Mul(product, c)
            p = Softmax<axis = -1>(scores)
            context = MatMul(p, vg)
            rows = Transpose<perm = [0, 2, 1, 3]>(context)
            y = Reshape(rows, flat)
        }
    """
    prepared: dict[Any, Ready] = defaultdict(dict)
    dependence = Dependence(graph)
    for node in graph.nodes("Softmax"):
        scope = node.scope
        ready = dict(prepared[scope])
        with graph.site(node) as new:
            _fuse(node, ready, dependence, new)
        if node.is_removed:
            prepared[scope] = ready


@dataclass(frozen=True)
class Form:
    """How the mask is passed to the operator, and what fully masked rows become afterwards."""

    attributes: dict[str, int]
    bias: Value | None
    needs_lengths: bool
    restores: Literal["", "mean", "zeros"] = ""


def _fuse(softmax: Node, ready: Ready, dependence: Dependence, new: Builder) -> None:
    found = core(softmax, capped=True, sinks=True)
    if found is None:
        explain(softmax)
        return
    read = decoder(found, new)
    new.require(softmax.attr("axis") in (-1, 3), "Softmax is not along the keys")
    new.require(softmax.opset >= 13, "the opset is older than 13")
    new.require_operator(OPERATOR, found.queries)
    new.require(read.size % 8 == 0, "the size of the heads is not a multiple of 8")
    form = _form(read, ready, dependence, softmax.opset, new)
    plain = form == Form(_window_of(form), None, needs_lengths=False)
    new.require(plain or not is_causal_only(new), "the target prefers GroupQueryAttention under a causal mask alone")
    queries = flattened(found.queries, new)
    keys, values = (fresh_columns(part, new) for part in (read.keys, read.values))
    lengths = _lengths(read, queries, ready, softmax.opset, new)
    sink = None if found.sink is None else new.node("Reshape", found.sink, ints(new, -1))
    inputs = [queries, keys, values, read.keys.past, read.values.past, *lengths, None, None, None, form.bias, sink]
    if form.needs_lengths:
        inputs += [*[None] * 4, _query_lengths(read, queries, ready, softmax.opset, new)]
    attributes = {
        "num_heads": read.count * read.keys.times,
        "kv_num_heads": read.count,
        "scale": found.scale,
        "softcap": found.softcap or None,
        **form.attributes,
    }
    keeps_state = read.keys.past is not None
    results = new.nodes(OPERATOR, *inputs, outputs=3 if keeps_state else 1, attributes=attributes)
    if keeps_state:
        new.replace(read.keys.whole, results[1])
        new.replace(read.values.whole, results[2])
    result = results[0]
    if form.restores:
        assert form.bias is not None and found.mask is not None
        new.require(is_shared(found.mask), "the mask differs between heads, and a row may be masked completely")
        result = _restored(read, form, results, ready, softmax.opset, new)
    hand_on_flat(found.context, result, read.count * read.keys.times, read.size, new)


def _form(read: Decoder, ready: Ready, dependence: Dependence, opset: int, new: Builder) -> Form:
    mask = read.core.mask
    if mask is None:
        new.require(read.takes_any_bias, "no mask hides future keys, which a past with several queries needs")
        return Form({"causal": 0}, None, needs_lengths=False)
    new.require(fits(mask, read.core), "the mask is not known to fit the scores")
    states = {read.keys.whole, read.values.whole}
    new.require(not dependence.any_on([mask], states), "the mask is computed from keys or values")
    found = hidden(mask, read.past) if has_columns(mask, read.core) else None
    if found is not None and found.is_causal and not found.others:
        return Form(_window(found), *_also(found, read, ready, opset, new))
    hides = hides_rows(read.core, mask)
    is_zero = read.core.guarded or read.core.sink is not None
    new.require(hides is not None and (is_zero or not hides), "the mask may contain infinities")
    by_kernel = read.core.sink is not None
    if read.takes_any_bias:
        bias = _bias(mask, read, ready, opset, new)
        return Form({"causal": 0}, bias, needs_lengths=False, restores="zeros" if hides and not by_kernel else "")
    new.require(found is not None and found.is_causal, "with a past, the mask is not known to hide future keys")
    assert found is not None
    new.require(_swallows(found, mask), "masked scores still count, and a row may be masked completely")
    bias = _bias(mask, read, ready, opset, new)
    restores: Literal["", "mean", "zeros"] = "" if by_kernel else "zeros" if hides else "mean"
    return Form(_window(found), bias, needs_lengths=True, restores=restores)


def _also(found: Hidden, read: Decoder, ready: Ready, opset: int, new: Builder) -> tuple[Value | None, bool]:
    """Return the bias of scores that a causal mask or window leaves visible, and whether query lengths are needed."""
    if found.bias is None:
        return None, not read.takes_any_bias
    new.require(fits(found.bias, read.core), "the mask is not known to fit the scores")
    new.require(is_finite(found.bias), "the mask may contain infinities")
    return _bias(found.bias, read, ready, opset, new), not read.takes_any_bias


def _window_of(form: Form) -> dict[str, int]:
    return {name: size for name, size in form.attributes.items() if name == "local_window_size"}


def _window(found: Hidden) -> dict[str, int]:
    return {} if found.window is None else {"local_window_size": found.window}


def _swallows(found: Hidden, mask: Value) -> bool:
    """Return whether the mask absorbs scores: its number is a quarter of the lowest of the type, or lower."""
    assert mask.dtype is not None
    return found.low <= float(np.finfo(mask.dtype.numpy()).min) / 4


def _bias(mask: Value, read: Decoder, ready: Ready, opset: int, new: Builder) -> Value:
    """Return a mask of rank 4 with a row for each query, its lowest number raised.

    The kernel gives zeros for a row of the lowest number, although all scores of such a row have equal weight when
    written out.
    """
    key = "bias", mask, read.length
    if key not in ready:
        extents = mask.shape
        assert extents is not None
        value = clamped(mask, new)
        missing = list(range(4 - len(extents)))
        value = new.node("Unsqueeze", value, ints(new, *missing)) if missing else value
        rows = _dim(read.core.queries, 2, opset, new) if extents[-2] == 1 and read.length != 1 else None
        columns = None if has_columns(mask, read.core) else _total(read, opset, new)
        ready[key] = expanded(value, 4, rows, columns, new)
    return ready[key]


def _lengths(read: Decoder, queries: Value, ready: Ready, opset: int, new: Builder) -> tuple[Value, Value]:
    """Return the index of the last key of each sequence, and the number of keys."""
    key = "lengths", read.batch, read.length, read.total
    if (*key, 0) not in ready:
        batch, total = _dim(queries, 0, opset, new), _total(read, opset, new, queries)
        ready[*key, 1] = new.node("Cast", total, to=data_type("int32"))
        last = new.node("Sub", ready[*key, 1], new.constant(np.ones(1, np.int32), "one"))
        ready[*key, 0] = new.node("Expand", last, batch)
    return ready[*key, 0], ready[*key, 1]


def _total(read: Decoder, opset: int, new: Builder, queries: Value | None = None) -> Value:
    """Return the number of keys of all runs; this run has as many as `queries`, which may be flat."""
    length = _dim(read.core.queries, 2, opset, new) if queries is None else _dim(queries, 1, opset, new)
    past = read.keys.past
    return length if past is None else new.node("Add", _dim(past, 2, opset, new), length)


def _query_lengths(read: Decoder, queries: Value, ready: Ready, opset: int, new: Builder) -> Value:
    """Return the number of queries, once for each sequence of the batch."""
    key = "queries", read.batch, read.length
    if key not in ready:
        batch, length = (_dim(queries, axis, opset, new) for axis in (0, 1))
        ready[key] = new.node("Expand", new.node("Cast", length, to=data_type("int32")), batch)
    return ready[key]


def _dim(value: Value, axis: int, opset: int, new: Builder) -> Value:
    """Return one dim of a value, as a tensor of one element."""
    if opset >= 15:
        return new.node("Shape", value, start=axis, end=axis + 1)
    return new.node("Gather", new.node("Shape", value), ints(new, axis))


def _restored(read: Decoder, form: Form, results: tuple[Value, ...], ready: Ready, opset: int, new: Builder) -> Value:
    """Replace rows that a bias of rank 4 masks fully with zeros, or with the mean of all values."""
    bias, dtype = form.bias, read.core.queries.dtype
    assert bias is not None and dtype is not None
    if ("rows", bias) not in ready:
        floor = float(np.finfo(dtype.numpy()).min) / 8
        ready["rows", bias] = visible_rows(bias, floor, read.core.queries, opset, new)
    if form.restores == "zeros":
        return new.node("Where", ready["rows", bias], results[0], new.constant(np.zeros((), dtype.numpy()), "zero"))
    mean = reduced("ReduceMean", results[2], 2, 0, opset, new)
    groups = new.constant(np.repeat(np.arange(read.count), read.keys.times), "groups")
    each = new.node("Gather", mean, groups, axis=1)
    row = new.node("Reshape", each, ints(new, 0, 1, read.count * read.keys.times * read.size))
    return new.node("Where", ready["rows", bias], results[0], row)
