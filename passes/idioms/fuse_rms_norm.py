"""RMSNormalization."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import normalized, over_normalized, over_root_mean_square, takes_own

BRANCHWISE = "com.microsoft::BranchwiseRMSNorm"
SIMPLIFIED = "SimplifiedLayerNormalization"
ENDS = (
    ("x = Cast(z)", "c = Cast(n)\n y = Mul(c, scale)"),
    ("", "y = Mul(n, scale)"),
    ("", ""),
)


@pattern_pass(
    "fuse-rms-norm",
    match=[f"{start}\n {core}\n {end}" for start, end in ENDS for core in over_root_mean_square("x")],
    parity=Parity.CLOSE,
)
def fuse_rms_norm(m: Match, new: Builder) -> Value:
    """Turn x / √(mean(x²) + ε) · scale into RMSNormalization.

    Right because this is the definition of RMSNormalization (opset 23), over the last axes. The square may be a power
    or a product, the division a product with the reciprocal. A scale with the shape of the normalized dims is included;
    without a scale, it is ones. float16 is computed in float and rounded before the scale, as in the operator, so the
    casts are removed too.

    Before opset 23, com.microsoft::BranchwiseRMSNorm with one branch computes the same over the last axis, in float,
    where the target runs it. ONNX Runtime 1.32 computes both by the same kernel. A target that lacks it gets
    SimplifiedLayerNormalization, which ONNX Runtime has in the standard domain, if it runs that: CUDA does, and sums up
    in float, where a norm of float16 in parts overflows. The rest of a layer norm stays: before opset 17, only ONNX
    Runtime itself makes a LayerNormalization of the whole.

    Example:
        <ir_version: 11, opset_import: ["" : 23]>
        g (float[N,4] x) => (float[N,4] y)
        <float two = {2}, int64[1] last = {-1}, float eps = {1e-6}, float[4] scale = {1, 2, 3, 4}> {
            q = Pow(x, two)
            m = ReduceMean(q, last)
            v = Add(m, eps)
            s = Sqrt(v)
            n = Div(x, s)
            y = Mul(n, scale)
        }
    """
    kind = getattr(m, "z", m.x)
    own = m.root.opset < 23 and takes_own(new, BRANCHWISE, kind)
    simplified = m.root.opset < 23 and not own and _has_simplified(new, kind)
    centered = (own or simplified) and _is_centered(kind)
    m.require(not centered, "with the subtraction of the mean it is a layer norm, which ONNX Runtime fuses as a whole")
    source, attributes = normalized(m, "RMSNormalization", 0 if own or simplified else 23)
    scale = over_normalized(new, getattr(m, "scale", None), source, int(attributes["axis"]))
    if own:
        m.require(attributes["axis"] == -1, "BranchwiseRMSNorm supports the last axis only")
        return new.node(BRANCHWISE, source, scale, epsilon=attributes["epsilon"], num_branches=1)
    if simplified:
        return new.node(SIMPLIFIED, source, scale, attributes={**attributes, "stash_type": 1})
    return new.node("RMSNormalization", source, scale, attributes=attributes)


def _is_centered(x: Value) -> bool:
    """Return whether a value is the difference of another one and its mean."""
    difference = x.producer
    if difference is None or difference.op != "Sub":
        return False
    whole, mean = (difference.required_input(place) for place in (0, 1))
    return mean.producer is not None and mean.producer.op == "ReduceMean" and mean.producer.input(0) == whole


def _has_simplified(new: Builder, x: Value) -> bool:
    """Return whether the target is an execution provider with the operator that no standard has."""
    target = new.target
    return bool(target.provider and ("", SIMPLIFIED) in target.operators) and takes_own(new, SIMPLIFIED, x)
