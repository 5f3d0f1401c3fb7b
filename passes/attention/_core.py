"""Attention cores: softmax(scale * Q K^T + mask) V, and where queries, keys and values come from."""

from dataclasses import dataclass

from surgery import Node, Refusal, Value

from ._sinks import sink


@dataclass(frozen=True)
class Core:
    """The parts of one attention, each [batch, heads, sequence, size]; `keys` may still need a Transpose.

    With a `softcap` c, scaled scores x become c * tanh(x / c) before the mask is added. `more` holds the values that
    are added to the scores before the mask. If `guarded`, a Where replaces the NaN of fully masked rows with zeros.
    `columns` is the number of keys that the probabilities are known to have. `sink` holds logits [1, heads, 1, 1] that
    take part in the Softmax. Scores are multiplied by a `factor` with one number for each head or row, if any, before
    the mask is added.
    """

    queries: Value
    keys: "Side"
    values: Value
    mask: Value | None
    scale: float
    context: Value
    softcap: float = 0.0
    more: tuple[Value, ...] = ()
    guarded: bool = False
    columns: int | str | None = None
    sink: Value | None = None
    factor: Value | None = None

    @property
    def keys_dim(self) -> int | str | None:
        """The number of keys; None if unknown."""
        shape = self.keys.value.shape
        if shape is None or len(shape) < 3:
            return None
        places = self.keys.perm or tuple(range(len(shape)))
        return shape[places[1 if self.keys.count else -2]]

    @property
    def is_paired(self) -> bool:
        """Whether there are known to be as many values as keys, or the probabilities have a column for each key.

        The product with the values requires as many values as columns, although their dims may have different names.
        """
        keys, values = self.keys_dim, self.values.shape
        return keys is not None and (keys == self.columns or (values is not None and keys == values[-2]))


@dataclass(frozen=True)
class Side:
    """A value and the permutation that must still be applied to it (empty: none).

    With a `count`, the value is of rank 3, [batch, sequence, count * size], and must still be cut into heads.
    """

    value: Value
    perm: tuple[int, ...] = ()
    count: int = 0


def core(softmax: Node, *, capped: bool = False, several: bool = False, sinks: bool = False) -> Core | None:
    """Read the attention around a Softmax; return None if there is none, refuse if its inner values are read elsewhere.

    With `capped`, scores may go through a soft cap; with `several`, more than one mask may be added to them; with
    `sinks`, a column for a sink may be appended to them.
    """
    drain = sink(softmax) if sinks else None
    scores = softmax.required_input(0) if drain is None else drain.scores
    probabilities = behind_guard(softmax.outputs[0]) if drain is None else drain.probabilities
    reader = only_reader(probabilities)
    if reader is None or reader.op != "MatMul" or reader.input(0) != probabilities:
        return None
    found = _scores(scores, capped=capped)
    if found is None or (len(found[3]) > 1 and not several):
        return None
    product, scale, softcap, masks = found
    left, by_left = unscaled(product.required_input(0))
    right, by_right = unscaled(product.required_input(1))
    keys = _transposed(right)
    if left.is_constant or keys is None:
        return None
    if only_reader(scores) is None or softmax.outputs[0].is_output:
        raise Refusal("a value inside the attention is read elsewhere too")
    values = reader.required_input(1)
    mask = masks[0] if masks else None
    columns = (probabilities.shape or (None,))[-1]
    guarded, logits = (probabilities != softmax.outputs[0], None) if drain is None else (False, drain.logits)
    scale *= by_left * by_right
    return Core(left, keys, values, mask, scale, reader.outputs[0], softcap, masks[1:], guarded, columns, logits)


def only_reader(value: Value) -> Node | None:
    """Return the node that reads a value if it is the only use and in the same graph; otherwise None."""
    readers = value.consumers
    if len(readers) != 1 or value.is_output or readers[0].scope is not value.scope:
        return None
    return readers[0]


def scalar_factor(node: Node | None) -> tuple[Value, float] | None:
    """Return the value that a Mul or Div scales by one positive number, and the factor; otherwise None."""
    if node is None or node.op not in ("Mul", "Div"):
        return None
    first, second = node.required_input(0), node.required_input(1)
    value, other = (second, first) if node.op == "Mul" and first.is_constant else (first, second)
    factor = other.scalar
    if not isinstance(factor, float) or factor <= 0 or (other.rank or 0) > (value.rank or 0):
        return None
    return value, factor if node.op == "Mul" else 1 / factor


def behind_guard(probabilities: Value) -> Value:
    """Step over the Where that replaces the NaN of fully masked rows with zeros."""
    readers = probabilities.consumers
    where = next((node for node in readers if node.op == "Where" and node.input(2) == probabilities), None)
    if where is None or len(readers) != 2:
        return probabilities
    condition, zero = where.required_input(0).producer, where.required_input(1).scalar
    guards = condition is not None and condition.op == "IsNaN" and condition.input(0) == probabilities
    return where.outputs[0] if guards and zero == 0 else probabilities


def _scores(value: Value, *, capped: bool) -> tuple[Node, float, float, tuple[Value, ...]] | None:
    """Return the product of queries and keys, its factor and soft cap, and the masks added to it, last one first."""
    producer, masks = value.producer, list[Value]()
    while producer is not None and producer.op == "Add" and len(masks) < 3:
        first, second = producer.required_input(0), producer.required_input(1)
        for scores, mask in ((first, second), (second, first)):
            found = _product(scores, capped=capped)
            if found is not None:
                return (*found, (*masks, mask))
        inner = next((one for one in (first, second) if _is_sum(one, capped=capped)), None)
        if inner is None:
            return None
        masks.append(second if inner == first else first)
        producer = inner.producer
    found = None if producer is None or masks else _product(value, capped=capped)
    return None if found is None else (*found, ())


def _is_sum(value: Value, *, capped: bool) -> bool:
    """Return whether a value is a sum with a single reader that contains the product of queries and keys."""
    node = value.producer
    if node is None or node.op != "Add" or only_reader(value) is None:
        return False
    parts = (node.required_input(0), node.required_input(1))
    return any(_product(one, capped=capped) is not None or _is_sum(one, capped=capped) for one in parts)


def _product(value: Value, *, capped: bool) -> tuple[Node, float, float] | None:
    value, scale = unscaled(value)
    producer, softcap = value.producer, 0.0
    if capped and producer is not None and producer.op == "Tanh" and only_reader(value) is not None:
        value, inner = unscaled(producer.required_input(0))
        producer, softcap, scale = value.producer, scale, inner * scale
    if producer is None or producer.op != "MatMul" or only_reader(value) is None:
        return None
    right = producer.required_input(1)
    return None if right.is_constant else (producer, scale, softcap)


def unscaled(value: Value) -> tuple[Value, float]:
    """Step over the scalar factors of a value; return the unscaled value and the product of the factors."""
    scale = 1.0
    while (found := scalar_factor(value.producer)) is not None and only_reader(value) is not None:
        value, scale = found[0], scale * found[1]
    return value, scale


def _transposed(value: Value) -> Side | None:
    """Return the keys before the Transpose of their last two dims, which may be done in rank 3; otherwise None."""
    producer = value.producer
    if producer is not None and producer.op == "Reshape":
        source = _turned_in_rank_3(producer)
        return None if source is None else Side(source)
    if producer is None or producer.op != "Transpose":
        return None
    perm = tuple(producer.attr("perm") or ())
    source = producer.required_input(0)
    if perm == (0, 1, 3, 2):
        return Side(source)
    return Side(source, (0, 2, 1, 3)) if perm == (0, 2, 3, 1) else None


def _turned_in_rank_3(last: Node) -> Value | None:
    """Return the heads whose last two dims are transposed in rank 3, with the leading dims merged into one."""
    turn = last.required_input(0).producer
    if turn is None or turn.op != "Transpose" or turn.attr("perm") != [0, 2, 1]:
        return None
    first = turn.required_input(0).producer
    if first is None or first.op != "Reshape":
        return None
    source = first.required_input(0)
    before, rows, after = source.shape, first.outputs[0].shape, last.outputs[0].shape
    if before is None or rows is None or after is None or len(before) != 4 or None in before:
        return None
    turned = rows[1:] == before[2:] and after == (*before[:2], before[3], before[2])
    return source if turned else None


@dataclass(frozen=True)
class Heads:
    """Heads in one tensor of rank 3, [batch, sequence, count * size]."""

    flat: Value
    count: int
    size: int


def heads(side: Side) -> Heads | None:
    """Find the flat tensor that a Reshape cuts into heads before a Transpose moves the head axis forward."""
    value = side.value
    if side.perm != (0, 2, 1, 3):
        producer = value.producer
        if side.perm or producer is None or producer.op != "Transpose" or producer.attr("perm") != [0, 2, 1, 3]:
            return None
        value = producer.required_input(0)
    reshape = value.producer
    if reshape is None or reshape.op != "Reshape":
        return None
    flat, cut = reshape.required_input(0), value.shape
    if flat.rank != 3 or cut is None or len(cut) != 4 or not keeps(reshape, 2):
        return None
    count, size = cut[2], cut[3]
    return Heads(flat, count, size) if isinstance(count, int) and isinstance(size, int) else None


def keeps(reshape: Node, leading: int) -> bool:
    """Return whether a Reshape keeps the first `leading` dims."""
    wanted, before, after = reshape.required_input(1), reshape.required_input(0).shape, reshape.outputs[0].shape
    elements = wanted.elements if wanted.is_constant and not reshape.attr("allowzero") else None
    for axis in range(leading):
        if elements is not None and len(elements) > axis and elements[axis] == 0:
            continue
        if before is None or after is None or before[axis] is None or before[axis] != after[axis]:
            return False
    return True


@dataclass(frozen=True)
class Repetition:
    """Heads of keys or values, each repeated `times` times: [batch, count * times, sequence, size].

    `apart` holds the heads before the repetition, with an axis of size 1 for it: [batch, count, 1, sequence, size].
    """

    apart: Value
    count: int
    times: int


def repetition(value: Value) -> Repetition | None:
    """Read the Expand and Reshape that repeat each head of keys or values."""
    reshape = value.producer
    expand = None if reshape is None or reshape.op != "Reshape" else reshape.required_input(0).producer
    if expand is None or expand.op != "Expand":
        return None
    apart = expand.required_input(0)
    before, wide, after = apart.shape, expand.outputs[0].shape, value.shape
    if before is None or wide is None or after is None or len(before) != 5 or len(wide) != 5 or None in before:
        return None
    count, times = before[1], wide[2]
    if not isinstance(times, int) or not isinstance(count, int) or before[2] != 1:
        return None
    repeats = wide == (*before[:2], times, *before[3:]) and after == (before[0], count * times, *before[3:])
    return Repetition(apart, count, times) if repeats else None


def flat_apart(apart: Value) -> Heads | None:
    """Find the flat tensor from which heads with an axis for repetitions are cut."""
    producer = apart.producer
    if producer is None:
        return None
    if producer.op == "Unsqueeze":
        return heads(Side(producer.required_input(0)))
    reshape = producer.required_input(0).producer if producer.op == "Transpose" else None
    if reshape is None or reshape.op != "Reshape" or producer.attr("perm") != [0, 3, 2, 1, 4]:
        return None
    flat, cut = reshape.required_input(0), reshape.outputs[0].shape
    if flat.rank != 3 or cut is None or len(cut) != 5 or cut[2] != 1 or not keeps(reshape, 2):
        return None
    count, size = cut[3], cut[4]
    return Heads(flat, count, size) if isinstance(count, int) and isinstance(size, int) else None


def flat_behind(context: Value) -> Node | None:
    """Return the Reshape that joins the heads of a context after its Transpose, or None."""
    turn = only_reader(context)
    if turn is None or turn.op != "Transpose" or turn.attr("perm") != [0, 2, 1, 3]:
        return None
    join = only_reader(turn.outputs[0])
    return join if join is not None and join.op == "Reshape" and join.input(0) == turn.outputs[0] else None
