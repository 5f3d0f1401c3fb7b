"""Drafts of nodes as ONNX text, for a place in the graph: options of the pass `insert-nodes`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node
from surgery.model.patterns.node_text import NAME

PLACES: Final = ("after", "before", "instead")
"""After tensors, before the selected nodes only, or in place of these."""

_MOST = 12
"""Maximum number of nodes or tensors in a draft."""


def draft(nodes: Sequence[Node], tensors: Sequence[str], place: str) -> dict[str, Any]:
    """Return a draft for selected nodes, or for tensors by name. Raises UsageError if there is none."""
    if place not in PLACES:
        raise UsageError(f"there is no place '{place}'", todo=f"there are {', '.join(PLACES)}")
    if len(nodes) > _MOST or len(tensors) > _MOST:
        raise UsageError(f"more than {_MOST} are selected", todo="select fewer nodes or tensors")
    if place == "after" or (tensors and not nodes):
        made = (value.name for node in nodes for value in node.outputs)
        return draft_after([*(tensors or made)])
    return _instead(nodes) if place == "instead" else _before(nodes)


def draft_after(tensors: Sequence[str]) -> dict[str, Any]:
    """Return a draft with one node after each tensor."""
    names = _ShortNames()
    return names.options(f"{names.of(name)} = Identity({names.of(name)})" for name in tensors[:_MOST] if name)


def _before(nodes: Sequence[Node]) -> dict[str, Any]:
    names, read = _ShortNames(), dict[str, None]()
    for node in nodes:
        flowing = [value.name for value in reads(node.ir) if value.name and not value.is_initializer()]
        read.update(dict.fromkeys(flowing[:1]))
    if not read:
        raise UsageError("the selected nodes read only weights", todo="insert after a tensor instead")
    options = names.options(f"{names.of(name)} = Identity({names.of(name)})" for name in read)
    labels = [node.label for node in nodes]
    return {**options, "nodes": labels[0] if len(labels) == 1 else labels}


def _instead(nodes: Sequence[Node]) -> dict[str, Any]:
    names = _ShortNames()
    return names.options(_line(node, names) for node in nodes)


def _line(node: Node, names: _ShortNames) -> str:
    if node.subgraphs:
        raise UsageError(f"'{node.label}' has a subgraph, which cannot be written here", todo="select other nodes")
    results = [names.of(value.name) for value in node.outputs if value.name]
    operands = ", ".join("" if value is None else names.of(value.name) for value in node.inputs)
    attributes = [_attribute(one) for one in node.ir.attributes.values()]
    # All attributes of the node, where one of them has no form in text.
    shown = ", ".join(one or "" for one in attributes) if all(attributes) else f"{results[0]}..."
    return f"{', '.join(results)} = {node.op}{f'<{shown}>' if shown else ''}({operands})"


def _attribute(attribute: ir.Attr) -> str | None:
    """Return an attribute as text; None for one that the text has no form for."""
    if attribute.ref_attr_name:
        return None
    value = attribute.value
    items = value if isinstance(value, list | tuple) else [value]
    shown = [_literal(item) for item in items]
    if any(one is None for one in shown):
        return None
    text = f"[{', '.join(one or '' for one in shown)}]" if isinstance(value, list | tuple) else shown[0]
    return f"{attribute.name} = {text}"


def _literal(item: Any) -> str | None:
    if isinstance(item, str):
        return f'"{item}"' if re.fullmatch(r'[^"\n\\]*', item) else None
    if isinstance(item, int):
        return str(int(item))
    if isinstance(item, float):
        return str(np.float32(item)) if math.isfinite(item) else None
    return None


class _ShortNames:
    """Names for tensors that can be written in the text: their own, or short ones."""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}

    def of(self, tensor: str) -> str:
        """Return the name of a tensor in the text."""
        if tensor not in self._short:
            wish = tensor if NAME.fullmatch(tensor) else _short(tensor)
            taken = set(self._short.values())
            numbered = (f"{wish}_{number}" for number in range(2, 1000))
            self._short[tensor] = wish if wish not in taken else next(one for one in numbered if one not in taken)
        return self._short[tensor]

    def options(self, lines: Iterable[str]) -> dict[str, Any]:
        """Return the options of `insert-nodes` for lines that use these names."""
        text = "\n".join(lines)
        names: Mapping[str, str] = {short: tensor for tensor, short in self._short.items() if short != tensor}
        return {key: value for key, value in {"text": text, "names": names}.items() if value}


def _short(tensor: str) -> str:
    last = re.split(r"[/:]", tensor.rstrip("/:"))[-1]
    word = re.sub(r"\W+", "_", last, flags=re.ASCII).strip("_")
    return word if NAME.fullmatch(word) else f"t_{word}".rstrip("_")
