"""The pieces of a model: their nodes, inputs and outputs, each as a separate model.

A cut is a set of tensors of the main graph. The nodes that compute the tensors of the first cut are the first piece,
the additional nodes that compute those of the second cut are the second piece, and the remaining nodes needed for the
outputs are the last. So no piece ever needs a later one, whichever tensors are named, and any other tensor that crosses
a cut is passed on by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import called
from surgery.model.wire.digests import STATEMENT_KEY

if TYPE_CHECKING:
    import onnx

Cut = Sequence[str]
Types = Callable[[str], "onnx.ValueInfoProto"]
"""Declares a tensor of the main graph that crosses a cut."""


@dataclass(frozen=True)
class Piece:
    """A part of a model, without weights. `inputs` are those without a default; `defaults` are optional inputs."""

    proto: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: tuple[str, ...]


class SourceModel:
    """A model to be cut."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.flow = Flow(model.graph)
        nodes = self.flow.nodes
        # Constants are not passed from piece to piece: each piece that reads one contains it.
        self.constants = {number for number, node in enumerate(nodes) if node.op_type == "Constant" and not node.domain}
        self.fixed = {name for number in self.constants for name in self.flow.makes(number)} | self.flow.constants
        ports = dict.fromkeys(self.flow.inputs)
        self.given = [name for name in ports if name not in self.flow.constants]
        self.defaults = [name for name in ports if name in self.flow.constants]

    def made(self, numbers: Iterable[int]) -> list[str]:
        """List the outputs of nodes, in order."""
        return [name for number in sorted(numbers) for name in self.flow.makes(number)]

    def groups(self, cuts: Iterable[Cut]) -> list[set[int]]:
        """Return the node numbers of each piece; cuts are ordered by the number of nodes upstream."""
        flow, taken, found = self.flow, set(self.constants), []
        above = sorted((flow.above(cut) for cut in cuts), key=len)
        for numbers in (*above, flow.above(flow.outputs)):
            if numbers - taken:
                found.append(numbers - taken)
                taken |= numbers
        return found


def pieces(source: SourceModel, cuts: Sequence[Cut], types: Types) -> list[Piece]:
    """Cut a model into pieces; there is only one piece if the cuts do not divide it."""
    groups = source.groups(cuts)
    if not groups:
        return []
    asked = {name for cut in cuts for name in cut}
    reads = [{name for number in group for name in source.flow.reads[number]} for group in groups]
    outputs = dict.fromkeys(source.flow.outputs)
    found = []
    for place, group in enumerate(groups):
        made, last = source.made(group), group is groups[-1]
        inner = set(made)
        elsewhere = asked.union(*(names for index, names in enumerate(reads) if index != place))
        # A model output that is an input or a constant becomes an output of the last piece.
        of_model = [name for name in outputs if name in inner or (last and name not in source.flow.producers)]
        of_model += [name for name in outputs if last and name in source.fixed and name not in of_model]
        crossing = [name for name in made if name in elsewhere and name not in outputs]
        wanted = reads[place].union(of_model) - inner
        found.append(_Assembly(source, types).piece(group, wanted, [*crossing, *of_model]))
    return found


class _Assembly:
    """Assembles a piece from the messages of the model."""

    def __init__(self, source: SourceModel, types: Types) -> None:
        self.source = source
        self._types = types

    def piece(self, group: set[int], wanted: set[str], outputs: Sequence[str]) -> Piece:
        """Return the piece of these nodes; `wanted` are the values that it reads from outside or has as constants."""
        source, flow = self.source, self.source.flow
        constants = {flow.producers[name] for name in wanted if flow.producers.get(name) in source.constants}
        crossing = [name for name in flow.producers if name in wanted and name not in source.fixed]
        inputs = [*(name for name in source.given if name in wanted), *crossing]
        defaults = [name for name in source.defaults if name in wanted]
        proto = self._shell()
        nodes = [flow.nodes[number] for number in sorted(group | constants)]
        self._fill(proto.graph, nodes, wanted, (inputs, defaults, outputs))
        proto.functions.extend(called(source.model, nodes))
        return Piece(proto, tuple(inputs), tuple(outputs), tuple(defaults))

    def _shell(self) -> onnx.ModelProto:
        """Copy the model without its nodes, tensors, functions and training information."""
        import onnx

        proto = onnx.ModelProto()
        for field, content in self.source.model.ListFields():
            if field.name == "opset_import":
                proto.opset_import.extend(content)
            elif field.name == "metadata_props":
                # A provenance statement applies to the whole model.
                proto.metadata_props.extend(entry for entry in content if entry.key != STATEMENT_KEY)
            elif field.name not in ("graph", "functions", "training_info"):
                setattr(proto, field.name, content)
        proto.graph.name = self.source.model.graph.name
        return proto

    def _fill(
        self,
        graph: onnx.GraphProto,
        nodes: list[onnx.NodeProto],
        wanted: set[str],
        ports: tuple[Sequence[str], Sequence[str], Sequence[str]],
    ) -> None:
        """Add nodes with their constants, declarations and annotations."""
        original, (inputs, defaults, outputs) = self.source.model.graph, ports
        declared = {value.name: value for value in (*original.input, *original.output)}
        taken, given = [*inputs, *defaults], set(self.source.flow.inputs)
        graph.node.extend(nodes)
        graph.input.extend(declared[name] if name in given else self._declared(name, declared) for name in taken)
        graph.output.extend(self._declared(name, declared) for name in outputs)
        graph.initializer.extend(item for item in original.initializer if item.name in wanted)
        graph.sparse_initializer.extend(item for item in original.sparse_initializer if item.values.name in wanted)
        inner = wanted.union(*(node.output for node in nodes))
        ends = {*taken, *outputs}
        graph.value_info.extend(v for v in original.value_info if v.name in inner and v.name not in ends)
        graph.quantization_annotation.extend(a for a in original.quantization_annotation if a.tensor_name in inner)

    def _declared(self, name: str, declared: dict[str, onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
        return declared[name] if name in declared else self._types(name)


def together(model: onnx.ModelProto, parts: Sequence[Piece]) -> onnx.ModelProto:
    """Merge pieces into one model, with unchanged value names; items in several pieces are included once."""
    whole = deepcopy(model)
    graph = whole.graph
    for field in ("node", "initializer", "sparse_initializer"):
        graph.ClearField(field)
    graph.node.extend(_once((node for part in parts for node in part.proto.graph.node), lambda node: node.output[0]))
    graph.initializer.extend(_once((t for part in parts for t in part.proto.graph.initializer), lambda t: t.name))
    sparse = (item for part in parts for item in part.proto.graph.sparse_initializer)
    graph.sparse_initializer.extend(_once(sparse, lambda item: item.values.name))
    graph.doc_string = "pieces, together"
    return whole


def _once(items: Iterable[object], key: Callable[..., str]) -> Iterator[object]:
    seen: set[str] = set()
    for item in items:
        name = key(item)
        if name not in seen:
            seen.add(name)
            yield item
