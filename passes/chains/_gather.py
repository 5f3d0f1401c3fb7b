"""Check whether a Gather is as fast as the nodes that it replaces."""

from math import prod

from surgery import Value

MOST = 4096
"""Maximum number of elements of an axis that is gathered by a list of positions."""

FEWEST = 16
"""Minimum number of elements that are moved for each position; with fewer, cutting and joining is faster."""


def is_quick(source: Value, axis: int) -> bool:
    """Return whether the block after an axis, which is moved in one piece, is large enough."""
    return prod(dim for dim in (source.shape or ())[axis + 1 :] if isinstance(dim, int)) >= FEWEST
