"""Adapters for attributes that became inputs."""

from __future__ import annotations

import math

import numpy as np

from surgery import Refusal, Value

from ._shared import Draft, adapter
from ._types import NUMPY

_FLOAT_MAX = float(np.finfo(np.float32).max)


def _moves_axes(draft: Draft) -> None:
    """Move `axes` to the second input; if it is absent or empty, it means all axes before and after."""
    axes = draft.take("axes")
    if axes:
        draft.set_input(1, draft.integers(axes, "axes"))


for _ops, _version in (
    (("Squeeze", "ReduceSum"), 13),
    (
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSumSquare",
        ),
        18,
    ),
):
    adapter(*_ops, to=_version)(_moves_axes)


@adapter("Unsqueeze", to=13)
def _unsqueeze_13(draft: Draft) -> None:
    draft.set_input(1, draft.integers(draft.needed("axes"), "axes"))


@adapter("Split", to=13)
def _split_13(draft: Draft) -> None:
    split = draft.take("split")
    if split:
        draft.set_input(1, draft.integers(split, "split"))


@adapter("Split", to=18)
def _split_18(draft: Draft) -> None:
    """Set `num_outputs` if there are no lengths; the number of outputs used to be enough."""
    if len(draft.inputs) < 2 or draft.inputs[1] is None:
        draft.set("num_outputs", draft.outputs)


@adapter("Reshape", to=5)
def _reshape_5(draft: Draft) -> None:
    draft.set_input(1, draft.integers(draft.needed("shape"), "shape"))


@adapter("Slice", to=10)
def _slice_10(draft: Draft) -> None:
    starts, ends = draft.needed("starts"), draft.needed("ends")
    # Absent axes used to be the first axes, one for each start; now they are all axes.
    axes = draft.take("axes") or range(len(starts))
    for index, (values, name) in enumerate(((starts, "starts"), (ends, "ends"), (axes, "axes")), 1):
        draft.set_input(index, draft.integers(values, name))


@adapter("TopK", to=10)
def _top_k_10(draft: Draft) -> None:
    draft.set_input(1, draft.integers([draft.needed("k")], "k"))


@adapter("Upsample", to=9)
def _upsample_9(draft: Draft) -> None:
    draft.set_input(1, draft.constant(np.array(draft.needed("scales"), dtype=np.float32), "scales"))


@adapter("DFT", to=20)
def _dft_20(draft: Draft) -> None:
    """Add the default axis, which was 1 and is now the second to last."""
    draft.set_input(2, draft.constant(np.array(draft.take("axis", 1), dtype=np.int64), "axis"))


@adapter("Dropout", to=12)
def _dropout_12(draft: Draft) -> None:
    """Move `ratio` to an input; without `training_mode` nothing is dropped, as before."""
    # The mask of an inference run was unspecified (ONNX Runtime: all false); now it is all true.
    draft.require(not draft.is_read(1), "the mask of Dropout is read, and its meaning changed")
    if draft.has("ratio"):
        draft.set_input(1, draft.constant(np.array(draft.take("ratio"), dtype=np.float32), "ratio"))


@adapter("Pad", to=11)
def _pad_11(draft: Draft) -> None:
    pads, fill = draft.needed("pads"), draft.take("value", 0.0)
    draft.set_input(1, draft.integers(pads, "pads"))
    if fill != 0 and draft.attr("mode", "constant") == "constant":
        draft.set_input(2, _scalar(draft, fill, "fill"))


@adapter("Clip", to=11)
def _clip_11(draft: Draft) -> None:
    """Add missing bounds: the default was the largest float32, and is now the largest number of the type."""
    kind = draft.kind(draft.input(0)) or ""
    # The float32 default in the type of the input: beyond all float16 numbers, but not beyond all doubles.
    limit = {"tensor(float)": None, "tensor(float16)": math.inf}.get(kind, _FLOAT_MAX)
    lower, upper = draft.take("min"), draft.take("max")
    if limit is not None:
        lower, upper = -limit if lower is None else lower, limit if upper is None else upper
    for index, (bound, name) in enumerate(((lower, "min"), (upper, "max")), 1):
        if bound is not None:
            draft.set_input(index, _scalar(draft, bound, name))


def _scalar(draft: Draft, number: float, name: str) -> Value:
    """Return a scalar constant of the type of the first input."""
    kind = NUMPY.get((draft.kind(draft.input(0)) or "").removeprefix("tensor(").removesuffix(")"))
    if kind is None:
        raise Refusal("the type of the input is not known")
    with np.errstate(over="ignore"):
        return draft.constant(np.array(number).astype(kind), name)
