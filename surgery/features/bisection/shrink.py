"""Shrink a cut so that it still shows the difference: shorter dims, consistently in all weights and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from surgery.features.bisection.cuts import Cut
from surgery.features.bisection.probe import ProbedDifference
from surgery.model.proto.slicing import sliced, sliced_model

_SHORTEST = 2
"""The minimum size of a dim; dims of size 1 would broadcast and could hide the difference."""


def shrink(
    cut: Cut, shown: ProbedDifference, show: Callable[[Cut], ProbedDifference | None]
) -> tuple[Cut, ProbedDifference]:
    """Reduce each extent to the smallest power of two that keeps the difference, largest extents first.

    All dims of one extent are reduced together, and so are integer constants of that value, which are usually shapes.
    The original must still run, which shows whether that was correct.
    """
    for extent in sorted(_extents(cut), reverse=True):
        size = _SHORTEST
        while size < extent:
            smaller = _sliced(cut, extent, size)
            again = show(smaller)
            if again is not None and again.is_like(shown):
                cut, shown = smaller, again
                break
            size *= 2
    return cut, shown


def _extents(cut: Cut) -> set[int]:
    shapes = [value.shape for value in cut.feed.values()]
    shapes += [tuple(tensor.dims) for model in (cut.original, cut.changed) for tensor in model.graph.initializer]
    return {extent for shape in shapes for extent in shape if extent > _SHORTEST}


def _sliced(cut: Cut, extent: int, size: int) -> Cut:
    feed = {name: sliced(value, extent, size) for name, value in cut.feed.items()}
    original, changed = (sliced_model(model, feed, extent, size) for model in (cut.original, cut.changed))
    return replace(cut, original=original, changed=changed, feed=feed)
