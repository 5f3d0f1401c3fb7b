"""Values of a graph input at which the graph changes its behavior.

Knees of activations, bounds of Clip, thresholds of comparisons, and the ends of a quantized range: read from attributes
and constants, and traced back through copies, sums and products with constants to the graph input; and the magnitudes
at which an epsilon matters. Source of the knees: the formulas of the ONNX operator specification.

Needs a row in `_RULES`, or in `_SMOOTH`, for each elementwise operator and each one with a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators import traits
from surgery.base.operators.dtypes import limits
from surgery.base.operators.forms import Schema, key_of
from surgery.base.operators.message_tensors import to_array
from surgery.base.operators.moving import CARRIES, CARRIES_FLOATS
from surgery.base.operators.use import InputUse, TypedIndex, single_number

if TYPE_CHECKING:
    import onnx

_MOST = 64
"""Maximum number of marks per input, and of elements examined per constant."""

_GREATEST = 2.0**52
"""Marks beyond this are limits of number types, with no values on the other side."""

_DEPTH = 24
"""Maximum number of nodes through which an input is followed."""

Affine = tuple[float, float]
"""`(scale, offset)`: the value is `scale * x + offset`, `x` an element of the graph input."""


def marks(view: TypedIndex, name: str) -> tuple[float, ...]:
    """List the nonzero values of a graph input at which the behavior of the graph changes."""
    found: dict[float, None] = {}
    for use, (scale, offset) in _affine_uses(view, name):
        for mark in _marks_of(use):
            place = (mark - offset) / scale
            if math.isfinite(place) and 0 < abs(place) < _GREATEST:
                found[place] = None
        if len(found) > _MOST:
            break
    return tuple(sorted(found))[:_MOST]


def spared(view: TypedIndex, name: str) -> tuple[int, ...]:
    """List integers that are always legal for a graph input, because the graph handles them before other limits apply.

    `ignore_index` of a loss is one. In expanded form, a loss compares the labels with it, and replaces the labels that
    are equal.
    """
    found: dict[int, None] = {}
    for use, affine in _affine_uses(view, name):
        number = None
        if use.node.op_type in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss") and use.index == 1:
            number = use.attr("ignore_index")
        elif use.node.op_type == "Equal" and _decides(view, use.node.output[0]):
            number = _number(use, 1 - use.index)
        if number is not None and affine == (1.0, 0.0):
            found[int(number)] = None
    return tuple(found)


def _decides(view: TypedIndex, name: str) -> bool:
    return any(reader.op_type == "Where" and not index for reader, index in view.index.consumers.get(name, ()))


def sizes(nodes: Iterable[onnx.NodeProto], view: TypedIndex) -> tuple[float, ...]:
    """List magnitudes at which the epsilons of a graph matter, from those at which they begin to show downwards."""
    found: set[float] = set()
    operands: dict[str, None] = {}
    for node in nodes:
        found.update(float(attribute.f) for attribute in node.attribute if attribute.name == "epsilon")
        if node.op_type in ("Add", "Max", "Clip"):
            operands.update(dict.fromkeys(node.input))
    for constant in map(view.constant, operands):
        if constant is not None and constant.size == 1 and constant.dtype.kind == "f":
            found.add(float(constant.reshape(-1)[0]))
    found = {epsilon for epsilon in found if 0 < epsilon < 1e-2}
    epsilons = sorted(found)[:4]
    # An epsilon is usually added to a square, sometimes to its root.
    return (*map(math.sqrt, epsilons), *epsilons, *(0.2 * math.sqrt(epsilon) for epsilon in epsilons))


def _affine_uses(view: TypedIndex, name: str) -> Iterator[tuple[InputUse, Affine]]:
    """Yield the uses of the elements of a graph input, unchanged or scaled and shifted by constants."""
    pending: list[tuple[str, Affine, int]] = [(name, (1.0, 0.0), 0)]
    seen: set[tuple[str, Affine]] = set()
    while pending and len(seen) < 500:
        current, affine, depth = pending.pop(0)
        if (current, affine) in seen or depth > _DEPTH:
            continue
        seen.add((current, affine))
        pending.extend((inner, affine, depth + 1) for inner in view.index.aliases.get(current, ()))
        for node, index in view.index.consumers.get(current, ()):
            use = InputUse(view, node, index)
            yield use, affine
            pending.extend((output, onward, depth + 1) for output, onward in _onward(use, affine))


def _onward(use: InputUse, affine: Affine) -> Iterable[tuple[str, Affine]]:
    node, op = use.node, use.node.op_type
    scale, offset = affine
    if node.domain not in ("", "ai.onnx") or not node.output:
        return []
    output = node.output[0]
    if use.index in CARRIES.get(op, CARRIES_FLOATS.get(op, ())) or op in ("Concat", "Max", "Min"):
        outputs = node.output if op == "Split" else node.output[:1]
        return [(item, affine) for item in outputs]
    if op == "Neg":
        return [(output, (-scale, -offset))]
    if op not in ("Add", "Sub", "Mul", "Div") or len(node.input) != 2:
        return []
    constant = _number(use, 1 - use.index)
    found = None if constant is None else _combined(op, use.index, affine, constant)
    return [] if found is None else [(output, found)]


def _combined(op: str, index: int, affine: Affine, constant: float) -> Affine | None:
    """Return the affine form of the result of an operator whose other operand is a constant."""
    scale, offset = affine
    match op, index:
        case "Add", _:
            return scale, offset + constant
        case "Sub", 0:
            return scale, offset - constant
        case "Sub", _:
            return -scale, constant - offset
        case "Mul", _ if constant:
            return scale * constant, offset * constant
        case "Div", 0 if constant:
            return scale / constant, offset / constant
    return None


def _number(use: InputUse, index: int) -> float | None:
    """Return a constant operand if it is a single number."""
    return single_number(use.constant(index))


def _marks_of(use: InputUse) -> Iterable[float]:
    rule = _RULES.get(key_of(use.node.domain, use.node.op_type))
    return () if rule is None else rule(use)


def _constants(use: InputUse) -> Iterable[float]:
    """Return the elements of the other operands that are constant."""
    found: list[float] = []
    for index in range(len(use.node.input)):
        constant = use.constant(index) if index != use.index else None
        if constant is not None and constant.dtype.kind in "fiu":
            found += [float(item) for item in np.unique(constant)[:_MOST]]
    return found


def _clip(use: InputUse) -> Iterable[float]:
    bounds = [use.attr("min"), use.attr("max"), _number(use, 1), _number(use, 2)] if not use.index else []
    return [float(bound) for bound in bounds if bound is not None]


def _attributes(*defaults: tuple[str, float | None]) -> Callable[[InputUse], Iterable[float]]:
    def rule(use: InputUse) -> Iterable[float]:
        found: list[float] = []
        for name, default in defaults:
            value = use.attr(name, default)
            if value is not None:
                found += [float(item) for item in (value if isinstance(value, (list, tuple)) else [value])][:_MOST]
        return found

    return rule


def _hard_sigmoid(use: InputUse) -> Iterable[float]:
    alpha, beta = float(use.attr("alpha", 0.2)), float(use.attr("beta", 0.5))
    return [-beta / alpha, (1 - beta) / alpha] if alpha else []


def _shrink(use: InputUse) -> Iterable[float]:
    bound = float(use.attr("lambd", 0.5))
    return [-bound, bound]


def _quantize(use: InputUse) -> Iterable[float]:
    """Return the ends of the range, and midpoints between steps, where rounding changes."""
    scales, points = use.constant(1), use.constant(2)
    if use.index or scales is None or scales.size == 0:
        return []
    scale = float(scales.astype(np.float64).reshape(-1)[0])
    point = float(points.astype(np.float64).reshape(-1)[0]) if points is not None and points.size else 0.0
    least, most = limits(points.dtype) if points is not None and points.dtype.kind in "iu" else (0, 255)
    return [(place - point) * scale for place in (least, most, point + 0.5, point + 1.5, point - 0.5)]


def _fixed(*values: float) -> Callable[[InputUse], Iterable[float]]:
    return lambda use: values


_HALVES = _fixed(0.5, -0.5, 1.5, -1.5, 2.5, 1.0, -1.0)
_RULES: dict[str, Callable[[InputUse], Iterable[Any]]] = {
    **dict.fromkeys(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Max", "Min", "Mod"], _constants),
    **dict.fromkeys(("Round", "Floor", "Ceil", "Cast"), _HALVES),
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _fixed(-3.0, 3.0),
    "QuantizeLinear": _quantize,
    "Selu": _fixed(-1.0, 1.0),
    "Shrink": _shrink,
    "ThresholdedRelu": _attributes(("alpha", 1.0)),
    "ai.onnx.ml::Binarizer": _attributes(("threshold", 0.0)),
    "ai.onnx.ml::LabelEncoder": _attributes(("keys_floats", None), ("keys_int64s", None)),
    "ai.onnx.ml::TreeEnsembleClassifier": _attributes(("nodes_values", None)),
    "ai.onnx.ml::TreeEnsembleRegressor": _attributes(("nodes_values", None)),
    "ai.onnx.ml::TreeEnsemble": lambda use: _splits(use),
}


_SMOOTH = frozenset(
    {
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Celu",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mish",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tan",
        "Tanh",
        "Xor",
    }
)
"""Operators whose behavior changes nowhere, only at zero, at the ends of their domain, or depending on their data."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator that may change its behavior at an unknown value."""
    is_elementwise = schema.key in traits.UNARY_ELEMENTWISE | traits.BINARY_ELEMENTWISE
    has_threshold = not {"threshold", "lambd"}.isdisjoint(schema.attributes)
    if (is_elementwise or has_threshold) and schema.key not in _RULES.keys() | _SMOOTH:
        yield "thresholds"


def _splits(use: InputUse) -> Iterable[float]:
    """Return the thresholds of a TreeEnsemble, and the members of its set-membership nodes."""
    found: list[float] = []
    for name in ("nodes_splits", "membership_values"):
        tensor = use.attr(name)
        if tensor is not None and not tensor.external_data:
            array = to_array(tensor).astype(np.float64)
            found += [float(item) for item in np.unique(array) if math.isfinite(item)][:_MOST]
    return found
