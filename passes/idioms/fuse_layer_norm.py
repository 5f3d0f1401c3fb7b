"""LayerNormalization."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import normalized, over_normalized, over_root_mean_square, require_tolerant_readers, trailing

STARTS = (("x = Cast(z)", "c = Cast(n)", "c"), ("", "", "n"))
AFFINE = ("l = Mul({0}, scale)\n y = Add(l, bias)", "y = Mul({0}, scale)", "")


@pattern_pass(
    "fuse-layer-norm",
    match=[
        f"{start}\n u = ReduceMean(x, mean_axes?)\n d = Sub(x, u)\n {core}\n {cast}\n {affine.format(result)}"
        for affine in AFFINE
        for start, cast, result in STARTS
        for core in over_root_mean_square("d")
    ],
    parity=Parity.CLOSE,
)
def fuse_layer_norm(m: Match, new: Builder) -> Value:
    """Turn (x - mean) / √(mean((x - mean)²) + ε) · scale + bias into LayerNormalization.

    Right because this is the definition of LayerNormalization (opset 17), over the last axes. The square may be a power
    or a product, the division a product with the reciprocal. A scale and a bias with the shape of the normalized dims
    are included; without a scale, it is ones. float16 is computed in float and rounded before the scale, as in the
    operator, so the casts are removed too. No consumer may divide by the result, because values that are 0 up to
    rounding differ.

    Example:
        g (float[N,4] x) => (float[N,4] y)
        <float two = {2}, int64[1] last = {-1}, float eps = {1e-6}, float[4] scale = {1, 2, 3, 4}> {
            u = ReduceMean(x, last)
            d = Sub(x, u)
            q = Pow(d, two)
            m = ReduceMean(q, last)
            v = Add(m, eps)
            s = Sqrt(v)
            n = Div(d, s)
            y = Mul(n, scale)
        }
    """
    source, attributes = normalized(m, "LayerNormalization", 17)
    require_tolerant_readers(m)
    axis = int(attributes["axis"])
    m.require(trailing(m.node("u"), m.x) == axis, "mean and variance are over different axes")
    scale = over_normalized(new, getattr(m, "scale", None), source, axis)
    bias = over_normalized(new, m.bias, source, axis) if hasattr(m, "bias") else None
    return new.node("LayerNormalization", source, scale, bias, attributes=attributes)
