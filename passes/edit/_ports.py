"""Helpers for passes that edit inputs and outputs."""

from surgery import Graph, UsageError, Value

Dim = int | str | None


def only(graph: Graph, name: str | None, ports: list[Value], kind: str) -> Value:
    """Return the port with a name, or the only port if no name is given."""
    if name is not None:
        return graph.tensors([name], among=ports, kind=f"{kind} of the model")[0]
    if len(ports) != 1:
        listed = ", ".join(value.name for value in ports) or "none"
        raise UsageError(f"the model has {len(ports)} {kind}s: {listed}", todo=f"name one by '{kind}'")
    return ports[0]
