"""Which operators hand elements on as they are, from which inputs, and which look at no element at all."""

from __future__ import annotations

RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that hand on all elements in order: the result is the operand under another shape."""

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
"""Operators that hand on elements, repeat them or leave some out, and add none of their own."""

GATHERING = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that read few elements of a large table."""

EXTENTS = frozenset({"Shape", "Size"})
"""Operators whose results are extents of their operand."""

FORM_ONLY = EXTENTS | {"EyeLike", "OptionalHasElement", "RandomNormalLike", "RandomUniformLike", "SequenceLength"}
"""Operators whose results depend on the shape or the form of their operand, not on its elements."""

VARIADIC = frozenset({"Concat", "Max", "Min", "SequenceConstruct"})
"""Operators that hand on elements of all their inputs."""

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
"""Operators that hand the elements of these inputs on, all or some of them, to the first output. A bound, the size of
a number or its fraction may change: what is legal after them is legal before."""

CARRIES_FLOATS = {op: frozenset({0}) for op in ("Dropout", "GlobalMaxPool", "LeakyRelu", "MaxPool", "PRelu")}
"""Operators that hand on elements of their first input, at least some of them or the positive ones."""
