"""Einsum as Transpose, MatMul, Mul and ReduceSum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from surgery import Refusal, Value

from ._calls import Call
from ._lowering import Lowering, Result, part

Extent = int | str | None

_OPEN = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Term:
    """An operand with a label for each axis, and the extents of the labels, as far as they are known."""

    value: Value
    labels: str
    extents: Mapping[str, Extent]


@part("Einsum")
def _einsum(call: Call, place: Lowering) -> Result:
    """Multiply operands in pairs, sum over labels as soon as nothing else needs them, and order the axes."""
    values = [value for value in call.inputs if value is not None]
    terms, result = _read(call.attr("equation"), values, place)
    while len(terms) > 1:
        first, second, *others = terms
        needed = set(result).union(*(term.labels for term in others))
        terms = [_join(first, second, needed, place), *others]
    return _order(_sum(terms[0], set(result), place), result, place)


def _read(equation: str, values: Sequence[Value], place: Lowering) -> tuple[list[Term], str]:
    """Return the operands with their labels, and the labels of the result."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    place.require(len(texts) == len(values), "Einsum has another number of operands than its equation")
    most = max((_open(text, value, place) for text, value in zip(texts, values)), default=0)
    free = [label for label in _OPEN if label not in equation][:most]
    terms = []
    for text, value in zip(texts, values):
        count = _open(text, value, place)
        labels = text.replace("...", "".join(free[most - count :]))
        terms.append(Term(value, labels, dict(zip(labels, value.shape or ()))))
    if not arrow:
        once = sorted(label for label in set(left) - set(",.") if left.count(label) == 1)
        result = "..." * bool(most) + "".join(once)
    result = result.replace("...", "".join(free))
    place.require(all(len(set(term.labels)) == len(term.labels) for term in terms), "Einsum takes a diagonal")
    return terms, result


def _open(text: str, value: Value, place: Lowering) -> int:
    """Return the number of axes that an ellipsis represents."""
    return place.rank(value) - len(text) + 3 if "..." in text else 0


def _sum(term: Term, needed: set[str], place: Lowering) -> Term:
    gone = [axis for axis, label in enumerate(term.labels) if label not in needed]
    if not gone:
        return term
    value = place.node("ReduceSum", term.value, place.integers(gone, "axes"), keepdims=0)
    return Term(value, "".join(label for label in term.labels if label in needed), term.extents)


def _order(term: Term, labels: str, place: Lowering) -> Value:
    """Put the axes in the order of the labels."""
    if sorted(term.labels) != sorted(labels):
        raise Refusal("Einsum creates an axis that no operand has")
    if term.labels == labels:
        return place.node("Identity", term.value)
    return place.node("Transpose", term.value, perm=[term.labels.index(label) for label in labels])


def _join(first: Term, second: Term, needed: set[str], place: Lowering) -> Term:
    """Multiply two operands; a single label to be summed is summed by MatMul, several by ReduceSum."""
    first = _sum(first, needed | set(second.labels), place)
    second = _sum(second, needed | set(first.labels), place)
    shared = [label for label in first.labels if label in second.labels]
    summed = [label for label in shared if label not in needed]
    batch = "".join(label for label in shared if label in needed)
    rows = "".join(label for label in first.labels if label not in shared)
    columns = "".join(label for label in second.labels if label not in shared)
    if len(summed) == 1 and _dims_agree(first, second, batch):
        if len(columns) <= 1 and (len(rows) <= 1 or not batch):
            return _matmul(first, second, batch, rows, summed[0], columns, place)
        if len(rows) <= 1 and not batch:
            return _matmul(second, first, batch, columns, summed[0], rows, place)
    return _sum(_product(first, second, place), needed, place)


def _dims_agree(first: Term, second: Term, batch: str) -> bool:
    """Return whether each summed label is known to have the same extent in both operands: one of 1 is repeated."""
    shared = set(first.labels) & set(second.labels) - set(batch)
    known = all(first.extents.get(label) is not None for label in shared)
    return known and all(label not in _OPEN and first.extents[label] == second.extents.get(label) for label in shared)


def _joint(first: Term, second: Term) -> Mapping[str, Extent]:
    """Return the extents of the product of two terms."""
    found = {**second.extents, **first.extents}
    for label in first.extents.keys() & second.extents.keys():
        one, other = first.extents[label], second.extents[label]
        found[label] = one if one == other or other == 1 else other if one == 1 else None
    return found


def _matmul(left: Term, right: Term, batch: str, rows: str, summed: str, columns: str, place: Lowering) -> Term:
    """Multiply matrices; an operand without rows or columns gets a temporary axis for them."""
    lanes = batch + rows[:-1]
    first = _order(left, batch + rows + summed, place) if left.labels != batch + rows + summed else left.value
    second = _order(right, batch + summed + columns, place) if right.labels != batch + summed + columns else right.value
    if not rows:
        first = place.node("Unsqueeze", first, place.integers([len(batch)], "axes"))
    if not columns:
        second = place.node("Unsqueeze", second, place.integers([len(batch) + 1], "axes"))
    made = place.node("MatMul", first, second)
    width = len(lanes)
    gone = [width] * (not rows) + [width + 1] * (not columns)
    if gone:
        made = place.node("Squeeze", made, place.integers(gone, "axes"))
    return Term(made, batch + rows + columns, _joint(left, right))


def _product(first: Term, second: Term, place: Lowering) -> Term:
    labels = first.labels + "".join(label for label in second.labels if label not in first.labels)
    return Term(
        place.node("Mul", *(_aligned(term, labels, place) for term in (first, second))), labels, _joint(first, second)
    )


def _aligned(term: Term, labels: str, place: Lowering) -> Value:
    """Put the axes in the order of the labels, with an extent of 1 for labels that the operand lacks."""
    own = "".join(label for label in labels if label in term.labels)
    value = term.value if own == term.labels else _order(term, own, place)
    missing = [axis for axis, label in enumerate(labels) if label not in term.labels]
    return place.node("Unsqueeze", value, place.integers(missing, "axes")) if missing else value
