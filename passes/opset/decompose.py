"""Operators decomposed into smaller ones, and ONNX Runtime's operators into ONNX operators."""

from collections.abc import Sequence
from difflib import get_close_matches

from surgery import Graph, Node, Parity, Refusal, UsageError, graph_pass, misfit

from . import (
    _all_parts,
    _contrib_activations,
    _contrib_attention,
    _contrib_groups,
    _contrib_linear,
    _contrib_moving,
    _contrib_norms,
    _contrib_padding,
    _contrib_quantized,
    _lower_inputs,
    _lower_meaning,
    _lower_quantized,
    _schemas,
)
from ._calls import Call
from ._functions import Calls
from ._lower import replace_outputs
from ._lowering import CONTRIB, Known, Lowering, lacking, parts

HOMES = (
    *_all_parts.PARTS,
    *(_contrib_activations, _contrib_attention, _contrib_groups, _contrib_linear, _contrib_moving, _contrib_norms),
    *(_contrib_padding, _contrib_quantized, _lower_inputs, _lower_meaning, _lower_quantized),
)
"""Modules whose import registers parts, and the rules that lower the nodes written by parts."""


@graph_pass("decompose", parity=Parity.CLOSE)
def decompose(graph: Graph, *, ops: Sequence[str] = ()) -> None:
    """Decompose operators into simpler ones of the same opset, for runtimes that lack them.

    Without `ops`, those nodes are decomposed that the target of the recipe does not run: because it lacks their
    operator, its version, its element type, or the value of an attribute.

    Right because the specification of an operator defines its result in terms of simpler operators: Gelu by Erf, or by
    Tanh, LayerNormalization by ReduceMean, Sub, Mul, Sqrt and Div, Einsum by Transpose, MatMul, Mul and ReduceSum. New
    nodes are also decomposed if they are among `ops`: HardSwish becomes HardSigmoid, and if both are named, Mul, Add
    and Clip. Rounding differs from the kernel of the original operator. A node stays if required types or dims are
    unknown.

    QLinearConv, QLinearMatMul, QGemm and the others of that form become the operator in float32 between
    DequantizeLinear and QuantizeLinear, as `qdq-to-qoperator` reads them; a number near the middle of two integers may
    be rounded to the other one.

    Operators of ONNX Runtime, com.microsoft, become those of ONNX: the newest that the opset has, so that BiasGelu is
    Add and Gelu at opset 20 and more nodes before. Where their specifications are incomplete, the decomposition follows
    the CPU kernels of ONNX Runtime 1.32: attention adds -10000 where a mask is 0, unless an attribute sets another
    value, and the lowest float32 for keys after the query, so that completely masked rows have the same results. In
    GroupQueryAttention such rows are zeros, and padding queries attend to their whole sequence; if a window leaves them
    no keys, the kernel's result is undefined, and here it is zeros.

    Example:
        # options: {ops: [HardSwish]}
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,C] x) => (float[N,C] y) {
            y = HardSwish(x)
        }

    Options:
        ops: the operators, by name; by default those that the target does not run. Supported are: Attention,
            BitwiseNot, CastLike, Celu, CenterCropPad, Clip, DequantizeLinear, Einsum, Flatten, GatherND, Gelu,
            GreaterOrEqual, GroupNormalization, HammingWindow, HannWindow, HardSigmoid, HardSwish,
            InstanceNormalization, IsNaN, LayerNormalization, LessOrEqual, LogSoftmax, Max, Mean,
            MeanVarianceNormalization, Min, Mish, Neg, NegativeLogLikelihoodLoss, Not, Or, PRelu, QLinearConv,
            QLinearMatMul, QuantizeLinear, RMSNormalization, Reciprocal, ReduceL1, ReduceL2, ReduceLogSum,
            ReduceLogSumExp, ReduceSumSquare, Relu, RotaryEmbedding, Shrink, SimplifiedLayerNormalization,
            SoftmaxCrossEntropyLoss, Softplus, Sum, SwiGLU, Swish, ThresholdedRelu, Trilu, Xor; of com.microsoft, as
            `com.microsoft::Gelu`, or without the domain if ONNX has no operator of that name: Attention, BiasAdd,
            BiasGelu, BiasSoftmax, BiasSplitGelu, BranchwiseRMSNorm, DecoderMaskedMultiHeadAttention, DequantizeLinear,
            DynamicQuantizeMatMul, EmbedLayerNormalization, ExpandDims, FastGelu, FusedConv, FusedGemm, FusedMatMul,
            FusedMatMulActivation, GatedRelativePositionBias, GatherND, Gelu, GemmFastGelu, GroupNorm,
            GroupQueryAttention, MatMulIntegerToFloat, MatMulNBits, MultiHeadAttention, NhwcConv, NhwcFusedConv,
            NhwcMaxPool, Pad, QAttention, QGemm, QLinearAdd, QLinearAveragePool, QLinearConcat,
            QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearMul, QLinearSigmoid, QLinearSoftmax, QLinearWhere,
            QuantizeLinear, QuickGelu, Range, RemovePadding, RestorePadding, RotaryEmbedding, SkipGroupNorm,
            SkipLayerNormalization, SkipSimplifiedLayerNormalization, TransposeMatMul, Trilu. `com.microsoft::*` are all
            of these, and SimplifiedLayerNormalization.
    """
    wanted = [name for op in ops for name in _named(op)]
    known = Known()
    Calls(graph, known).follow()
    for node in graph.nodes(*wanted) if ops else _not_run(graph):
        with graph.site(node) as new:
            opset = graph.imports_of(node.ir).get("", 0)
            place = Lowering(node, new, opset, known, frozenset(wanted) or lacking(graph, opset))
            replace_outputs(node, place.apart(_call(node)), place)
        known.forget_removed()


_OF_RUNTIME = "SimplifiedLayerNormalization"
"""The operator of ONNX Runtime that it has in the default domain."""

_OPERATOR = frozenset({"domain", "operator", "excluded", "version", "type", "attribute", "outputs"})
"""The kinds of reasons against an operator that may not apply to other operators in its place."""


def _not_run(graph: Graph) -> list[Node]:
    """List the nodes that can be decomposed and that the target does not run because of their operator."""
    known = graph.nodes(*parts())
    reasons = [misfit(graph, node) for node in known]
    return [node for node, reason in zip(known, reasons) if reason is not None and reason.kind in _OPERATOR]


def _named(op: str) -> list[str]:
    """Return the operators that a name refers to; UsageError if there are none.

    An operator of com.microsoft may be named without its domain, unless ONNX has an operator of that name.
    """
    if op == f"{CONTRIB}*":
        return [*(name for name in parts() if name.startswith(CONTRIB)), _OF_RUNTIME]
    if op in parts():
        return [op]
    if CONTRIB + op in parts() and not _schemas.schemas_of(op):
        return [CONTRIB + op]
    plain = [name.removeprefix(CONTRIB) for name in parts()]
    near = get_close_matches(op, parts(), n=1) or get_close_matches(op, plain, n=1, cutoff=0.75)
    todo = f"did you mean '{near[0]}'?" if near else "'surgery passes decompose' lists those that are"
    raise UsageError(f"'{op}' is not an operator that can be decomposed", todo=todo)


def _call(node: Node) -> Call:
    if node.domain:
        return Call(node.op, 1, node.inputs, node.attributes, len(node.outputs), node)
    versions = _schemas.schemas_of(node.op)
    if not versions and node.op != _OF_RUNTIME:
        raise Refusal(_schemas.unknown(node.op))
    version = _schemas.version_at(node.op, node.opset) or min(versions, default=1)
    return Call(node.op, version, node.inputs, node.attributes, len(node.outputs), node)
