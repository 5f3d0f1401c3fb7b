"""What of quantized tensors the target takes."""

from surgery import Graph


def takes(graph: Graph, op: str, kind: str, domain: str = "") -> bool:
    """Return whether the target has an operator for an element type, if it lists any."""
    rows = graph.target.operators.get((domain, op), ())
    return not rows or any(row.takes(0, kind) for row in rows)


def dequantizes(graph: Graph, kind: str, domain: str = "") -> bool:
    """Return whether the target has a DequantizeLinear of a type, if it lists any."""
    return takes(graph, "DequantizeLinear", kind, domain)


def needs_zeros(graph: Graph) -> bool:
    """Return whether the target takes no zero points but 0."""
    rows = graph.target.operators.get(("", "DequantizeLinear"), ())
    return bool(rows) and all("x_zero_point" in row.zeros for row in rows)
