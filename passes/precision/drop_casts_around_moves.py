"""Casts to float32 and back around an operator that only moves elements."""

from __future__ import annotations

from surgery import Graph, Node, Parity, Refusal, graph_pass, narrowing

from ._narrow_casts import Casts
from ._narrow_format import BFLOAT16, FLOAT16
from ._narrow_nodes import is_default

_MOVING = (
    *("CenterCropPad", "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements"),
    *("GatherND", "Pad", "Reshape", "Resize", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
    *("Transpose", "Trilu", "Unsqueeze", "Where"),
)
"""Operators whose results are elements of their operands, or zeros; for Resize this depends on the attributes."""


@graph_pass("drop-casts-around-moves", parity=Parity.EXACT)
def drop_casts_around_moves(graph: Graph) -> None:
    """Move elements in float16 or bfloat16 where they are cast to float32 before and back after.

    Right because float32 represents each number of the narrower type, and no new number arises: a number that is cast
    back was cast before, or is a zero or a constant of the narrower type. Converters to float16 leave such Casts around
    each Resize, which is included if it takes the nearest element. Where ONNX Runtime has no kernel for
    float16 on the CPU, it casts around the operator itself; for bfloat16 it does not, and the Casts stay.

    No shipped recipe has this pass, because ONNX Runtime on the CPU leaves out the rounding to float16 between two
    operators that it casts around: a value beyond 65,504 that was infinite before the pass may be finite after it.

    Example:
        g (float16[N,4] x) => (float16[4,N] y) {
            a = Cast<to = 1>(x)
            b = Transpose(a)
            y = Cast<to = 10>(b)
        }
    """
    for casts in (Casts(graph, FLOAT16, "cpu"), Casts(graph, BFLOAT16, "cpu")):
        for node in graph.nodes(*_MOVING):
            if is_default(node) and any(value is not None and casts.source(value) for value in node.inputs):
                _move(graph, node, casts)


def _move(graph: Graph, node: Node, casts: Casts) -> None:
    """Compute a node that reads values cast to float32 in the narrower type."""
    to = casts.format.dtype
    readers = [reader for output in node.outputs for reader in output.consumers]
    back = [reader for reader in readers if is_default(reader) and reader.op == "Cast"]
    if not any(reader.outputs[0].dtype == to for reader in back):
        return
    with graph.site(node) as new:
        same = len(back) == len(readers) and all(reader.outputs[0].dtype == to for reader in back)
        new.require(same and not any(output.is_output for output in node.outputs), "its result is needed in float32")
        new.require(node.op != "Resize" or _takes_elements(node), "it computes new numbers, or fills one in")
        found = narrowing(node, to)
        if isinstance(found, str):
            raise Refusal(found)
        operands = node.inputs
        for place in sorted(found.inputs):
            value = node.required_input(place)
            known = casts.source(value) is not None or (value.is_constant and casts.holds(value))
            new.require(known, f"{casts.format.name} may not hold all of {value.name}")
            operands[place] = casts.narrow(new, value, node)
        made = new.nodes(node.op, *operands, outputs=len(node.outputs), attributes=node.attributes)
        for reader in back:
            new.replace(reader.outputs[0], made[node.outputs.index(reader.required_input(0))])


def _takes_elements(resize: Node) -> bool:
    """Return whether each element of the result is an element of the operand."""
    mapping = resize.attr("coordinate_transformation_mode", "half_pixel")
    return bool(resize.attr("mode", "nearest") == "nearest" and mapping != "tf_crop_and_resize")
