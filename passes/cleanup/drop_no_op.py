"""Operators that give back their input."""

from collections.abc import Callable
from typing import Any

import numpy as np

from surgery import Graph, Match, Node, Parity, Refusal, Value, graph_pass

from ._shared import COPIES

Array = np.ndarray[Any, Any]
Unit = Callable[[Array], Any]


def _ones(array: Array) -> Any:
    return array == 1


def _zeros(array: Array) -> Any:
    return array == 0


BOTH_SIDES: dict[str, Unit] = {
    "Add": _zeros,
    "And": _ones,
    "BitwiseAnd": lambda array: ~array == 0,
    "BitwiseOr": _zeros,
    "BitwiseXor": _zeros,
    "Mul": _ones,
    "Or": _zeros,
    "Xor": _zeros,
}
RIGHT_SIDE: dict[str, Unit] = {"BitShift": _zeros, "Div": _ones, "Pow": _ones, "Sub": _zeros}


@graph_pass("drop-no-op", parity=Parity.EXACT)
def drop_no_op(graph: Graph, *, signed_zero: bool = True) -> None:
    """Remove operators that give back their input, bit by bit.

    Right because of what each is asked to do: Cast and CastLike to the type that is there; x*1, x/1, x-0, integer
    x+0, float x+(-0.0), float x^1, logic with its unit, where the constant does not enlarge x; Reshape and Expand
    to the shape that is there, also a symbolic one; Flatten of a matrix; Transpose by the identity; Pad by
    nothing; Slice of everything; Concat, Sum, Mean, Max and Min of one input; Split into one part; Tile by 1;
    Squeeze and Unsqueeze of no axis; a reduction over no axes that may do nothing. A constant that a caller can
    override is not one.

    Options:
        signed_zero: keep the sign of zero; false also removes float x+(+0.0) and x-(-0.0), which turn -0.0 into 0.0
    """
    for node in graph.nodes(*COPIES):
        with graph.site(node) as new:
            same = COPIES[node.op](node)
            if same is not None:
                new.replace(node.outputs[0], same)
    for node in graph.nodes(*BOTH_SIDES, *RIGHT_SIDE):
        with graph.site(node) as new:
            same = _other_than_unit(node, signed_zero)
            if same is not None:
                new.replace(node.outputs[0], same)


def _other_than_unit(node: Node, signed_zero: bool) -> Value | None:
    """Return the operand that meets nothing but units of the operation, None when there is none."""
    units = [position for position in ((1, 0) if node.op in BOTH_SIDES else (1,)) if _is_unit(node, position)]
    if not units:
        return None
    fitting = [position for position in units if _keeps_shape(node, position)]
    if not fitting:
        raise Refusal("the constant may enlarge the result")
    constant, kept = node.required_input(fitting[0]), node.required_input(1 - fitting[0])
    if node.op == "Pow" and (kept.dtype is None or not kept.dtype.is_floating_point()):
        raise Refusal("the power of an integer is rounded through floating point")
    if node.op in ("Add", "Sub") and signed_zero and not _keeps_sign(node.op, constant):
        raise Refusal("the sum turns -0.0 into 0.0")
    return kept


def _is_unit(node: Node, position: int) -> bool:
    array = node.required_input(position).constant
    if array is None or array.size == 0:
        return False
    test = (BOTH_SIDES | RIGHT_SIDE)[node.op]
    flat = array.reshape(-1)
    return bool(test(flat[:1]).all()) and bool(test(flat).all())  # a large weight is rarely worth reading whole


def _keeps_shape(node: Node, position: int) -> bool:
    """Tell whether the result surely has the shape of the other operand."""
    constant, kept = node.required_input(position), node.required_input(1 - position)
    if node.opset < 7:
        # There the second operand is broadcast to the first, and only on demand.
        return position == 1 or not node.attr("broadcast")
    return constant.rank == 0 or Match.broadcasts_to(constant, kept)


def _keeps_sign(op: str, zeros: Value) -> bool:
    """Tell whether adding (subtracting) these zeros leaves a -0.0 as it is: only -0.0 + -0.0 and -0.0 - 0.0 do."""
    array = zeros.constant
    if array is None or array.dtype.kind in "iu":
        return True
    negative = np.signbit(array)
    return bool(negative.all()) if op == "Add" else not negative.any()
