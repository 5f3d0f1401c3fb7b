"""Imported domains without operators in the model."""

from typing import Any

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-unused-opsets", parity=Parity.EXACT)
def drop_unused_opsets(graph: Graph) -> None:
    """Remove opset imports that no node of the model or its functions uses.

    Right because an import only sets the version of the operators of a domain. The default domain stays imported,
    because runtimes require its version.

    Example:
        <ir_version: 10, opset_import: ["" : 21, "com.acme" : 1]>
        g (float[2] x) => (float[2] y) { y = Relu(x) }
    """
    used = {node.domain for node in graph.nodes()} | {""}
    unused: list[tuple[Any, str]] = [(None, domain) for domain in graph.ir.opset_imports if domain not in used]
    for function in graph.functions.values():
        inner = {node.domain for node in function.all_nodes()} | {""}
        unused += [(function, domain) for domain in function.opset_imports if domain not in inner]
    if unused:
        with graph.site() as new:
            for function, domain in unused:
                new.set_opset(0, domain, function=function)
