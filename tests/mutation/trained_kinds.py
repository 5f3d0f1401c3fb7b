"""Wrong rewrites of trained models: the kinds of the suite that suit them, and those of weights and quantization."""

from __future__ import annotations

import numpy as np

from mutation import operators, values, wiring
from mutation.draft import Draft, Unfit, attribute
from mutation.kinds import KINDS, Edit

assert operators and values and wiring  # fill KINDS

_SHARED = (
    *("operator dropped", "one operator for another", "axis off by one", "bias lost", "mask left out"),
    *("operands swapped", "wrong perm", "integer constant off by one", "stale weight", "channels of a weight shifted"),
    *("something in a body dropped", "scale wrong by 1 percent", "attribute changed", "residual dropped"),
    *("one element of a weight changed", "bound of a Clip lost", "weight scaled by 1 percent"),
)
TRAINED: dict[str, Edit] = {name: KINDS[name].edit for name in _SHARED}
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear")


def _kind(name: str):  # type: ignore[no-untyped-def]
    def register(edit: Edit) -> Edit:
        assert name not in TRAINED
        TRAINED[name] = edit
        return edit

    return register


@_kind("bias changed")
def bias_changed(d: Draft) -> None:
    """Change one entry of a bias by the size of its largest."""
    sums = [node.input[slot] for node in d.nodes("Add") for slot in (0, 1)]
    third = [n.input[2] for n in d.nodes("Conv", "Gemm", "ConvTranspose") if len(n.input) > 2 and n.input[2]]
    names = [name for name in dict.fromkeys(sums + third) if _is_bias(d.constant(name))]
    name = d.choose(names)
    changed = np.array(d.constant(name))
    place = int(d.rng.integers(changed.size))
    changed.reshape(-1)[place] += np.abs(changed).max() or 1
    d.set_constant(name, changed)


def _is_bias(value: np.ndarray | None) -> bool:
    return value is not None and value.dtype.kind == "f" and value.size > 1 and max(value.shape) == value.size


@_kind("row of a weight changed")
def weight_row(d: Draft) -> None:
    """Turn the sign of one row of a matrix, or of one filter."""
    name = d.choose(d.weights(least=64, rank=2))
    changed = np.array(d.constant(name))
    row = int(d.rng.integers(changed.shape[0]))
    changed[row] = -changed[row]
    d.set_constant(name, changed)


@_kind("row of a table changed")
def table_row(d: Draft) -> None:
    """Put the neighbour's row in place of one row of an embedding table."""
    tables = [n.input[0] for n in d.nodes("Gather") if attribute(n, "axis", 0) == 0 and _is_table(d, n.input[0])]
    name = d.choose(dict.fromkeys(tables))
    changed = np.array(d.constant(name))
    row = int(d.rng.integers(changed.shape[0]))
    changed[row] = changed[row - 1]
    d.set_constant(name, changed)


def _is_table(d: Draft, name: str) -> bool:
    value = d.constant(name)
    return value is not None and value.ndim == 2 and value.shape[0] > 8 and value.dtype.kind in "fiu"


@_kind("row of an integer weight changed")
def integer_row(d: Draft) -> None:
    """Put the neighbour's row in place of one row of a quantized weight."""
    names = []
    for name in d.constants():
        value = d.constant(name)
        if value is not None and value.dtype in (np.int8, np.uint8) and value.ndim > 1 and value.shape[0] > 1:
            names.append(name)
    name = d.choose(names)
    changed = np.array(d.constant(name))
    row = int(d.rng.integers(changed.shape[0]))
    changed[row] = changed[row - 1]
    d.set_constant(name, changed)


@_kind("scale of a quantization changed")
def quantization_scale(d: Draft) -> None:
    node = d.choose(node for node in d.nodes(*_QUANTIZED) if d.constant(node.input[1]) is not None)
    value = d.constant(node.input[1])
    assert value is not None
    node.input[1] = d.add_constant((value * 1.1).astype(value.dtype))


@_kind("zero point of a quantization changed")
def quantization_zero(d: Draft) -> None:
    places = [(n, 2) for n in d.nodes(*_QUANTIZED) if len(n.input) > 2]
    places += [(n, slot) for n in d.nodes("MatMulInteger", "ConvInteger") for slot in (2, 3) if len(n.input) > slot]
    node, slot = d.choose((n, s) for n, s in places if d.constant(n.input[s]) is not None)
    value = d.constant(node.input[slot])
    assert value is not None
    if value.dtype.kind not in "iu":
        raise Unfit
    middle = (int(np.iinfo(value.dtype).max) + int(np.iinfo(value.dtype).min)) // 2
    node.input[slot] = d.add_constant(np.where(value > middle, value - 3, value + 3).astype(value.dtype))
