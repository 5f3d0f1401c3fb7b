"""Equal weights stored once."""

from collections.abc import Iterator
from typing import Any

from surgery import Graph, Parity, Value, graph_pass


@graph_pass("dedupe-initializers", parity=Parity.EXACT)
def dedupe_initializers(graph: Graph) -> None:
    """Replace equal initializers by the first of them.

    Right because tensors with equal type, dims and bytes are interchangeable: 0.0 and -0.0 differ, and a NaN equals
    only a NaN with the same bits. The remaining initializer must be visible to all consumers, so it is in the same
    scope or in an enclosing one. Overridable initializers stay, and so do initializers that are graph outputs, because
    of their names.

    Example:
        g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}>
        {
            a = Mul(x, v)
            y = Add(a, w)
        }
    """
    around = {scope: holder.scope for scope, holder in graph.holders().items()}
    found = [Value(graph, value) for scope in graph.scopes for value in scope.initializers.values()]
    for equal in graph.equal_tensors(value for value in found if value.is_used):
        kept: dict[Any, Value] = {}
        for value in equal:
            scope = value.scope
            first = next((kept[outer] for outer in _outwards(scope, around) if outer in kept), None)
            if first is None:
                if not value.is_overridable:
                    kept[scope] = value
                continue
            with graph.site(next(iter(value.consumers), None)) as new:
                new.require(not value.is_overridable, "a caller can override the initializer")
                new.require(not value.is_output, "the initializer is an output of its graph")
                new.replace(value, first)


def _outwards(scope: Any, around: dict[Any, Any]) -> Iterator[Any]:
    """Yield a scope and its enclosing scopes, from the inside out."""
    while scope is not None:
        yield scope
        scope = around.get(scope)
