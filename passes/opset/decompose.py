"""Operators in smaller ones."""

from collections.abc import Sequence
from difflib import get_close_matches

from surgery import Graph, Node, Parity, UsageError, graph_pass

from . import _parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms, _schemas
from ._functions import Calls
from ._lower import replace_outputs
from ._lowering import Call, Known, Lowering, parts

HOMES = (_parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms)
"""To import them is to register what they hold."""


@graph_pass("decompose", parity=Parity.CLOSE)
def decompose(graph: Graph, *, ops: Sequence[str]) -> None:
    """Decompose operators into simpler ones of the same opset, for runtimes that lack them.

    Right because the text of an operator says what it computes, and that is written down: Gelu by Erf, or by Tanh,
    LayerNormalization by ReduceMean, Sub, Mul, Sqrt and Div, Einsum by Transpose, MatMul, Mul and ReduceSum. What is
    made is itself taken apart where it is among `ops`: HardSwish becomes HardSigmoid, and with both of them named
    Mul, Add and Clip. Rounding differs from that of the kernel of the whole. A node whose types or dims have to be
    known and are not stays.

    Example:
        # options: {ops: [HardSwish]}
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,C] x) => (float[N,C] y) {
            y = HardSwish(x)
        }

    Options:
        ops: the operators, by name. Known are: Attention, BitwiseNot, Celu, CenterCropPad, Clip, DequantizeLinear,
            Einsum, Gelu, GreaterOrEqual, GroupNormalization, HammingWindow, HannWindow, HardSigmoid, HardSwish,
            InstanceNormalization, LayerNormalization, LessOrEqual, LogSoftmax, Max, MeanVarianceNormalization, Min,
            Mish, NegativeLogLikelihoodLoss, PRelu, QuantizeLinear, RMSNormalization, ReduceL1, ReduceL2,
            ReduceLogSum, ReduceLogSumExp, ReduceSumSquare, Relu, RotaryEmbedding, Shrink, SoftmaxCrossEntropyLoss,
            Softplus, SwiGLU, Swish, ThresholdedRelu, Trilu.
    """
    unknown = [op for op in ops if op not in parts()]
    if unknown:
        near = get_close_matches(unknown[0], parts(), n=1)
        todo = f"did you mean '{near[0]}'?" if near else "'surgery passes decompose' lists those that are"
        raise UsageError(f"'{unknown[0]}' is no operator that is taken apart", todo=todo)
    known = Known()
    Calls(graph, known).follow()
    for node in graph.nodes(*ops):
        with graph.site(node) as new:
            place = Lowering(node, new, node.opset, known, frozenset(ops))
            replace_outputs(node, place.apart(_call(node)), place)


def _call(node: Node) -> Call:
    version = _schemas.version_at(node.op, node.opset)
    assert version is not None
    return Call(node.op, version, node.inputs, node.attributes, len(node.outputs), node)
