"""Equal weights stored once."""

from collections.abc import Iterator
from typing import Any

from surgery import GATHERING, Graph, Node, Parity, Size, Value, graph_pass

from ._shared import value_bytes
from ._turned import turned_pairs

FIRST_WITH_INNER = 4
"""The first IR version in which an initializer is not an input of its graph, which that of a branch cannot be."""


@graph_pass("dedupe-initializers", parity=Parity.EXACT)
def dedupe_initializers(graph: Graph, *, transposed: Size = 1_000_000) -> None:
    """Replace equal initializers by the first of them, and large ones by the Transpose of another.

    Right because tensors with equal type, dims and bytes are interchangeable: 0.0 and -0.0 differ, and a NaN equals
    only a NaN with the same bits. The remaining initializer must be visible to all consumers, so it is in the same
    scope or in an enclosing one. If none is, as for the weights in both branches of an If, it is moved to the nearest
    scope that encloses all of them. Overridable initializers stay, and so do initializers that are graph outputs,
    because of their names.

    A matrix that is another one transposed, as the head of a language model often is its embedding, becomes a Transpose
    of that one. It is one node more, which runtimes compute once, when they load the model.

    Options:
        transposed: The number of bytes from which a matrix becomes the Transpose of another one.

    Example:
        g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}>
        {
            a = Mul(x, v)
            y = Add(a, w)
        }
    """
    storage = _Storage(graph)
    for equal in graph.equal_tensors(storage.initializers()):
        storage.share(equal)
    large = [value for value in storage.initializers() if (value_bytes(value) or 0) >= transposed]
    for pair in turned_pairs(value for value in large if not value.is_overridable):
        storage.transpose(*sorted(pair, key=_is_needed_as_it_is, reverse=True))


def _is_needed_as_it_is(value: Value) -> tuple[bool, bool]:
    return value.is_output, any(reader.op in GATHERING for reader in value.consumers)


class _Storage:
    """The initializers of a model in their scopes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.holders = graph.holders()

    def initializers(self) -> Iterator[Value]:
        """Yield the initializers that are used."""
        values = (Value(self.graph, one) for scope in self.graph.scopes for one in scope.initializers.values())
        return (value for value in values if value.is_used)

    def share(self, equal: list[Value]) -> None:
        """Store equal initializers once, as far as their readers see one place."""
        kept: dict[Any, Value] = {}
        for value in equal:
            scope = value.scope
            first = next((kept[outer] for outer in self._outwards(scope) if outer in kept), None)
            if first is None:
                if not value.is_overridable:
                    kept[scope] = value
                continue
            with self.graph.site(next(iter(value.consumers), None)) as new:
                new.require(not value.is_overridable, "a caller can override the initializer")
                new.require(not value.is_output, "the initializer is an output of its graph")
                new.replace(value, first)
        self._move_out([value for value in kept.values() if not value.is_output])

    def _move_out(self, equal: list[Value]) -> None:
        """Store initializers of scopes that do not see each other in the nearest one that encloses them."""
        if len(equal) < 2 or self.graph.ir.ir_version < FIRST_WITH_INNER:
            return
        first, *others = (list(self._outwards(value.scope)) for value in equal)
        around = next((scope for scope in first if all(scope in chain for chain in others)), None)
        if around is None:
            return
        holder = self._in_scope(equal[0].scope, around)
        with self.graph.site(holder) as new:
            new.require(not self.graph.in_function(holder), "functions have no initializers")
            tensor = equal[0].held
            assert tensor is not None
            outer = new.constant(tensor, equal[0].name)
            for value in equal:
                new.replace(value, outer)

    def transpose(self, kept: Value, other: Value) -> None:
        """Replace a matrix by the Transpose of another one."""
        if kept.scope not in self._outwards(other.scope):
            kept, other = other, kept
        if kept.scope not in self._outwards(other.scope):
            return
        with self.graph.site(self._first_reader(other)) as new:
            new.require(not other.is_output, "the initializer is an output of its graph")
            new.replace(other, new.node("Transpose", kept, perm=[1, 0]))

    def _first_reader(self, value: Value) -> Node:
        """Return a node in the scope of an initializer that reads it, or whose subgraphs do."""
        reader = value.consumers[0]
        return reader if reader.scope is value.scope else self._in_scope(reader.scope, value.scope)

    def _in_scope(self, inner: Any, outer: Any) -> Node:
        """Return the node of a scope whose subgraphs include another scope."""
        while self.holders[inner].scope is not outer:
            inner = self.holders[inner].scope
        return self.holders[inner]

    def _outwards(self, scope: Any) -> Iterator[Any]:
        """Yield a scope and its enclosing scopes, from the inside out."""
        while scope is not None:
            yield scope
            scope = self.holders[scope].scope if scope in self.holders else None
