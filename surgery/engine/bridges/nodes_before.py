"""The lineage of nodes that a whole-model pass created, found by the names of values.

Such a pass does not report its changes. But new nodes compute the values of the nodes that they replace, because their
consumers are unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Site
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage

if TYPE_CHECKING:
    import onnx_ir as ir


class NodesBefore:
    """The nodes of a model before a pass."""

    def __init__(self, graph: Graph) -> None:
        nodes = {node.label: node for node in graph.nodes()}
        self._labels = Counter(node.label for node in graph.nodes())
        self._known = {label: _lineage(node.ir, label) for label, node in nodes.items()}
        self._makers = {value.name: label for label, node in nodes.items() for value in node.ir.outputs if value.name}
        self._reads = {label: [v.name for v in node.ir.inputs if v is not None] for label, node in nodes.items()}

    def account(self, graph: Graph) -> Site:
        """Write the lineage of nodes that are new or replace removed ones; return the site with all changes."""
        now = Counter(node.label for node in graph.nodes())
        gone = self._labels - now
        for node in graph.nodes():
            replaced = [
                maker
                for value in node.ir.outputs
                if (maker := self._makers.get(value.name or "")) is not None and maker != node.label and maker in gone
            ]
            if replaced or node.label not in self._labels:
                parents = [self._known[node.label]] if node.label in self._known else []
                parents += self._above(replaced, gone)
                lineage.derive(parents, graph.pass_name).write(node.ir.metadata_props)
        return Site(1, "", tuple(gone.elements()), tuple((now - self._labels).elements()))

    def _above(self, labels: list[str], gone: Counter[str]) -> Iterator[Lineage]:
        """Yield the lineage of nodes, and of the removed nodes upstream of them."""
        found = dict.fromkeys(labels)
        pending = list(labels)
        while pending:
            for name in self._reads[pending.pop()]:
                maker = self._makers.get(name or "")
                if maker is not None and maker in gone and maker not in found:
                    found[maker] = None
                    pending.append(maker)
        return (self._known[label] for label in found if self._known[label].origins)


def _lineage(node: ir.Node, label: str) -> Lineage:
    """Return the lineage that a node passes on; a Constant computes nothing, and is not an origin."""
    known = lineage.read(node.metadata_props)
    if known is not None:
        return known
    is_constant = node.op_type == "Constant" and not node.domain
    return Lineage() if is_constant else Lineage(origins=(label,))
