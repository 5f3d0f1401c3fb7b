"""Adapters for the opsets up to 9: one-sided broadcasting, test flags, attributes of another type."""

from __future__ import annotations

from surgery import Refusal, Value

from ._shared import Draft, adapter

_TYPES = (
    *("UNDEFINED", "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64"),
    *("STRING", "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"),
)
"""The ONNX element types of opset 1, indexed by number."""


_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

_KEEP_RANK = frozenset(
    {
        *_BINARY,
        *("AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "ConvTranspose", "Dropout", "Elu"),
        *("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "LRN", "LeakyRelu", "LpPool", "Max"),
        *("MaxPool", "Mean", "Min", "PRelu", "Relu", "Sigmoid", "Softmax", "Sum", "Tanh"),
    }
)
"""Operators whose first output has the rank of their first input, before opset 7."""


def _rank(value: Value) -> int:
    """Return the rank of a value; walk upstream, because shape inference omits binary operators before opset 7."""
    found, rank = value, value.rank
    while rank is None and found.producer is not None and found.producer.op in _KEEP_RANK:
        found = found.producer.required_input(0)
        rank = found.rank
    if rank is None:
        raise Refusal("the rank of an operand is not known")
    return rank


@adapter(*_BINARY, to=7)
def _broadcast_7(draft: Draft) -> None:
    """Replace `axis` by an Unsqueeze.

    Without `broadcast` both shapes were equal; without `axis` the last dims were matched, as in NumPy.
    """
    broadcast, axis = draft.take("broadcast", 0), draft.take("axis")
    second = draft.input(1)
    if not broadcast or axis is None or second.size == 1:
        return
    first_rank, rank = _rank(draft.input(0)), _rank(second)
    trailing = first_rank - axis % max(first_rank, 1) - rank
    if trailing > 0:
        draft.set_input(1, draft.unsqueeze(second, range(rank, rank + trailing)))


@adapter("PRelu", to=7)
def _prelu_7(draft: Draft) -> None:
    """Unsqueeze a slope per channel, which was a vector along the second axis; now it is broadcast as in NumPy."""
    slope = draft.input(1)
    if slope.size == 1 or _rank(slope) != 1:
        return
    rank = _rank(draft.input(0))
    if rank > 2:
        draft.set_input(1, draft.unsqueeze(slope, range(1, rank - 1)))


@adapter("Gemm", to=7)
def _gemm_7(draft: Draft) -> None:
    """Remove `broadcast`: C is now broadcast if necessary, and the last dims were matched before, as in NumPy."""
    draft.take("broadcast")


@adapter("Cast", to=6)
def _cast_6(draft: Draft) -> None:
    name = draft.attr("to")
    draft.require(name in _TYPES, "the target type of Cast is unknown")
    draft.set("to", _TYPES.index(name))


@adapter("Concat", to=4)
def _concat_4(draft: Draft) -> None:
    if not draft.has("axis"):
        draft.set("axis", 1)


@adapter("Split", to=2)
def _split_2(draft: Draft) -> None:
    """Move lengths from an input to an attribute, and require an axis, whose default was not documented."""
    draft.require(draft.has("axis"), "Split has no axis")
    if len(draft.inputs) > 1:
        lengths = draft.input(1).constant
        draft.require(lengths is not None, "the lengths of Split are not constant")
        draft.set("split", [int(length) for length in (() if lengths is None else lengths.reshape(-1))])
        del draft.inputs[1:]


@adapter("Tile", to=6)
def _tile_6(draft: Draft) -> None:
    """Replace the count of one axis with a count for each axis."""
    data, count, axis = draft.input(0), draft.input(1).scalar, draft.input(2).scalar
    if data.rank is None:
        draft.require(False, "the rank of the input is not known")
        return
    draft.require(count is not None and axis is not None, "the counts of Tile are not constant")
    repeats = [1] * data.rank
    repeats[int(axis)] = int(count)
    draft.inputs = [data, draft.integers(repeats, "repeats")]


@adapter("Pad", to=2)
def _pad_2(draft: Draft) -> None:
    """Refuse, because the text and the example of Pad-1 order the paddings differently."""
    draft.require(False, "the order of the paddings of Pad is unspecified before opset 2")


@adapter("LpPool", "GlobalLpPool", to=2)
def _lp_pool_2(draft: Draft) -> None:
    exponent = draft.attr("p", 2.0)
    draft.require(exponent == int(exponent), "the norm of the pool is not a whole number")
    draft.require(draft.op == "GlobalLpPool" or draft.has("kernel_shape"), "LpPool has no kernel_shape")
    draft.set("p", int(exponent))


@adapter("Selu", to=6)
def _selu_6(draft: Draft) -> None:
    """Add the old defaults; the new ones have more digits."""
    draft.set("alpha", draft.attr("alpha", 1.6732))
    draft.set("gamma", draft.attr("gamma", 1.0507))


@adapter("Clip", to=6)
def _clip_6(draft: Draft) -> None:
    """Refuse a missing bound of wide types: it becomes the largest float32, which only float32 and float16 allow."""
    bounded = draft.has("min") and draft.has("max")
    small = draft.kind(draft.input(0)) in ("tensor(float)", "tensor(float16)")
    draft.require(bounded or small, "a bound of Clip is missing, and the type may have numbers beyond float32")


@adapter("GRU", to=3)
def _gru_3(draft: Draft) -> None:
    """Correct the default of `direction`, which was misspelled."""
    if draft.attr("direction", "forward") == "foward":
        draft.set("direction", "forward")


@adapter("GRU", "LSTM", "RNN", to=7)
def _recurrent_7(draft: Draft) -> None:
    """Remove `output_sequence`: the sequence is an output if it has a name."""
    draft.take("output_sequence")


@adapter("BatchNormalization", to=7)
def _batch_normalization_7(draft: Draft) -> None:
    """Remove `is_test`: training mode is now indicated by the number of outputs."""
    if draft.take("is_test", 0):
        _only_one_output(draft)
    else:
        draft.require(draft.outputs > 1, "BatchNormalization is in training mode")


@adapter("BatchNormalization", to=9)
def _batch_normalization_9(draft: Draft) -> None:
    """Remove `spatial`: a mean per channel and place was dropped; for a matrix it equals a mean per channel."""
    spatial = draft.take("spatial", 1)
    draft.require(spatial or draft.input(0).rank == 2, "BatchNormalization is not spatial")


@adapter("BatchNormalization", to=14)
def _batch_normalization_14(draft: Draft) -> None:
    """Refuse training mode: the mode is now an attribute, and the variance in training is defined differently."""
    training = any(value.name for value in draft.node.outputs[1 : draft.outputs])
    draft.require(not training, "BatchNormalization is in training mode")
    draft.outputs = 1


@adapter("Dropout", to=7)
def _dropout_7(draft: Draft) -> None:
    draft.require(draft.take("is_test", 0), "Dropout is in training mode")


@adapter("Dropout", to=10)
def _dropout_10(draft: Draft) -> None:
    """Drop the mask output; the mask is now a tensor of booleans."""
    draft.require(not draft.is_read(1), "the mask of Dropout is read, and its meaning changed")
    draft.outputs = 1


@adapter("Upsample", to=7)
def _upsample_7(draft: Draft) -> None:
    """Move the scales of height and width to `scales`; the input was an image, so they apply to its last two axes."""
    height, width = draft.needed("height_scale"), draft.needed("width_scale")
    draft.set("scales", [1.0, 1.0, height, width])
    if draft.attr("mode", "nearest") == "bilinear":
        draft.set("mode", "linear")


@adapter("Scan", to=9)
def _scan_9(draft: Draft) -> None:
    draft.require(False, "Scan no longer has a batch axis")


def _only_one_output(draft: Draft) -> None:
    read = any(draft.is_read(index) for index in range(1, draft.outputs))
    draft.require(not read, "BatchNormalization is in training mode")
    draft.outputs = 1
