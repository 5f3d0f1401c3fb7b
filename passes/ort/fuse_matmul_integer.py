"""Integer products and their conversion to float, fused into one operator."""

from surgery import Builder, Match, Parity, Refusal, Value, pattern_pass

DYNAMIC = "com.microsoft::DynamicQuantizeMatMul"
TO_FLOAT = "com.microsoft::MatMulIntegerToFloat"
SCALED = (
    "i = MatMulInteger(a, b, a_zero?, b_zero?)\n f = Cast<to = 1>(i)\n s = Mul(first, second)\n r = Mul(f, s)",
    "i = MatMulInteger(a, b, a_zero?, b_zero?)\n f = Cast<to = 1>(i)\n s = Mul(f, first)\n r = Mul(s, second)",
    "i = MatMulInteger(a, b, a_zero?, b_zero?)\n f = Cast<to = 1>(i)\n r = Mul(f, scale)",
)
FUSED_SCALE = (
    "r = com.microsoft::MatMulIntegerToFloat(a, b, first, second, a_zero?, b_zero?)\n y = Add(r, bias)",
    "r = com.microsoft::DynamicQuantizeMatMul(x, b, second, b_zero?)\n y = Add(r, bias)",
)


@pattern_pass("fuse-matmul-integer", match=(*FUSED_SCALE, *SCALED), parity=Parity.CLOSE)
def fuse_matmul_integer(m: Match, new: Builder) -> Value:
    """Turn MatMulInteger, Cast, Mul by the scales and Add into DynamicQuantizeMatMul or MatMulIntegerToFloat.

    Right because com.microsoft::MatMulIntegerToFloat computes the same integer product, multiplies it by the product of
    the two scales and adds the bias. DynamicQuantizeMatMul first quantizes its first factor as DynamicQuantizeLinear
    does, and is used if nothing else reads the quantized data. The kernels require a single scale for the data. Scales
    and zero points of the weight, which is a matrix, are one number or one for each column, and the bias has one for
    each column. The scales may be multiplied with each other or applied in turn, which rounds once more; both forms are
    matched, those of `quantize-dynamic` and of ONNX Runtime's quantizer.

    Example:
        # target: ort-cpu
        g (float[N,4] x) => (float[N,2] y)
        <int8[4,2] w = {1, -2, 3, -4, 5, -6, 7, -8}, float scale = {0.1}, float[2] bias = {1, 2}> {
            q, s, z = DynamicQuantizeLinear(x)
            i = MatMulInteger(q, w, z)
            f = Cast<to = 1>(i)
            p = Mul(s, scale)
            m = Mul(f, p)
            y = Add(m, bias)
        }
    """
    columns = _columns(m)
    if m.root.op == "Add":
        bias: Value = m.bias
        m.require(bias.static_shape == (columns,) and columns > 1, "the addend is not one number for each column")
        made = m.node("r")
        places = 5 if made.op == DYNAMIC else 7
        inputs = [*made.inputs, *[None] * places][: places - 1]
        return new.node(made.op, *inputs, bias)
    scales = _scales(m, columns)
    new.require_operator(TO_FLOAT, m.a)
    b_zero: Value | None = m.b_zero
    m.require(b_zero is None or _is_per_column(b_zero, columns), "the zero points are not one for each column")
    m.require(m.a_zero is None or _is_one(m.a_zero), "the data have several zero points")
    quantizer = m.a.producer
    if quantizer is not None and quantizer.op == "DynamicQuantizeLinear" and _is_alone(m, scales[0]):
        return new.node(DYNAMIC, quantizer.required_input(0), m.b, scales[1], b_zero)
    return new.node(TO_FLOAT, m.a, m.b, *scales, m.a_zero, b_zero)


def _columns(m: Match) -> int:
    shape = m.b.static_shape
    if shape is None or len(shape) != 2 or not m.b.is_constant:
        raise Refusal("the weight is not a constant matrix")
    return int(shape[1])


def _scales(m: Match, columns: int) -> tuple[Value, Value]:
    """Return the scale of the data, which is one number, and the scale of the weight.

    The product of both may be read by other nodes, as layers of the same data and equal scales share it.
    """
    first, second = m.bound("first"), m.bound("second")
    if first is None or second is None:
        product = m.scale.producer
        if product is None or product.op != "Mul":
            raise Refusal("the factor is not the product of two scales")
        first, second = product.required_input(0), product.required_input(1)
    for one, other in ((first, second), (second, first)):
        if _is_one(one) and _is_per_column(other, columns) and other.is_constant:
            return one, other
    raise Refusal("the scales are not one of the data and constant ones for each column")


def _is_one(value: Value) -> bool:
    return value.static_shape in ((), (1,))


def _is_per_column(value: Value, columns: int) -> bool:
    return value.static_shape in ((), (1,), (columns,))


def _is_alone(m: Match, scale: Value) -> bool:
    """Return whether the data, their scale and zero point come from a quantization that only this product reads."""
    outputs = m.a.producer.outputs
    if [m.a, scale, m.a_zero] != outputs or m.b.dtype is None:
        return False
    readers = [reader for output in outputs for reader in output.consumers]
    return not any(output.is_output for output in outputs) and all(reader in m.nodes for reader in readers)
