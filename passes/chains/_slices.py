"""Slices along one axis, read as ranges of indices."""

from __future__ import annotations

from dataclasses import dataclass

from surgery import Node, Value

from ._shared import constant_ints, has_parameters


@dataclass(frozen=True)
class Piece:
    """The elements at `indices` along one axis of `source`, whose extent is `whole`."""

    source: Value
    axis: int
    whole: int
    indices: range

    @property
    def is_block(self) -> bool:
        """Whether the elements are adjacent, in order, and not empty."""
        return self.indices.step == 1 and len(self.indices) > 0


def slice_inputs(node: Node) -> tuple[tuple[int, ...], ...] | None:
    """Return the starts, ends, axes and steps of a Slice; None if they are not constant."""
    if has_parameters(node):
        return None
    if node.opset < 10:
        found = [tuple(node.attr(name) or ()) for name in ("starts", "ends", "axes", "steps")]
    else:
        found = [ints for ints in (constant_ints(node.input(i)) for i in range(1, 5)) if ints is not None]
        if len(found) < 4:
            return None
    starts, ends, axes, steps = found
    axes, steps = axes or tuple(range(len(starts))), steps or (1,) * len(starts)
    return (starts, ends, axes, steps) if len({len(starts), len(ends), len(axes), len(steps)}) == 1 else None


def piece_of(value: Value) -> Piece | None:
    """Read the result of a Slice along one axis of static extent, or an output of such a Split; otherwise None."""
    node = value.producer
    if node is None or node.op not in ("Slice", "Split"):
        return None
    found = _ends(node, value.output_index or 0)
    source = node.required_input(0)
    if found is None or source.shape is None:
        return None
    (start, end, axis, step), shape = found, source.shape
    if not -len(shape) <= axis < len(shape) or step == 0:
        return None
    whole = shape[axis % len(shape)]
    if not isinstance(whole, int):
        return None
    return Piece(source, axis % len(shape), whole, range(whole)[start:end:step])


def _ends(node: Node, position: int) -> tuple[int, int, int, int] | None:
    """Return start, end, axis and step of one output of a Slice or a Split."""
    if node.op == "Slice":
        cut = slice_inputs(node)
        return None if cut is None or len(cut[0]) != 1 else (cut[0][0], cut[1][0], cut[2][0], cut[3][0])
    lengths = _lengths(node)
    if lengths is None:
        return None
    start = sum(lengths[:position])
    return start, start + lengths[position], node.attr("axis", 0), 1


def _lengths(node: Node) -> tuple[int, ...] | None:
    """Return the lengths of the outputs of a Split, as given or, for equal parts, as inferred; None if unknown."""
    if node.opset < 2 or has_parameters(node):
        return None
    lengths = tuple(node.attr("split") or ()) if node.opset < 13 else constant_ints(node.input(1))
    if lengths == () and node.attr("split") is None and node.input(1) is None:
        lengths = _inferred_lengths(node)
    return lengths if lengths is not None and len(lengths) == len(node.outputs) else None


def _inferred_lengths(node: Node) -> tuple[int, ...]:
    """Return the lengths of the outputs of a Split as far as they are known."""
    axis = node.attr("axis", 0)
    shapes = [value.shape for value in node.outputs]
    extents = [shape[axis] for shape in shapes if shape is not None and -len(shape) <= axis < len(shape)]
    return tuple(extent for extent in extents if isinstance(extent, int))
