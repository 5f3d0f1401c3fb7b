"""Integer weights, and the shift that their rounding adds to the results of a product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ._integers import Affine, Array, IntegerType, blocks, extent, fit, part, wide
from ._pairs import tensor
from ._units import Unit


@dataclass(frozen=True)
class Constants:
    """The integers of a weight as a tensor, its scales in float64, and which of its channels are all zero.

    `shift` is the amount that rounding adds to the mean of each channel of the result.
    """

    integers: Any
    scales: Array
    is_empty: Array
    shift: Array


def quantized_weight(
    unit: Unit, array: Array, kind: IntegerType, axis: int | None, mean: Array | None, least: Array | None = None
) -> tuple[Any, ...]:
    """Return the fields of `Constants` for a weight, with one scale for each index of `axis`, or one for the whole.

    `mean` is the mean of each channel of the data that the weight is multiplied by; `least` is a lower bound of the
    scales.
    """
    axes = () if axis is None else (axis,)
    found = fit(array, kind, axes, symmetric=True)
    if least is not None:
        scale = np.maximum(found.scale, least.reshape(found.scale.shape))
        found = replace(found, scale=np.nextafter(scale.astype(np.float32), np.float32(np.inf)).astype(np.float64))
    low, high = extent(array, axes)
    integers = found.quantize(array)
    shift = np.zeros(0) if mean is None else _shift(unit, array, integers, found, mean)
    return tensor(integers, kind.name), found.scales, ((low == 0) & (high == 0)).reshape(found.scales.shape), shift


def _shift(unit: Unit, array: Array, integers: Array, found: Affine, mean: Array) -> Array:
    """Return the mean error that the rounding of a weight adds to each channel of the result of its product.

    Where a convolution pads, the border of the result is shifted by less; this is ignored.
    """
    rows_are_outputs = unit.axis == 0
    shift = np.zeros(array.shape[unit.axis or 0])
    groups = max(array.shape[1] and mean.size // array.shape[1], 1) if rows_are_outputs else 1
    means = mean.reshape(groups, -1)
    for rows in blocks(array):
        assert isinstance(rows, slice)
        exact = wide(array[rows])
        errors = (integers[rows].astype(np.float64) - part(found.zero_point, rows)) * part(found.scale, rows) - exact
        if rows_are_outputs:
            numbers = np.arange(rows.start, rows.start + len(exact)) * groups // len(array)
            inner = errors.reshape(len(exact), exact.shape[1], -1).sum(axis=2)
            shift[rows] = (inner * means[numbers]).sum(axis=1)
        else:
            shift += mean[rows] @ errors
    return shift
