"""Written-out rotary position embeddings fused into ONNX Runtime's operator."""

from collections import defaultdict
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import Side, heads
from ._rotation import Rotation, fits, full_shape, gathered, half, repeats, rotations, widened
from ._shared import ints

OPERATOR = "com.microsoft::RotaryEmbedding"

Tables = dict[Any, Value]
"""Values that several rotations share: tables by their cos or sin, positions by the batch and sequence dims."""


@graph_pass("fuse-contrib-rotary-embedding", parity=Parity.CLOSE)
def fuse_contrib_rotary_embedding(graph: Graph) -> None:
    """Fuse x * cos + rotate_half(x) * sin into com.microsoft::RotaryEmbedding.

    Right because the kernel of ONNX Runtime (rotary_embedding.cc) rotates the pair (x1, x2) of the halves of each head
    into (x1 cos - x2 sin, x2 cos + x1 sin). This is the written-out sum if the two halves of cos, and of sin, are the
    same: they must come from a Concat of one value with itself, or be constant. The pair may also be written as the
    Concat of a difference and a sum, where cos and sin hold one half only. If only the first columns of a head are
    rotated and a Concat appends the others, `rotary_embedding_dim` is the number of rotated columns. If neighbours are
    rotated instead of columns of the two halves, and share their cos and sin, the operator is `interleaved`; if their
    results become halves, a Concat puts the neighbours into halves first.

    The kernel looks up cos and sin by position in a table of limited length. Here the table holds one row for each
    token of this run, and the positions are the row numbers: no position is out of range, not even a negative one, just
    as in the nodes that are replaced. If the cosines are the same for the whole batch, the table has one row for each
    place of the sequence, and the position is the number of the first row. Heads cut out of a flat tensor are rotated
    before they are cut; so are heads after the axis of the sequence, [batch, sequence, heads, size].

    Example:
        # target: ort-cpu
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[B,2,S,4] x, float[B,S,2] angles) => (float[B,2,S,4] y)
        <int64[2] sizes = {2, 2}, int64[1] one = {1}>
        {
            twice = Concat<axis = -1>(angles, angles)
            c = Cos(twice)
            s = Sin(twice)
            cos = Unsqueeze(c, one)
            sin = Unsqueeze(s, one)
            x1, x2 = Split<axis = -1>(x, sizes)
            n = Neg(x2)
            r = Concat<axis = -1>(n, x1)
            a = Mul(x, cos)
            b = Mul(r, sin)
            y = Add(a, b)
        }
    """
    prepared: dict[Any, Tables] = defaultdict(dict)
    for node, found in rotations(graph):
        scope = node.scope
        tables = dict(prepared[scope])
        with graph.site(node) as new:
            _fuse(found, node, tables, new)
        if node.is_removed:
            prepared[scope] = tables


def _fuse(found: Rotation, add: Node, tables: Tables, new: Builder) -> None:
    shape = found.shape
    new.require(shape is not None and len(shape) == 4, "the rotated tensor is not of rank 4")
    assert shape is not None
    new.require_operator(OPERATOR, found.data)
    new.require(found.is_alone, "a value inside the rotation is read elsewhere too")
    axis = found.heads_axis
    count = shape[axis]
    new.require(isinstance(count, int), "the number of heads is not known")
    for factors in (found.cos, found.sin):
        new.require(fits(factors, found.angles_shape, axis), "cos or sin is not known to fit the heads")
        same = found.is_halved or repeats(factors, interleaved=found.is_interleaved)
        new.require(same, "the halves of cos or sin are not known to be the same")
    cos, sin = (_table(factors, found, tables, new) for factors in (found.cos, found.sin))
    positions = _positions(found, tables, new)
    wide = widened(found)
    data, size = gathered(wide, add.opset, new), (wide.shape or ())[-1]
    attributes = {"num_heads": count, "rotary_embedding_dim": wide.width}
    if found.is_interleaved:
        attributes["interleaved"] = 1
    assert isinstance(size, int) and isinstance(count, int)

    def turned(value: Value) -> Value:
        return new.node(OPERATOR, value, positions, cos, sin, attributes=attributes)

    rows = _rows(data, wide.nodes)
    if axis == 2:
        flat = turned(new.node("Reshape", data, ints(new, 0, 0, count * size)))
        done = new.node("Reshape", flat, ints(new, 0, 0, count, size))
    elif rows is not None:
        again = new.node("Reshape", turned(_flat(rows, new)), ints(new, 0, 0, count, size))
        done = new.node("Transpose", again, perm=[0, 2, 1, 3])
    elif count == 1 and data.producer is not None and data.producer.op == "Reshape":
        flat = turned(new.node("Reshape", data, ints(new, 0, -1, size)))  # a single head needs no Transpose
        done = new.node("Reshape", flat, ints(new, 0, 1, -1, size))
    else:
        done = turned(data)
    new.replace(wide.end, wide.whole(done, new))


def _table(factors: Value, found: Rotation, tables: Tables, new: Builder) -> Value:
    """Return one half of cos or sin with a row for each token."""
    source, size = _source(factors, found.heads_axis), found.angles_shape[-1]
    key = source, found.is_halved, found.is_interleaved
    if key not in tables:
        assert isinstance(size, int)
        width = size if found.is_halved else size // 2
        one = source if found.is_halved else half(source, new, interleaved=found.is_interleaved)
        tables[key] = new.node("Reshape", one, ints(new, -1, width))
    return tables[key]


def _source(factors: Value, axis: int) -> Value:
    """Return cos or sin without the axis for the heads, [batch, sequence, size], if an Unsqueeze adds that axis."""
    lift = factors.producer
    lifted = None if lift is None or lift.op != "Unsqueeze" else lift.required_input(0)
    shape = factors.shape or ()
    return lifted if lifted is not None and lifted.shape == (*shape[:axis], *shape[axis + 1 :]) else factors


def _positions(found: Rotation, tables: Tables, new: Builder) -> Value:
    """Return the row numbers of the tables, [batch, sequence], or the first one if the whole batch shares the rows."""
    extents, axis = [full_shape(factors) for factors in (found.cos, found.sin)], found.heads_axis
    new.require(extents[0][0] == extents[1][0], "one of cos and sin is the same for the whole batch")
    if extents[0][0] == 1:
        return new.constant(np.zeros(1, np.int64), "first_position")
    key = ("positions", extents[0][0], extents[0][3 - axis])
    if key not in tables:
        source = _source(found.cos, axis)
        place = 3 - axis if source.rank == 4 else 1
        dims = new.node("Gather", new.node("Shape", source), ints(new, 0, place))
        count = new.node("ReduceProd", dims, keepdims=0)
        zero, one = (new.constant(np.array(number, np.int64), "number") for number in (0, 1))
        tables[key] = new.node("Reshape", new.node("Range", zero, count, one), dims)
    return tables[key]


def _rows(data: Value, nodes: frozenset[Node]) -> Value | None:
    """Return the heads before their Transpose, [batch, sequence, heads, size], if nothing else reads `data`."""
    turn = data.producer
    if turn is None or turn.op != "Transpose" or turn.attr("perm") != [0, 2, 1, 3]:
        return None
    alone = set(data.consumers) <= nodes and not data.is_output
    return turn.required_input(0) if alone else None


def _flat(rows: Value, new: Builder) -> Value:
    cut, extents = heads(Side(rows, (0, 2, 1, 3))), rows.shape
    if cut is not None:
        return cut.flat
    assert extents is not None and isinstance(extents[2], int) and isinstance(extents[3], int)
    return new.node("Reshape", rows, ints(new, 0, 0, extents[2] * extents[3]))
