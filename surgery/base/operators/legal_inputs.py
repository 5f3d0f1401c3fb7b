"""Legal contents of inputs by operator and position, from the ONNX operator specification.

A rule examines one use of a graph input and returns the legal elements there, or None if it does not know. Rules for
inputs with shapes, axes and counts are in `shape_inputs`, and those of ONNX Runtime's own domain in `contrib_inputs`.

Needs a row for each input of integers, booleans or texts: a rule here or there, or one in `ANY` or `DEPENDENT`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from surgery.base.operators import contrib_inputs
from surgery.base.operators.domain import MASK, POSITIVE, UNIT, Domain, Drawer, arranged
from surgery.base.operators.dtypes import Array
from surgery.base.operators.forms import Schema, key_of
from surgery.base.operators.shape_inputs import SOLVERS
from surgery.base.operators.use import InputUse

Rule = Callable[[InputUse], Domain | None]

_INT32, _INT64, _TEXT = 6, 7, 8
_FLOATS = frozenset({1, 10, 11, 16})
_FLOATS_OF_A_BYTE = range(17, 21)
_FEW_BITS, _NIBBLES = frozenset({23, 25, 26}), frozenset({21, 22})

SEQUENCE_LENGTH = 3
"""The number of tensors in a generated sequence."""


def legal(use: InputUse) -> Domain | None:
    """Return the legal elements of the graph input at a use."""
    key = key_of(use.node.domain, use.node.op_type)
    rule = RULES.get((key, use.index))
    if rule is not None and (key, use.index) in SUMS and use.scale > 1:
        return SUMS[key, use.index](use)
    if rule is not None:
        found = rule(use)
        return None if found is None else _back(found, use)
    solver = SOLVERS.get((key, use.index))
    if solver is None or not use.flat or (use.scale, use.offset) != (1, (0, 0)):
        return None
    values = solver(use)
    if values is None:
        return None
    solved = np.asarray(values)
    if key == "Reshape":
        return Domain(draw=_spelled(use, solved))
    return Domain(draw=lambda _, shape: solved.reshape(shape) if solved.size == math.prod(shape) else solved)


def _spelled(use: InputUse, target: Array) -> Drawer:
    """Draw variants of the target of a Reshape: a dim may be written as -1, and another that is copied as 0."""
    data, copies = use.shape(0) or (), not use.attr("allowzero", 0)

    def spell(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        spelled = target.copy()
        if target.size and target.min() > 0 and rng.random() < 0.5:
            spelled[rng.integers(0, target.size)] = -1
        same = [place for place in range(min(len(data), target.size)) if data[place] == spelled[place]]
        if copies and same and rng.random() < 0.5:
            spelled[rng.choice(np.array(same))] = 0
        return spelled.reshape(shape) if spelled.size == math.prod(shape) else spelled

    return spell


def _back(domain: Domain, use: InputUse) -> Domain | None:
    """Convert the legal elements at a use to legal elements of the graph input."""
    if (use.scale, use.offset) == (1, (0, 0)):
        return domain
    low, high = use.offset
    if domain.low is None or domain.high is None or use.scale == 0:
        return None
    ends = sorted(((domain.low - low) / use.scale, (domain.high - high) / use.scale))
    return Domain(float(np.ceil(ends[0])), float(np.floor(ends[1])))


def _below(extent: int | None) -> Domain | None:
    return None if not extent or extent < 1 else Domain(0, extent - 1)


def _gather(use: InputUse) -> Domain | None:
    data = use.shape(0)
    return _below(data[use.axis(0, len(data))]) if data else None


def _distinct_along_axis(use: InputUse) -> Domain | None:
    """Return indices that are distinct along the axis: for duplicates, the result depends on the order of writes."""
    data, wanted = use.shape(0), use.shape(1)
    if not data or not wanted:
        return None
    axis = use.axis(0, len(data))
    if wanted[axis] > data[axis]:
        return _below(data[axis])

    def permutations(rng: np.random.Generator, shape: tuple[int, ...], along: int = axis) -> Array:
        order = np.argsort(rng.random((*(n for i, n in enumerate(shape) if i != along), data[axis])), axis=-1)
        return np.moveaxis(order[..., : shape[along]], -1, along)

    def elsewhere(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        alike = [place for place, extent in enumerate(shape) if extent == wanted[axis]]
        if not alike:
            return rng.integers(0, data[axis], shape)
        return permutations(rng, shape, axis if len(shape) == len(wanted) and axis in alike else alike[-1])

    return Domain(draw=arranged(wanted, use.flat, permutations, elsewhere))


def _coordinates(use: InputUse) -> Domain | None:
    """Return index tuples for GatherND and ScatterND, each component below its dim; distinct if possible."""
    data, indices = use.shape(0), use.shape(1)
    if not data or not indices:
        return None
    skipped = int(use.attr("batch_dims", 0))
    extents = data[skipped : skipped + indices[-1]]

    def tuples(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape[:-1], dtype=np.int64))
        places = int(np.prod(extents, dtype=np.int64))
        flat = rng.permutation(places)[:count] if count <= places <= 1 << 20 else rng.integers(0, places, count)
        return np.stack(np.unravel_index(flat, extents), axis=-1).reshape(shape)

    def components(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.integers(0, min(extents), shape)

    return Domain(draw=arranged(indices, use.flat, tuples, components)) if extents and min(extents) > 0 else None


def _one_hot(use: InputUse) -> Domain | None:
    out, indices = use.out(), use.shape(0)
    depth = use.constant(1)
    if depth is not None:
        return _below(int(depth.reshape(-1)[0]))
    if out is not None and indices is not None:
        return _below(out[use.axis(-1, len(out))])
    return _below(4)


def _classes(use: InputUse) -> Domain | None:
    scores = use.shape(0)
    return _below(scores[1]) if scores and len(scores) > 1 else None


def _unpool(use: InputUse) -> Domain | None:
    """Return distinct flat positions in the output of MaxUnpool."""
    out, inside = use.out(), use.shape(0)
    if inside is None:
        return None
    size = int(np.prod(out)) if out is not None else int(np.prod(inside)) * 4

    def positions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.sort(rng.permutation(size)[: int(np.prod(shape))]).reshape(shape)

    return Domain(draw=arranged(use.shape(), use.flat, positions))


def _up_to_dim(input_index: int, axis: int) -> Rule:
    """Return a rule for lengths: at least 1, at most the size of an axis of another input."""

    def rule(use: InputUse) -> Domain | None:
        shape = use.shape(input_index)
        return Domain(1, max(1, shape[axis])) if shape and len(shape) > abs(axis) - (axis < 0) else None

    return rule


def _below_dim(input_index: int, axis: int) -> Rule:
    def rule(use: InputUse) -> Domain | None:
        shape = use.shape(input_index)
        return _below(shape[axis]) if shape and len(shape) > abs(axis) - (axis < 0) else None

    return rule


def _reverse_lengths(use: InputUse) -> Domain | None:
    shape = use.shape(0)
    return Domain(1, shape[int(use.attr("time_axis", 0))]) if shape else None


def _bits(use: InputUse) -> Domain | None:
    return Domain(0, 7)


def _divisor(use: InputUse) -> Domain | None:
    """Return nonzero integers, or reals; -1 is legal, but dividing the smallest integer by it crashes the process."""
    if use.view.index.element_types.get(use.name) in _FLOATS:

        def reals(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
            drawn = 10.0 ** rng.uniform(-1, 1, shape) * rng.choice(np.array([-1, 1]), shape)
            whole = np.copysign(np.ceil(np.abs(drawn)), drawn)
            drawn = np.asarray(np.where(rng.random(shape) < 0.3, whole, drawn))
            if drawn.size > 3 and rng.random() < 0.25:
                # Only a zero shows the difference between x / x and 1.
                drawn.reshape(-1)[rng.integers(drawn.size)] = 0.0
            return drawn

        return Domain(draw=reals)
    return Domain(choices=tuple(sign * n for n in range(1, 10) for sign in (1, -1)))


def _scale(use: InputUse) -> Domain | None:
    """Return scales that keep most ordinary values, but not all, within the range of the quantized type."""
    types = use.view.index.element_types
    point = 2 if use.node.op_type in ("QuantizeLinear", "DequantizeLinear") else use.index + 1
    kind = types.get(use.node.input[point], 0) if use.has(point) else int(use.attr("output_dtype", 0))
    if use.node.op_type == "DequantizeLinear":
        kind = types.get(use.node.input[0], 0)
    return Domain(0.3, 1.0) if kind in _FEW_BITS else Domain(0.1, 0.5) if kind in _NIBBLES else Domain(0.02, 0.1)


def _mask_arithmetic(use: InputUse) -> Domain | None:
    """Recognize `(1 - mask) * -large`, the usual conversion of a mask to a bias of attention scores."""
    if use.node.op_type == "Sub" and use.index == 1:
        first = use.constant(0)
        if first is not None and first.size and bool(np.all(first == 1)):
            return MASK
    return None


def _write_index(use: InputUse) -> Domain | None:
    past, update = use.shape(0), use.shape(1)
    if not past or not update:
        return None
    axis = use.axis(-2, len(past))
    return Domain(0, max(0, past[axis] - update[axis]))


def _from_attribute(*names: str) -> Rule:
    """Return a rule for the elements in a table of the node, and one that is not in it."""

    def rule(use: InputUse) -> Domain | None:
        for name in names:
            known = use.attr(name)
            if known is not None and len(known):
                items: list[Any] = [item.decode() if isinstance(item, bytes) else item for item in known]
                other: Any = "unknown" if isinstance(items[0], str) else max(items) + 1
                return Domain(choices=(*items, other), is_open=True)
        return None

    return rule


def _labels(use: InputUse) -> Domain | None:
    """Return the keys of a LabelEncoder; in version 1, the texts of a list, or positions in it."""
    classes = use.attr("classes_strings")
    if not classes:
        return _from_attribute("keys_int64s", "keys_strings", "keys_floats")(use)
    # For computed values, it is unknown whether they are texts or positions.
    kind = use.view.index.element_types.get(use.name)
    if kind == _TEXT:
        return _from_attribute("classes_strings")(use)
    return Domain(-1, len(classes)) if kind == _INT64 else None


def _around_stopwords(use: InputUse) -> Domain | None:
    """Return the stop words of the node, in several spellings, and other words."""
    words = [word.decode() for word in use.attr("stopwords", [])]
    spellings = [change(word) for word in words for change in (str, str.upper, str.lower, str.swapcase, str.title)]
    return Domain(choices=tuple(dict.fromkeys([*spellings, "other", "WORDS", "ÉTÉ", "straße"])), is_open=True)


def _around_delimiter(use: InputUse) -> Domain | None:
    """Return texts with the delimiter inside, at the ends, twice in a row, or not at all."""
    mark = use.attr("delimiter", "") or " "
    texts = f"a{mark}b", f"one{mark}{mark}two{mark}three", f"{mark}x", f"y{mark}", "word", "a b  c", ""
    return Domain(choices=texts, is_open=True)


def _number_as_text(use: InputUse) -> Domain | None:
    """Return numbers as text, which is all that can be converted from text; None for other inputs."""
    index, name = use.view.index, use.name
    while name not in index.element_types and (made := index.producers.get(name)) is not None and made.input:
        if made.op_type == "Cast":
            break
        name = made.input[0]
    if index.element_types.get(name) != _TEXT:
        return None
    whole = use.attr("to", _INT64) not in _FLOATS
    return Domain(choices=("0", "1", "2", "3") if whole else ("0", "1", "-1.5", "2.25", "1e-3", "300"))


def _regions(use: InputUse) -> Domain | None:
    """Return boxes with ordered corners within the image."""
    data = use.shape(0)
    if not data or len(data) != 4:
        return None
    height, width = data[2] / float(use.attr("spatial_scale", 1.0)), data[3] / float(use.attr("spatial_scale", 1.0))

    def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if shape[1:] not in ((4,), (5,)):
            # An input of which the boxes are a part, in an arrangement that is not known here.
            return rng.uniform(0, min(height, width, data[0]), shape)
        x = np.sort(rng.uniform(0, width, (shape[0], 2)), axis=1)
        y = np.sort(rng.uniform(0, height, (shape[0], 2)), axis=1)
        corners = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
        if shape[1] == 4:
            return corners
        return np.concatenate([rng.integers(0, data[0], (shape[0], 1)), np.round(corners)], axis=1)

    return Domain(draw=boxes)


def _boxes(use: InputUse) -> Domain | None:
    """Return boxes with varying overlap: ordered corners, or a center and two widths."""
    centered = bool(use.attr("center_point_box", 0))

    def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if shape[-1:] != (4,):
            # An input of which the boxes are a part, such as [batch, 4 + classes, boxes]: any corners make a box, and
            # scores are within this range too.
            return rng.uniform(0.05, 0.7, shape)
        middle, width = rng.uniform(0.3, 0.7, (*shape[:-1], 2)), rng.uniform(0.1, 0.6, (*shape[:-1], 2))
        first, second = (middle, width) if centered else (middle - width / 2, middle + width / 2)
        return np.concatenate([first, second], axis=-1).reshape(shape)

    return Domain(draw=boxes)


def _variance(use: InputUse) -> Domain | None:
    """Return positive variances, down to the epsilon."""
    return Domain(max(1e-30, float(use.attr("epsilon", 1e-5))), 2.0)


def _fixed(domain: Domain) -> Rule:
    return lambda use: domain


def _zero_point(use: InputUse) -> Domain | None:
    """Return 0 for int32 data and for float8 zero points, which allow no other zero point."""
    types = use.view.index.element_types
    mine, data = types.get(use.name, 0), types.get(use.node.input[0], 0)
    return Domain(0, 0) if data == _INT32 or mine in _FLOATS_OF_A_BYTE else None


RULES: dict[tuple[str, int], Rule] = {
    ("Cast", 0): _number_as_text,
    ("CastLike", 0): _number_as_text,
    ("Gather", 1): _gather,
    ("ai.onnx.ml::ArrayFeatureExtractor", 1): lambda use: _below(shape[-1]) if (shape := use.shape(0)) else None,
    ("GatherElements", 1): _gather,
    ("Scatter", 1): _distinct_along_axis,
    ("ScatterElements", 1): _distinct_along_axis,
    ("GatherND", 1): _coordinates,
    ("ScatterND", 1): _coordinates,
    ("OneHot", 0): _one_hot,
    ("NegativeLogLikelihoodLoss", 1): _classes,
    ("SoftmaxCrossEntropyLoss", 1): _classes,
    ("NegativeLogLikelihoodLoss", 2): _fixed(POSITIVE),
    ("SoftmaxCrossEntropyLoss", 2): _fixed(POSITIVE),
    ("MaxUnpool", 1): _unpool,
    ("ReverseSequence", 1): _reverse_lengths,
    ("LSTM", 4): _up_to_dim(0, 0),
    ("GRU", 4): _up_to_dim(0, 0),
    ("RNN", 4): _up_to_dim(0, 0),
    ("RoiAlign", 1): _regions,
    ("RoiAlign", 2): _below_dim(0, 0),
    ("MaxRoiPool", 1): _regions,
    ("RotaryEmbedding", 3): _below_dim(1, 0),
    ("TensorScatter", 2): _write_index,
    ("Attention", 6): _up_to_dim(1, -2),
    ("BitShift", 1): _bits,
    ("Div", 1): _divisor,
    ("Mod", 1): _divisor,
    ("Sub", 1): _mask_arithmetic,
    ("Where", 0): _fixed(MASK),
    ("Compress", 1): _fixed(Domain(choices=(0, 1), mask=True)),
    ("SequenceAt", 1): _fixed(Domain(-SEQUENCE_LENGTH, SEQUENCE_LENGTH - 1)),
    ("SequenceErase", 1): _fixed(Domain(-SEQUENCE_LENGTH, SEQUENCE_LENGTH - 1)),
    ("SequenceInsert", 2): _fixed(Domain(-SEQUENCE_LENGTH, SEQUENCE_LENGTH)),
    ("Dropout", 1): _fixed(Domain(0.0, 0.7)),
    ("Bernoulli", 0): _fixed(UNIT),
    ("GridSample", 1): _fixed(Domain(-1.6, 1.6)),
    ("BatchNormalization", 4): _variance,
    ("QuantizeLinear", 1): _scale,
    ("DequantizeLinear", 1): _scale,
    ("DequantizeLinear", 2): _zero_point,
    ("QuantizeLinear", 2): _zero_point,
    ("NonMaxSuppression", 0): _boxes,
    ("NonMaxSuppression", 1): _fixed(UNIT),
    ("NonMaxSuppression", 2): _fixed(Domain(1, 3)),
    ("NonMaxSuppression", 3): _fixed(Domain(0.05, 0.8)),
    ("NonMaxSuppression", 4): _fixed(Domain(0.0, 0.6)),
    ("TfIdfVectorizer", 0): _from_attribute("pool_int64s", "pool_strings"),
    ("ai.onnx.ml::CategoryMapper", 0): _from_attribute("cats_int64s", "cats_strings"),
    ("ai.onnx.ml::LabelEncoder", 0): _labels,
    ("StringNormalizer", 0): _around_stopwords,
    ("StringSplit", 0): _around_delimiter,
    **{("QLinearConv", index): _fixed(Domain(0.02, 0.1)) for index in (1, 4, 6)},
    **{("QLinearMatMul", index): _fixed(Domain(0.02, 0.1)) for index in (1, 4, 6)},
    ("com.microsoft::AttnLSTM", 4): _up_to_dim(0, 0),
    ("com.microsoft::AttnLSTM", 12): _up_to_dim(11, 1),
    ("com.microsoft::DynamicQuantizeLSTM", 4): _up_to_dim(0, 0),
    ("com.microsoft::GatherND", 1): _coordinates,
    **{(f"com.microsoft::{op}", index): rule for (op, index), rule in contrib_inputs.RULES.items()},
}

SUMS: dict[tuple[str, int], Rule] = {
    (f"com.microsoft::{op}", index): rule for (op, index), rule in contrib_inputs.SUMS.items()
}
"""Like `contrib_inputs.SUMS`."""

ANY: dict[str, tuple[int, ...]] = {
    "And": (0, 1),
    "BitShift": (0,),
    "BitwiseAnd": (0, 1),
    "BitwiseNot": (0,),
    "BitwiseOr": (0, 1),
    "BitwiseXor": (0, 1),
    "ConvInteger": (0, 1, 2, 3),
    "DequantizeLinear": (0,),
    "If": (0,),
    "MatMulInteger": (0, 1, 2, 3),
    "Not": (0,),
    "Or": (0, 1),
    "QLinearConv": (0, 2, 3, 5, 7, 8),
    "QLinearMatMul": (0, 2, 3, 5, 7),
    "RegexFullMatch": (0,),
    "StringConcat": (0, 1),
    "Xor": (0, 1),
    **{f"com.microsoft::{op}": indices for op, indices in contrib_inputs.ANY.items()},
}
"""Inputs with arbitrary integers, booleans or texts."""

DEPENDENT: dict[str, tuple[int, ...]] = {
    "ImageDecoder": (0,),
    **{f"com.microsoft::{op}": indices for op, indices in contrib_inputs.DEPENDENT.items()},
}
"""Inputs that cannot be generated, like `contrib_inputs.DEPENDENT`: the bytes of an image."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the inputs of integers, booleans or texts, and scales, that have no row."""
    for index, one in enumerate(schema.inputs):
        has_rule = (schema.key, index) in RULES or (schema.key, index) in SOLVERS
        is_known = any(index in table.get(schema.key, ()) for table in (ANY, DEPENDENT))
        if (one.is_discrete or one.name.endswith("_scale")) and not (has_rule or is_known):
            yield f"input {index} ({one.name})"
