"""Values that several sites of a pass read, made by the first one that is applied."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from surgery import Node, Value


class Shared:
    """Values made by earlier sites, by the graph they stand in and a key.

    A site that is skipped or refused leaves nothing in the graph, so the next one makes what it needs itself.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Value, ...]] = {}

    def get(self, node: Node, key: Hashable, make: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
        """Return the values that a node can read under a key, made now unless they are in its graph already."""
        place = (node.scope, key)
        made = self._made.get(place)
        if made is None or any(value.scope is not node.scope for value in made):
            made = self._made[place] = make()
        return made
