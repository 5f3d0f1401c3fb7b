"""Repeated elements of an axis."""

import numpy as np

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._gather import MOST, is_quick


@pattern_pass(
    "repeat-to-gather",
    match="""
        a = Unsqueeze|Reshape(x, place...)
        b = Expand(a, extents)
        y = Reshape(b, joined)
    """,
    parity=Parity.EXACT,
)
def repeat_to_gather(m: Match, new: Builder) -> Value:
    """Turn an added axis that is expanded and joined with its neighbour into one Gather.

    Right because the expansion repeats elements, and Gather selects them by a list of positions: each n times in a row
    if the added axis comes after the merged one, or the whole axis n times if it comes before. The extents of the axis
    and the expansion must be known; other axes may be symbolic. Key and value heads of grouped attention are repeated
    in this form. Blocks after the axis are moved contiguously and must not be small.

    Example:
        g (float[N,2,S,16] x, float[N,6,S,16] z) => (float[N,6,S,16] y)
        <int64[1] axis = {2}, int64[5] extents = {1, 1, 3, 1, 1}, int64[4] joined = {0, 6, -1, 16}>
        {
            a = Unsqueeze(x, axis)
            b = Expand(a, extents)
            c = Reshape(b, joined)
            y = Mul(c, z)
        }
    """
    found = _repeated(m)
    m.require(found is not None, "this is not a repetition along an axis of known extent")
    assert found is not None
    axis, positions = found
    m.require(len(positions) <= MOST, "the list of positions would be long")
    m.require(is_quick(m.x, axis), "each index would move few elements")
    return new.node("Gather", m.x, new.constant(np.array(positions, np.int64), "positions"), axis=axis)


def _repeated(m: Match) -> tuple[int, list[int]] | None:
    """Return the axis that is repeated, and the source position of each new position."""
    source, narrow, wide, joined = (value.shape for value in (m.x, m.a, m.b, m.y))
    if source is None or narrow is None or wide is None or joined is None or len(narrow) != len(wide):
        return None
    changed = [axis for axis, (before, after) in enumerate(zip(narrow, wide)) if before != after or before is None]
    if len(changed) != 1 or narrow[changed[0]] != 1:
        return None
    added = changed[0]
    times = wide[added]
    if not isinstance(times, int) or narrow[:added] + narrow[added + 1 :] != source:
        return None
    for axis in (added - 1, added):
        extent = source[axis] if 0 <= axis < len(source) else None
        if isinstance(extent, int) and joined == (*source[:axis], extent * times, *source[axis + 1 :]):
            positions = list(range(extent))
            return axis, [p for p in positions for _ in range(times)] if axis < added else positions * times
    return None
