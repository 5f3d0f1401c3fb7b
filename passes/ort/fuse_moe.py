"""Mixtures of experts, fused into MoE."""

from collections.abc import Iterator

import numpy as np

from surgery import Builder, Match, Node, Parity, Refusal, Value, pattern_pass

FUSED = "com.microsoft::MoE"
ROUTER = """
    p = Softmax<axis = -1>(logits)
    top, index = TopK<axis = -1>(p, k)
"""
NORMALIZED = """
    t = ReduceSum(top, last)
    w = Div(top, t)
"""
COPIES = """
    u = Unsqueeze(x, one)
    r = Tile|Expand(u, repeats)
    c = Reshape(r, shape_of_columns)
"""
EXPERTS = """
    i = Reshape(index, flat)
    g1 = Gather|GatherND(gate_up, i)
    m1 = MatMul(g1, c)
    q1 = Squeeze(m1, a1)
    gate, up = Split(q1, sizes?)
    {swish}
    v = Mul(h, up)
    e = Unsqueeze(v, a2)
    g2 = Gather|GatherND(down, i)
    m2 = MatMul(g2, e)
    q2 = Squeeze(m2, a3)
    z = Mul(q2, {weights})
    b = Reshape(z, shape_of_rows)
    y = ReduceSum<keepdims = 0>(b, middle)
"""
SWISHES = ("s = Sigmoid(gate)\n h = Mul(gate, s)", "h = Swish(gate)", "h = com.microsoft::QuickGelu(gate)")
"""The gate's activation as exported, and as `fuse-swish` writes it for ONNX and for this target."""

_QUICK = 1.702
"""The alpha of QuickGelu without an attribute."""


def _patterns() -> Iterator[str]:
    """Yield the forms of a mixture; of a single expert for each row, `drop-no-op` leaves no copies of rows."""
    for normalized, top in ((NORMALIZED, "w"), ("", "top")):
        copied = f"{COPIES}    d = Reshape|Unsqueeze({top}, shape_of_weights)", "d"
        single = "    c = Reshape|Unsqueeze(x, shape_of_columns)", top
        for swish in SWISHES:
            for rows, weights in (copied, single):
                yield ROUTER + normalized + rows + EXPERTS.format(swish=swish, weights=weights)


@pattern_pass(
    "fuse-moe",
    match=tuple(_patterns()),
    parity=Parity.CLOSE,
)
def fuse_moe(m: Match, new: Builder) -> Value:
    """Turn a mixture of experts with gated SiLU layers into com.microsoft::MoE.

    The pass matches the form to which the experts of transformers 5 (Mixtral, Qwen2-MoE, ...) are exported: each row is
    copied for each of its k experts, their weights are gathered, and the results are summed with the weights of the
    router. MoE reads logits, computes the softmax over all experts, takes the k largest, divides them by their sum if
    requested (normalize_routing_weights), and runs each expert once over all rows that chose it, instead of copying its
    weights for each row. Its activation swiglu is g · sigmoid(alpha · g) · (u + beta), which is Swish(g) · u for beta =
    0 and no limit, with the alpha of the Swish (SiLU: 1) or QuickGelu. The CPU kernel needs the rows of g and u
    interleaved (swiglu_fusion = 1), so the weights are reordered once.

    Of two experts with the same probability, TopK takes the first and MoE the last. So the order of the experts is
    reversed, in the weights and in the logits: if these are a product with a constant, its columns are reversed.

    Example:
        # target: ort-cpu
        g (float[N,2] x, float[N,3] logits) => (float[N,2] y)
        <float[3,4,2] gate_up = {1, -2, 3, 4, 5, 6, 7, 8, 9, 1, 2, -3, 4, 5, 6, 7, 8, 9, 1, 2, -3, 4, 5, 6},
         float[3,2,2] down = {1, 2, -3, 4, 5, 6, 7, -8, 9, 1, 2, 3}, int64[1] k = {2}, int64[1] last = {-1},
         int64[2] weights = {-1, 1}, int64[1] one = {1}, int64[3] repeats = {1, 2, 1}, int64[3] columns = {-1, 2, 1},
         int64[1] two = {2}, int64[2] halves = {2, 2}, int64[3] rows = {-1, 2, 2}> {
            p = Softmax(logits)
            top, index = TopK(p, k)
            t = ReduceSum(top, last)
            w = Div(top, t)
            d = Reshape(w, weights)
            u = Unsqueeze(x, one)
            r = Tile(u, repeats)
            c = Reshape(r, columns)
            i = Reshape(index, last)
            a = Gather(gate_up, i)
            b = MatMul(a, c)
            e = Squeeze(b, two)
            f, h = Split<axis = 1>(e, halves)
            s = Sigmoid(f)
            v = Mul(f, s)
            z = Mul(v, h)
            j = Unsqueeze(z, two)
            l = Gather(down, i)
            o = MatMul(l, j)
            q = Squeeze(o, two)
            n = Mul(q, d)
            g = Reshape(n, rows)
            y = ReduceSum<keepdims = 0>(g, one)
        }
    """
    new.require_operator(FUSED, m.x)
    experts, inner, width = _sizes(m)
    k = m.k.scalar
    m.require(isinstance(k, int) and m.node("top").attr("largest"), "the number of experts is not constant")
    m.require(
        m.logits.rank == 2 and m.logits.shape[1] == experts, "the router does not choose among exactly these experts"
    )
    m.require(m.bound("w") is None or m.node("t").attr("keepdims"), "the weights are not divided by their sum")
    m.require(m.bound("r") is not None or k == 1, "the rows and experts have another layout")
    one = (1,) if m.node("g1").op == "GatherND" else ()
    shapes = {"c": (width, 1), "q1": (2 * inner,), "gate": (inner,), "e": (inner, 1), "q2": (width,), "b": (k, width)}
    more = {"i": one, "m1": (2 * inner, 1), "m2": (width, 1)}
    copies = {"u": (1, width), "r": (k, width), "d": (1,)} if m.bound("r") is not None else {}
    for name, dims in {**shapes, **more, **copies}.items():
        found = getattr(m, name).shape
        m.require(found is not None and found[1:] == dims, "the rows and experts have another layout")
    rows = m.x.shape
    copied = m.bound("r") or m.c
    m.require(rows is not None and copied.shape[0] == rows[0], "the rows are copied as a whole")
    m.require(m.middle.elements in ((1,), (-2,)), "the results are not summed over the experts of a row")
    gate_up, down = m.gate_up.constant, m.down.constant
    m.require(gate_up is not None and down is not None, "the weights of the experts are not constant")
    turns = np.swapaxes(gate_up.reshape(experts, 2, inner, width), 1, 2).reshape(gate_up.shape)
    layers = new.constant(turns[::-1], m.gate_up.name), new.constant(down[::-1], m.down.name)
    return new.node(
        *(FUSED, m.x, _reversed(m, experts, new), layers[0], None, layers[1]),
        k=k,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=_alpha(m.node("h")),
        activation_beta=0.0,
        normalize_routing_weights=int(m.bound("w") is not None),
    )


def _sizes(m: Match) -> tuple[int, int, int]:
    """Return the number of experts, their inner width, and the width of the rows."""
    outer, inner = m.gate_up.static_shape, m.down.static_shape
    if outer is None or inner is None or len(outer) != 3 or len(inner) != 3:
        raise Refusal("the weights of the experts are not matrices of known sizes")
    experts, width, hidden = inner
    gathers = [m.node(name) for name in ("g1", "g2")]
    same = gathers[0].op == gathers[1].op and not any(node.attr("axis") or node.attr("batch_dims") for node in gathers)
    if outer != (experts, 2 * hidden, width) or not same:
        raise Refusal("the two layers of an expert do not match")
    return experts, hidden, width


def _alpha(swish: Node) -> float:
    """Return the factor in the sigmoid of x · sigmoid(alpha · x)."""
    if swish.op == "Mul":
        return 1.0
    default = _QUICK if swish.op.startswith("com.microsoft") else 1.0
    return float(swish.attr("alpha", default))


def _reversed(m: Match, experts: int, new: Builder) -> Value:
    """Return the logits with the last expert first."""
    logits: Value = m.logits
    product = logits.producer
    weight = None if product is None or product.op != "MatMul" else product.required_input(1)
    if product is None or weight is None or weight.constant is None or weight.rank != 2 or logits.reads > 1:
        return new.node("Gather", logits, new.constant(np.arange(experts)[::-1], "reverse"), axis=1)
    return new.node("MatMul", product.required_input(0), new.constant(weight.constant[:, ::-1], weight.name))
