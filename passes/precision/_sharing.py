"""Values that several sites of a pass share, created by the first site that is applied."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from surgery import Node, Value


class Shared:
    """Values created by earlier sites, by their graph and a key.

    A site that is skipped or refused leaves nothing in the graph, so the next site creates the values itself.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Value, ...]] = {}

    def get(self, node: Node, key: Hashable, make: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
        """Return the values for a node under a key, created now unless they are already in its graph."""
        place = (node.scope, key)
        made = self._made.get(place)
        if made is None or any(value.scope is not node.scope for value in made):
            made = self._made[place] = make()
        return made
