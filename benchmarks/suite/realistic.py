"""Draw inputs like those of trained models in use, independently of surgery: images, sounds, token ids, masks.

Types, shapes and the tables that ids index are read from the model; hints in the manifest give the rest: `dims`, the
bindings to try, and `inputs`, by name `{"values": [...]}`, where a list is a row of the last axis, `{"below": N}` for
ids, `{"like": "mask" | "lengths" | "zeros" | "audio" | "image" | "normal" | "spectrum"}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from suite import feeds
from suite.feeds import Feed

_SAMPLE_RATE = 16000
_SIZES = ((1, 32, 64, 96), (2, 64, 96, 160), (3, 33, 47, 71))
"""Sizes of the free dims of an input by position, unless a hint gives them; the first is the batch."""
_LIKE = {
    "image": ("unit image", "signed image", "bytes", "noise image", "dark image"),
    "audio": ("tone", "hiss", "speech", "silence", "loud"),
    "spectrum": ("normal", "log power", "power", "tiny", "unit image"),
    "normal": ("normal", "wide", "unit", "tiny", "positive"),
    "zeros": ("zeros", "normal", "zeros", "tiny", "normal"),
}
CONTENTS = 5
"""The number of different contents of the inputs."""


def drawn(model: onnx.ModelProto, hints: Mapping[str, Any]) -> Iterator[tuple[str, Feed]]:
    """Yield inputs with a description of each: all contents for the first binding, two for each further one."""
    for number, sizes in enumerate(bindings(model, hints.get("dims") or ())):
        word = ", ".join(f"{name}={size}" for name, size in sizes.items())
        contents = range(CONTENTS) if not number else ((2 * number + k) % CONTENTS for k in range(2))
        for content in contents:
            yield f"{word or 'fixed dims'}, content {content}", _feed(model, sizes, hints, content, 10 * number)


def bindings(model: onnx.ModelProto, given: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Return bindings of the free dims by name, or by `input:position` for an unnamed dim."""
    free: dict[str, int] = {}
    for value in feeds.inputs(model):
        for position, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 1:
                free.setdefault(_dim_name(value.name, position, dim), position)
    usual = [{name: sizes[min(position, 3)] for name, position in free.items()} for sizes in _SIZES]
    known = [{**usual[number % len(usual)], **sizes} for number, sizes in enumerate(given)]
    return known or (usual if free else usual[:1])


def _dim_name(name: str, position: int, dim: Any) -> str:
    return dim.dim_param if dim.dim_param not in ("", "?") else f"{name}:{position}"


def _feed(model: onnx.ModelProto, sizes: Mapping[str, int], hints: Mapping[str, Any], content: int, seed: int) -> Feed:
    random = np.random.default_rng(1000 * seed + content)
    feed: Feed = {}
    for value in feeds.inputs(model):
        tensor = value.type.tensor_type
        shape = [
            dim.dim_value if dim.dim_value > 0 else sizes[_dim_name(value.name, position, dim)]
            for position, dim in enumerate(tensor.shape.dim)
        ]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        hint = hints.get("inputs", {}).get(value.name, {})
        feed[value.name] = _values(model, value.name, shape, dtype, hint, content, random)
    return feed


def _values(
    model: onnx.ModelProto,
    name: str,
    shape: list[int],
    dtype: np.dtype[Any],
    hint: Mapping[str, Any],
    content: int,
    random: np.random.Generator,
) -> Any:
    if "values" in hint:
        listed = np.array(hint["values"]).astype(dtype)
        drawn = shape[: len(shape) + 1 - listed.ndim]
        # A scalar or a single row takes the listed values in order, independently of the other draws.
        return listed[random.integers(0, len(listed), drawn)] if drawn else np.asarray(listed[content % len(listed)])
    like = str(hint.get("like") or ("mask" if "mask" in name else ""))
    if like == "mask":
        return _mask(shape, content % 2 == 1).astype(dtype)
    if like == "lengths":
        high = int(hint.get("below", 2))
        return random.integers(max(1, high // 2), high + 1, shape).astype(dtype)
    if dtype == np.dtype(object):
        return random.choice(["", "a", "word", "Straße", "東京"], shape).astype(object)
    if dtype == np.dtype(bool):
        return random.random(shape) < 0.5
    if like == "image" and np.issubdtype(dtype, np.integer):
        return np.asarray(float_values("bytes", shape, random)).astype(dtype)
    if "below" in hint or np.issubdtype(dtype, np.integer):
        return _ids(shape, int(hint.get("below") or feeds._extent(model, name)), content, random).astype(dtype)
    kinds = _LIKE[like or ("image" if _is_image(shape) else "audio" if _is_audio(shape) else "normal")]
    return np.asarray(float_values(kinds[content % len(kinds)], shape, random)).astype(dtype)


def _is_image(shape: Sequence[int]) -> bool:
    return len(shape) == 4 and (shape[1] in (1, 3, 4) or shape[3] in (1, 3, 4)) and min(sorted(shape)[-2:]) > 16


def _is_audio(shape: Sequence[int]) -> bool:
    return len(shape) in (2, 3) and max(shape, default=0) >= 256 and int(np.prod(shape[:-1])) <= 4


def _ids(shape: list[int], below: int, content: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw ids by content: uniform, with both ends of the table, one id everywhere, or low ids padded with zeros."""
    ids = random.integers(0, below, shape)
    if content == 1 and ids.size:
        ids.flat[0], ids.flat[-1] = below - 1, 0
    if content == 2:
        ids = np.full(shape, min(3, below - 1))
    if content == 3:
        ids = np.minimum(random.geometric(0.1, shape), below - 1)
        ids[..., max(1, ids.shape[-1] // 2) if ids.ndim else 0 :] = 0
    return np.asarray(ids)


def _mask(shape: list[int], ragged: bool) -> np.ndarray[Any, Any]:
    mask = np.ones(shape, np.int64)
    for row in range(shape[0] if ragged and len(shape) > 1 else 0):
        mask[row, ..., max(1, shape[-1] - 2 - 3 * row) :] = 0
    return mask


def float_values(kind: str, shape: Sequence[int], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw floats of a kind."""
    normal = random.standard_normal(shape)
    match kind:
        case "unit image":
            return _picture(shape, random)
        case "signed image":
            return 2 * _picture(shape, random) - 1
        case "bytes":
            return np.round(255 * _picture(shape, random))
        case "noise image" | "unit":
            return random.random(shape)
        case "dark image":
            return 0.02 * _picture(shape, random)
        case "tone" | "speech" | "hiss" | "silence" | "loud":
            return _sound(kind, shape, random)
        case "wide":
            return 20 * normal
        case "tiny":
            return 1e-3 * normal
        case "positive" | "power":
            return np.abs(normal) * (100 if kind == "power" else 1)
        case "log power":
            return np.log10(normal**2 + 1e-9)
        case "zeros":
            return np.zeros(shape)
    return normal


def _picture(shape: Sequence[int], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Paint blots, strokes and slight noise between 0 and 1, over the two largest axes."""
    picture = np.full(shape, 0.9)
    axes = sorted(sorted(range(len(shape)), key=lambda axis: shape[axis])[-2:])
    grids = [
        np.linspace(0, 1, shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))]) for axis in axes
    ]
    for _ in range(4):
        x, y, size = random.random(), random.random(), 0.02 + 0.2 * random.random()
        away = (grids[0] - x) ** 2 + ((grids[1] - y) ** 2 if len(grids) > 1 else 0)
        picture = picture - 0.5 * random.random() * np.exp(-away / size**2)
    for _ in range(6):
        low = [random.random() for _ in grids]
        high = [start + size * random.random() for start, size in zip(low, (0.1, 0.4))]
        inside = np.ones([1] * len(shape), bool)
        for grid, start, end in zip(grids, low, high):
            inside = inside & (grid >= start) & (grid <= end)
        picture = np.where(inside, random.random(), picture)
    return np.clip(picture + 0.02 * random.standard_normal(shape), 0, 1)


def _sound(kind: str, shape: Sequence[int], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return a sound along the longest axis, between about -1 and 1."""
    axis = max(range(len(shape)), key=lambda place: shape[place], default=0)
    length = shape[axis] if shape else 1
    time = np.arange(length) / _SAMPLE_RATE
    noise = random.standard_normal(length)
    if kind in ("tone", "loud"):
        pitch = 80 + 700 * random.random()
        wave = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 6)) / 2.5
        wave = np.clip(wave * 3, -1, 1) if kind == "loud" else 0.4 * wave
    elif kind == "speech":
        pitch = 120 * (1 + 0.2 * np.sin(2 * np.pi * 3 * time))
        phase = 2 * np.pi * np.cumsum(pitch) / _SAMPLE_RATE
        envelope = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1)
        wave = envelope * sum(np.sin(k * phase) / k for k in range(1, 12)) * 0.3 + 0.01 * noise
    else:
        wave = noise * (0.1 if kind == "hiss" else 1e-4)
    wave = np.asarray(wave).reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return wave + np.zeros(shape)
