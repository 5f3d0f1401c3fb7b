"""Stored lists that differ where no tried input reads them.

An input of a tree ensemble reaches one leaf of each tree, and one of a LabelEncoder finds one of its values. Two such
nodes may agree in all runs although some of their numbers differ, which says nothing about inputs that reach these.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from surgery.model.wire.stored_lists import same_list
from surgery.verification.regions.definitions import Definitions, same_content

if TYPE_CHECKING:
    import onnx

_NUMBERS: Final = ("nodes_values", "class_weights", "target_weights", "values_floats", "values_int64s")

_READ_IN_PART: Final = frozenset(
    {*_NUMBERS, *(f"{name}_as_tensor" for name in _NUMBERS[:3])}
    | {"leaf_weights", "nodes_splits", "values_strings", "values_tensor"}
)
"""Attributes with numbers or texts of which one input reads a few, such as the leaves that it reaches."""


def differing_tables(before: Definitions, after: Definitions, names: Container[str]) -> dict[str, str]:
    """Return the attributes with other numbers of nodes that are otherwise the same, by the name of an output.

    A node with another structure, such as other trees, has numbers of its own. Only outputs in `names` are looked at.
    """
    found = {}
    for name, number in after.flow.producers.items():
        mine = before.flow.producers.get(name)
        if mine is None or name not in names or before.nodes[mine] == after.nodes[number]:
            continue
        attribute = _differing(before.flow.nodes[mine], after.flow.nodes[number])
        if attribute:
            found[name] = attribute
    return found


def _differing(mine: onnx.NodeProto, theirs: onnx.NodeProto) -> str:
    """Return the only attributes in which two nodes differ, if these are numbers of which an input reads a few."""
    first, second = ({attribute.name: attribute for attribute in node.attribute} for node in (mine, theirs))
    if first.keys() != second.keys() or first.keys().isdisjoint(_READ_IN_PART) or not _read_alike(mine, theirs):
        return ""
    others = [name for name in first if not _same(first[name], second[name])]
    return ", ".join(sorted(others)) if _READ_IN_PART.issuperset(others) else ""


def _same(mine: onnx.AttributeProto, theirs: onnx.AttributeProto) -> bool:
    if mine.type == theirs.type == mine.TENSOR:
        return same_content(mine.t, theirs.t)
    return same_list(mine, theirs)


def _read_alike(mine: onnx.NodeProto, theirs: onnx.NodeProto) -> bool:
    sides = ((node.domain, node.op_type, list(node.input), list(node.output)) for node in (mine, theirs))
    return next(sides) == next(sides)
