"""Operators that pass elements through unchanged, from which inputs, and operators that read no elements."""

from __future__ import annotations

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that only change the shape of their first input."""

RESHAPING = frozenset({*RESHAPES, "Identity"})
"""Operators that pass all elements through in order: the result is the operand with another shape."""

REARRANGING = RESHAPING | {
    "Concat",
    "DepthToSpace",
    "Expand",
    "Gather",
    "GatherElements",
    "GatherND",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Tile",
    "Transpose",
}
"""Operators that pass elements through, repeat or drop some, and add no new ones."""

GATHERING = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that read a few rows or elements of a table."""

EXTENTS = frozenset({"Shape", "Size"})
"""Operators whose results are dims of their operand, or their product."""

FORM_ONLY = EXTENTS | {"EyeLike", "OptionalHasElement", "RandomNormalLike", "RandomUniformLike", "SequenceLength"}
"""Operators whose results depend on the shape or form of their operand, not on its elements."""

VARIADIC = frozenset({"Concat", "Max", "Min", "SequenceConstruct"})
"""Operators that pass elements of all their inputs through."""

CARRIES: dict[str, frozenset[int]] = {
    **dict.fromkeys(
        [
            *sorted(REARRANGING - VARIADIC),
            "Abs",
            "Cast",
            "CastLike",
            "Ceil",
            "Clip",
            "Compress",
            "ConcatFromSequence",
            "Floor",
            "Optional",
            "OptionalGetElement",
            "Pad",
            "ReduceMax",
            "ReduceMin",
            "Relu",
            "ReverseSequence",
            "Round",
            "SequenceAt",
            "SequenceConstruct",
            "SplitToSequence",
            "TopK",
            "Trilu",
            "Unique",
        ],
        frozenset({0}),
    ),
    "Where": frozenset({1, 2}),
    "Scatter": frozenset({0, 2}),
    "ScatterElements": frozenset({0, 2}),
    "ScatterND": frozenset({0, 2}),
    "SequenceInsert": frozenset({0, 1}),
}
"""Operators that pass all or some elements of these inputs to the first output. Numbers may be clipped or rounded, or
lose their sign, but elements that are legal at the output are also legal at the input."""

CARRIES_FLOATS = {op: frozenset({0}) for op in ("Dropout", "GlobalMaxPool", "LeakyRelu", "MaxPool", "PRelu")}
"""Operators that pass elements of their first input through, at least some of them or the positive ones."""
