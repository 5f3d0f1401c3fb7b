"""Inputs with shapes, axes and counts, derived from the surrounding shapes.

Each solver returns the elements, or None if they are unknown. It prefers elements that give the declared shape of the
result; without one, it chooses small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from surgery.base.operators.use import InputUse, Shape

Solver = Callable[[InputUse], Sequence[Any] | None]


def _length(use: InputUse, index: int | None = None) -> int:
    """Return the number of elements of an input; 1 for a scalar."""
    shape = use.shape(index)
    return shape[0] if shape else 1


def _size(shape: Shape) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _reshape(use: InputUse) -> Sequence[int] | None:
    out, data, count = use.out(), use.shape(0), _length(use)
    if out is not None and len(out) == count:
        return out
    if data is None:
        return None
    # Keep the leading dims, and let the last dim be inferred.
    return [-1] if count == 1 else [*data[: count - 1], *[1] * (count - 1 - len(data[: count - 1])), -1]


def _expand(use: InputUse) -> Sequence[int] | None:
    out, data, count = use.out(), use.shape(0), _length(use)
    if out is not None and len(out) == count:
        return out
    if data is None:
        return None
    padded = [1] * (count - len(data)) + list(data[len(data) - min(count, len(data)) :])
    return [extent if extent != 1 else 2 for extent in padded]


def _tile(use: InputUse) -> Sequence[int] | None:
    out, data = use.out(), use.shape(0)
    if out is not None and data is not None and len(out) == len(data):
        return [b // a if a else 1 for a, b in zip(data, out)]
    return [1 + (index % 2) for index in range(_length(use))]


def _small_shape(use: InputUse) -> Sequence[int] | None:
    out = use.out()
    return out if out is not None and len(out) == _length(use) else [2 + index for index in range(_length(use))]


def _reduced_axes(use: InputUse) -> Sequence[int] | None:
    """Return the axes that reduce the shape of the input to that of the result."""
    data, out, count = use.shape(0), use.out(), _length(use)
    if data is None:
        return None
    keep = bool(use.attr("keepdims", 1))
    for axes in _subsets(len(data), count):
        shape = [1 if i in axes else n for i, n in enumerate(data) if keep or i not in axes]
        if out is not None and tuple(shape) == out:
            return axes
    return list(range(len(data) - min(count, len(data)), len(data)))


def _subsets(total: int, count: int) -> list[list[int]]:
    from itertools import combinations

    return [list(items) for items in combinations(range(total), count)] if total <= 10 else []


def _squeezed_axes(use: InputUse) -> Sequence[int] | None:
    data, out, count = use.shape(0), use.out(), _length(use)
    if data is None:
        return None
    for axes in _subsets(len(data), count):
        kept = tuple(n for i, n in enumerate(data) if i not in axes)
        if all(data[i] == 1 for i in axes) and (out is None or kept == out):
            return axes
    return None


def _unsqueezed_axes(use: InputUse) -> Sequence[int] | None:
    data, out, count = use.shape(0), use.out(), _length(use)
    if out is None or data is None:
        return list(range(count))
    for axes in _subsets(len(out), count):
        if all(out[i] == 1 for i in axes) and tuple(n for i, n in enumerate(out) if i not in axes) == data:
            return axes
    return list(range(count))


def _slice(use: InputUse) -> Sequence[int] | None:
    """Return consistent starts, ends, axes and steps, whichever of them are inputs."""
    data, out = use.shape(0), use.out()
    if data is None:
        return None
    count = _length(use, 1)
    axes = use.integers(3) if use.has(3) else list(range(count))
    if axes is not None:
        axes = [axis % len(data) for axis in axes]
    else:
        changed = [i for i, n in enumerate(data) if out is not None and len(out) == len(data) and out[i] != n]
        axes = [*changed, *(i for i in range(len(data)) if i not in changed)][:count]
    steps = use.integers(4) if use.has(4) else [1] * count
    if steps is None:
        steps = [1] * count
    starts, ends = [], []
    for axis, step in zip(axes, steps):
        extent = data[axis]
        kept = out[axis] if out is not None and len(out) == len(data) else max(1, extent // 2)
        span = (kept - 1) * abs(step) + 1 if kept else 0
        begin = max(0, (extent - span) // 2)
        if step > 0:
            starts.append(begin)
            ends.append(begin + span)
        else:
            starts.append(extent - 1 - begin)
            ends.append(extent - 1 - begin - span if extent - 1 - begin - span >= 0 else -extent - 1)
    return {1: starts, 2: ends, 3: axes, 4: steps}[use.index]


def _pads(use: InputUse) -> Sequence[int] | None:
    data, out = use.shape(0), use.out()
    if data is None:
        return None
    axes = use.integers(3) if use.has(3) else list(range(_length(use) // 2))
    if axes is not None:
        axes = [axis % len(data) for axis in axes]
    else:
        count = _length(use, 3)
        changed = [i for i, n in enumerate(data) if out is not None and len(out) == len(data) and out[i] != n]
        axes = [*changed, *(i for i in range(len(data)) if i not in changed)][:count]
    if use.index == 3:
        return axes
    grow = [out[axis] - data[axis] if out is not None and len(out) == len(data) else 2 for axis in axes]
    return [*(amount // 2 for amount in grow), *(amount - amount // 2 for amount in grow)]


def _sizes(use: InputUse) -> Sequence[int] | None:
    data, out = use.shape(0), use.out()
    axes = use.attr("axes")
    if data is None:
        return None
    axes = list(range(len(data))) if axes is None else [axis % len(data) for axis in axes]
    if out is not None:
        return [out[axis] for axis in axes]
    return [data[axis] if len(axes) > 2 and axis < 2 else 2 * data[axis] for axis in axes]


def _scales(use: InputUse) -> Sequence[float] | None:
    sizes, data = _sizes(use), use.shape(0)
    axes = use.attr("axes")
    if sizes is None or data is None:
        return None
    axes = list(range(len(data))) if axes is None else [axis % len(data) for axis in axes]
    return [size / data[axis] if data[axis] else 1.0 for size, axis in zip(sizes, axes)]


def _region(use: InputUse) -> Sequence[float] | None:
    half = _length(use) // 2
    return [0.1] * half + [0.9] * half


def _count(use: InputUse) -> Sequence[int] | None:
    """Return `k` of TopK."""
    data, out = use.shape(0), use.out()
    if data is None or not data:
        return None
    axis = use.axis(-1, len(data))
    return [out[axis] if out is not None else max(1, min(3, data[axis]))]


def _depth(use: InputUse) -> Sequence[int] | None:
    out = use.out()
    return [out[use.axis(-1, len(out))] if out is not None else 4]


def _range(use: InputUse) -> Sequence[float] | None:
    """Return start, limit or step of Range: with the declared length, or 5, and the given step, or 1."""
    start, limit, delta = (use.constant(index) for index in range(3))
    out = use.out()
    count = out[0] if out else 5
    step = float(delta.reshape(-1)[0]) if delta is not None else None
    if step is None:
        rising = limit is None or float(limit.reshape(-1)[0]) >= 0
        step = 1.0 if rising else -1.0
    if limit is not None:
        begin = float(start.reshape(-1)[0]) if start is not None else float(limit.reshape(-1)[0]) - count * step
    else:
        begin = float(start.reshape(-1)[0]) if start is not None else 1.0
    return [(begin, begin + count * step, step)[use.index]]


def _split(use: InputUse) -> Sequence[int] | None:
    data = use.shape(0)
    if data is None:
        return None
    axis = use.axis(0, len(data))
    parts = [use.out(index) for index in range(len(use.node.output))]
    if all(part is not None for part in parts):
        return [part[axis] for part in parts if part is not None]
    count = _length(use)
    return [*[data[axis] // count] * (count - 1), data[axis] - (count - 1) * (data[axis] // count)]


def _chunks(use: InputUse) -> Sequence[int] | None:
    data = use.shape(0)
    if data is None:
        return None
    extent = data[use.axis(0, len(data))]
    if use.shape() == ():
        return [max(1, (extent + 1) // 2)]
    count = _length(use)
    return [*[extent // count] * (count - 1), extent - (count - 1) * (extent // count)]


def _cropped(use: InputUse) -> Sequence[int] | None:
    data, out = use.shape(0), use.out()
    axes = use.attr("axes")
    if data is None:
        return None
    axes = list(range(len(data))) if axes is None else [axis % len(data) for axis in axes]
    return [out[axis] if out is not None else max(1, data[axis] - 1) for axis in axes]


def _col2im(use: InputUse) -> Sequence[int] | None:
    """Return the image shape, which is the spatial result shape, or a block that matches the channels and columns."""
    data, out, image = use.shape(0), use.out(), use.integers(1)
    spatial = len(out) - 2 if out is not None else _length(use)
    if data is None or out is None:
        return None
    if use.index == 1:
        return out[2:]
    image = list(out[2:]) if image is None else image
    area = data[1] // out[1]
    pads, strides = use.attr("pads", [0] * 2 * spatial), use.attr("strides", [1] * spatial)
    dilations = use.attr("dilations", [1] * spatial)
    for block in _factorings(area, spatial):
        columns = 1
        for axis, extent in enumerate(block):
            padded = image[axis] + pads[axis] + pads[axis + spatial]
            columns *= (padded - dilations[axis] * (extent - 1) - 1) // strides[axis] + 1
        if columns == data[2]:
            return block
    return None


def _factorings(number: int, count: int) -> list[list[int]]:
    if count == 1:
        return [[number]]
    return [
        [first, *rest]
        for first in range(1, number + 1)
        if number % first == 0
        for rest in _factorings(number // first, count - 1)
    ]


def _grid(use: InputUse) -> Sequence[int] | None:
    theta, out = use.shape(0), use.out()
    if theta is None:
        return None
    spatial = out[1:-1] if out is not None else [4, 5, 6][: _length(use) - 2]
    return [theta[0], 2, *spatial]


def _last_axis(use: InputUse) -> Sequence[int] | None:
    data = use.shape(0)
    return [max(0, len(data) - 1)] if data is not None else [0]


def _dft_axis(use: InputUse) -> Sequence[int] | None:
    """Return the axis of DFT: the one whose size changes; never the last axis, with the real and imaginary parts."""
    data, out = use.shape(0), use.out()
    if data is None:
        return None
    if out is not None and len(out) == len(data):
        for axis in range(len(data) - 1):
            if out[axis] != data[axis]:
                return [axis]
    return [max(1, len(data) - 2) if len(data) > 2 else 0]


def _dft_length(use: InputUse) -> Sequence[int] | None:
    """Return the size of the axis if the result needs no other length; otherwise the length of the result."""
    data, out = use.shape(0), use.out()
    if not data:
        return None
    axis = (use.integers(2) or [use.attr("axis", 1 if use.view.index.opset < 20 else -2)])[0]
    extent = data[axis]
    if out is None or len(out) != len(data) or out[axis] in (extent, extent // 2 + 1):
        return [extent]
    return [2 * (out[axis] - 1) if use.attr("onesided", 0) else out[axis]]


def _window(use: InputUse) -> Sequence[int] | None:
    out = use.out()
    return [out[0] if out else 7]


def _frame(use: InputUse) -> Sequence[int] | None:
    """Return the step or the length of the frames of STFT."""
    signal, out, window = use.shape(0), use.out(), use.shape(2)
    length = window[0] if window else (use.integers(3) or [0])[0]
    if not length and out is not None:
        length = (out[2] - 1) * 2 if use.attr("onesided", 1) else out[2]
    length = length or 8
    if use.index == 3:
        return [length]
    if signal is None or out is None or out[1] < 2:
        return [max(1, length // 2)]
    return [max(1, (signal[1] - length) // (out[1] - 1))]


def _mel(use: InputUse) -> Sequence[float] | None:
    out = use.out()
    bins, length = (out[1], 2 * (out[0] - 1)) if out is not None else (4, 16)
    return [(bins, length, 8192, 20.0, 4000.0)[use.index]]


def _unpooled(use: InputUse) -> Sequence[int] | None:
    out, data = use.out(), use.shape(0)
    if out is not None:
        return out
    return [*data[:2], *(2 * extent for extent in data[2:])] if data is not None else None


def _no_pads(use: InputUse) -> Sequence[int] | None:
    return [0] * _length(use)


def _matrix(use: InputUse) -> Sequence[int] | None:
    """Return the shape of a packed matrix: the last dims of the first operand and of the result."""
    data, out = use.shape(0), use.out()
    return [data[-1], out[-1]] if data and out else None


def _beams(use: InputUse) -> Sequence[int] | None:
    """Return the number of beams, from the cache that records the beam of each token."""
    cache = use.shape(9)
    return [cache[1] if cache else 1]


def _constant(*values: Any) -> Solver:
    return lambda use: values


REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)

SOLVERS: dict[tuple[str, int], Solver] = {
    ("Reshape", 1): _reshape,
    ("Expand", 1): _expand,
    ("Tile", 1): _tile,
    ("ConstantOfShape", 0): _small_shape,
    ("Squeeze", 1): _squeezed_axes,
    ("Unsqueeze", 1): _unsqueezed_axes,
    **{("Slice", index): _slice for index in (1, 2, 3, 4)},
    ("Pad", 1): _pads,
    ("Pad", 3): _pads,
    ("Resize", 1): _region,
    ("Resize", 2): _scales,
    ("Resize", 3): _sizes,
    ("Upsample", 1): _scales,
    ("TopK", 1): _count,
    ("OneHot", 1): _depth,
    **{("Range", index): _range for index in (0, 1, 2)},
    ("Split", 1): _split,
    ("SplitToSequence", 1): _chunks,
    ("CenterCropPad", 1): _cropped,
    ("Col2Im", 1): _col2im,
    ("Col2Im", 2): _col2im,
    ("AffineGrid", 1): _grid,
    ("CumSum", 1): _last_axis,
    ("CumProd", 1): _last_axis,
    ("DFT", 1): _dft_length,
    ("DFT", 2): _dft_axis,
    ("Trilu", 1): _constant(1),
    ("Loop", 0): _constant(3),
    ("Loop", 1): _constant(True),
    ("BlackmanWindow", 0): _window,
    ("HammingWindow", 0): _window,
    ("HannWindow", 0): _window,
    ("STFT", 1): _frame,
    ("STFT", 3): _frame,
    **{("MelWeightMatrix", index): _mel for index in range(5)},
    ("MaxUnpool", 2): _unpooled,
    ("Dropout", 2): _constant(False),
    **{(name, 1): _reduced_axes for name in REDUCTIONS.split()},
    ("com.microsoft::ConvTransposeWithDynamicPads", 2): _no_pads,
    ("com.microsoft::DecoderMaskedMultiHeadAttention", 8): _beams,
    ("com.microsoft::ExpandDims", 1): _unsqueezed_axes,
    ("com.microsoft::MatMulFpQ4", 2): _matrix,
    ("com.microsoft::Pad", 1): _pads,
    **{("com.microsoft::Range", index): _range for index in (0, 1, 2)},
    ("com.microsoft::Trilu", 1): _constant(1),
}
