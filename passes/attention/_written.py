"""Attentions written out in forms that `_core` does not read: in rank 3, masked by Where, with a factor per head."""

from dataclasses import dataclass, replace

from surgery import Node, Refusal, Value

from ._core import Core, Side, behind_guard, unscaled
from ._sinks import sink
from ._steps import Added, Chosen, Dims, Steps, is_attention, is_einsum, is_lift, reader, steps_before, times


@dataclass(frozen=True)
class Written:
    """An attention and the steps that its scores go through before the Softmax.

    `extents` are the dims [batch, heads, queries] of its scores. If `is_flat`, queries, keys, values and the context of
    `core` are of rank 3, and their batch dim stands for batch and heads of the model. From the step `joint_from` on,
    toward the product, scores are [batch * heads, queries, keys]; None if they never are.
    """

    core: Core
    steps: Steps
    extents: Dims
    is_flat: bool = False
    joint_from: int | None = None

    @property
    def is_einsum(self) -> bool:
        """Whether one of the products is an Einsum."""
        nodes = self.steps.product, self.core.context.producer
        return any(node is not None and node.op == "Einsum" for node in nodes)

    @property
    def keys_dim(self) -> int | str | None:
        """The number of keys; None if unknown."""
        side = self.core.keys
        shape = side.value.shape
        if shape is None or len(shape) < 3:
            return None
        places = side.perm or tuple(range(len(shape)))
        return shape[places[1 if side.count else -2]]


def explain(softmax: Node) -> None:
    """Refuse an attention in an unsupported form, naming the first difference."""
    if not is_attention(softmax):
        return
    written = read(softmax)
    if written.steps.factor is not None:
        raise Refusal("scores have a separate factor for each head, which only MultiHeadAttention allows here")
    if written.is_flat or written.core.queries.rank == 3:
        raise Refusal("the attention is of rank 3, which only MultiHeadAttention allows here")
    if written.joint_from is not None:
        raise Refusal("the product of queries and keys is of rank 3, which only MultiHeadAttention allows here")
    if any(isinstance(step, Chosen) for step in written.steps.added):
        raise Refusal("a mask by Where comes before the Softmax, which only MultiHeadAttention allows here")
    if len(written.steps.added) > 1:
        raise Refusal("more than one mask is added to the scores, which only MultiHeadAttention allows here")
    if any(isinstance(step, Added) and step.factor != 1 for step in written.steps.added):
        raise Refusal("a mask is scaled with the scores, which only MultiHeadAttention allows here")
    if written.is_einsum:
        raise Refusal("queries and keys are multiplied by Einsum, which only MultiHeadAttention allows here")
    raise Refusal("the queries are not multiplied by a transposed tensor, scaled by at most one number")


def with_factor(softmax: Node) -> Core | None:
    """Read an attention whose scores have a separate factor for each head or row; None in other forms."""
    if not is_attention(softmax):
        return None
    written = read(softmax)
    added = [
        step.value for step in written.steps.added if isinstance(step, Added) and step.factor == 1 and not step.windows
    ]
    plain = not written.is_flat and written.joint_from is None and not written.is_einsum
    if written.steps.factor is None or not plain or len(added) != len(written.steps.added) or len(added) > 1:
        return None
    return replace(written.core, mask=added[0] if added else None, more=(), factor=written.steps.factor)


def read(softmax: Node) -> Written:
    """Read an attention in one of the less common forms; refuse at the first difference from them."""
    if sink(softmax) is not None:
        raise Refusal("a sink takes part in the Softmax, which only GroupQueryAttention allows here")
    steps = steps_before(softmax)
    product = steps.product
    assert product is not None
    last, lowered = _last(softmax)
    (left, by_left), (right, by_right) = (unscaled(product.required_input(place)) for place in (0, 1))
    reads = tuple(step.value if isinstance(step, Added) else step.condition for step in steps.added)
    scale, values, context = steps.scale * by_left * by_right, last.required_input(1), last.outputs[0]
    rank = left.rank
    if rank is not None and rank > 4:
        # 49 windows of 64 tokens in ONNX Runtime 1.32: 1.17 ms, MultiHeadAttention 1.47 ms, Attention 1.24 ms
        raise Refusal("the attention is of rank 5 or more: the operators need the leading dims merged, and are slower")
    if rank not in (3, 4) or right.rank != rank or values.rank != rank:
        raise Refusal("queries, keys and values are not all of rank 3 or 4, or their rank is not known")
    if (steps.lifted is not None) != lowered or (lowered and rank == 4):
        raise Refusal("scores are cut into heads, and the probabilities are not put together again, or the reverse")
    turned = product.op == "MatMul"  # an Einsum reads keys untransposed
    length = (right.shape or (None,))[-1 if turned else -2]
    _require_agreement(product, (left.shape or (None,))[-1], (right.shape or (None,))[-2 if turned else -1])
    _require_agreement(last, length, (values.shape or (None, None))[-2])
    if rank == 4:
        keys = Side(*_turned(right, (0, 1, 3, 2))) if turned else Side(right)
        return Written(Core(left, keys, values, None, scale, context, more=reads), steps, _extents(left.shape))
    cut = _cut(left, right, values, context, steps.lifted) if turned and last.op == "MatMul" else None
    if cut is not None:
        heads, keys, apart, after = cut
        found = Core(heads, keys, apart, None, scale, after, more=reads)
        return Written(found, steps, _extents(heads.shape), joint_from=steps.inner if lowered else 0)
    if lowered:
        raise Refusal("scores are cut into heads, and queries, keys and values are not known to be cut alike")
    keys = Side(*_turned(right, (0, 2, 1))) if turned else Side(right)
    found = Core(left, keys, values, None, scale, context, more=reads)
    batch, length = _extents(left.shape)[:2]
    return Written(found, steps, (batch, 1, length), is_flat=True)


def _require_agreement(product: Node, first: int | str | None, second: int | str | None) -> None:
    """Refuse an Einsum whose summed axes are not known to have the same extent: it repeats an axis of 1."""
    if product.op == "Einsum" and (first is None or first != second):
        raise Refusal("an Einsum sums axes that are not known to have the same extent")


def _extents(shape: Dims | None) -> Dims:
    """Return the dims of queries without the last one, their size; the rank must be known."""
    assert shape is not None
    return shape[:-1]


def _last(softmax: Node) -> tuple[Node, bool]:
    """Return the product with the values, and whether a Reshape merges batch and heads before it."""
    probabilities, lowered = behind_guard(softmax.outputs[0]), False
    node = reader(probabilities)
    if node.op == "Reshape" and is_lift(node.outputs[0].shape, probabilities.shape):
        probabilities, lowered = node.outputs[0], True
        node = reader(probabilities)
    is_product = node.op == "MatMul" or is_einsum(node, "st", "td", "sd")
    if not is_product or node.input(0) != probabilities:
        raise Refusal(f"{node.op} reads the probabilities of the Softmax instead of a product with the values")
    return node, lowered


def _turned(right: Value, perm: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """Return the keys and the permutation still to be applied to them, from the right operand of the product."""
    node = right.producer
    given = None if node is None or node.op != "Transpose" else tuple(node.attr("perm") or ())
    if node is None or not given or len(given) != len(perm):
        return right, perm
    rest = tuple(given[place] for place in perm)  # the permutation that remains when its own Transpose is undone
    return node.required_input(0), () if rest == tuple(sorted(rest)) else rest


def _cut(
    left: Value, right: Value, values: Value, context: Value, lifted: Dims | None
) -> tuple[Value, Side, Value, Value] | None:
    """Return queries, keys, values and context of rank 4 if they are cut into the same heads; otherwise None."""
    queries, after = _of_heads(left), _after(context)
    if queries is None or after is None or queries.shape is None or after.shape is None:
        return None
    outer = queries.shape
    count = outer[1]
    if not isinstance(count, int) or None in outer or after.shape[:3] != outer[:3]:
        return None
    if lifted is not None and lifted[:3] != outer[:3]:
        return None
    keys, apart = _keys(right, count, outer[0]), _of_heads(values)
    if keys is None or apart is None or (apart.shape or ())[:2] != outer[:2]:
        return None
    return queries, keys, apart, after


def _of_heads(value: Value) -> Value | None:
    """Return the heads of rank 4 whose first two dims a Reshape merges."""
    node = value.producer
    source = None if node is None or node.op != "Reshape" else node.required_input(0)
    return source if source is not None and is_lift(value.shape, source.shape) else None


def _after(context: Value) -> Value | None:
    """Return the heads of rank 4 that a Reshape cuts the context into."""
    try:
        node = reader(context)
    except Refusal:
        return None
    result = node.outputs[0]
    return result if node.op == "Reshape" and is_lift(context.shape, result.shape) else None


def _keys(right: Value, count: int, batch: object) -> Side | None:
    """Return keys of rank 4, or flat keys with a head count if they are transposed before they are cut into heads."""
    node = right.producer
    if node is None:
        return None
    source = node.required_input(0)
    if node.op == "Transpose" and node.attr("perm") == [0, 2, 1]:
        heads = _of_heads(source)
        return Side(heads) if heads is not None and (heads.shape or ())[:2] == (batch, count) else None
    turn = source.producer
    if node.op != "Reshape" or turn is None or turn.op != "Transpose":
        return None
    flat, before, after = turn.required_input(0), source.shape, right.shape
    if before is None or after is None or len(before) not in (3, 4) or before[-1] != after[-1]:
        return None
    if turn.attr("perm") == [0, 1, 3, 2]:
        return Side(flat) if before[:2] == (batch, count) and before[2] == after[1] else None
    width, size = before[1], after[1]
    cut = before[0] == batch and isinstance(size, int) and width == size * count and times(after[0], count, batch)
    return Side(flat, count=count) if turn.attr("perm") == [0, 2, 1] and cut else None
