"""Einsum replaced with the operator to which it is equivalent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

FLOATS = frozenset({"FLOAT16", "FLOAT", "DOUBLE"})
"""Types without bfloat16: ONNX Runtime has an Einsum of bfloat16 on the CPU, but no replacements for it."""

TYPES = FLOATS | {"INT32", "INT64", "UINT32", "UINT64"}
"""The types of MatMul and ReduceSum; Einsum supports more."""


@dataclass(frozen=True)
class Operand:
    """An input of an Einsum with its labels; `source` is the operand before its Transpose, if any."""

    value: Value
    labels: str

    def extent(self, label: str) -> int | str | None:
        """Return the extent of the axis of a label; None if it is not known."""
        shape = self.value.shape
        return None if shape is None or len(shape) != len(self.labels) else shape[self.labels.index(label)]

    @property
    def source(self) -> Operand | None:
        """The operand before the Transpose that produces this one, if nothing else reads this one; otherwise None."""
        node = self.value.producer
        if node is None or node.op != "Transpose" or self.value.is_output or self.value.reads > 1:
            return None
        perm = node.attr("perm") or list(range(len(self.labels)))[::-1]
        return Operand(node.required_input(0), "".join(self.labels[perm.index(axis)] for axis in range(len(perm))))


@graph_pass("replace-einsum", parity=Parity.CLOSE)
def replace_einsum(graph: Graph) -> None:
    """Replace an Einsum by one equivalent MatMul, Gemm, Mul, Transpose or ReduceSum.

    Right because the equation defines the products and the summed axes: labels in the order of MatMul are a MatMul,
    also after labels of a batch; two matrices in any order are a Gemm; without a sum it is a Mul; for one operand, a
    permutation is a Transpose and missing labels are a ReduceSum. A preceding Transpose without other consumers is
    merged. The Einsum stays if another Transpose would be needed, or if the summed axes are not known to have the same
    extent: where one of them is 1, Einsum repeats the operand.

    Example:
        g (float[B,N,3] x, float[3,2] w) => (float[B,N,2] y) {
            y = Einsum<equation = "bik, kj -> bij">(x, w)
        }
    """
    for node in graph.nodes("Einsum"):
        with graph.site(node) as new:
            operands, result = _read(node)
            made = _one(node, operands[0], result, new) if len(operands) == 1 else _two(operands, result, new)
            new.replace(node.outputs[0], made)


def _read(node: Node) -> tuple[list[Operand], str]:
    """Return the operands and the labels of the result: without an arrow, those that occur once, sorted."""
    equation = node.attr("equation").replace(" ", "")
    if "." in equation:
        raise Refusal("the equation leaves axes open")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    values = [value for value in node.inputs if value is not None]
    if any(len(set(term)) < len(term) for term in terms):
        raise Refusal("the equation takes a diagonal")
    if not 1 <= len(terms) == len(values) <= 2:
        raise Refusal("the equation has more than two operands")
    if not arrow:
        result = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1))
    return [Operand(value, term) for value, term in zip(values, terms)], result


def _one(node: Node, operand: Operand, result: str, new: Builder) -> Value:
    if len(result) == len(operand.labels):
        return new.node("Transpose", operand.value, perm=[operand.labels.index(label) for label in result] or None)
    kept = [label for label in operand.labels if label in result]
    new.require("".join(kept) == result, "no single operator sums and transposes")
    new.require(_type_name(operand.value) in TYPES, "ReduceSum is not computed in this type")
    axes = [axis for axis, label in enumerate(operand.labels) if label not in result]
    if node.opset < 13:
        return new.node("ReduceSum", operand.value, axes=axes, keepdims=0)
    return new.node("ReduceSum", operand.value, new.constant(np.array(axes, dtype=np.int64), "axes"), keepdims=0)


def _two(operands: list[Operand], result: str, new: Builder) -> Value:
    labels = [set(operand.labels) for operand in operands]
    summed = (labels[0] | labels[1]) - set(result)
    new.require(summed <= labels[0] & labels[1], "axes of one operand are summed")
    if not summed:
        return _product(operands, result, new)
    new.require(len(summed) == 1, "several axes are summed")
    new.require(_type_name(operands[0].value) in TYPES, "MatMul is not computed in this type")
    label = summed.pop()
    extents = [operand.extent(label) for operand in operands]
    agree = extents[0] is not None and extents[0] == extents[1]
    new.require(agree, "the summed axis of one operand may be 1, and repeated")
    for first, second in (operands, operands[::-1]):
        for left in filter(None, (first, first.source)):
            for right in filter(None, (second, second.source)):
                made = _matmul(left, right, result, label, new)
                if made is not None:
                    return made
    raise Refusal("the axes are not in the order of a MatMul")


def _product(operands: list[Operand], result: str, new: Builder) -> Value:
    """Build a Mul; refuse unless the axes of each operand are the last axes of the result, in order."""
    fits = all(result.endswith(operand.labels) for operand in operands)
    new.require(fits and result in (operands[0].labels, operands[1].labels), "the axes are not in the order of a Mul")
    return new.node("Mul", operands[0].value, operands[1].value)


def _matmul(left: Operand, right: Operand, result: str, summed: str, new: Builder) -> Value | None:
    """Build a MatMul or Gemm if the result is the batch, a label of the left and one of the right; else None."""
    if len(result) < 2 or result[-2] not in left.labels or result[-1] not in right.labels:
        return None
    batch, row, column = result[:-2], result[-2], result[-1]
    if row in right.labels or column in left.labels:
        return None
    if left.labels in (batch + row + summed, row + summed) and right.labels in (
        batch + summed + column,
        summed + column,
    ):
        whole = left.labels.startswith(batch) or right.labels.startswith(batch)
        return new.node("MatMul", left.value, right.value) if whole else None
    is_gemm = not batch and _type_name(left.value) in FLOATS
    if not is_gemm or len(left.labels) != 2 or len(right.labels) != 2:
        return None
    flips = {"transA": int(left.labels[0] == summed) or None, "transB": int(right.labels[1] == summed) or None}
    return new.node("Gemm", left.value, right.value, attributes=flips)


def _type_name(value: Value) -> str:
    return "" if value.dtype is None else value.dtype.name
