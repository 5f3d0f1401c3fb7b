"""SkipSimplifiedLayerNormalization."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._sums import SIMPLIFIED, skip_norm

NORMS = (
    "y = RMSNormalization(x, scale)",
    "y = SimplifiedLayerNormalization(x, scale)",
    "y = com.microsoft::BranchwiseRMSNorm<num_branches = 1>(x, scale)",
)


@pattern_pass("fuse-skip-rms-norm", match=NORMS, parity=Parity.CLOSE)
def fuse_skip_rms_norm(m: Match, new: Builder, *, always: bool = False) -> Value:
    """Fuse the sum of a residual connection and the RMS norm over it into SkipSimplifiedLayerNormalization.

    Right because this is the definition of com.microsoft::SkipSimplifiedLayerNormalization: the RMS norm of input +
    skip + bias over the last axis, with that sum as its fourth output. The same forms are supported as in
    fuse-skip-layer-norm. Run fuse-rms-norm first: it creates RMSNormalization, and before opset 23 BranchwiseRMSNorm,
    from norms that are written out.

    It saves nodes, not time: the kernel of ONNX Runtime 1.32 sums the squares of a row one after another. For [1, 128,
    768] it took 0.42 ms in one thread, Add and RMSNormalization 0.11 ms; for a single row, both took the same time.

    Example:
        # target: ort-cpu
        # options: {always: true}
        <ir_version: 11, opset_import: ["" : 23]>
        g (float[N,S,4] x, float[N,S,4] z) => (float[N,S,4] y, float[N,S,4] s) <float[4] w = {1, 2, 3, 4}> {
            s = Add(x, z)
            y = RMSNormalization(s, w)
        }

    Options:
        always: Fuse even if the target prefers separate nodes for the sum and the norm, as ort-cpu does.
    """
    return skip_norm(m, new, SIMPLIFIED, None, always=always)
