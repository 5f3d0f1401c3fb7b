"""Model-local functions, inlined where they are called."""

from collections.abc import Iterator
from typing import Any

from surgery import Builder, Graph, Node, Parity, graph_pass


@graph_pass("inline-functions", parity=Parity.EXACT)
def inline_functions(graph: Graph, *, keep: tuple[str, ...] = (), max_nodes: int = 1_000_000) -> None:
    """Replace calls of model-local functions by their bodies, and remove the functions.

    Right because this is the definition of a call: operands replace the inputs of the function, and attributes of the
    call its parameters, or their defaults. Calls are kept if the body uses another version of a domain than the caller,
    because nothing is converted. Calls in subgraphs and in kept functions are also replaced.

    Options:
        keep: Functions whose calls stay, as "domain::name", or all of a domain, as "domain".
        max_nodes: The maximum number of nodes of the model, because nested calls can multiply them.

    Example:
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.twice <by = 2.0> (x) }
        <domain: "local", opset_import: ["" : 21]>
        twice <by> (a) => (b) { c = Constant <value_float: float = @by> () b = Mul(a, c) }
    """
    inlining = _Inlining(graph, keep, max_nodes)
    for identifier in _callees_first(graph):
        inlining.replace_calls(identifier)
    unused = graph.uncalled()
    if unused and graph.sites:
        with graph.site() as new:
            for function in unused:
                new.drop_function(function)


class _Inlining:
    """The state of one run: the number of nodes so far, and the function that a scope belongs to."""

    def __init__(self, graph: Graph, keep: tuple[str, ...], max_nodes: int) -> None:
        self.graph = graph
        self.keep = keep
        self.room = max_nodes - sum(len(scope) for scope in graph.scopes)
        functions = graph.functions.values()
        self.owners = {scope: f for f in functions for scope in (f.graph, *f.graph.subgraphs())}

    def replace_calls(self, identifier: tuple[str, str, str]) -> None:
        """Replace the calls of a function in whose own body all calls are already replaced."""
        function = self.graph.functions[identifier]
        domain, name, _ = identifier
        calls = [call for call in self.graph.nodes(f"{domain}::{name}") if call.identifier == identifier]
        size = sum(1 for _ in function.all_nodes())
        for call in calls:
            with self.graph.site(call) as new:
                new.require(domain not in self.keep and f"{domain}::{name}" not in self.keep, "the function is kept")
                new.require(size <= self.room, "the model would have more than max_nodes nodes")
                self._import(call, function, new)
                outputs = new.inline(function, call.inputs, {**function.attributes, **call.attributes})
                for old, value in zip(call.outputs, outputs):
                    if old.name:
                        new.replace(old, value)
                self.room -= size

    def _import(self, call: Node, function: Any, new: Builder) -> None:
        """Import the domains that the body needs; refuse if another version is imported."""
        around = self.graph.imports_of(call.ir)
        needed = {node.domain for node in function.all_nodes() if node.op_identifier() not in self.graph.functions}
        for domain in sorted(needed):
            version = function.opset_imports.get(domain)
            name = domain or "ai.onnx"
            new.require(
                domain not in around or around[domain] == version,
                f"its body is written for another version of {name}",
            )
            if domain not in around and version is not None:
                new.set_opset(version, domain, function=self.owners.get(call.scope))


def _callees_first(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """Yield the identifiers of all functions, each after the functions that it calls."""
    functions = graph.functions
    done: set[Any] = set()
    for start in functions:
        stack = [(start, iter(_calls(graph, start)))] if start not in done else []
        done.add(start)
        while stack:
            identifier, rest = stack[-1]
            callee = next((item for item in rest if item not in done), None)
            if callee is None:
                stack.pop()
                yield identifier
            else:
                done.add(callee)
                stack.append((callee, iter(_calls(graph, callee))))


def _calls(graph: Graph, identifier: Any) -> list[Any]:
    body = graph.functions[identifier]
    return list(dict.fromkeys(n.op_identifier() for n in body.all_nodes() if n.op_identifier() in graph.functions))
