"""The part of a model upstream of its custom operators, in which losses are measured if the model does not run whole.

What a custom operator reads can be computed without it, and stands for the outputs that depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.base.errors import first_few
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import only
from surgery.model.runtime.custom_operators import custom_nodes
from surgery.verification.comparing.ports import make_room
from surgery.verification.inputs.spec import DataSpec

if TYPE_CHECKING:
    import onnx

_MOST_NAMED = 3

_Read = tuple[str, int]
"""An input of a node: the name of the node, or else of its first output, and the index of the input."""


@dataclass(frozen=True)
class MeasuredPart:
    """The nodes of an original that run without its custom operators.

    The outputs of `skeleton` are those of the original that need no custom operator, and the values that these
    operators read; `reads` has the latter by where they are read. `operators` are the custom ones.
    """

    skeleton: bytes
    reads: Mapping[_Read, str]
    operators: tuple[str, ...]

    @classmethod
    def of(cls, original: bytes) -> MeasuredPart | None:
        """Return the part of an original; None if it has no custom operator, or nothing that can be measured."""
        import onnx

        model = onnx.load_model_from_string(original)
        sides = _Sides.of(model)
        # An output that custom operators read, too, is measured as an output.
        reads = {place: name for place, name in sides.reads() if name not in sides.outputs}
        outputs = [*sides.outputs, *reads.values()]
        if not sides.custom or not outputs:
            return None
        kinds = dict.fromkeys(":".join(filter(None, (node.domain, node.op_type))) for node in sides.custom)
        return cls(only(model, outputs).SerializeToString(deterministic=True), reads, tuple(kinds))

    @property
    def custom(self) -> str:
        """The custom operators, for a message."""
        return first_few(self.operators, _MOST_NAMED)

    @property
    def remark(self) -> str:
        """Where the loss is measured, for a message."""
        return f"measured at the inputs of {self.custom}, which cannot be run here"

    def data(self, given: Sequence[DataSpec]) -> tuple[DataSpec, ...]:
        """Return given sets of inputs without the outputs of the original that this part does not have."""
        import onnx

        graph = onnx.load_model_from_string(self.skeleton).graph
        names = {value.name for value in (*graph.input, *graph.output)}
        return tuple(
            replace(one, arrays={name: array for name, array in (one.arrays or {}).items() if name in names})
            for one in given
        )

    def of_changed(self, changed: bytes) -> bytes | None:
        """Return the same part of a changed model, under the names of the original; None if it lacks a custom node."""
        import onnx

        model = onnx.load_model_from_string(changed)
        sides = _Sides.of(model)
        nodes = {_key(node): node for node in sides.custom}
        fed: dict[str, str] = {}
        for (key, index), name in self.reads.items():
            node = nodes.get(key)
            if node is None or index >= len(node.input) or not node.input[index]:
                return None
            fed.setdefault(name, node.input[index])
        part = only(model, [*sides.outputs, *fed.values()])
        moved = make_room(part.graph, [name for name, source in fed.items() if name != source])
        part.graph.node.extend(
            onnx.helper.make_node("Identity", [moved.get(source, source)], [name])
            for name, source in fed.items()
            if name != source
        )
        del part.graph.output[:]
        for name in dict.fromkeys([*sides.outputs, *fed]):
            part.graph.output.add().name = name
        data: bytes = part.SerializeToString(deterministic=True)
        return data


def unmeasured(model: onnx.ModelProto) -> frozenset[str]:
    """Return the results of those nodes of the main graph that no output of its measured part depends on."""
    sides = _Sides.of(model)
    measured = sides.flow.above([*sides.outputs, *dict(sides.reads()).values()])
    left = set(range(len(sides.flow.nodes))) - measured
    return frozenset(name for number in left for name in sides.flow.makes(number))


@dataclass(frozen=True)
class _Sides:
    """The main graph of a model, with the nodes downstream of custom operators, and these operators themselves.

    `below` are the numbers of the former, and `outputs` the outputs of the model that they do not compute.
    """

    flow: Flow
    custom: tuple[onnx.NodeProto, ...]
    below: frozenset[int]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> _Sides:
        flow = Flow(model.graph)
        custom = tuple(custom_nodes(model))
        made = {name for node in custom for name in node.output if name}
        below = flow.below(made).union(flow.producers[name] for name in made)
        outputs = [value.name for value in model.graph.output if flow.producers.get(value.name) not in below]
        return cls(flow, custom, frozenset(below), tuple(outputs))

    def reads(self) -> Iterator[tuple[_Read, str]]:
        """Yield what custom operators read that is computed from inputs of the model, without another one of them."""
        flow = self.flow
        varying = flow.below(name for name in flow.inputs if name not in flow.constants)
        for node in self.custom:
            for index, name in enumerate(node.input):
                producer = flow.producers.get(name)
                if producer in varying and producer not in self.below:
                    yield (_key(node), index), name


def _key(node: onnx.NodeProto) -> str:
    return node.name or next(filter(None, node.output), "")
