"""Nodes of the main graph that are to be replaced, and their boundary tensors."""

from collections.abc import Mapping

from surgery import Graph, Node, UsageError, Value


class Region:
    """Nodes of a graph, in the order of the graph."""

    def __init__(self, graph: Graph, nodes: list[Node]) -> None:
        self.graph = graph
        self.nodes = nodes
        self._inside = {node.ir for node in nodes}
        self._inside |= {inner for node in nodes for graph in node.subgraphs for inner in graph.all_nodes()}

    def read(self) -> list[Value]:
        """List the values that the nodes read from outside, except constants, in reading order."""
        values = dict.fromkeys(value for node in self.nodes for value in self.graph.reads(node))
        return [value for value in values if not value.is_constant and not self._makes(value)]

    def made(self) -> list[Value]:
        """List the results of the nodes that are read outside."""
        values = [value for node in self.nodes for value in node.outputs]
        return [v for v in values if v.is_output or any(node.ir not in self._inside for node in v.consumers)]

    def operands(self, names: list[str], optional: list[str], given: Mapping[str, str], what: str) -> dict[str, Value]:
        """Return the tensor for each input of the replacement: as given, by name, or in order."""
        _require_names(given, [*names, *optional], "input", what)
        found = {name: self.graph.tensors([tensor])[0] for name, tensor in given.items()}
        rest = [name for name in names if name not in found]
        known = {value.name: value for value in self.graph.values()}
        if all(name in known for name in rest):
            found |= {name: known[name] for name in rest}
        else:
            read = [value for value in self.read() if value not in found.values()]
            found |= _in_order(rest, read, f"inputs of {what}", "what the nodes read", "inputs")
        inner = next((value for value in found.values() if self._makes(value)), None)
        if inner is not None:
            what = f"'{inner.name}' is computed by the removed nodes"
            raise UsageError(what, todo="name another tensor by 'inputs'")
        return found

    def results(self, names: list[str], given: Mapping[str, str], what: str) -> dict[str, Value]:
        """Return the tensor that each output replaces: as given, by name, or in order; all must be replaced."""
        _require_names(given, names, "output", what)
        made = self.made()
        kind = "tensor that the nodes produce and other nodes read"
        found = {name: self.graph.tensors([tensor], among=made, kind=kind)[0] for name, tensor in given.items()}
        rest = [name for name in names if name not in found]
        known = {value.name: value for value in made}
        left = [value for value in made if value not in found.values()]
        if all(name in known for name in rest) and len(rest) == len(left):
            return found | {name: known[name] for name in rest}
        return found | _in_order(rest, left, f"outputs of {what}", "what is read of the nodes", "outputs")

    def _makes(self, value: Value) -> bool:
        return value.ir.producer() in self._inside


def _in_order(names: list[str], values: list[Value], kind: str, other: str, option: str) -> dict[str, Value]:
    """Match names with an equal number of values, in order."""
    if len(names) != len(values):
        mine, theirs = ", ".join(names) or "none", ", ".join(value.name for value in values) or "nothing"
        raise UsageError(f"the {kind} ({mine}) do not match {other} ({theirs})", todo=f"match them by '{option}'")
    return dict(zip(names, values))


def _require_names(given: Mapping[str, str], names: list[str], kind: str, what: str) -> None:
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise UsageError(f"{what} has no {kind} '{unknown}'", todo=f"it has {', '.join(names) or 'none'}")
