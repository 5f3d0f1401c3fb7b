"""Subexpressions that are the same in every run as constants."""

from collections import Counter
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Size, Value, compute, graph_pass

from ._shared import value_bytes

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
SMALL = 1024
"""Bytes below which a constant does not count as growth."""
GROWTH_KEY = "surgery.growth"
"""In the metadata of a tensor: by how many bytes it is larger than what it once was made of."""


@graph_pass("fold-constants", parity=Parity.EXACT)
def fold_constants(
    graph: Graph,
    *,
    max_growth: Size = 1_000_000,
    keep_dequantize: bool = True,
    lift_constants: bool = True,
) -> None:
    """Replace what is computed from constants alone by its result, and what depends on static shapes only.

    Right because the result is computed by the kernels that the model itself runs, from the same bits. Shapes are
    taken from shape inference and only where it proves them; what a model merely declares of its intermediate
    values is not believed. Random operators differ from run to run and stay; so does an initializer that a caller
    can override, control flow, and what a function computes from its attributes. Arithmetic in half precision
    stays too: where ONNX Runtime has no kernel for it, it computes in single precision and drops roundings between.

    The file never grows by more than `max_growth`, however often the pass runs: results that are larger than what
    they are made of, as of an Expand, are folded smallest first, as long as they fit, and carry a note of it.

    Options:
        max_growth: By how many bytes the file may grow: new constants less those that nothing reads any more,
            where a constant has 1024 bytes or more.
        keep_dequantize: Keep DequantizeLinear of constants, for the result takes four times the space or more.
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
    folding = _Folding(graph, max_growth, keep_dequantize)
    while folding.round():
        pass
    if lift_constants and graph.ir.ir_version >= 4:
        for node in graph.nodes("Constant"):
            _lift(graph, node)


def _lift(graph: Graph, node: Node) -> None:
    value = node.outputs[0]
    # A sparse constant has no tensor.
    if graph.in_function(node) or not value.is_used or value.tensor is None:
        return
    with graph.site(node) as new:
        new.require(not value.is_output, "the constant is an output of its graph")
        new.replace(value, new.constant(value.tensor, name=value.name))


class _Folding:
    """The state of one run. `stays` are nodes that were looked at and are not folded."""

    def __init__(self, graph: Graph, max_growth: int, keep_dequantize: bool) -> None:
        self.graph = graph
        self.room = max_growth - _noted(graph)
        self.keep_dequantize = keep_dequantize
        self.stays: set[Node] = set()
        self.known: dict[Value, np.ndarray[Any, Any] | None] = {}

    def round(self) -> bool:
        """Fold what can be folded now; tell whether another round may find more."""
        before = len(self.stays)
        wanted = self._search()
        contents = {value: content for value, content in self.known.items() if content is not None}
        results = compute([value for value in wanted if _copied(value) is None], given=contents)
        tensors = dict(zip((value for value in wanted if _copied(value) is None), results))
        news = False
        for value in wanted:
            node, result = value.producer, tensors.get(value)
            if node is None or node.ir.graph is None:
                continue
            with self.graph.site(node) as new:
                new.require(result is None or result.tensor is not None, result.reason if result else "")
                tensor = result.tensor if result else None
                freed, noted = _freed(value, Counter())
                growth = _growth(tensor.nbytes, freed) if tensor is not None else 0
                new.require(growth <= self.room, "the file would grow by more than max_growth")
                if tensor is not None and growth + noted > 0:
                    tensor.metadata_props[GROWTH_KEY] = str(growth + noted)
                new.replace(value, _copied(value) or self._constant(new, value, tensor))
                self.room -= growth
            if value.is_used:
                self.stays.add(node)
            else:
                news = news or (value not in contents and value.dtype is not None and value.dtype.is_integer())
        if news:
            self.graph.facts.forget()
        return news or len(self.stays) > before

    def _search(self) -> list[Value]:
        """List the values to fold, the one first that makes the file grow least.

        A value that is too large is dropped and the search begun anew: what it is computed from may be folded.
        """
        while True:
            self._find_known()
            wanted = {value: _expected_growth(value) for value in self.known if self._is_wanted(value)}
            large = [value for value, growth in wanted.items() if growth > self.room]
            if not large:
                return sorted(wanted, key=wanted.__getitem__)
            for value in large:
                with self.graph.site(value.producer) as new:
                    new.require(False, "the file would grow by more than max_growth")
                if value.producer is not None:
                    self.stays.add(value.producer)

    def _find_known(self) -> None:
        """List the values that are the same in every run: with their contents, or None where they must be computed."""
        self.known = {}
        for node in self.graph.nodes():
            if node in self.stays or node.op == "Constant":
                continue
            contents = {value: _content(value) for value in node.outputs if value.name}
            known = {value: content for value, content in contents.items() if content is not None}
            self.known.update(contents if len(known) < len(contents) and self._is_foldable(node) else known)

    def _is_foldable(self, node: Node) -> bool:
        """Tell whether all operands are known and the operator may be computed beforehand; if not, say why."""
        if not all(value is None or value in self.known or value.is_constant for value in node.inputs):
            return False
        foldable = False
        with self.graph.site(node) as new:
            new.require(not node.is_random, "the operator is random")
            new.require(not node.has_subgraphs, "control flow is left as it is")
            new.require(node.ir.domain in STANDARD, "the operator is not of the ONNX standard")
            new.require(
                not self.keep_dequantize or node.op != "DequantizeLinear", "the dequantized constant would be larger"
            )
            new.require(
                node.op in MOVES or all(v.dtype is None or v.dtype.name not in HALF for v in node.outputs if v.name),
                "a runtime may leave out the rounding to half precision",
            )
            new.require(
                not any(attribute.is_ref() for attribute in node.ir.attributes.values()),
                "an attribute is a parameter of the function",
            )
            foldable = True
        if not foldable:
            self.stays.add(node)
        return foldable

    def _is_wanted(self, value: Value) -> bool:
        """Tell whether something reads a known value that is not known itself."""
        if value.is_output:
            return True
        return any(not all(v in self.known for v in reader.outputs if v.name) for reader in value.consumers)

    def _constant(self, new: Builder, value: Value, tensor: Any) -> Value:
        # An initializer cannot be an output of its graph; before IR version 4 it would be an input of it.
        if value.is_output or self.graph.ir.ir_version < 4:
            return new.node("Constant", value=tensor)
        return new.constant(tensor, name=value.name)


def _content(value: Value) -> np.ndarray[Any, Any] | None:
    """Return what shape inference proves a value to hold, if it does."""
    elements, shape, dtype = value.elements, value.static_shape, value.dtype
    if elements is None or shape is None or dtype is None or value.is_constant:
        return None
    numbers = [item for item in elements if isinstance(item, int)]
    if len(numbers) != len(elements) or len(numbers) != value.size:
        return None
    return np.array(numbers, dtype=dtype.numpy()).reshape(shape)


def _copied(value: Value) -> Value | None:
    """Return the constant that a value is a copy of."""
    node = value.producer
    source = node.input(0) if node is not None and node.op == "Identity" else None
    return source if source is not None and source.is_constant else None


def _growth(size: int, freed: int) -> int:
    return size - freed if freed < size and size >= SMALL else 0


def _expected_growth(value: Value) -> int:
    """Return by how many bytes the file grows when a value is folded, 0 when its size is not known yet."""
    size = value_bytes(value)
    return 0 if size is None or _copied(value) is not None else _growth(size, _freed(value, Counter())[0])


def _noted(graph: Graph) -> int:
    """Return the bytes of growth that earlier runs have noted."""
    tensors = [value.tensor for value in graph.constants()]
    tensors += [node.outputs[0].tensor for node in graph.nodes("Constant")]
    return sum(_note(tensor) for tensor in tensors if tensor is not None)


def _note(tensor: Any) -> int:
    text = tensor.metadata_props.get(GROWTH_KEY, "0")
    return int(text) if text.isdecimal() else 0


def _freed(value: Value, gone: Counter[Value]) -> tuple[int, int]:
    """Return the bytes of constants that nothing reads any more once a value is replaced, and those noted on them.

    `gone` counts the readers of each value that are no longer there.
    """
    freed = noted = 0
    gone[value] = _readers(value)
    pending = [value]
    while pending:
        here = pending.pop()
        tensor = here.tensor
        if tensor is not None:
            freed += tensor.nbytes
            noted += _note(tensor)
        node = here.producer
        if node is None or any(output.name and gone[output] < _readers(output) for output in node.outputs):
            continue
        for operand in {operand for operand in node.inputs if operand is not None}:
            gone[operand] += 1
            if gone[operand] == _readers(operand):
                pending.append(operand)
    return freed, noted


def _readers(value: Value) -> int:
    return len(value.consumers) + value.is_output
