"""Chains of Transpose."""

from collections import deque

from surgery import Builder, Graph, Node, Parity, Value, graph_pass


@graph_pass("merge-transposes", parity=Parity.EXACT)
def merge_transposes(graph: Graph) -> None:
    """Merge a Transpose into the Transposes that read it; remove both if they cancel.

    Right because axis j of the outer result is axis p1[p2[j]] of the input, and no element is computed. A missing
    permutation reverses the axes; two of those cancel whatever the rank. If a Transpose has other consumers, it stays,
    and only Transposes that cancel it are removed, because merging others would not save a node.

    Example:
        g (float[N,3,4] x) => (float[3,4,N] y) {
            a = Transpose<perm = [2, 0, 1]>(x)
            b = Transpose<perm = [2, 0, 1]>(a)
            y = Relu(b)
        }
    """
    todo = deque(graph.nodes("Transpose"))
    while todo:
        first = todo.popleft()
        source = first.input(0)
        readers = [node for node in first.outputs[0].consumers if node.op == "Transpose"]
        if source is None or not readers:
            continue
        with graph.site(first) as new:
            _merge(first, source, readers, new)
        before = source.producer
        if first.is_removed and before is not None and before.op == "Transpose":
            todo.append(before)  # its readers have changed


def _merge(first: Node, source: Value, readers: list[Node], new: Builder) -> None:
    middle = first.outputs[0]
    merged = [(reader, _composed(first, reader)) for reader in readers]
    others = middle.is_output or len(readers) < len(middle.consumers) or any(perm is None for _, perm in merged)
    new.require(not others or any(perm == [] for _, perm in merged), "the first Transpose is read by others")
    for reader, perm in merged:
        if perm == []:
            new.replace(reader.outputs[0], source)
        elif not others:
            new.set_input(reader, 0, source)
            new.set_attribute(reader, "perm", perm)


def _composed(first: Node, second: Node) -> list[int] | None:
    """Return the permutation of both: empty if each axis stays in place, None if the ranks differ."""
    inner, outer = first.attr("perm"), second.attr("perm")
    if not inner and not outer:
        return []
    axes = list(range(len(inner or outer)))
    inner, outer = inner or axes[::-1], outer or axes[::-1]
    if sorted(inner) != axes or sorted(outer) != axes:
        return None
    perm = [inner[axis] for axis in outer]
    return [] if perm == axes else perm
