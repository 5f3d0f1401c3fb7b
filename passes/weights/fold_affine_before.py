"""Factors and shifts before linear layers."""

from collections import deque

from surgery import RESHAPES, Builder, Graph, Node, Parity, Value, graph_pass

from ._before import are_layers, take_in_before
from ._layers import ELEMENTWISE, Affine, affine

OPERATORS = (*ELEMENTWISE, "BatchNormalization")
GELU_SINCE = 20
LONGEST = 4
"""Maximum number of consecutive nodes that are stepped over to recognize an idiom."""


@graph_pass("fold-affine-before", parity=Parity.CLOSE)
def fold_affine_before(graph: Graph, *, keep_gelu: bool = False) -> None:
    """Fold constant factors and shifts of the input channels of a MatMul, Gemm or Conv into its weight.

    Right because W·(f·x + h) + b is (W·f)·x + (W·h + b), with one f and h for each input channel or for all. A shift
    requires a bias, and a Conv without padding, because padded zeros would not be shifted. All readers must be such
    layers. What is folded is Add, Sub, Mul, Div, Neg or a BatchNormalization in inference, but not the last factor of
    an activation or a normalization: runtimes compute those in one kernel. The 0.5 of a Gelu by Erf is folded if the
    opset has no Gelu, at any position in the product.

    Options:
        keep_gelu: Also keep the 0.5 of a Gelu by Erf, which ONNX Runtime and others need to recognize the Gelu.

    Example:
        g (float[N,1,4] x) => (float[N,1,4] y)
        <float[1] s = {3}, float[1] shift = {1}, float[1] mean = {0.5}, float[1] var = {2}, float[1,1,1] w = {2}> {
            n = BatchNormalization(x, s, shift, mean, var)
            y = Conv(n, w)
        }
    """
    todo = deque(graph.nodes(*OPERATORS))
    while todo:
        node = todo.popleft()
        readers = [] if node.is_removed else node.outputs[0].consumers
        if are_layers(readers, node.outputs[0]):
            with graph.site(node) as new:
                change = affine(node)
                if change is not None:
                    _fold(change, readers, keep_gelu, new)
                    todo.extend(filter(None, [change.data.producer]))
    for node in [] if keep_gelu else graph.nodes("Mul"):
        half = _half_inside(node)
        if half is not None and are_layers(node.outputs[0].consumers, node.outputs[0]):
            with graph.site(node) as new:
                _fold_half(half, node, new)


def _fold(change: Affine, readers: list[Node], keep_gelu: bool, new: Builder) -> None:
    value = change.node.outputs[0]
    new.require(not value.is_output, "the value before the layer is an output")
    new.require(
        all(reader.scope is change.node.scope for reader in readers), "the chain crosses the boundary of a subgraph"
    )
    idiom = _ends_an_idiom(change.data) and (keep_gelu or not _is_gelu(change.data.producer))
    new.require(not idiom, "the factor belongs to an activation or a normalization")
    new.require(value.shape is not None and value.shape == change.data.shape, "the constant may enlarge the result")
    for reader in readers:
        take_in_before(change, reader, new)


def _ends_an_idiom(data: Value) -> bool:
    """Return whether a value comes from a product or a quotient of computed values, as in Gelu and RMSNorm."""
    for _ in range(LONGEST):
        producer = data.producer
        if producer is not None and producer.op in RESHAPES:
            data = producer.required_input(0)
            continue
        if producer is None or producer.op not in ELEMENTWISE:
            return False
        computed = [value for value in producer.inputs if value is not None and not value.is_constant]
        if len(computed) != 1:
            return producer.op in ("Div", "Mul")
        data = computed[0]
    return False


def _is_gelu(product: Node | None) -> bool:
    """Return whether a node multiplies by 1 + erf(...), in an opset without Gelu."""
    if product is None or product.op != "Mul" or product.opset >= GELU_SINCE:
        return False
    return any(value is not None and _is_one_more_than_erf(value) for value in product.inputs)


def _is_one_more_than_erf(value: Value) -> bool:
    add = value.producer
    if add is None or add.op != "Add":
        return False
    operands = [operand for operand in add.inputs if operand is not None]
    erf = any(operand.producer is not None and operand.producer.op == "Erf" for operand in operands)
    return erf and any(operand.scalar == 1 for operand in operands)


def _half_inside(product: Node) -> Affine | None:
    """Return the multiplication by a number on one side of the product of a Gelu, or None."""
    if product.opset >= GELU_SINCE or len(product.inputs) != 2:
        return None
    for side, other in (product.inputs, product.inputs[::-1]):
        node = None if side is None else side.producer
        change = None if node is None or node.op not in ("Div", "Mul") else affine(node)
        if change is None or change.factor.size != 1 or other is None:
            continue
        if _is_one_more_than_erf(other) or _is_one_more_than_erf(change.data):
            return change
    return None


def _fold_half(change: Affine, product: Node, new: Builder) -> None:
    """Make the layers after a product absorb a factor of one of its sides."""
    side, value = change.node.outputs[0], product.outputs[0]
    readers = value.consumers
    new.require(not value.is_output and not side.is_output, "the value before the layer is an output")
    new.require(side.reads == 1, "the factor is read by others")
    new.require(
        all(node.scope is product.scope for node in (change.node, *readers)),
        "the chain crosses the boundary of a subgraph",
    )
    new.require(side.shape is not None and side.shape == change.data.shape, "the constant may enlarge the result")
    for reader in readers:
        take_in_before(Affine(product, value, change.factor, change.shift), reader, new)
    new.set_input(product, product.inputs.index(side), change.data)
    new.changes(value)
