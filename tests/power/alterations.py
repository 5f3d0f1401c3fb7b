"""Plausible other values of attributes and constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

ENUMERATIONS = {
    ("", "activations"): ("Tanh", "Sigmoid", "Relu", "HardSigmoid"),
    ("", "approximate"): ("none", "tanh"),
    ("", "auto_pad"): ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("", "case_change_action"): ("NONE", "LOWER", "UPPER"),
    ("", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("", "padding_mode"): ("zeros", "border", "reflection"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GRU", "direction"): ("forward", "reverse"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic"),
    ("LSTM", "direction"): ("forward", "reverse"),
    ("NegativeLogLikelihoodLoss", "reduction"): ("none", "mean", "sum"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("RNN", "direction"): ("forward", "reverse"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    ),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("ScatterElements", "reduction"): ("none", "add", "mul", "max", "min"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
    ("SoftmaxCrossEntropyLoss", "reduction"): ("none", "mean", "sum"),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Upsample", "mode"): ("nearest", "linear"),
}  # fmt: skip
"""The values of attributes that take one of a few strings, by operator ("" for all) and attribute."""

TYPES = frozenset(
    [
        "to",
        "dtype",
        "output_dtype",
        "output_datatype",
        "stash_type",
        "saturate",
        "softmax_precision",
        "precision",
        "round_mode",
    ]
)
"""Attributes that name an element type, or say how to convert to one."""

_REDUCTIONS = frozenset(
    [
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ]
)


class Site:
    """One node with what is known around it: the ranks of its operands, None for what is not known."""

    def __init__(self, node: onnx.NodeProto, ranks: list[int | None], kinds: list[int | None]) -> None:
        self.node = node
        self.ranks = ranks
        self.kinds = kinds
        self.values = {item.name: helper.get_attribute_value(item) for item in node.attribute if item.type}

    def has(self, index: int) -> bool:
        return index < len(self.node.input) and bool(self.node.input[index])

    def text(self, name: str, default: str) -> str:
        return self.values.get(name, default.encode()).decode()

    def pads(self) -> bool:
        """Return whether a convolution or pooling pads."""
        same = self.text("auto_pad", "NOTSET").startswith("SAME")
        return same or any(self.values.get("pads", ()))


def unread(site: Site, name: str) -> bool:
    """Return whether the specification of an operator says that it ignores an attribute as it is used here."""
    node, values = site.node, site.values
    match node.op_type, name:
        case op, "noop_with_empty_axes" if op in _REDUCTIONS:
            return site.has(1)
        case _, "count_include_pad":
            return not site.pads()
        case "MaxPool", "storage_order":
            return len(node.output) < 2
        case "BatchNormalization", "momentum":
            return not values.get("training_mode", 0)
        case "QuantizeLinear" | "DequantizeLinear", "axis" | "block_size":
            return site.ranks[1] == 0
        case "Dropout", "ratio":
            return not site.has(2)
        case "Attention", "qk_matmul_output_mode":
            return len(node.output) < 4 or not node.output[3]
        case "LinearAttention", "chunk_size":
            # A hint for kernels.
            return True
        case "Resize", "extrapolation_value":
            return site.text("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
        case "Resize", "cubic_coeff_a":
            return site.text("mode", "nearest") != "cubic"
        case "Resize", "exclude_outside":
            return site.text("mode", "nearest") == "nearest"
        case "Resize", "nearest_mode":
            return site.text("mode", "nearest") != "nearest"
        case "Resize", "keep_aspect_ratio_policy":
            return not site.has(3)
        case "Resize", "antialias":
            return site.text("mode", "nearest") == "nearest"
        case "Mod", "fmod":
            return site.kinds[0] in (2, 4, 12, 13)
        case "SplitToSequence", "keepdims":
            return site.has(1)
        case "LabelEncoder", _ if name.startswith("default_"):
            return name.removeprefix("default_") not in {
                item.removeprefix("values_").removesuffix("s") for item in values if item.startswith("values_")
            }
        case _, "seed":
            # Another stream of random numbers is as good as the first.
            return True
    return False


def of_attribute(
    site: Site, attribute: AttributeProto, rng: np.random.Generator
) -> Iterator[tuple[str, AttributeProto]]:
    """Yield altered copies of an attribute, each with what was altered."""
    name = attribute.name
    if name in TYPES or unread(site, name):
        return
    value = helper.get_attribute_value(attribute)
    match attribute.type:
        case AttributeProto.INT:
            for other in _integers(site, name, value):
                yield f"{value} -> {other}", helper.make_attribute(name, other)
        case AttributeProto.FLOAT:
            for factor in (1.5, 10.0) if "epsilon" in name else (1.5,):
                other = value * factor if value else 0.5
                yield f"{value:.6g} -> {other:.6g}", helper.make_attribute(name, float(other))
        case AttributeProto.STRING:
            for other in _others(site, name, value.decode()):
                yield f"{value.decode()} -> {other}", helper.make_attribute(name, other)
        case AttributeProto.INTS if len(value):
            for detail, values in _lists(name, list(value), rng):
                yield detail, helper.make_attribute(name, values)
        case AttributeProto.FLOATS if len(value):
            values, place = [float(item) for item in value], int(rng.integers(len(value)))
            values[place] = values[place] * 1.5 if values[place] else 0.5
            yield f"[{place}] times 1.5", helper.make_attribute(name, values)
        case AttributeProto.STRINGS if len(value):
            texts, place = [item.decode() for item in value], int(rng.integers(len(value)))
            for other in _others(site, name, texts[place]):
                changed = [*texts[:place], other, *texts[place + 1 :]]
                yield f"[{place}] {texts[place]} -> {other}", helper.make_attribute(name, changed)


def _integers(site: Site, name: str, value: int) -> list[int]:
    """Count up and down, flip flags; an axis that is only spelled in another way is no alteration."""
    rank = site.ranks[0] if site.ranks else None
    if name == "axis":
        return [other for other in (value + 1, value - 1) if not rank or other % rank != value % rank]
    if site.node.op_type == "Shape" and rank is not None:
        full = list(range(rank))
        begin, end = site.values.get("start", 0), site.values.get("end", rank)
        kept = {name: (begin, end)[name == "end"]}
        found = []
        for other in (value + 1, value - 1):
            changed = {"start": begin, "end": end} | {name: other}
            if full[changed["start"] : changed["end"]] != full[begin:end] and kept:
                found.append(other)
        return found
    return [1 - value] if value in (0, 1) else [value + 1, value - 1]


def _others(site: Site, name: str, value: str) -> list[str]:
    known = ENUMERATIONS.get((site.node.op_type, name)) or ENUMERATIONS.get(("", name), ())
    if name == "auto_pad" and not site.pads():
        # Without padding these two are the same.
        known = tuple(other for other in known if other not in ("NOTSET", "VALID"))
        return [other for other in known if other != value]
    return [other for other in known if other != value] if value in known else []


def _lists(name: str, values: list[int], rng: np.random.Generator) -> Iterator[tuple[str, list[int]]]:
    place = int(rng.integers(len(values)))
    if name == "perm":
        if len(values) > 1:
            place %= len(values) - 1
            changed = [*values[:place], values[place + 1], values[place], *values[place + 2 :]]
            yield f"[{place}] and [{place + 1}] exchanged", changed
        return
    for step in (1, -1):
        changed = [*values[:place], values[place] + step, *values[place + 1 :]]
        yield f"[{place}] {values[place]} -> {values[place] + step}", changed


def of_constant(attribute: AttributeProto, rng: np.random.Generator) -> Iterator[tuple[str, AttributeProto]]:
    """Yield altered copies of what a Constant holds."""
    if attribute.type == AttributeProto.TENSOR:
        for detail, tensor in of_tensor(attribute.t, rng):
            yield detail, helper.make_attribute(attribute.name, tensor)
    elif attribute.type in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.FLOATS):
        floating = attribute.type in (AttributeProto.FLOAT, AttributeProto.FLOATS)
        array = np.asarray(helper.get_attribute_value(attribute), np.float64 if floating else np.int64)
        for detail, changed in _of_array(array, rng):
            yield detail, helper.make_attribute(attribute.name, changed.tolist())


def of_tensor(tensor: TensorProto, rng: np.random.Generator) -> Iterator[tuple[str, TensorProto]]:
    """Yield copies of a tensor with one element altered: floats by a tenth, integers by one, bools negated."""
    array = numpy_helper.to_array(tensor)
    for detail, changed in _of_array(array, rng):
        yield detail, numpy_helper.from_array(changed.astype(array.dtype), tensor.name)


def _of_array(array: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    if not array.size or array.dtype.kind not in "fiub":
        return
    changed, place = array.copy(), int(rng.integers(array.size))
    flat = changed.reshape(-1)
    before = flat[place]
    if array.dtype.kind == "f":
        flat[place] = before * 1.1 if before and np.isfinite(before) else 0.1
    elif array.dtype.kind == "b":
        flat[place] = not before
    else:
        flat[place] = before + 1 if before < np.iinfo(array.dtype).max else before - 1
    yield f"[{place}] {before} -> {flat[place]}", changed
