"""Conversion of float16 and bfloat16 to float32."""

from collections.abc import Collection
from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, data_type, graph_pass

from ._narrow_casts import is_there
from ._narrow_nodes import EXTENTS, is_default

_FLOAT = data_type("float")
_TYPED = ("dtype", "output_dtype", "to")
"""Attributes that fix the element type of the result."""

Narrow = Literal["bfloat16", "float16"]


@graph_pass("to-float32", parity=Parity.CLOSE)
def to_float32(graph: Graph, *, types: list[Narrow] | None = None) -> None:
    """Compute in float32 what is in float16 or bfloat16, such as for a runtime without kernels for these.

    Right because float32 represents each number of both types exactly, so weights keep their values, and each operator
    rounds less than before. The results are those of the model before it was rounded: they are nearer to exact
    arithmetic, and not the same. Casts to the narrower type between two operators disappear with their rounding. A
    value that overflows float16 is a number in float32.

    Inputs and outputs of the model keep their types, with a Cast at each; `set-dtype` changes these. Weights take twice
    the bytes.

    Options:
        types: the types to replace; by default both

    Example:
        <ir_version: 10, opset_import: ["" : 17]>
        g (bfloat16[N,2] x) => (bfloat16[N,2] y) <bfloat16[2,2] w = {1, 2, 3, 4}> {
            t = MatMul(x, w)
            y = Sigmoid(t)
        }
    """
    narrow = {data_type(name) for name in types or ("bfloat16", "float16")}
    wide = _Wide(graph, narrow)
    for node in graph.nodes():
        if wide.concerns(node) and not wide.is_settled(node):
            with graph.site(node) as new:
                wide.convert(node, new)


class _Wide:
    """The values in float32 of those in a narrower type."""

    def __init__(self, graph: Graph, narrow: Collection[object]) -> None:
        self._graph = graph
        self._narrow = narrow
        self._main = frozenset(graph.main_nodes())
        self._made: dict[Value, Value] = {}
        self._site: dict[Value, Value] = {}

    def concerns(self, node: Node) -> bool:
        """Return whether a node reads a value in a narrower type, or is a Cast to one."""
        return any(self._narrows(value) for value in node.inputs) or (
            is_default(node) and node.op == "Cast" and self._narrows(node.outputs[0])
        )

    def is_settled(self, node: Node) -> bool:
        """Return whether a node is a Cast that stays: one from or to float32, of a value without another source."""
        if not is_default(node) or node.op != "Cast" or node not in self._main:
            return False
        source, result = node.required_input(0), node.outputs[0]
        if self._narrows(result) and source.dtype == _FLOAT:
            self._made[result] = source
            return True
        if result.dtype != _FLOAT or source.is_constant or self._known(source) is not None:
            return False
        self._made[source] = result
        return True

    def convert(self, node: Node, new: Builder) -> None:
        """Compute a node in float32."""
        self._site = {}
        inside = node.has_subgraphs or node not in self._main
        new.require(not inside, "it is in a subgraph or a function, or has a subgraph")
        new.require(node.identifier not in self._graph.functions, "it calls a function")
        if node.op in EXTENTS and is_default(node):
            self._measure(node, new)
            return
        if is_default(node) and node.op == "Cast":
            self._cast(node, new)
            return
        fixed = any(self._narrows(value) for value in node.outputs) and any(map(node.has_attr, _TYPED))
        new.require(not fixed, "an attribute fixes the type of its result")
        new.require(not node.is_random, "it draws random numbers")
        operands = [self._widened(value, new) for value in node.inputs]
        unused = {place for place, value in enumerate(node.outputs) if not value.is_used}
        made = new.nodes(
            node.op, *operands, outputs=len(node.outputs), omitted=unused, name=node.name, attributes=node.attributes
        )
        for old, result in zip(node.outputs, made):
            if old.is_used:
                self._replace(old, result, new)

    def _measure(self, node: Node, new: Builder) -> None:
        """Let Shape and Size read the value in float32, so that nothing needs the narrower one."""
        value = self._known(node.required_input(0))
        new.require(value is not None, "it reads the dims of an input or a constant")
        new.set_input(node, 0, value)

    def _cast(self, node: Node, new: Builder) -> None:
        """Omit the Cast between two values that are both in float32."""
        source, result = node.required_input(0), node.outputs[0]
        value = self._widened(source, new)
        assert value is not None
        wanted = _FLOAT if self._narrows(result) else result.dtype
        is_wide = self._narrows(source) or source.dtype == _FLOAT
        made = value if is_wide and wanted == _FLOAT else new.node("Cast", value, to=wanted)
        self._replace(result, made, new)

    def _replace(self, old: Value, result: Value, new: Builder) -> None:
        if self._narrows(old):
            assert old.dtype is not None
            made = new.node("Cast", result, to=old.dtype)
            new.replace(old, made)
            self._made[old] = self._made[made] = result
        else:
            new.replace(old, result)

    def _widened(self, value: Value | None, new: Builder) -> Value | None:
        """Return a value in float32 if it is in a narrower type; any other value is returned as it is."""
        if value is None or not self._narrows(value):
            return value
        known = self._site.get(value) or self._known(value)
        if known is not None:
            return known
        if value.tensor is not None:
            array = np.asarray(value.tensor.numpy())
            made = new.converted(array, lambda part: part.astype(np.float32), f"{value.name}_float32")
        else:
            made = new.node("Cast", value, to=_FLOAT)
        self._made[value] = self._site[value] = made
        return made

    def _known(self, value: Value) -> Value | None:
        found = self._made.get(value)
        return found if found is not None and is_there(found) else None

    def _narrows(self, value: Value | None) -> bool:
        return value is not None and value.dtype in self._narrow
