"""EmbedLayerNormalization."""

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Match, Parity, Refusal, Value, pattern_pass

from ._lookups import Lookup, as_int32, counts, is_zero, lookup

IDS = "the ids are not known to be one for each position of each batch"
OPERATOR = "com.microsoft::EmbedLayerNormalization"


@dataclass(frozen=True)
class Embedding:
    """The lookups: words, positions, whose ids are not needed if they count up (`counted`), and segments, if any."""

    words: Lookup
    positions: Lookup
    counted: bool
    segments: Lookup | None


@pattern_pass(
    "fuse-embed-layer-norm",
    match="y, mean?, deviation? = LayerNormalization(x, scale, shift?)",
    parity=Parity.CLOSE,
)
def fuse_embed_layer_norm(m: Match, new: Builder) -> Value:
    """Fuse the sum of two or three embeddings and the LayerNormalization over it into EmbedLayerNormalization.

    Right because this is the definition of com.microsoft::EmbedLayerNormalization: rows of a table of words, of a table
    of positions and, optionally, of a table of segments are added, and the sum is normalized over the last axis. The
    sum is the third output of the operator, which replaces the sum for other readers. Positions that count from 0 are
    the default of the operator; others become its input, however they are computed. Segments that are all 0 add the
    first row of their table, which is folded into the table of positions. Ids become int32, the type that the operator
    requires.

    An id below 0, which counts from the end in Gather, is an error in the operator: the model then accepts fewer
    inputs, and no shipped recipe has this pass. Exporters do not create such ids.

    Example:
        # target: ort-cpu
        g (int64[B,S] ids) => (float[B,S,2] y)
        <float[3,2] words = {1, 2, 3, 4, 5, 7}, float[5,2] places = {1, 3, 5, 6, 0, 2, 2, 1, 4, 9}, float[2] w = {1, 2},
         float[2] b = {3, 4}, int64 zero = {0}, int64 one = {1}, int64[1] first = {0}> {
            shape = Shape<start = 1>(ids)
            length = Squeeze(shape)
            counted = Range(zero, length, one)
            row = Unsqueeze(counted, first)
            e = Gather(words, ids)
            p = Gather(places, row)
            s = Add(e, p)
            y = LayerNormalization(s, w, b)
        }
    """
    epsilon = float(m.root.attr("epsilon", 1e-5))
    m.require(m.root.attr("axis", -1) in (-1, 2), "the norm is not over the last axis alone")
    m.require(not any(value.is_used for value in m.root.outputs[1:]), "the mean or the deviation is read too")
    m.require(epsilon >= 0, "epsilon is negative")
    new.require_operator(OPERATOR, m.x)
    found = _embedding(m.x)
    hidden = found.words.table.shape[1:] if found.words.table.shape else ()
    for vector in (m.scale, m.shift):
        m.require(vector is None or vector.shape == hidden, "the scale or the shift is not one number for each channel")
        m.require(vector is None or vector.producer is None or vector.is_constant, "the scale or the shift is computed")
    others = m.x.is_output or any(reader != m.root for reader in m.x.consumers)
    shift = new.constant(np.zeros(hidden, np.float32), "shift") if m.shift is None else m.shift
    outputs = new.nodes(
        OPERATOR,
        *_inputs(found, m.scale, shift, new),
        outputs=3 if others else 1,
        omitted=(1,) if others else (),
        epsilon=epsilon,
        mask_index_type=0,
    )
    if others:
        new.replace(m.x, outputs[2])
    return outputs[0]


def _inputs(found: Embedding, scale: Value, shift: Value, new: Builder) -> list[Value | None]:
    table, segments = found.positions.table, found.segments
    if segments is not None and is_zero(segments.ids) and table.reads == 1:
        rows, first = table.constant, segments.table.constant
        if rows is not None and first is not None and len(first):
            table, segments = new.constant(rows + first[0], table.name), None
    new.require(segments is None or segments.ids.shape == found.words.ids.shape, IDS)
    return [
        as_int32(found.words.ids, new),
        None if segments is None else as_int32(segments.ids, new),
        found.words.table,
        table,
        None if segments is None else segments.table,
        scale,
        shift,
        None,
        None if found.counted else as_int32(found.positions.ids, new),
    ]


def _embedding(total: Value) -> Embedding:
    """Read the sum of two or three lookups."""
    dims, add = total.shape, total.producer
    known = dims is not None and len(dims) == 3 and None not in dims and isinstance(dims[-1], int) and dims[-1] > 0
    if add is None or add.op != "Add" or dims is None or not known:
        raise Refusal("the normalized value is not a sum of rank 3 with a known number of channels")
    parts: list[Value] = []
    pending = [add.required_input(1), add.required_input(0)]
    while pending:
        value = pending.pop()
        inner = value.producer
        if inner is not None and inner.op == "Add" and value.reads == 1 and not value.is_output:
            pending += [inner.required_input(1), inner.required_input(0)]
        else:
            parts.append(value)
    found = [lookup(value, dims[-1], add.scope) for value in parts]
    lookups = [one for one in found if one is not None]
    if len(lookups) != len(found) or not 2 <= len(found) <= 3:
        raise Refusal("the summands are not two or three embeddings that nothing else reads")
    return _roles(lookups, dims[:2])


def _roles(found: list[Lookup], grid: tuple[int | str | None, ...]) -> Embedding:
    """Identify the words, the positions and the segments, by ids that count up and by the shapes of the ids."""
    counted = [one for one in found if counts(one.ids, grid[1])]
    rows = [one for one in found if one.ids.shape in ((1, grid[1]), grid[1:])]
    positions = (counted or rows or found[1:2])[0]
    rest = sorted((one for one in found if one is not positions), key=lambda one: is_zero(one.ids))
    fits = bool(counted) or positions.ids.shape in (grid, (1, grid[1]), grid[1:])
    if not fits or rest[0].ids.shape != grid:
        raise Refusal(IDS)
    return Embedding(rest[0], positions, bool(counted), rest[1] if len(rest) == 2 else None)
