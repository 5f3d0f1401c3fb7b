"""When a Gather is as quick as what it replaces."""

from math import prod

from surgery import Value

MOST = 4096
"""An axis of at most so many elements is gathered by a list of positions."""

FEWEST = 16
"""So many elements at least are moved for each position; with fewer, cutting and joining is quicker."""


def is_quick(source: Value, axis: int) -> bool:
    """Return whether what lies after an axis, and is moved in one piece, is large enough."""
    return prod(dim for dim in (source.shape or ())[axis + 1 :] if isinstance(dim, int)) >= FEWEST
