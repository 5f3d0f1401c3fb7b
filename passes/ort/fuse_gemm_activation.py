"""Gemm and the activation after it, fused into FusedGemm."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._quantized import require_float

FUSED = "com.microsoft::FusedGemm"
PARAMETERS = {
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "ThresholdedRelu": ("alpha",),
}
"""The attributes of activations; FusedGemm needs all of them, regardless of their defaults."""


@pattern_pass(
    "fuse-gemm-activation",
    match="""
        g = Gemm(a, b, c?)
        y = Elu|HardSigmoid|LeakyRelu|Relu|Selu|Sigmoid|Softplus|Softsign|Tanh|ThresholdedRelu(g)
    """,
    parity=Parity.CLOSE,
)
def fuse_gemm_activation(m: Match, new: Builder) -> Value:
    """Turn a Gemm and the activation that alone reads it into com.microsoft::FusedGemm.

    Right because FusedGemm is a Gemm whose kernel runs the kernel of the activation on the result, with the parameters
    `activation_alpha`, `activation_beta` and `activation_gamma` (ONNX Runtime 1.32: bit-identical with each of the ten
    activations). Gelu, HardSwish, Celu and Mish are not among them, and the only type is float. Before opset 7 Gemm
    broadcasts by an attribute, and before opset 6 activations have other attributes; those nodes stay. So does a Gemm
    of a dequantized weight, which ONNX Runtime computes in integers or from packed weights.

    Example:
        # target: ort-cpu
        g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] bias = {1, 2}> {
            t = Gemm(x, w, bias)
            y = LeakyRelu<alpha = 0.1>(t)
        }
    """
    gemm, activation = m.node("g"), m.root
    new.require_operator(FUSED, m.b if m.a.dtype is None else m.a)
    require_float(m.b)
    m.require(gemm.opset >= 7, "before opset 7 Gemm and activations have other attributes")
    given = {f"activation_{name}": float(activation.attr(name)) for name in PARAMETERS.get(activation.op, ())}
    attributes = {**gemm.attributes, "activation": activation.op, **given}
    return new.node(FUSED, m.a, m.b, m.c, attributes=attributes)
