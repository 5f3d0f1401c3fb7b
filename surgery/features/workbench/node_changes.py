"""The nodes that differ between two states of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

MOST_NODES = 200
"""Maximum number of nodes that are listed for a step."""


@dataclass(frozen=True)
class NodeChanges:
    """The nodes of the main graph that a step added, removed and changed in place, by name or first output."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: onnx.ModelProto, after: onnx.ModelProto) -> NodeChanges:
        """Compare two models."""
        if before is after:
            return cls()
        old, new = _labelled(before), _labelled(after)
        altered = tuple(name for name, node in new.items() if name in old and old[name] != node)
        return cls(tuple(n for n in new if n not in old), tuple(n for n in old if n not in new), altered)

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the first names of each kind."""
        kinds = {"added": self.added, "removed": self.removed, "altered": self.altered}
        return {kind: {"count": len(names), "nodes": list(names[:MOST_NODES])} for kind, names in kinds.items()}


def _labelled(proto: onnx.ModelProto) -> Mapping[str, bytes]:
    """Return the nodes of the main graph by name, or by their first output, with their contents."""
    found: dict[str, bytes] = {}
    for node in proto.graph.node:
        label = node.name or next(filter(None, node.output), "")
        while label in found:
            label += "'"
        found[label] = _content(node)
    return found


def _content(node: onnx.NodeProto) -> bytes:
    """Return what a node computes from what; where it comes from, in its metadata, does not count."""
    parts = (node.op_type, node.domain, "\0".join(node.input), "\0".join(node.output))
    attributes = b"".join(one.SerializeToString(deterministic=True) for one in node.attribute)
    return "\n".join(parts).encode("utf-8", "surrogateescape") + attributes
