"""The formulas of Gelu in the order that ONNX Runtime fuses."""

import math

import numpy as np

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._gelu import ERF_FORMS, RECOGNIZED, TANH_FORMS
from ._shared import require_plain_constants, takes_own

GELU_SINCE = 20
FUSED = ("FLOAT", "FLOAT16")


@pattern_pass(
    "arrange-gelu",
    match=[form for form in (*ERF_FORMS, *TANH_FORMS) if form not in RECOGNIZED],
    parity=Parity.CLOSE,
)
def arrange_gelu(m: Match, new: Builder) -> Value:
    """Write the formula of a Gelu in the order of operations that ONNX Runtime fuses, where no operator computes it.

    Right because only the order of the factors changes: x/2 · (1 + erf(x/√2)) is written with a division by √2 and the
    factor 0.5 at the end; with tanh, the cube is a power and x is halved first. ONNX Runtime computes the Gelu of these
    formulas in one kernel, with the bias before it; it does not recognize others, such as those with a product by 1/√2,
    or with 0.5 in the bracket. From opset 20 on, fuse-gelu and fuse-gelu-tanh make it a Gelu.

    Example:
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,4] x) => (float[N,4] y) <float inverse = {0.70710677}, float one = {1}, float half = {0.5}> {
            s = Mul(x, inverse)
            e = Erf(s)
            p = Add(e, one)
            h = Mul(p, half)
            y = Mul(x, h)
        }
    """
    m.require(m.root.opset < GELU_SINCE, "the opset has Gelu")
    x = m.x
    m.require(x.dtype is not None and x.dtype.name in FUSED, "ONNX Runtime fuses no Gelu in this type")
    is_by_tanh = any(node.op == "Tanh" for node in m.nodes)
    own = "com.microsoft::FastGelu" if is_by_tanh else "com.microsoft::Gelu"
    m.require(not takes_own(new, own, x), "the target has an operator for it")
    require_plain_constants(m, x)

    def number(value: float, name: str) -> Value:
        return new.constant(np.array(value, x.dtype.numpy()), name)

    half, one = number(0.5, "half"), number(1, "one")
    if not is_by_tanh:
        bracket = new.node("Add", new.node("Erf", new.node("Div", x, number(math.sqrt(2), "root"))), one)
        return new.node("Mul", new.node("Mul", x, bracket), half)
    cube = new.node("Mul", new.node("Pow", x, number(3, "three")), number(0.044715, "factor"))
    argument = new.node("Mul", new.node("Add", x, cube), number(math.sqrt(2 / math.pi), "root"))
    return new.node("Mul", new.node("Mul", x, half), new.node("Add", new.node("Tanh", argument), one))
