"""What changes when a value comes in a smaller shape, to be broadcast by those that read it."""

from __future__ import annotations

from surgery import Builder, Node, Value

Dims = tuple[int | str | None, ...]

_FIXED = frozenset({"PRelu", "Pow"})
"""Operators that broadcast, but never enlarge their first input, or give other bits for one number than for many."""

_UNARY = frozenset({"Abs", "Cast", "Ceil", "Floor", "Identity", "Neg", "Not", "Relu", "Sqrt"})
"""Operators that map each element of their only input by itself, to the same bits wherever it stands."""

_LONGEST = 16
"""Nodes in a row that are looked at."""


def shrink(value: Value, shape: Dims) -> dict[Value, Dims] | None:
    """List the values whose shape changes when a value, expanded before, has this shape; None where it would be seen.

    That is by the caller, or by an operator that does not broadcast what it reads.
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
    """Return the shape that an elementwise operator gives for operands of changed shapes."""
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
    """Broadcast extents; None when that takes more than comparing names."""
    wanted = {extent for extent in extents if extent != 1}
    return 1 if not wanted else wanted.pop() if len(wanted) == 1 else None


def declare(new: Builder, changed: dict[Value, Dims]) -> None:
    """Write the changed shapes into the model, and forget what was inferred before."""
    for value, dims in changed.items():
        if value.declared_shape is not None:
            new.declare(value, value.type, dims)
        if value.producer is not None:
            value.graph.facts.drop(value.producer.ir)
