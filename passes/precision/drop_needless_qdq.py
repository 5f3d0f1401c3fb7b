"""Pairs of QuantizeLinear and DequantizeLinear that round without benefit."""

from surgery import Graph, Node, Parity, Value, graph_pass

from ._pairs import DEQUANTIZE, QUANTIZE
from ._units import CONNECTING, MOVING

COMPUTING = frozenset({"ArgMax", "Conv", "ConvTranspose", "Gemm", "MatMul", "Softmax", "Where"})
"""Operators for which runtimes have kernels on integers that are worth the rounding."""

BETWEEN = frozenset({*MOVING, "Clip", "Relu"})
"""Operators that a result may pass through before it is rounded."""


@graph_pass("drop-needless-qdq", parity=Parity.LOSSY)
def drop_needless_qdq(graph: Graph) -> None:
    """Remove each QuantizeLinear with its DequantizeLinear where no operator on integers needs the rounding.

    A pair makes a runtime compute the adjacent operators in integers. Between operators that are computed in float32,
    it costs time and accuracy, as around an Add whose neighbors all stay in float32 because of the budget. A pair
    directly after another one with the same scale and zero point rounds nothing and is removed, too. Pairs around
    constants stay, and so do those whose integers have other consumers.

    Example:
        g (float[N] x) => (float[N] y) <float s = {0.1}, uint8 z = {128}> {
            a = Sin(x)
            q = QuantizeLinear(a, s, z)
            d = DequantizeLinear(q, s, z)
            y = Cos(d)
        }
    """
    quantizers = graph.nodes(*QUANTIZE)
    needed = _needed(graph)
    for quantize in quantizers:
        readers = quantize.outputs[0].consumers
        if not any(reader.op in DEQUANTIZE for reader in readers):
            continue
        with graph.site(quantize) as new:
            value = quantize.required_input(0)
            new.require(not value.is_constant, "the rounded value is constant")
            new.require(not quantize.outputs[0].is_output, "the integers are an output of the graph")
            new.require(all(reader.op in DEQUANTIZE for reader in readers), "the integers have other consumers")
            same = all(_parameters(reader) == _parameters(quantize) for reader in readers)
            new.require(same, "the integers are dequantized with another scale")
            new.require(_repeats(quantize) or quantize not in needed, "an integer operator needs it")
            for reader in readers:
                new.replace(reader.outputs[0], value)


def _parameters(node: Node) -> tuple[object, ...]:
    """Return scale, zero point, axis and block size of a QuantizeLinear or DequantizeLinear, for comparison."""
    return (*(_known(node.input(position)) for position in (1, 2)), node.attr("axis", 1), node.attr("block_size", 0))


def _known(value: Value | None) -> object:
    if value is None or value.tensor is None or value.tensor.size > 1:
        return value
    return value.tensor.dtype, value.scalar


def _repeats(quantize: Node) -> bool:
    """Return whether the value was rounded in the same way immediately before."""
    before = quantize.required_input(0).producer
    return before is not None and before.op in DEQUANTIZE and _parameters(before) == _parameters(quantize)


def _needed(graph: Graph) -> set[Node]:
    """Return each QuantizeLinear that an integer operator needs, directly or through connecting operators."""
    needed: set[Node] = set()
    connecting: list[set[Node]] = []
    for node in graph.nodes(*COMPUTING, *CONNECTING):
        sources = _sources(node)
        if sources is None:
            continue
        around = {*sources, *_targets(node)}
        if node.op in COMPUTING:
            needed |= around
        else:
            connecting.append(around)
    # Integers that are only moved to the place where they are needed; the list is in the order of the graph.
    chains = [{quantize, *_upstream(quantize.required_input(0))} for quantize in graph.nodes(*QUANTIZE)]
    before = -1
    while len(needed) > before:
        before = len(needed)
        for around in connecting:
            needed |= around if around & needed else set()
        for quantize, chain in zip(graph.nodes(*QUANTIZE), chains):
            needed |= chain if quantize in needed else set()
    return needed


def _sources(node: Node) -> set[Node] | None:
    """Return the QuantizeLinear nodes of all data that a node reads; None if some of it is not dequantized."""
    count = CONNECTING.get(node.op, 2) or len(node.inputs)
    first = 1 if node.op == "Where" else 0
    data = [value for value in node.inputs[first : first + count] if value is not None]
    if node.op in ("ArgMax", "Softmax"):
        data = data[:1]
    dequantizers = [_dequantizer(value) for value in data]
    if any(found is None for found in dequantizers):
        return None
    return {source for value in data for source in _upstream(value)}


def _upstream(value: Value) -> set[Node]:
    """Return the QuantizeLinear upstream of a value that was dequantized and then only moved; empty if none."""
    found = _dequantizer(value)
    source = None if found is None else found.required_input(0).producer
    return {source} if source is not None and source.op in QUANTIZE else set()


def _dequantizer(value: Value) -> Node | None:
    """Return the DequantizeLinear upstream of a value that was only moved since; otherwise None."""
    node = value.producer
    while node is not None and node.op in MOVING:
        data = node.input(0)
        node = None if data is None else data.producer
    return node if node is not None and node.op in DEQUANTIZE else None


def _targets(node: Node) -> set[Node]:
    """Return the QuantizeLinear nodes that round the result of a node, directly, after an activation or after moves."""
    found: set[Node] = set()
    pending, seen = list(node.outputs), set(node.outputs)
    while pending:
        for reader in pending.pop().consumers:
            if reader.op in QUANTIZE:
                found.add(reader)
            elif reader.op in BETWEEN:
                pending += [output for output in reader.outputs if output not in seen]
                seen.update(reader.outputs)
    return found
