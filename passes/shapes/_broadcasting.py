"""Changes of shape when a value gets a smaller shape that its readers broadcast."""

from __future__ import annotations

from surgery import Builder, Node, Value

Dims = tuple[int | str | None, ...]

_FIXED = frozenset({"PRelu", "Pow"})
"""Operators that broadcast, but never enlarge their first input, or give different bits for a single number."""

_UNARY = frozenset({"Abs", "Cast", "Ceil", "Floor", "Identity", "Neg", "Not", "Relu", "Sqrt"})
"""Operators that map each element of their only input separately, to the same bits at every position."""

_LONGEST = 16
"""Maximum number of values that may change."""


def shrink(value: Value, shape: Dims) -> dict[Value, Dims] | None:
    """List the new shapes of values if a value is not expanded but has this shape; None if that has other effects.

    It has if the caller reads a changed value, or an operator that does not broadcast.
    """
    changed: dict[Value, Dims] = {value: shape}
    pending = [value]
    while pending:
        here = pending.pop()
        if here.is_output or len(changed) > _LONGEST:
            return None
        for reader in here.consumers:
            result = _result(reader, changed)
            if result is None:
                return None
            output = reader.outputs[0]
            if result != output.shape and changed.get(output) != result:
                changed[output] = result
                pending.append(output)
    return changed


def _result(reader: Node, changed: dict[Value, Dims]) -> Dims | None:
    """Return the result shape of an elementwise operator for operands of changed shapes; None if unknown."""
    broadcasts = reader.is_broadcasting and reader.op not in _FIXED
    if not (broadcasts or reader.op in _UNARY) or reader.opset < 8:
        return None
    shapes = [changed.get(value, value.shape) for value in reader.inputs if value is not None]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known))
    dims = [_extent([shape[-place] for shape in known if len(shape) >= place]) for place in range(rank, 0, -1)]
    return None if None in dims else tuple(dims)


def _extent(extents: list[int | str | None]) -> int | str | None:
    """Broadcast extents; return None if that needs more than a comparison of names."""
    wanted = {extent for extent in extents if extent != 1}
    return 1 if not wanted else wanted.pop() if len(wanted) == 1 else None


def declare(new: Builder, changed: dict[Value, Dims]) -> None:
    """Write the changed shapes to the model, and drop the facts inferred before."""
    for value, dims in changed.items():
        if value.declared_dims is not None:
            new.declare(value, value.type, dims)
        if value.producer is not None:
            value.graph.facts.drop(value.producer.ir)
