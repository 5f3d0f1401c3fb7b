"""Nodes with long lists, such as those of large tree ensembles, in a skeleton: their size, and what they compute."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from surgery.model.wire.stored_lists import digest, has_lists, is_stored, length

if TYPE_CHECKING:
    import onnx

__all__ = ["has_lists", "key_of_node", "listed"]


def listed(node: onnx.NodeProto) -> int:
    """Return the size of the lists of a node that are outside the skeleton, in bytes."""
    return sum(length(attribute) for attribute in node.attribute if is_stored(attribute))


def key_of_node(model: onnx.ModelProto, node: onnx.NodeProto) -> Hashable:
    """Return a key that is the same for nodes that compute the same, in models with the same opsets.

    Names do not matter, nor where the lists are stored. Raises ModelFileError.
    """
    bare = type(node)(op_type=node.op_type, domain=node.domain, overload=node.overload)
    bare.output.extend("there" if name else "" for name in node.output)
    lists: list[tuple[str, bytes]] = []
    for attribute in sorted(node.attribute, key=lambda one: one.name):
        if is_stored(attribute):
            lists.append((attribute.name, digest(attribute)))
        else:
            bare.attribute.append(attribute)
    opsets = frozenset((one.domain, one.version) for one in model.opset_import)
    return bare.SerializeToString(deterministic=True), tuple(lists), opsets, model.ir_version
