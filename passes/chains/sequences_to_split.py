"""Sequences that are created by splitting or from single tensors, and read element by element."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._shared import constant_ints, has_parameters, new_split


@graph_pass("sequences-to-split", parity=Parity.EXACT)
def sequences_to_split(graph: Graph) -> None:
    """Turn a SplitToSequence whose parts are read at constant positions into one Split, and do without other sequences.

    Right because both cut an axis into the same adjacent blocks: parts of equal length except for the last one if a
    single number is given, else parts of the given lengths. The lengths and the extent of the axis must be known, the
    parts must keep the axis (keepdims), and the sequence must not have other consumers. The elements of a
    SequenceConstruct are its inputs: what reads it at a constant position reads that input, its length is their number,
    and to concatenate the sequence is to concatenate them.

    Example:
        g (float[N,4] x) => (float[N,2] y) <int64 two = {2}, int64 zero = {0}, int64 one = {1}> {
            s = SplitToSequence<axis = 1>(x, two)
            a = SequenceAt(s, zero)
            b = SequenceAt(s, one)
            y = Mul(a, b)
        }
    """
    for node in graph.nodes("SplitToSequence"):
        with graph.site(node) as new:
            _split(node, new)
    for node in graph.nodes("SequenceConstruct"):
        for reader in node.outputs[0].consumers:
            if reader.op in _READERS:
                with graph.site(reader) as new:
                    new.replace(reader.outputs[0], _READERS[reader.op](node, reader, new))


def _element(node: Node, reader: Node, new: Builder) -> Value:
    """Return the input of a SequenceConstruct that a SequenceAt reads."""
    index = constant_ints(reader.input(1))
    new.require(index is not None and len(index) == 1, "the position is not constant")
    assert index is not None
    count = len(node.inputs)
    new.require(-count <= index[0] < count, "there is no such element")
    return node.required_input(index[0] % count)


def _count(node: Node, reader: Node, new: Builder) -> Value:
    return new.constant(np.array(len(node.inputs), np.int64), "count")


def _joined(node: Node, reader: Node, new: Builder) -> Value:
    new.require(not reader.attr("new_axis", 0), "the elements are stacked along a new axis")
    new.require("axis" in reader.attributes and not has_parameters(reader), "the axis is not known")
    return new.node("Concat", *node.inputs, axis=reader.attr("axis"))


_READERS = {"ConcatFromSequence": _joined, "SequenceAt": _element, "SequenceLength": _count}
"""For each operator that reads a sequence of known elements, what its result is."""


def _split(node: Node, new: Builder) -> None:
    sequence, readers = node.outputs[0], node.outputs[0].consumers
    taken = [constant_ints(reader.input(1)) for reader in readers if reader.op == "SequenceAt"]
    alone = not sequence.is_output and len(taken) == len(readers) > 0
    alone = alone and all(reader.scope is node.scope for reader in readers)
    # A position must be a single number; ONNX Runtime uses the first of several.
    alone = alone and all(item is not None and len(item) == 1 for item in taken)
    new.require(alone, "the sequence is not only read at constant positions")
    lengths = _lengths(node)
    new.require(lengths is not None, "the lengths of the parts are not known")
    assert lengths is not None
    positions = [index for item in taken if item is not None for index in item]
    new.require(all(-len(lengths) <= index < len(lengths) for index in positions), "there is no such part")
    parts = new_split(node.required_input(0), node.attr("axis", 0), lengths, node.opset, new)
    for reader, index in zip(readers, positions):
        new.replace(reader.outputs[0], parts[index])


def _lengths(node: Node) -> list[int] | None:
    """Return the lengths of the parts; None if they are not known, or if the parts lose the axis."""
    shape, axis, split = node.required_input(0).shape, node.attr("axis", 0), node.input(1)
    given = None if split is None else constant_ints(split)
    if shape is None or not given or not -len(shape) <= axis < len(shape) or split is None:
        return None
    whole = shape[axis]
    if not isinstance(whole, int) or min(given) < 1:
        return None
    if split.rank == 0:
        return [min(given[0], whole - start) for start in range(0, whole, given[0])]
    return list(given) if sum(given) == whole else None
