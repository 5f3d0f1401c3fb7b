"""Subexpressions that are the same in every run, replaced with constants."""

from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Size, Value, compute, graph_pass

from ._growth import Room, expected_growth
from ._moves import moved, moved_from

STANDARD = {"", "ai.onnx", "ai.onnx.ml"}
MOVES = frozenset(
    {
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
"""Operators that only move elements."""
HALF = {"FLOAT16", "BFLOAT16"}
MOST_ELEMENTS = 1024
"""Maximum number of elements of a value whose contents shape inference tracks."""

Array = np.ndarray[Any, Any]


@graph_pass("fold-constants", parity=Parity.EXACT)
def fold_constants(
    graph: Graph,
    *,
    max_growth: Size = 2_000_000,
    max_percent: float = 1.0,
    keep_dequantize: bool = True,
    lift_constants: bool = True,
) -> None:
    """Replace computations on constants and on static shapes by their results.

    Right because the result is computed by the kernels that the model itself runs, from the same bits. Shapes are used
    only if shape inference proves them; declared shapes of intermediate values are not trusted. A CastLike of a
    constant only needs the type of its second input, which is known. Random operators stay, and so do overridable
    initializers, control flow, and values that a function computes from its attributes. Half-precision arithmetic also
    stays: without a kernel, ONNX Runtime computes it in single precision and skips intermediate rounding.

    The file never grows by more than `max_growth`, however often the pass runs: results that are larger than their
    inputs, such as those of an Expand, are folded as long as they fit, those that remove most nodes first, and are
    marked. A weight with other consumers is never stored again in another order.

    Options:
        max_growth: The number of bytes by which the file may grow: new constants minus removed ones, counting constants
        of 1024 bytes or more.
        max_percent: The maximum growth of the file as a percentage of all constants; 16 KiB are always allowed.
        keep_dequantize: Keep DequantizeLinear of constants, whose result is at least four times as large.
        lift_constants: Turn Constant nodes into initializers, outside of functions.

    Example:
        g (float[2,3] x) => (float[6] y) <int64[1] one = {1}, int64[1] two = {2}>
        {
            s = Shape(x)
            t = Gather(s, one)
            u = Mul(t, two)
            y = Reshape(x, u)
        }
    """
    folding = _Folding(graph, Room(graph, max_growth, max_percent), keep_dequantize)
    while folding.round():
        pass
    if lift_constants:
        for node in graph.nodes("Constant"):
            if _can_hold(graph, node):
                _lift(graph, node)


def _can_hold(graph: Graph, node: Node) -> bool:
    """Return whether the scope of a node can have a new initializer; before IR version 4 it is also a graph input.

    In the main graph, runtimes treat such an input as a constant; but the node that runs a body does not pass it.
    """
    return graph.ir.ir_version >= 4 or node.scope is graph.main


def _lift(graph: Graph, node: Node) -> None:
    value = node.outputs[0]
    # A sparse constant has no tensor.
    if graph.in_function(node) or not value.is_used or value.tensor is None:
        return
    with graph.site(node) as new:
        new.require(not value.is_output, "the constant is an output of its graph")
        new.replace(value, new.constant(value.tensor, name=value.name))


class _Folding:
    """The state of one run. `stays` holds the nodes that were examined and are not folded."""

    def __init__(self, graph: Graph, room: Room, keep_dequantize: bool) -> None:
        self.graph = graph
        self.room = room
        self.keep_dequantize = keep_dequantize
        self.stays: set[Node] = set()
        self.known: dict[Value, Array | None] = {}

    def round(self) -> bool:
        """Fold all values that can be folded now; return whether another round may find more."""
        self._find_known()
        if self._name_types():
            self._find_known()
        wanted = self._wanted()
        before = len(self.stays)
        results = self._results(wanted)
        news = False
        for value in wanted:
            node = value.producer
            if node is None or node.is_removed:
                continue
            teaches = self._teaches(value)
            with self.graph.site(node) as new:
                result = results.get(value)
                new.require(result is None or result.tensor is not None, result.reason if result else "")
                self._replace(new, value, result.tensor if result else None)
            if value.is_used:
                self.stays.add(node)
            else:
                news = news or teaches
        if news:
            self.graph.facts.forget()
        return news or len(self.stays) > before

    def _name_types(self) -> bool:
        """Replace a CastLike of a known value to the type of a computed value with a Cast."""
        before = len(self.graph.sites)
        for node in self.graph.nodes("CastLike"):
            source, result = node.required_input(0), node.outputs[0]
            like, dtype = node.required_input(1), result.dtype
            is_known = source.is_constant or source in self.known
            if not is_known or like.is_constant or dtype is None or self.graph.in_function(node):
                continue
            with self.graph.site(node) as new:
                new.replace(result, new.node("Cast", source, attributes={**node.attributes, "to": int(dtype)}))
        return len(self.graph.sites) > before

    def _find_known(self) -> None:
        """List the values that are the same in every run, with their contents, or None if they must be computed."""
        self.known = {}
        for node in self.graph.nodes():
            if node in self.stays or node.op == "Constant":
                continue
            contents = {value: _content(value) for value in node.outputs if value.name}
            known = {value: content for value, content in contents.items() if content is not None}
            self.known.update(contents if len(known) < len(contents) and self._is_foldable(node) else known)

    def _is_foldable(self, node: Node) -> bool:
        """Return whether all operands are known and the operator may be folded; if it may not, record a refusal."""
        if not all(value is None or value in self.known or value.is_constant for value in node.inputs):
            return False
        foldable = False
        with self.graph.site(node) as new:
            new.require(not node.is_random, "the operator is random")
            new.require(not node.has_subgraphs, "control flow is not folded")
            new.require(node.domain in STANDARD, "the operator is not part of the ONNX standard")
            new.require(
                not self.keep_dequantize or node.op != "DequantizeLinear", "the dequantized constant would be larger"
            )
            new.require(
                node.op in MOVES or all(v.dtype is None or v.dtype.name not in HALF for v in node.outputs if v.name),
                "a runtime may skip the rounding to half precision",
            )
            new.require(
                not any(attribute.is_ref() for attribute in node.attributes.values()),
                "an attribute is a parameter of the function",
            )
            foldable = True
        if not foldable:
            self.stays.add(node)
        return foldable

    def _wanted(self) -> list[Value]:
        """List the values to fold, in ascending order of file growth per removed node.

        If a value is too large to be stored, the values from which it is computed may be folded.
        """
        prices: dict[Value, float] = {}
        pending = [value for value in self.known if self._is_wanted(value)]
        for value in pending:
            node = value.producer
            if node is None or node in self.stays or value in prices:
                continue
            growth, price = expected_growth(value) if _copied(value) is None else (0, 0)
            with self.graph.site(node) as new:
                new.require(not growth or moved_from(value) is None, "a tied weight would be duplicated")
                new.require(self.room.has(growth), "the file would grow by more than max_growth")
                prices[value] = price
            if value not in prices:
                self.stays.add(node)
                pending += [operand for operand in node.inputs if operand is not None and operand in self.known]
        return sorted((value for value in prices if value.producer not in self.stays), key=prices.__getitem__)

    def _is_wanted(self, value: Value) -> bool:
        """Return whether a known value is an output or has a reader with an unknown result."""
        if value.is_output:
            return True
        return any(not all(v in self.known for v in reader.outputs if v.name) for reader in value.consumers)

    def _results(self, wanted: list[Value]) -> dict[Value, Any]:
        """Compute the values that are not copies of constants; weights that are only moved are not read here."""
        values = [value for value in wanted if _copied(value) is None]
        given = {value: content for value, content in self.known.items() if content is not None}
        for value in values:
            view = moved(value) if value not in given else None
            if view is not None:
                given[value] = view
        return dict(zip(values, compute(values, given=given)))

    def _teaches(self, value: Value) -> bool:
        """Return whether inference, which lacks the contents of a value, may learn from them about its readers."""
        if self.known[value] is not None or value.dtype is None or not value.dtype.is_integer():
            return False
        if value.size is not None and value.size > MOST_ELEMENTS:
            return False
        read = [made for reader in value.consumers for made in reader.outputs if made.name and made not in self.known]
        return any(
            made.static_shape is None or made.dtype is None or (made.dtype.is_integer() and made.elements is None)
            for made in read
        )

    def _replace(self, new: Builder, value: Value, tensor: Any) -> None:
        """Replace a value with a constant: `tensor`, or the constant that the value is a copy of."""
        copied = _copied(value)
        if tensor is not None:
            growth = self.room.growth(value, tensor)
            new.require(self.room.has(growth), "the file would grow by more than max_growth")
            self.room.take(growth)
            copied = self._constant(new, value, tensor)
        if copied is not None:
            new.replace(value, copied)

    def _constant(self, new: Builder, value: Value, tensor: Any) -> Value:
        node = value.producer
        # An initializer cannot be an output of its graph.
        if value.is_output or (node is not None and not _can_hold(self.graph, node)):
            return new.node("Constant", value=tensor)
        return new.constant(tensor, name=value.name)


def _content(value: Value) -> Array | None:
    """Return the contents of a value if shape inference proves them; otherwise None."""
    elements = value.elements
    if elements is None or value.is_constant:
        return None
    shape, dtype = value.static_shape, value.dtype
    if shape is None or dtype is None:
        return None
    numbers = [item for item in elements if isinstance(item, int)]
    if len(numbers) != len(elements) or len(numbers) != value.size:
        return None
    return np.array(numbers, dtype=dtype.numpy()).reshape(shape)


def _copied(value: Value) -> Value | None:
    """Return the constant that a value is a copy of; None if it is not one."""
    node = value.producer
    source = node.input(0) if node is not None and node.op == "Identity" else None
    return source if source is not None and source.is_constant else None
