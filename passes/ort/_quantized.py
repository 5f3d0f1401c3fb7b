"""Guards for operators that ONNX Runtime computes with quantized operands."""

from surgery import Refusal, Value

DEQUANTIZE = ("DequantizeLinear", "com.microsoft::DequantizeLinear")


def require_float(weight: Value) -> None:
    """Refuse if the second operand of a Conv, Gemm or MatMul is dequantized right before.

    At its default level, ONNX Runtime 1.32 computes such operators in integers (QLinearConv, QGemm, QLinearMatMul,
    MatMulIntegerToFloat) or from packed weights (MatMulNBits), but only these operators: a FusedConv, FusedGemm or
    FusedMatMul would be computed in float, after a DequantizeLinear of the whole weight in each run.
    """
    producer = weight.producer
    if producer is not None and producer.op in DEQUANTIZE:
        raise Refusal("ONNX Runtime fuses the operator with the DequantizeLinear of its weight")
