"""Legal inputs for the models of the zoo, by the names of their inputs and of their dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

Feed = dict[str, np.ndarray]
Padding = Literal["none", "left", "right", "row"]
"""Which tokens of the last row are padding: two or more on one side, or all of them."""

IDS = 300
"""Every vocabulary of the zoo has as many words."""

SIZES = {
    "batch": 3,
    "batch_size": 3,
    "sequence": 9,
    "sequence_length": 9,
    "encoder_sequence_length": 11,
    "past_sequence_length": 7,
    "height": 96,
    "width": 160,
}
"""Sizes that no export has seen."""

_DTYPES = {"int64": np.int64, "int32": np.int32, "bool": np.bool_, "float": np.float32}


def size(dim: int | str, sizes: Mapping[str, int]) -> int:
    """Return the size of a dim: a number, a name, or a sum of names."""
    if isinstance(dim, int):
        return dim
    return sum(sizes[name.strip()] for name in dim.split("+"))


def draw(
    inputs: Iterable[tuple[str, str, list[int | str]]],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    *,
    padding: Padding = "right",
) -> Feed:
    """Draw an input of each name, element type and dims: normal floats, ids that exist, positions by the mask."""
    feed: Feed = {}
    places: list[str] = []
    for name, kind, dims in inputs:
        shape = [size(dim, sizes) for dim in dims]
        dtype = _DTYPES[kind.removeprefix("tensor(").removesuffix(")")]
        if "mask" in name:
            feed[name] = _mask(shape, padding).astype(dtype)
        elif name == "position_ids":
            places.append(name)
            feed[name] = np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            feed[name] = rng.integers(0, IDS, shape).astype(dtype)
        else:
            feed[name] = rng.standard_normal(shape).astype(dtype)
    for name in places:
        if "attention_mask" in feed:
            feed[name] = positions(feed["attention_mask"], feed[name].shape[-1])
    return feed


def positions(mask: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the last `count` tokens: they begin with the first token that is not padding."""
    places = np.clip(np.cumsum(mask, axis=-1) - 1, 0, None).astype(np.int64)
    return places[:, places.shape[1] - count :]


def _mask(shape: list[int], padding: Padding) -> np.ndarray:
    mask = np.ones(shape, np.int64)
    padded = max(2, shape[-1] // 3)
    if padding == "left":
        mask[-1, : min(padded, shape[-1] - 1)] = 0
    elif padding == "right":
        mask[-1, max(1, shape[-1] - padded) :] = 0
    elif padding == "row":
        mask[-1] = 0
    return mask
