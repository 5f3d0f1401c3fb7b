"""Repeated blocks as functions."""

from surgery import Graph, Parity, UsageError, graph_pass

from ._blocks import Family, between, families, named, repeated

_STANDARD = ("ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft")


@graph_pass("outline", parity=Parity.EXACT)
def outline(
    graph: Graph, *, blocks: str | None = None, name: str = "Block", domain: str = "local", min_nodes: int = 8
) -> None:
    """Replace repeated blocks of nodes by calls of a model-local function.

    Right because a call is defined by the body of the function, and the body consists of the nodes of the blocks, which
    agree in operators, attributes and wiring. Values that they read from outside, including weights and constants,
    become inputs of the function, and values that are read outside become outputs. `inline-functions` reverses it.

    Blocks are found by the names of their nodes, or else automatically: as the longest consecutive repeats of nodes in
    the order of the file. `canonical-order` helps if the nodes are not in a regular order. Blocks that differ from the
    others, and nodes with subgraphs, are not replaced.

    Example:
        # options: {min_nodes: 2}
        g (float[2] x, float[2] w) => (float[2] y) {
            a = Mul(x, w)
            b = Relu(a)
            c = Mul(b, w)
            y = Relu(c)
        }

    Options:
        blocks: the start of the names of the nodes of a block, with one `*` that distinguishes the blocks:
        `encoder/layer.*`.
        name: the name of the function; further functions get a number after it.
        domain: the domain of the functions.
        min_nodes: the minimum number of nodes of a block that is found automatically.
    """
    if blocks is not None and blocks.count("*") != 1:
        raise UsageError(f"blocks: '{blocks}' needs one '*' for the part that differs between blocks")
    if min_nodes < 1:
        raise UsageError("min_nodes must be at least 1")
    if domain in ("", "ai.onnx", *_STANDARD) or not name:
        raise UsageError(f"a function needs a name, and a separate domain, not '{domain}'")
    if blocks is not None:
        _outline_named(graph, blocks, name, domain)
        return
    for run in list(repeated(graph, min_nodes)):
        for family in families(graph, run):
            _outline(graph, family, name, domain)


def _outline_named(graph: Graph, pattern: str, name: str, domain: str) -> None:
    groups = named(graph, pattern)
    if len(groups) < 2:
        number = "no block has" if not groups else "only one block has"
        raise UsageError(f"{number} nodes with names such as '{pattern}/...'", todo="'surgery inspect' lists names")
    found = families(graph, groups)
    if not found:
        raise UsageError(f"no two of the {len(groups)} blocks '{pattern}' are equal")
    for family in found:
        for block in family.blocks:
            caught = between(graph, block)
            if caught is not None:
                what = f"node '{caught.label}' reads of the block of '{block[0].label}' and is read by it"
                raise UsageError(what, todo="select blocks that contain it, or omit blocks to find them automatically")
        _outline(graph, family, name, domain)
    alike = {block for family in found for block in family.blocks}
    for group in groups:
        if tuple(group) not in alike:
            with graph.site(group[0]) as new:
                new.require(False, "no other block equals this one")


def _outline(graph: Graph, family: Family, name: str, domain: str) -> None:
    """Define the function of a family from its first block, and replace each block with a call."""
    with graph.site(family.blocks[0][-1]) as new:
        function = new.define_as(domain, name, family.blocks[0], family.reads, family.outputs[0])
        for block, inputs, outputs in zip(family.blocks, family.inputs, family.outputs):
            made = new.at(block[-1]).nodes(f"{domain}::{function}", *inputs, outputs=len(outputs), name=function)
            for old, value in zip(outputs, made):
                new.at(block[-1]).replace(old, value)
            for node in block:
                if not any(value.is_used for value in node.outputs):
                    new.remove(node)
