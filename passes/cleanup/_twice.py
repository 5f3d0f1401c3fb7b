"""Rules for repeated operators without further effect; of the same form as those in `_shared`."""

from surgery import Node, Value

from ._shared import Rule

WHOLE = frozenset({"Ceil", "Floor", "Round"})
"""Operators that return integers, and keep integers."""


def same_again(node: Node) -> Value | None:
    """Return the input of an operator that is applied a second time without effect, with equal bounds if any."""
    data = node.required_input(0)
    before = data.producer
    if before is None or before.domain or before.opset != node.opset:
        return None
    if before.op != node.op:
        return data if {before.op, node.op} <= WHOLE or (node.op in WHOLE and before.op == "Sign") else None
    same = before.inputs[1:] == node.inputs[1:] and all(before.attr(k) == node.attr(k) for k in ("min", "max"))
    return data if same else None


def undone(node: Node) -> Value | None:
    """Return the input of the same operator before this one, which this one undoes."""
    before = node.required_input(0).producer
    return before.input(0) if before is not None and before.op == node.op else None


def wrapped(node: Node) -> Value | None:
    """Return the input of the Optional whose element is taken."""
    before = node.required_input(0).producer
    return before.input(0) if before is not None and before.op == "Optional" else None


TWICE: dict[str, Rule] = {
    **dict.fromkeys(("Abs", "Ceil", "Clip", "Floor", "Relu", "Round", "Sign"), same_again),
    **dict.fromkeys(("BitwiseNot", "Neg", "Not"), undone),
    "OptionalGetElement": wrapped,
}
"""The rule of each operator that has no effect, or the inverse effect, the second time."""
