"""Operators that return their input unchanged."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._selection import SELECTIONS
from ._shared import COPIES, UNITS, beside_unit
from ._twice import TWICE


@graph_pass("drop-no-op", parity=Parity.EXACT)
def drop_no_op(graph: Graph) -> None:
    """Remove operators whose result is bit-identical to their input.

    Right because each of these copies its input: Cast and CastLike to the same type; x*1, x/1, x-0, integer x+0, float
    x^1, logic with its unit, where the constant does not enlarge x; Reshape and Expand to the same shape, which may be
    symbolic; Flatten of a matrix; Transpose by the identity; Pad without padding; Slice of all elements; Concat, Sum,
    Mean, Max and Min of one input; Split into one part; Tile and Resize by 1; Squeeze and Unsqueeze of no axis; a
    reduction over no axes that may do nothing; the largest, the smallest and the product of single elements; Gather of
    all positions in order; Where of other types than floats with a condition that is the same everywhere, or of a value
    and itself; And, Or, Max and Min of a value and itself; And with False and Or with True, which are the result;
    ScatterND and ScatterElements that overwrite all; Einsum "ij->ij"; Relu, Abs, Sign, Clip, Ceil, Floor and Round of
    values that they do not change; Neg of Neg, Not of Not; the element of an Optional. Empty inputs of Concat are
    removed. Overridable initializers do not count as constants.

    Adding 0.0 to floats is not among them: it turns -0.0 into 0.0 (adding -0.0, or subtracting 0.0, does not).
    See drop-added-zero.

    Example:
        g (float[N,3] x) => (float[N,3] y) <float one = {1}, int64[2] same = {-1, 3}> {
            a = Cast<to = 1>(x)
            b = Mul(a, one)
            c = Reshape(b, same)
            y = Relu(c)
        }
    """
    for rules in (COPIES, SELECTIONS, TWICE):
        for node in graph.nodes(*rules):
            with graph.site(node) as new:
                same = rules[node.op](node)
                if same is not None:
                    new.replace(node.outputs[0], same)
    for node in graph.nodes("Concat"):
        with graph.site(node) as new:
            _drop_empty(node, new)
    for node in graph.nodes(*UNITS):
        with graph.site(node) as new:
            found = beside_unit(node)
            if found is not None:
                new.require(node.op != "Pow" or _is_float(found[0]), "the power of an integer is rounded as a float")
                new.require(_keeps_sign(node.op, found[1]), "the sum turns -0.0 into 0.0")
                new.replace(node.outputs[0], found[0])


def _drop_empty(concat: Node, new: Builder) -> None:
    """Remove inputs of a Concat that are empty along its axis; at least one input is kept."""
    inputs, axis = concat.inputs, concat.attr("axis", 1)
    shapes = [() if value is None else value.shape or () for value in inputs]
    if not any(0 in shape for shape in shapes):
        return
    full = [
        value for value, shape in zip(inputs, shapes) if not (-len(shape) <= axis < len(shape) and shape[axis] == 0)
    ]
    full = full or inputs[:1]
    if len(full) == 1 and full[0] is not None:
        new.replace(concat.outputs[0], full[0])
    elif len(full) < len(inputs):
        new.replace(concat.outputs[0], new.node("Concat", *full, axis=axis))


def _is_float(value: Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _keeps_sign(op: str, unit: Value) -> bool:
    """Return whether -0.0 is preserved: for floats, only -0.0 + -0.0 and -0.0 - 0.0 give -0.0."""
    array = unit.constant
    if op not in ("Add", "Sub") or array is None or array.dtype.kind in "iu":
        return True
    negative = np.signbit(array)
    return bool(negative.all()) if op == "Add" else not negative.any()
