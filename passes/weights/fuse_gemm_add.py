"""Gemm + Add fused into one Gemm."""

import numpy as np

from surgery import Builder, Match, Node, Parity, Value, pattern_pass

from ._shared import SMALL, Array, fit_each, own_constant, wide


@pattern_pass(
    "fuse-gemm-add",
    match=(
        """
        t = Gemm(a, b)
        y = Add(t, bias)
        """,
        """
        t = Gemm(a, b, c)
        u = Gemm(d, e, f)
        y = Add(t, u)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_gemm_add(m: Match, new: Builder) -> Value:
    """Merge an Add after a Gemm without a bias into the Gemm.

    Right because Gemm computes alpha·A·B + beta·C with C broadcast to the product in one direction; beta becomes 1,
    alpha stays. So the addend must not enlarge the product. If two Gemms are added, as in an LSTM cell, one gets the
    constant biases of both and becomes the addend of the other; they must have the same dims.

    Example:
        g (float[N,3] x, float[3,2] w, float[N,2] z) => (float[N,2] y) {
            t = Gemm(x, w)
            y = Add(t, z)
        }
    """
    product = m.node("t")
    if not hasattr(m, "u"):
        m.require(m.broadcasts_to(m.bias, m.t), "the bias may enlarge the result")
        return new.node("Gemm", m.a, m.b, m.bias, attributes=_without_beta(product))
    other = m.node("u")
    known = m.t.shape is not None and None not in m.t.shape
    m.require(known and m.t.shape == m.u.shape, "the products are not known to have the same dims")
    first, second = (own_constant(bias, "a bias is not constant") for bias in (m.c, m.f))
    m.require(first.dtype.kind == "f" and first.dtype == second.dtype, "the biases are not floats")
    both = _sum(product, first) + _sum(other, second)
    m.require(both.size <= max(first.size, second.size) or both.nbytes <= SMALL, "the bias would make the file grow")
    inner = new.node("Gemm", m.d, m.e, new.constant(fit_each(both, second), m.f.name), attributes=_without_beta(other))
    return new.node("Gemm", m.a, m.b, inner, attributes=_without_beta(product))


def _sum(gemm: Node, bias: Array) -> Array:
    """Return the term that a Gemm adds to its product, beta · bias."""
    with np.errstate(all="ignore"):
        return np.asarray(wide(bias) * gemm.attr("beta", 1.0))


def _without_beta(gemm: Node) -> dict[str, object]:
    return {name: value for name, value in gemm.attributes.items() if name != "beta"}
