"""Legal contents of integer inputs of the operators of ONNX Runtime's own domain.

Source: the schemas of `com.microsoft`, docs/ContribOperators.md of ONNX Runtime. Some inputs of attention operators say
which positions count: as a mask of 0 and 1, as lengths, or as ends and starts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from surgery.base.operators.domain import MASK, Domain, arranged
from surgery.base.operators.dtypes import Array
from surgery.base.operators.use import InputUse, Shape

Rule = Callable[[InputUse], "Domain | None"]

SCALE = Domain(0.02, 0.1)
"""Scales of quantized tensors that leave most values within range."""


def _below(use: InputUse, index: int, axis: int) -> Domain | None:
    """Return indices below the extent of an axis of another input."""
    shape = use.shape(index)
    return Domain(0, shape[axis] - 1) if shape and len(shape) > axis and shape[axis] > 0 else None


def _rows(table: int, axis: int = 0) -> Rule:
    return lambda use: _below(use, table, axis)


def _padding(use: InputUse) -> Domain | None:
    """Return the selection of keys that count: a mask; lengths; ends then starts; or lengths then offsets."""
    mine, query = use.shape(), use.shape(0)
    if mine is None or len(mine) != 1:
        return MASK
    if not query or len(query) < 2:
        return None
    batch, length = query[0], _keys(use, query)

    def lengths(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        counts = rng.integers(1, length, batch, endpoint=True)
        if shape[0] == batch:
            return counts
        if shape[0] == 2 * batch:
            return np.concatenate([counts, np.floor(rng.random(batch) * counts)])
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return np.concatenate([counts, offsets, offsets])

    return Domain(draw=arranged(mine, use.flat, lengths)) if mine[0] in (batch, 2 * batch, 3 * batch + 2) else None


_PAST = {
    "Attention": 4,
    "DecoderMaskedMultiHeadAttention": 5,
    "GroupQueryAttention": 3,
    "MultiHeadAttention": 6,
    "QAttention": 8,
}
"""The input with past keys; their length is the second-to-last dim."""


def _keys(use: InputUse, query: Shape) -> int:
    """Return the number of keys: the new ones, plus the past ones unless past and present share a buffer."""
    key = use.shape(1) if use.node.op_type == "MultiHeadAttention" else None
    new = query[1] if not key else key[2] if len(key) == 4 else key[1]
    past = use.shape(_PAST[use.node.op_type])
    shares = use.has({"Attention": 6, "MultiHeadAttention": 8}.get(use.node.op_type, -1)) if past else True
    return new if shares or not past else new + past[-2]


def _lengths(use: InputUse) -> tuple[int, int] | None:
    """Return the number of new positions of GroupQueryAttention, and of past positions.

    If past and present have the same length, the buffer includes the new positions. The total number of positions is
    limited by the rows of the tables of angles.
    """
    query, past = use.shape(0), use.shape(3)
    if not query or len(query) != 3 or (use.has(3) and (past is None or len(past) != 4)):
        return None
    new, known = query[1], past[2] if past else 0
    present, angles = use.out(1), use.shape(7)
    if present and len(present) == 4 and past and present[2] == known:
        known -= new
    if angles:
        known = min(known, angles[0] - new)
    return new, max(0, known)


def _total_length(use: InputUse) -> list[int] | None:
    """Return the number of positions of the longest sequence, past and new."""
    lengths = _lengths(use)
    return None if lengths is None else [sum(lengths)]


def _last_positions(use: InputUse) -> Domain | None:
    """Return the index of the last position of each sequence; the first sequence is the longest.

    Without a past, or with only one new position, the others may be shorter.
    """
    lengths = _lengths(use)
    if lengths is None:
        return None
    new, past = lengths

    def lasts(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        least = new - 1 if past else 0
        drawn = rng.integers(least, new + past - 1, shape, endpoint=True)
        drawn.reshape(-1)[:1] = new + past - 1
        return np.asarray(drawn)

    return Domain(draw=lasts)


def _masked_lengths(use: InputUse) -> Domain | None:
    """Return masks whose row sums are the lengths of right-padded sequences; the first one is the longest.

    The last position of a sequence is then the sum of its row minus one.
    """
    lengths = _lengths(use)
    if lengths is None:
        return None
    new, past = lengths

    def masks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        least = min(shape[-1], new if past else 1)
        counts = rng.integers(least, shape[-1], shape[:-1], endpoint=True)
        counts.reshape(-1)[:1] = shape[-1]
        return np.asarray(np.arange(shape[-1]) < counts[..., np.newaxis])

    return Domain(draw=masks)


def _grouped_positions(use: InputUse) -> Domain | None:
    """Return positions within the tables of angles; for a prompt, the kernel reads the first one and counts up."""
    lengths, table = _lengths(use), use.shape(7)
    if lengths is None or not table:
        return None
    new, past = lengths
    if past:
        return Domain(0, table[0] - 1)

    def counted(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        first = rng.integers(0, max(0, table[0] - new), endpoint=True)
        return np.broadcast_to(first + np.arange(shape[-1]), shape).copy()

    return Domain(draw=counted)


def _rotary_positions(use: InputUse) -> Domain | None:
    """Return positions within the tables of cosines and sines, or only the first position of a sequence."""
    mine, data, table = use.shape(), use.shape(0), use.shape(2)
    if not data or not table:
        return None
    if mine == (1,):
        return Domain(0, max(0, table[0] - data[-2]))
    return Domain(0, table[0] - 1)


def _gathered(use: InputUse) -> Domain | None:
    data = use.shape(0)
    return _below(use, 0, use.axis(0, len(data)) if data else 0)


def _past_length(use: InputUse) -> Domain | None:
    """Return the filled length of a buffer for past and present."""
    query, past = use.shape(0), use.shape(_PAST[use.node.op_type])
    return Domain(0, past[-2] - query[1]) if query and past and past[-2] >= query[1] else None


def _suffix(use: InputUse) -> Domain | None:
    """Return the position at which the prediction starts: it is one longer than the rest of the source."""
    source, predicted = use.shape(0), use.shape(3)
    if not source:
        return None
    if not predicted:
        return Domain(0, source[0])
    place = max(0, source[0] + 1 - predicted[0])
    return Domain(place, place)


def _blocks(use: InputUse) -> Domain | None:
    """Return the indices of the blocks of rows of a packed matrix."""
    rows, size = int(use.attr("K", 0)), int(use.attr("block_size", 1))
    return Domain(0, max(0, -(-rows // size) - 1))


def _prefix_sums(use: InputUse) -> Domain | None:
    """Return the start of each of several concatenated sequences, and the end of the last one."""
    data = use.shape(0)
    if not data:
        return None

    def sums(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        cuts = np.sort(rng.integers(0, data[0], max(0, shape[0] - 2), endpoint=True))
        return np.asarray([0, *cuts, data[0]][: shape[0]])

    return Domain(draw=arranged(use.shape(), use.flat, sums))


def _solved(solver: Callable[[InputUse], list[int] | None]) -> Rule:
    def rule(use: InputUse) -> Domain | None:
        values = solver(use)
        return None if values is None else Domain(draw=lambda _, shape: np.resize(values, shape))

    return rule


_SCALED = {
    "DequantizeLinear": (1,),
    "DynamicQuantizeLSTM": (8, 10),
    "DynamicQuantizeMatMul": (2,),
    "GroupQueryAttention": (12, 13),
    "MatMulIntegerToFloat": (2, 3),
    "QAttention": (3, 4),
    "QEmbedLayerNormalization": (8, 9, 10, 11, 12),
    "QGemm": (1, 4, 7),
    "QLinearAdd": (1, 4, 6),
    "QLinearAveragePool": (1, 3),
    "QLinearConcat": (0, 2, 5, 8),
    "QLinearConv": (1, 4, 6),
    "QLinearGlobalAveragePool": (1, 3),
    "QLinearLeakyRelu": (1, 3),
    "QLinearMul": (1, 4, 6),
    "QLinearSigmoid": (1, 3),
    "QLinearSoftmax": (1, 3),
    "QLinearWhere": (2, 5, 7),
    "QuantizeLinear": (1,),
}

_MODULI = Domain(2, 97)
"""The moduli of hashes."""

RULES: dict[tuple[str, int], Rule] = {
    **{(op, index): lambda use: SCALE for op, indices in _SCALED.items() for index in indices},
    ("Attention", 3): _padding,
    ("Attention", 6): _past_length,
    ("BifurcationDetector", 2): _suffix,
    ("CropAndResize", 1): lambda use: Domain(0.0, 1.0),
    ("CropAndResize", 2): _rows(0),
    ("CropAndResize", 3): lambda use: Domain(2, 4),
    ("DecoderMaskedMultiHeadAttention", 3): _padding,
    ("DecoderMaskedMultiHeadAttention", 7): _past_length,
    ("DecoderMaskedMultiHeadAttention", 9): lambda use: _below(use, use.index, 1),
    ("EmbedLayerNormalization", 0): _rows(2),
    ("EmbedLayerNormalization", 1): _rows(4),
    ("EmbedLayerNormalization", 7): lambda use: MASK,
    ("EmbedLayerNormalization", 8): _rows(3),
    ("GatedDeltaNet", 3): _prefix_sums,
    ("GatherBlockQuantized", 1): _gathered,
    ("GatherPacked", 1): _rows(0),
    ("GroupQueryAttention", 5): _last_positions,
    ("GroupQueryAttention", 6): _solved(_total_length),
    ("GroupQueryAttention", 9): _grouped_positions,
    ("MRotaryEmbedding", 1): _rows(2),
    ("MatMulNBits", 4): _blocks,
    ("MaxpoolWithMask", 1): lambda use: MASK,
    ("MultiHeadAttention", 4): _padding,
    ("MultiHeadAttention", 8): _past_length,
    ("MultiHeadAttention", 9): lambda use: _below(use, use.index, 1),
    ("NGramHashMapping", 2): lambda use: _MODULI,
    ("NGramRepeatBlock", 0): _rows(1, 1),
    ("QAttention", 5): _padding,
    ("QEmbedLayerNormalization", 0): _rows(2),
    ("QEmbedLayerNormalization", 1): _rows(4),
    ("QEmbedLayerNormalization", 7): lambda use: MASK,
    ("RotaryEmbedding", 1): _rotary_positions,
    ("VarlenCausalConvWithState", 2): _prefix_sums,
    ("VarlenNGramHashMapping", 2): lambda use: _MODULI,
    ("VarlenNGramHashMapping", 3): _prefix_sums,
    ("WordConvEmbedding", 0): _rows(3),
}
"""Like `legal_inputs.RULES`, without the domain."""

SUMS: dict[tuple[str, int], Rule] = {("GroupQueryAttention", 5): _masked_lengths}
"""The legal contents of a mask whose sums over the last axis reach an input."""

ANY: dict[str, tuple[int, ...]] = {
    "BifurcationDetector": (0, 1, 3),
    "DequantizeLinear": (0, 2),
    "DynamicQuantizeLSTM": (1, 2, 9, 11),
    "DynamicQuantizeMatMul": (1, 3),
    "GatedDeltaNet": (9, 10),
    "EngramGate": (3, 4, 5),
    "GatherBlockQuantized": (0, 3),
    "GatherPacked": (0,),
    "LinearAttentionGate": (2,),
    "MatMulBnb4": (1,),
    "MatMulFpQ4": (1,),
    "MatMulInteger16": (0, 1),
    "MatMulIntegerToFloat": (0, 1, 4, 5),
    "MatMulNBits": (1,),
    "NGramHashMapping": (0, 1, 3, 4, 5, 6),
    "NhwcMaxPool": (0,),
    "QAttention": (0, 1, 6, 7),
    "QEmbedLayerNormalization": (2, 3, 4, 5, 6, 13, 14, 15, 16, 17),
    "QGemm": (0, 2, 3, 5, 6, 8),
    "QLinearAdd": (0, 2, 3, 5, 7),
    "QLinearAveragePool": (0, 2, 4),
    "QLinearConcat": (1,),
    "QLinearConv": (0, 2, 3, 5, 7, 8),
    "QLinearGlobalAveragePool": (0, 2, 4),
    "QLinearLeakyRelu": (0, 2, 4),
    "QLinearMul": (0, 2, 3, 5, 7),
    "QLinearSigmoid": (0, 2, 4),
    "QLinearSoftmax": (0, 2, 4),
    "QLinearWhere": (0, 1, 3, 4, 6, 8),
    "QMoE": (2, 5, 8, 11, 12, 13, 15, 16, 17, 18, 19, 20),
    "QuantizeLinear": (2,),
    "Tokenizer": (0,),
    "VarlenCausalConvWithState": (5,),
    "VarlenNGramHashMapping": (0, 1, 4, 5, 6, 7, 8, 9),
}
"""Inputs with arbitrary integers or texts: data, weights, zero points, words, and numbers that the kernel reduces to a
range; also scales that are weights."""

DEPENDENT: dict[str, tuple[int, ...]] = {
    "BeamSearch": (1, 2, 3, 4, 7, 8, 9, 10, 11),
    "GreedySearch": (0, 1, 2, 4, 5, 6),
    "GroupQueryAttention": (16,),
    "Sampling": (0, 1, 2, 4, 5, 6, 7, 8),
    "SparseAttention": (5, 6, 7, 8),
    "WhisperBeamSearch": (1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13),
}
"""Inputs that must be consistent with other inputs, or with a model inside the operator. Drawn inputs may be rejected;
the user must then supply them."""
