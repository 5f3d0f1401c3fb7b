"""Passes in the API that their author knows: the annotation of the first parameter picks it.

`Graph` is the engine's own, and edits by sites. In any other API the function gets the whole model, and returns the new
one, or None when it changed what it was given; see `surgery.bridges.whole`. Objects of onnx-ir and onnxscript become
passes by `add_pass`, see `surgery.bridges.objects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.graph.graph import Graph
    from surgery.registry.declare import Pass

__all__ = ["apply"]


def apply(declared: Pass, graph: Graph, options: Mapping[str, Any]) -> None:
    """Run a pass over a graph with bound options, but for the sites in `graph.skip`, and leave the graph in order."""
    graph.begin(declared.name, graph.skip)
    if declared.match:
        from surgery.patterns import rewrite_any

        rewrite_any(graph, declared.match, declared.function, options)
    elif declared.api == "Graph":
        declared.function(graph, **options)
    else:
        from surgery.bridges import whole

        whole.apply(declared, graph, options)
    graph.finish(whole=not declared.is_standard)
