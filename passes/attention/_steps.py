"""The steps that scores go through between the product of queries and keys and the Softmax."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from surgery import Node, Refusal, Value

from ._core import scalar_factor

_PRODUCTS = {"MatMul", "Einsum", "Gemm", "com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul"}
_ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Tanh", "Max", "Min", "Clip", "Where", "IsNaN", "Cast", "Identity"}
_MOVES = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Concat", "Slice", "Pad"}
_THROUGH = _ARITHMETIC | _MOVES | {"Dropout", "GatherElements"}
_MOST_NODES = 64
_SHAPES = {"Cast", "Concat", "Div", "Gather", "Mul", "Shape", "Slice", "Squeeze", "Unsqueeze"}

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Added:
    """A value that is added to the scores, and the factor that is applied afterwards.

    If `windows` is not 0, the value is added to scores [batch, windows, heads, queries, keys].
    """

    value: Value
    factor: float
    windows: int = 0


@dataclass(frozen=True)
class Chosen:
    """A mask that replaces scores with `low` where a condition is true (`where_true`) or where it is false."""

    condition: Value
    low: Value
    where_true: bool
    windows: int = 0


@dataclass
class Steps:
    """The steps from the product of queries and keys to the Softmax; `added` begins with the one nearest the Softmax.

    `factor` scales each row of the scores separately. `lifted` holds the dims [batch, heads, queries, keys] of scores
    that a Reshape cuts into heads; `inner` is the number of `added` steps between that Reshape and the Softmax. Between
    two Reshapes that divide the batch into windows, `parted` holds the dims there.
    """

    product: Node | None = None
    scale: float = 1.0
    added: list[Added | Chosen] = field(default_factory=list)
    factor: Value | None = None
    lifted: Dims | None = None
    inner: int = 0
    parted: Dims | None = None

    @property
    def windows(self) -> int:
        """The number of windows per batch element at the current step; 0 outside windows."""
        count = self.parted[1] if self.parted is not None else 0
        return count if isinstance(count, int) else 0


def is_attention(softmax: Node) -> bool:
    """Return whether a Softmax has a product of two computed values upstream and a product downstream."""
    return _meets(softmax, _before, _multiplies) and _meets(softmax, _after, _is_product)


def is_einsum(node: Node, first: str, second: str, result: str) -> bool:
    """Return whether an Einsum multiplies matrices with these labels, preceded by the same one or two batch labels."""
    if node.op != "Einsum" or len(node.inputs) != 2:
        return False
    left, arrow, made = node.attr("equation").replace(" ", "").partition("->")
    terms = [*left.split(","), made]
    before, wanted = terms[0][:-2], (first, second, result)
    if not arrow or len(terms) != 3 or len(before) not in (1, 2) or "." in left:
        return False
    if any(term[:-2] != before or len(set(term)) < len(term) or len(term) != len(before) + 2 for term in terms):
        return False
    letters = dict(zip("".join(wanted), "".join(term[-2:] for term in terms)))
    distinct = len(set(letters.values())) == len(letters)
    return distinct and all("".join(letters[one] for one in want) == term[-2:] for want, term in zip(wanted, terms))


def _before(node: Node) -> Iterable[Node]:
    values = (value for value in node.inputs if value is not None and not value.is_constant)
    return (maker for value in values if (maker := value.producer) is not None)


def _after(node: Node) -> Iterable[Node]:
    return (reader for value in node.outputs for reader in value.consumers)


def _is_product(node: Node) -> bool:
    return node.op in _PRODUCTS


def _multiplies(node: Node) -> bool:
    return node.op in _PRODUCTS and sum(value is not None and not value.is_constant for value in node.inputs[:2]) > 1


def _meets(start: Node, step: Callable[[Node], Iterable[Node]], found: Callable[[Node], bool]) -> bool:
    pending, seen = deque([start]), {start}
    while pending and len(seen) < _MOST_NODES:
        for node in step(pending.popleft()):
            if found(node):
                return True
            if node.op in _THROUGH and node not in seen:
                seen.add(node)
                pending.append(node)
    return False


def reader(value: Value) -> Node:
    """Return the node that reads a value; refuse other readers, except a Shape whose results lead only to that node."""
    readers = value.consumers
    others = [node for node in readers if node.op != "Shape"]
    alone = len(others) == 1 and not value.is_output and others[0].scope is value.scope
    if not alone or not all(_leads_to(node, others[0]) for node in readers if node.op == "Shape"):
        raise Refusal("a value inside the attention is read elsewhere too")
    return others[0]


def _leads_to(shape: Node, wanted: Node) -> bool:
    """Return whether everything computed from a Shape leads only to the node `wanted`."""
    pending, seen = [shape], set[Node]()
    while pending:
        node = pending.pop()
        if node == wanted or node in seen:
            continue
        if node.op not in _SHAPES or any(value.is_output for value in node.outputs) or len(seen) > _MOST_NODES:
            return False
        seen.add(node)
        pending += [one for value in node.outputs for one in value.consumers]
    return True


def times(product: object, count: int, dim: object) -> bool:
    """Return whether a dim is known to be `count` times another."""
    if isinstance(dim, int):
        return product == count * dim
    if not isinstance(dim, str) or not isinstance(product, str):
        return False
    head, star, tail = dim.partition("*")
    many, rest = (int(head), tail) if star and head.isdecimal() else (1, dim)
    return product == (f"{many * count}*{rest}" if many * count != 1 else rest)


def is_lift(inner: Dims | None, outer: Dims | None) -> bool:
    """Return whether a Reshape from `inner` to `outer` splits the first dim, batch * heads, in two."""
    if inner is None or outer is None or len(inner) != 3 or len(outer) != 4 or None in inner[:2]:
        return False
    count = outer[1]
    return isinstance(count, int) and inner[1] == outer[2] and times(inner[0], count, outer[0])


def is_parted(whole: Dims | None, parted: Dims | None) -> bool:
    """Return whether [batch * windows, ...] and [batch, windows, ...] are the dims of the same scores."""
    if whole is None or parted is None or len(whole) != 4 or len(parted) != 5 or None in whole:
        return False
    return isinstance(parted[1], int) and whole[1:] == parted[2:] and times(whole[0], parted[1], parted[0])


def steps_before(softmax: Node) -> Steps:
    """Follow the scores from a Softmax up to the product of queries and keys; refuse at the first unsupported node."""
    value, steps = softmax.required_input(0), Steps()
    while True:
        reader(value)
        node = value.producer
        if node is None:
            raise Refusal("what the Softmax reads is not computed from the product of queries and keys alone")
        if _multiplies(node) and (node.op == "MatMul" or is_einsum(node, "sd", "td", "st")) and steps.parted is None:
            steps.product = node
            return steps
        if node.op in _PRODUCTS:
            raise Refusal(f"queries and keys are multiplied by {node.op}, and the axes are not in the order of heads")
        value = _one_step(node, value, steps)


def _one_step(node: Node, value: Value, steps: Steps) -> Value:
    """Record what a node does to the scores, and return the scores before it."""
    scaled = scalar_factor(node)
    if scaled is not None:
        steps.scale *= scaled[1]
        return scaled[0]
    if node.op == "Add" and steps.factor is None:
        scores, other = _sides(node.required_input(0), node.required_input(1), node)
        steps.added.append(Added(other, steps.scale, steps.windows))
        return scores
    if node.op == "Where":
        return _chosen(node, steps)
    if node.op == "Mul" and steps.factor is None:
        scores, other = _sides(node.required_input(0), node.required_input(1), node)
        if other.shape and other.shape[-1] == 1 and len(other.shape) <= (value.rank or 0):
            steps.factor = other
            return scores
    if node.op == "Reshape" and _is_read(node.required_input(0).shape, value.shape, steps):
        return node.required_input(0)
    raise Refusal(f"{node.op} is between the product of queries and keys and the Softmax, in an unsupported form")


def _is_read(before: Dims | None, after: Dims | None, steps: Steps) -> bool:
    """Record what a Reshape does to the scores; return whether it is supported."""
    if steps.lifted is None and steps.parted is None and is_lift(before, after):
        steps.lifted, steps.inner = after, len(steps.added)
    elif steps.lifted is None and steps.parted is None and is_parted(after, before):
        steps.parted = before
    elif steps.parted is not None and steps.parted == after and is_parted(before, after):
        steps.parted = None
    else:
        return False
    return True


def _sides(first: Value, second: Value, node: Node) -> tuple[Value, Value]:
    """Return the two operands of a node, the scores first."""
    for scores, other in ((first, second), (second, first)):
        maker = scores.producer
        if maker is None or scores.is_constant:
            continue
        if _multiplies(maker) or (maker.op in _THROUGH - _MOVES | {"Reshape"} and _meets(maker, _before, _multiplies)):
            return scores, other
    raise Refusal(f"{node.op} is between the product of queries and keys and the Softmax, in an unsupported form")


def _chosen(node: Node, steps: Steps) -> Value:
    """Record a Where mask and return the scores; refuse if its number is not so low that masked scores do not count."""
    condition, first, second = (node.required_input(place) for place in range(3))
    low, scores = (first, second) if first.scalar is not None else (second, first)
    number, dtype = low.scalar, scores.dtype
    if not isinstance(number, float) or dtype is None or not dtype.is_floating_point():
        raise Refusal("a Where before the Softmax does not choose between scores and one number")
    if number > float(np.finfo(dtype.numpy()).min) / 4 or steps.scale != 1 or steps.factor is not None:
        raise Refusal("masked scores still count, and a row may be masked completely")
    steps.added.append(Chosen(condition, low, where_true=low == first, windows=steps.windows))
    return scores
