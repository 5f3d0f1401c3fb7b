"""Rules for operators that follow one another and do nothing new; in the form of those in `_shared`."""

from surgery import Node, Value

from ._shared import Rule

WHOLE = frozenset({"Ceil", "Floor", "Round"})
"""Operators that give whole numbers, and leave whole numbers alone."""


def same_again(node: Node) -> Value | None:
    """Repeat an operator that changes nothing the second time, with the same bounds if it has any."""
    data = node.required_input(0)
    before = data.producer
    if before is None or before.domain or before.opset != node.opset:
        return None
    if before.op != node.op:
        return data if {before.op, node.op} <= WHOLE or (node.op in WHOLE and before.op == "Sign") else None
    same = before.inputs[1:] == node.inputs[1:] and all(before.attr(k) == node.attr(k) for k in ("min", "max"))
    return data if same else None


def undone(node: Node) -> Value | None:
    """Undo what the same operator did."""
    before = node.required_input(0).producer
    return before.input(0) if before is not None and before.op == node.op else None


TWICE: dict[str, Rule] = {
    **dict.fromkeys(("Abs", "Ceil", "Clip", "Floor", "Relu", "Round", "Sign"), same_again),
    **dict.fromkeys(("BitwiseNot", "Neg", "Not"), undone),
}
"""The rule of each operator that has no effect, or the opposite one, the second time."""
