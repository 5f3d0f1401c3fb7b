"""Written-out attention fused into ONNX Runtime's operator."""

import math
from collections import defaultdict
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass, is_finite

from ._bias import joined_bias, require_fit, total_keys
from ._core import Core, behind_guard, core
from ._dependence import Dependence
from ._mask import expanded, fits, has_columns, hides_rows, is_shared, visible_rows
from ._operands import Operands, flat_operands, operands
from ._shared import hand_on_flat
from ._steps import Added, Chosen, is_attention
from ._written import Written, read

OPERATOR = "com.microsoft::MultiHeadAttention"

Ready = dict[tuple[tuple[Value, ...], Any], Value]
"""Masks in the form that the operator reads, by the values added to the scores and the number of queries.

Rows that a mask does not hide completely have the word "rows" in their key.
"""


@graph_pass("fuse-multi-head-attention", parity=Parity.CLOSE)
def fuse_multi_head_attention(graph: Graph) -> None:
    """Fuse the nodes of scaled dot product attention into com.microsoft::MultiHeadAttention.

    Right because the kernel of ONNX Runtime computes softmax(scale * Q K^T + mask) V for each head from queries, keys
    and values of rank 3, and returns the heads side by side. The mask becomes its `attention_bias`, which it adds to
    the scaled scores before the same Softmax as in the written-out form: rows of infinities and rows of the lowest
    number give the same results. If a Where replaces the NaN of fully masked rows with zeros, one after the operator
    does. The kernel needs all rows of the mask, so one row for all queries is repeated. If
    several tensors are added, such as a position bias and a mask, it gets their sum. The operator also adds the biases
    of the projections, and factors before the heads are multiplied into the scale. Keys and values of earlier runs, and
    their concatenation with those of this run, become its states; the kernel reads the former only if it writes both
    concatenations (multihead_attention.cc of 1.32, with states and without states as outputs). Keys and values that are
    not cut out of a tensor of rank 3, as after rotary positions or in a cache of cross attention, are read as heads.

    Less common forms are reduced to this one. Scores of rank 3 are read as one head per batch element; if the first dim
    is batch times heads, and queries, keys and values are all cut alike, they are read as these heads. Tensors that are
    added to the scores in several steps, including a Where that replaces scores with the lowest number or minus
    infinity, are combined in the same order: either plus a score stays what it is. A factor for each head, or each row,
    is applied to the queries. A mask whose last dim is not known to be the number of keys is expanded to it: the dim is
    that number or 1, because the probabilities are multiplied by as many values.

    Keys and values that groups of queries share stay repeated. They are fused only where the target has no
    GroupQueryAttention in this type, as `ort-cuda` in float32, or prefers it under a causal mask alone.

    Example:
        # target: ort-cpu
        <ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
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
    prepared: dict[Any, Ready] = defaultdict(dict)
    dependence = Dependence(graph)
    for node in graph.nodes("Softmax"):
        masks, ready = prepared[node.scope], Ready()
        with graph.site(node) as new:
            found = core(node, several=True)
            if found is not None:
                ready = _fuse(node, found, masks, dependence, new)
            elif is_attention(node):
                _fuse_written(node, read(node), dependence, new)
        if node.is_removed:
            masks |= ready


def _fuse(softmax: Node, found: Core, masks: Ready, dependence: Dependence, new: Builder) -> Ready:
    new.require(found.queries.rank == 4, "the attention is not of rank 4, or its rank is not known")
    _require(softmax, found, new)
    given = operands(found, dependence, softmax.opset, new)
    hides = _hides_rows(found, new)
    ready = _attention_bias(softmax, found, given, masks, hides, new)
    bias, rows = (*ready.values(), None, None)[:2]
    _replace(found, given, bias, new, rows=rows if hides else None)
    return ready


def _hides_rows(found: Core, new: Builder) -> bool:
    """Return whether rows that masks hide completely must become zeros, as a Where replaces their NaN."""
    if not found.guarded or found.mask is None:
        return False
    added = found.mask, *found.more
    finite = [mask for mask in added if is_finite(mask)]
    other = [mask for mask in added if mask not in finite]
    hides = hides_rows(found, other[0]) if other else False
    known = len(other) < 2 and hides is not None and is_finite(*finite)
    new.require(known, "rows of NaN would become zeros, and the mask may contain infinities")
    shared = not hides or all(is_shared(mask) for mask in added)
    new.require(shared, "the mask differs between heads, and a row may be masked completely")
    return bool(hides)


def _require(softmax: Node, found: Core, new: Builder) -> None:
    new.require(softmax.opset >= 13, "the opset is older than 13")
    new.require(softmax.attr("axis") in (-1, (softmax.outputs[0].rank or 0) - 1), "Softmax is not along the keys")
    new.require_operator(OPERATOR, found.queries)


def _replace(found: Core, given: Operands, bias: Value | None, new: Builder, rows: Value | None = None) -> None:
    """Replace an attention with separate heads with the operator; where `rows` is given and false, with zeros."""
    count = (found.queries.shape or ())[1]
    assert isinstance(count, int)
    results = _operator(given, count, bias, new)
    for old, result in zip(given.presents or (), results[1:]):
        new.replace(old, result)
    result = results[0]
    if rows is not None:
        assert found.queries.dtype is not None
        result = new.node("Where", rows, result, new.constant(np.zeros((), found.queries.dtype.numpy()), "zero"))
    hand_on_flat(found.context, result, count, given.size, new)


def _operator(given: Operands, count: int, bias: Value | None, new: Builder) -> tuple[Value, ...]:
    inputs = [*given.inputs, *[None] * (5 - len(given.inputs)), bias, *(given.past or ())]
    outputs = 1 if given.presents is None else 3
    return new.nodes(OPERATOR, *inputs, outputs=outputs, num_heads=count, scale=given.scale)


def _fuse_written(softmax: Node, written: Written, dependence: Dependence, new: Builder) -> None:
    """Fuse an attention in one of the less common forms."""
    found, factor = written.core, written.steps.factor
    _require(softmax, found, new)
    hides = _chooses_infinity(softmax, written, new)
    if written.is_flat:
        new.require(factor is None, "scores of rank 3 have a separate factor for each row")
        given = flat_operands(found, new)
        new.replace(found.context, _operator(given, 1, joined_bias(written, given, softmax.opset, new), new)[0])
        return
    if factor is not None:
        new.require(written.joint_from is None, "scores of rank 3 have a separate factor for each row")
        require_fit(factor.shape or (None,) * 5, written, new)
    given = operands(found, dependence, softmax.opset, new, factor=factor)
    bias = joined_bias(written, given, softmax.opset, new)
    rows = visible_rows(bias, -math.inf, found.queries, softmax.opset, new) if hides and bias is not None else None
    _replace(found, given, bias, new, rows=rows)


def _chooses_infinity(softmax: Node, written: Written, new: Builder) -> bool:
    """Return whether a Where chooses minus infinity, and a guard replaces the NaN of rows of it with zeros.

    Where there is a guard, require that nothing else makes an infinity, such as the sum of two lowest numbers: only a
    choice of it shows in the bias which rows are masked completely, and the operator returns NaN for other such rows.
    """
    if all(reader.op != "IsNaN" for reader in softmax.outputs[0].consumers):
        return False
    steps = written.steps.added
    endless = [step for step in steps if isinstance(step, Chosen) and step.low.scalar == -math.inf]
    rest = [step for step in steps if step not in endless]
    known = is_finite(*(step.value if isinstance(step, Added) else step.low for step in rest))
    known = known and all(step.factor <= 1 for step in rest if isinstance(step, Added))
    if endless:
        is_read = behind_guard(softmax.outputs[0]) != softmax.outputs[0]
        known = known and is_read and not written.is_flat and not any(step.windows for step in endless)
    new.require(known, "rows of NaN would become zeros, and the mask may contain infinities")
    given = [step.value if isinstance(step, Added) else step.condition for step in steps]
    shared = not endless or all(is_shared(mask) for mask in given)
    new.require(shared, "the mask differs between heads, and a row may be masked completely")
    return bool(endless)


def _attention_bias(softmax: Node, found: Core, given: Operands, masks: Ready, hides: bool, new: Builder) -> Ready:
    """Return the mask in the form that the operator reads, by its key in `Ready`; empty without a mask.

    If the mask `hides` rows completely, also return which rows it does not.
    """
    if found.mask is None:
        return {}
    added = found.mask, *found.more
    queries = (found.queries.shape or (None,) * 4)[2]
    new.require(all(fits(mask, found) for mask in added), "the mask is not known to fit the scores")
    extents = [mask.shape or () for mask in added]
    missing, rows = 4 - max(map(len, extents)), any(one[-2] == queries for one in extents)
    whole = not missing and rows and any(has_columns(mask, found) for mask in added)
    new.require(softmax.opset >= 15 or whole, "the mask has fewer dims or rows, and the opset is older than 15")
    length: Any = found.queries if queries is None else queries
    ready: Ready = {(added, length): masks.get((added, length)) or _in_rank_4(found, missing, rows, given, new)}
    if hides:
        (bias,), key = ready.values(), (added, (length, "rows"))
        ready[key] = masks.get(key) or visible_rows(bias, -math.inf, found.queries, softmax.opset, new)
    return ready


def _in_rank_4(found: Core, missing: int, rows: bool, given: Operands, new: Builder) -> Value:
    added, flat = [found.mask, *found.more], given.inputs[0]
    ready = found.mask
    assert flat is not None and ready is not None
    for mask in found.more:
        ready = new.node("Add", mask, ready)
    if missing:
        ready = new.node("Unsqueeze", ready, new.constant(np.arange(missing, dtype=np.int64), "axes"))
    length = None if rows else new.node("Shape", _before_projection(flat), start=1, end=2)
    known = any(has_columns(mask, found) for mask in added if mask is not None)
    return expanded(ready, 4, length, None if known else total_keys(given, new), new)


def _before_projection(flat: Value) -> Value:
    """Return the tensor that queries are projected from; it has the same length and remains without the projection."""
    for _ in range(4):
        node = flat.producer
        source = None if node is None or node.op not in ("Add", "MatMul", "Split") else node.input(0)
        if source is None or source.rank != 3 or (source.shape or ())[:2] != (flat.shape or ())[:2]:
            break
        flat = source
    return flat
