"""A tensor as an image, if its shape looks like one."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_CHANNELS = (1, 3, 4)
_LEAST, _MOST = 4, 256
"""Minimum height and width of an image, and the maximum of what is sent: every second pixel or so of a larger one."""


def images_of(before: Array | None, after: Array | None) -> dict[str, Any] | None:
    """Return the first image of both tensors, and of their difference, in one range; None if they are no images."""
    sides = {"before": _pixels(before), "after": _pixels(after)}
    found = {key: pixels for key, pixels in sides.items() if pixels is not None}
    if not found:
        return None
    finite = [pixels[np.isfinite(pixels)] for pixels in found.values()]
    least = min((float(one.min()) for one in finite if one.size), default=0.0)
    most = max((float(one.max()) for one in finite if one.size), default=0.0)
    made = {key: _shown(pixels, least, most) for key, pixels in found.items()}
    if len(found) == 2 and found["before"].shape == found["after"].shape:
        apart = np.abs(found["before"] - found["after"]).max(axis=2, keepdims=True)
        largest = float(np.nanmax(apart, initial=0.0))
        made["difference"] = _shown(apart, 0.0, largest)
    return {"from": least, "to": most, **made}


def _pixels(array: Array | None) -> Array | None:
    """Return the first image as height, width and channels; None if the shape is that of no image."""
    if array is None or array.ndim != 4 or not array.shape[0]:
        return None
    first = array[0]
    if array.shape[1] in _CHANNELS and min(array.shape[2:]) >= _LEAST:
        first = first.transpose(1, 2, 0)
    elif array.shape[3] not in _CHANNELS or min(array.shape[1:3]) < _LEAST:
        return None
    step = max(1, math.ceil(max(first.shape[:2]) / _MOST))
    return np.asarray(first[::step, ::step])


def _shown(pixels: Array, least: float, most: float) -> dict[str, Any]:
    """Return pixels as bytes between two values; what is not finite is black."""
    scale = 255.0 / (most - least) if most > least else 0.0
    scaled = np.clip(np.nan_to_num((pixels - least) * scale, nan=0.0, posinf=0.0, neginf=0.0), 0, 255)
    height, width, channels = pixels.shape
    data = base64.b64encode(scaled.round().astype(np.uint8).tobytes()).decode()
    return {"height": height, "width": width, "channels": channels, "data": data}
