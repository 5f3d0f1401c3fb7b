"""Wrong rewrites of numbers: weights, scalars, precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from mutation.draft import FLOATS, Draft, NodeProto, Unfit, attribute, pairs, set_attribute
from mutation.kinds import kind


@kind("two weights swapped", "exact", "close")
def weights_swapped(d: Draft) -> None:
    """Swap two constants of one shape, as a table of weights that is off by one would."""
    first, second = d.choose(_twins(d))
    one, other = d.constant(first), d.constant(second)
    assert one is not None and other is not None
    d.set_constant(first, other)
    d.set_constant(second, one)


@kind("weight of another layer read", "exact", "close")
def layer_duplicated(d: Draft) -> None:
    first, second = d.choose(_twins(d))
    for node in d.graph.node:
        node.input[:] = [second if name == first else name for name in node.input]


def _twins(d: Draft) -> list[tuple[str, str]]:
    groups: dict[object, list[str]] = {}
    for name in d.weights(least=2):
        value = d.constant(name)
        assert value is not None
        groups.setdefault((value.shape, value.dtype), []).append(name)
    return [pair for group in groups.values() for pair in pairs(group)]


@kind("stale weight", "exact", "close")
def stale_weight(d: Draft) -> None:
    """Use the weight of an earlier checkpoint: the same up to some percent."""
    name, value = _weight(d)
    d.set_constant(name, (value * (1 + 0.02 * d.rng.standard_normal(value.shape))).astype(value.dtype))


@kind("weight rounded to 8 bit", "exact", "close")
def rounded_to_bytes(d: Draft) -> None:
    name, value = _weight(d, rank=2)
    step = np.abs(value).max() / 127
    d.set_constant(name, (np.rint(value / step) * step).astype(value.dtype))


@kind("weight rounded to bfloat16", "exact", "close")
def rounded_to_bfloat16(d: Draft) -> None:
    name, value = _weight(d, rank=2)
    d.set_constant(name, value.astype(ml_dtypes.bfloat16).astype(value.dtype))


@kind("weight rounded to float16", "exact", "close")
def rounded_to_half(d: Draft) -> None:
    name, value = _weight(d, rank=2)
    d.set_constant(name, value.astype(np.float16).astype(value.dtype))


@kind("one element of a weight changed", "exact", "close")
def one_element(d: Draft) -> None:
    name, value = _weight(d)
    changed = value.copy()
    place = int(d.rng.integers(changed.size))
    changed.reshape(-1)[place] = changed.reshape(-1)[place] * -1 + (changed.reshape(-1)[place] == 0)
    d.set_constant(name, changed)


@kind("one ulp added to a weight", "exact")
def one_ulp(d: Draft) -> None:
    name, value = _weight(d)
    d.set_constant(name, np.nextafter(value, np.array(np.inf, value.dtype)))


@kind("weight scaled by 1 percent", "exact", "close")
def weight_scaled(d: Draft) -> None:
    name, value = _weight(d)
    d.set_constant(name, (value * 1.01).astype(value.dtype))


@kind("square weight transposed", "exact", "close")
def weight_transposed(d: Draft) -> None:
    names = [n for n in d.weights(rank=2) if (v := d.constant(n)) is not None and v.shape[-1] == v.shape[-2] > 1]
    name = d.choose(names)
    value = d.constant(name)
    assert value is not None
    d.set_constant(name, np.swapaxes(value, -1, -2))


@kind("channels of a weight shifted", "exact", "close")
def channels_shifted(d: Draft) -> None:
    name, value = _weight(d)
    d.set_constant(name, np.roll(value, 1, axis=0))


@kind("scale of a normalization lost", "exact", "close")
def norm_scale_lost(d: Draft) -> None:
    places = list(d.nodes("LayerNormalization", "BatchNormalization", "InstanceNormalization"))
    places += d.nodes("GroupNormalization", "RMSNormalization")
    node = d.choose(node for node in places if d.constant(node.input[1]) is not None)
    value = d.constant(node.input[1])
    assert value is not None
    node.input[1] = d.add_constant(np.ones_like(value))


@kind("statistics of a BatchNormalization swapped", "close")
def statistics_swapped(d: Draft) -> None:
    node = d.choose(d.nodes("BatchNormalization"))
    node.input[3], node.input[4] = node.input[4], node.input[3]


def _weight(d: Draft, rank: int = 1) -> tuple[str, np.ndarray]:
    name = d.choose(d.weights(least=2, rank=rank))
    value = d.constant(name)
    assert value is not None
    return name, value


# Scalars


@kind("epsilon times ten", "exact", "close")
def epsilon(d: Draft) -> None:
    nodes = [node for node in d.nodes() if attribute(node, "epsilon") is not None]
    sums = [(n, s) for n in d.nodes("Add") for s in (0, 1) if _is_scalar(d, n.input[s], 0.0, 1e-3)]
    place = d.choose([*nodes, *sums])
    if isinstance(place, NodeProto):
        set_attribute(place, "epsilon", 10 * attribute(place, "epsilon"))
    else:
        _scale(d, *place, 10.0)


@kind("scale wrong by 1 percent", "exact", "close")
def scale_off(d: Draft) -> None:
    _scale(d, *d.choose(_scales(d)), 1.01)


@kind("scale wrong by a square root", "exact", "close")
def scale_root(d: Draft) -> None:
    _scale(d, *d.choose(_scales(d)), 4.0)


@kind("exponent off by one", "exact", "close")
def exponent(d: Draft) -> None:
    node = d.choose(n for n in d.nodes("Pow") if _is_scalar(d, n.input[1], 0.0, 10.0))
    value = d.constant(node.input[1])
    assert value is not None
    node.input[1] = d.add_constant(value + np.array(1, value.dtype))


def _scales(d: Draft) -> list[tuple[NodeProto, int]]:
    return [(n, s) for n in d.nodes("Mul", "Div") for s in (0, 1) if _is_scalar(d, n.input[s], 0.0, 1e6)]


def _is_scalar(d: Draft, name: str, low: float, high: float) -> bool:
    value = d.constant(name)
    is_float = value is not None and value.size == 1 and value.dtype.kind == "f"
    return is_float and low < abs(float(value.reshape(-1)[0])) <= high  # type: ignore[union-attr]


def _scale(d: Draft, node: NodeProto, slot: int, factor: float) -> None:
    value = d.constant(node.input[slot])
    assert value is not None
    node.input[slot] = d.add_constant((value * factor).astype(value.dtype))


@kind("two constants merged")
def constants_merged(d: Draft) -> None:
    """Take two constants of one type and shape for the same one."""
    groups: dict[object, list[str]] = {}
    for name in d.constants():
        value = d.constant(name)
        if value is not None and value.size <= 8:
            groups.setdefault((value.shape, value.dtype), []).append(name)
    couples = [pair for group in groups.values() for pair in pairs(group[:40])]
    first, second = d.choose(c for c in couples if not np.array_equal(d.constant(c[0]), d.constant(c[1])))
    for node in d.graph.node:
        node.input[:] = [first if name == second else name for name in node.input]


@kind("sign of a zero lost", "exact")
def zero_sign(d: Draft) -> None:
    zeros = [n for n in d.constants() if (v := d.constant(n)) is not None and v.dtype.kind == "f" and (v == 0).any()]
    name = d.choose(zeros)
    value = d.constant(name)
    assert value is not None
    d.set_constant(name, np.where(value == 0, -value, value).astype(value.dtype))


@kind("integer constant off by one")
def integer_off(d: Draft) -> None:
    """Gather indices, starts and ends of a Slice, repeats, paddings, axes."""
    places = []
    for node in d.nodes():
        for slot, name in enumerate(node.input):
            value = d.constant(name)
            if value is not None and value.dtype.kind == "i" and 0 < value.size <= 64:
                places.append((node, slot, value))
    node, slot, value = d.choose(places)
    changed = value.copy()
    place = int(d.rng.integers(changed.size))
    changed.reshape(-1)[place] += 1 if d.rng.integers(2) else -1
    node.input[slot] = d.add_constant(changed)


# Precision


@kind("detour through float16", "exact", "close")
def half_detour(d: Draft) -> None:
    _detour(d, (TensorProto.FLOAT, TensorProto.DOUBLE), TensorProto.FLOAT16)


@kind("detour through bfloat16", "exact", "close")
def bfloat16_detour(d: Draft) -> None:
    _detour(d, (TensorProto.FLOAT,), TensorProto.BFLOAT16)


@kind("detour through float", "exact", "close")
def float_detour(d: Draft) -> None:
    _detour(d, (TensorProto.DOUBLE,), TensorProto.FLOAT)


def _detour(d: Draft, kinds: tuple[int, ...], narrow: int) -> None:
    node, slot = d.choose(
        (node, slot)
        for node in d.nodes()
        for slot, name in enumerate(node.input)
        if name and d.dtype(name) in kinds and d.constant(name) is None
    )
    wide = d.dtype(node.input[slot])
    d.before(node, slot, "Cast", to=narrow)
    d.before(node, slot, "Cast", to=wide)


@kind("Cast rounds instead of cutting off")
def cast_rounding(d: Draft) -> None:
    whole = (TensorProto.INT32, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16)
    node = d.choose(n for n in d.nodes("Cast") if d.dtype(n.input[0]) in FLOATS and attribute(n, "to") in whole)
    d.before(node, 0, d.choose(("Round", "Floor", "Ceil")))


@kind("opset changed, operators not converted")
def opset_changed(d: Draft) -> None:
    entry = next((item for item in d.model.opset_import if item.domain in ("", "ai.onnx")), None)
    if entry is None:
        raise Unfit
    versions = [v for v in range(7, 24) if v != entry.version and _meaning_differs(d, entry.version, v)]
    entry.version = d.choose(versions)


def _meaning_differs(d: Draft, old: int, new: int) -> bool:
    """Whether an operator of the model has another version there, all of them being known."""
    differs = False
    for node in d.nodes():
        if not (onnx.defs.has(node.op_type, max_inclusive_version=new, domain=node.domain) or node.domain):
            return False
        if not node.domain:
            first = onnx.defs.get_schema(node.op_type, old).since_version
            differs |= first != onnx.defs.get_schema(node.op_type, new).since_version
    return differs
