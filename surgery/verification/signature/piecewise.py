"""A model run on each piece of a batch: the reference of a model with another batch size, whatever its pass did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgery.model.storage.summary import opset
from surgery.verification.comparing.ports import names_of, rename_values

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Piecewise:
    """Copies of a model, each for one piece of the inputs.

    `inputs` and `outputs` map the names of those that are split and concatenated to the axis. All copies take the other
    inputs whole, and the other outputs are those of the first copy.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    count: int

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the nodes of the model once for each piece; the weights are shared."""
        result = deepcopy(model)
        graph = result.graph
        prefixes = [f"{self._prefix(graph)}{number}/" for number in range(self.count)]
        own = {name for node in graph.node for name in node.output if name} | self.inputs.keys()
        del graph.node[:], graph.value_info[:]
        graph.node.extend(self._cuts(opset(model), prefixes))
        for prefix in prefixes:
            graph.node.extend(_copied(model.graph, own, prefix))
        graph.node.extend(self._joints(model.graph, own, prefixes))
        for ports, axes in ((graph.input, self.inputs), (graph.output, self.outputs)):
            for port in ports:
                if port.name in axes:
                    _widen(port, axes[port.name], self.count)
        return result

    @staticmethod
    def _prefix(graph: onnx.GraphProto) -> str:
        taken = set(names_of(graph))
        prefix = "piece_"
        while any(name.startswith(prefix) for name in taken):
            prefix = f"_{prefix}"
        return prefix

    def _cuts(self, version: int, prefixes: list[str]) -> Iterator[onnx.NodeProto]:
        import onnx

        counted: dict[str, Any] = {"num_outputs": self.count} if version >= 18 else {}
        for name, axis in self.inputs.items():
            parts = [f"{prefix}{name}" for prefix in prefixes]
            yield onnx.helper.make_node("Split", [name], parts, axis=axis, **counted)

    def _joints(self, graph: onnx.GraphProto, own: set[str], prefixes: list[str]) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that assemble the outputs; an output that is no node's and no piece's needs none."""
        import onnx

        for port in graph.output:
            if port.name not in own or port.name in self.inputs:
                continue
            parts = [f"{prefix}{port.name}" for prefix in prefixes]
            if port.name in self.outputs:
                yield onnx.helper.make_node("Concat", parts, [port.name], axis=self.outputs[port.name])
            else:
                yield onnx.helper.make_node("Identity", parts[:1], [port.name])


def _copied(graph: onnx.GraphProto, own: set[str], prefix: str) -> Iterator[onnx.NodeProto]:
    """Yield copies of the nodes; their outputs, and the pieces of inputs that they read, get the prefix."""
    copy = type(graph)()
    copy.node.extend(graph.node)
    rename_values(copy, {name: f"{prefix}{name}" for name in own})
    for node in copy.node:
        node.name = node.name and f"{prefix}{node.name}"
        yield node


def _widen(port: onnx.ValueInfoProto, axis: int, count: int) -> None:
    """Multiply a declared dim by the number of pieces."""
    dims = port.type.tensor_type.shape.dim
    if axis < len(dims) and dims[axis].HasField("dim_value"):
        dims[axis].dim_value *= count
