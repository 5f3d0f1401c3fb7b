"""Prepare a model for a tool: without large weights, and without defaults that tools mistake for constants.

A tensor below `SMALL` bytes is included. A larger one remains a reference into its file if the tool follows references,
or ignores them. Other tools treat all references of the same size as the same tensor, and merge them (onnxoptimizer
0.4.2 and onnxsim 0.8.1 do). For these, a large weight of the main graph becomes an input of its type and name, unless
the tool can use its values and all such weights fit into `budget` bytes. Overridable defaults of inputs are also
removed, because most tools fold them as if they were constants.
"""

from __future__ import annotations

from collections.abc import Container, Set
from copy import deepcopy
from dataclasses import dataclass

import onnx

from surgery.base.errors import PassError
from surgery.base.operators.subgraphs import reads
from surgery.engine.bridges.weight_reuse import KnownWeights
from surgery.model import storage
from surgery.model.storage import Weights
from surgery.model.storage.message_merging import assign
from surgery.model.wire.stored_lists import with_lists

SMALL = 1 << 16
MOST = (1 << 31) - (1 << 20)
"""Maximum size of a message in bytes: a protobuf message must be smaller than 2 GiB."""

FOLDING = "every operator of constants"
"""An item of `readers` that stands for all nodes that can be folded."""

_FIRST_WITH_DEFAULTS = 4
"""Before this IR version, each initializer had to be listed as an input, and none was an overridable default."""


@dataclass(frozen=True)
class Packing:
    """How to send large weights: as references, or by value if these operators read them, up to a budget in bytes."""

    references: bool = True
    readers: frozenset[str] = frozenset()
    budget: int = 0


class Packed:
    """A model as it is sent to a tool; `unpack` puts the withheld parts back into the result of the tool.

    `large` has the names of weights that the tool could use but does not receive, because they exceed `budget`.
    """

    def __init__(self, skeleton: onnx.ModelProto, weights: Weights, packing: Packing) -> None:
        self.weights = weights
        self.large: list[str] = []
        self._skeleton = skeleton
        self._held: dict[str, onnx.TensorProto | onnx.NodeProto] = {}
        self._inputs = {value.name for value in skeleton.graph.input}
        self.model = deepcopy(with_lists(skeleton))
        if skeleton.ir_version >= _FIRST_WITH_DEFAULTS:
            self._hold(self._inputs)
        for tensor in storage.all_tensors(self.model):
            if 0 < _length(tensor) < SMALL:
                self._inline(tensor)
        if not packing.references:
            self._replace(packing)

    @property
    def data(self) -> bytes:
        """The serialized model; PassError if it does not fit into a message."""
        if self.model.ByteSize() > MOST:
            raise PassError("the model has more than 2 GiB without its large weights, which is too large for tools")
        return bytes(self.model.SerializeToString())

    def unpack(self, made: onnx.ModelProto) -> None:
        """Put weights, constants and defaults back, and replace unchanged weights by references."""
        KnownWeights(self._skeleton, self.weights).restore(made)
        reads = read_names(made.graph)
        unread = self._held.keys() - read_names(self._skeleton.graph)
        there = {tensor.name for tensor in made.graph.initializer}
        assign(made.graph.input, [v for v in made.graph.input if v.name not in self._held or v.name in self._inputs])
        wanted = reads | unread | self._inputs
        back = [held for name, held in self._held.items() if name in wanted and name not in there]
        made.graph.initializer.extend(held for held in back if isinstance(held, onnx.TensorProto))
        front = [held for held in back if isinstance(held, onnx.NodeProto)]
        assign(made.graph.node, [*front, *made.graph.node])

    def _hold(self, names: Container[str]) -> None:
        """Remove from the main graph the initializers, and the Constants by output, with these names; keep copies."""
        graph = self.model.graph
        self._held |= {tensor.name: deepcopy(tensor) for tensor in graph.initializer if tensor.name in names}
        self._held |= {name: deepcopy(node) for name, (node, _) in _constants(graph).items() if name in names}
        tensors = [tensor for tensor in graph.initializer if tensor.name not in names]
        nodes = [node for node in graph.node if not (_is_constant(node) and node.output[0] in names)]
        assign(graph.initializer, tensors)
        assign(graph.node, nodes)

    def _replace(self, packing: Packing) -> None:
        """Replace each large weight of the main graph by an input, unless its values are useful and may be sent."""
        graph = self.model.graph
        large = {tensor.name: tensor for tensor in graph.initializer if _length(tensor) >= SMALL}
        large |= {name: tensor for name, (_, tensor) in _constants(graph).items() if _length(tensor) >= SMALL}
        useful = _useful(graph, large.keys(), packing.readers)
        if sum(_length(large[name]) for name in useful) <= min(packing.budget, MOST):
            for name in useful:
                self._inline(large.pop(name))
        else:
            self.large = sorted(useful)
        types = {name: (tensor.data_type, list(tensor.dims)) for name, tensor in large.items()}
        self._hold(large)
        graph.input.extend(
            onnx.helper.make_tensor_value_info(name, *of) for name, of in types.items() if name not in self._inputs
        )
        # Weights in subgraphs and functions cannot become inputs.
        for tensor in storage.all_tensors(self.model):
            if SMALL <= _length(tensor) <= MOST - self.model.ByteSize():
                self._inline(tensor)

    def _inline(self, tensor: onnx.TensorProto) -> None:
        data = bytes(self.weights.view(storage.external_reference(tensor)))
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = data


def read_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that nodes read, at any depth, and the names of the outputs."""
    return {value.name for value in graph.output} | {name for node in graph.node for name in reads(node)}


def _useful(graph: onnx.GraphProto, large: Set[str], readers: frozenset[str]) -> set[str]:
    """Return the weights whose values a tool can use: read by one of these operators, or by a foldable node."""
    constant = {tensor.name for tensor in graph.initializer} | _constants(graph).keys() | {""}
    found: set[str] = set()
    for node in graph.node:
        if node.op_type in readers or (FOLDING in readers and set(node.input) <= constant):
            found.update(large & set(node.input))
    return found


def _constants(graph: onnx.GraphProto) -> dict[str, tuple[onnx.NodeProto, onnx.TensorProto]]:
    return {node.output[0]: (node, node.attribute[0].t) for node in graph.node if _is_constant(node)}


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t")


def _length(tensor: onnx.TensorProto) -> int:
    """Return the size of a referenced tensor in bytes; 0 for a tensor that is not a reference."""
    return storage.external_reference(tensor).length if storage.is_external(tensor) else 0
