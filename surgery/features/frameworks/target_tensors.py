"""The initializers that a checkpoint may provide, and how their consumers read them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import onnx
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.operators.subgraphs import graphs
from surgery.features.frameworks.consumers import COLUMNS, NEUTRAL, OTHER, ROWS, UNKNOWN, Consumer, Consumers
from surgery.features.frameworks.recurrent import Recurrent

FLOATS: Final = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_MADE_UP: Final = re.compile(r"(onnx::|/|val_|_val|Constant|const)", re.IGNORECASE)


@dataclass(frozen=True)
class TargetTensor:
    """An initializer, or the tensor of a Constant node: its name, its elements, and the nodes that read it.

    Nodes that only convert or rearrange it are not among its consumers, but the nodes that read their outputs are.
    """

    name: str
    tensor: onnx.TensorProto
    consumers: tuple[Consumer, ...]
    is_constant: bool = False

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        return ir.DataType(self.tensor.data_type)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims of the initializer."""
        return tuple(self.tensor.dims)

    @property
    def is_made_up(self) -> bool:
        """Whether an exporter made up its name."""
        return _MADE_UP.match(self.name) is not None

    @property
    def is_weight(self) -> bool:
        """Whether a checkpoint is expected to contain it.

        Constant nodes, integers, scalars, initial states, and single numbers with names made up by exporters are
        constants of the graph.
        """
        if self.is_constant or self.dtype not in FLOATS or not self.dims:
            return False
        if self.consumers and all(one.is_state for one in self.consumers) and self.is_made_up:
            return False
        return self.dims != (1,) or not self.is_made_up

    @property
    def reads(self) -> str:
        """How its consumers read it; UNKNOWN if some read it as [in, out], and others in another way."""
        found = {one.reads for one in self.consumers} - {NEUTRAL}
        if found in ({ROWS}, {COLUMNS}):
            return found.pop()
        return UNKNOWN if found & {ROWS, UNKNOWN} else OTHER

    @property
    def recurrent(self) -> Recurrent | None:
        """How recurrent nodes read it; None if other nodes read it, too, or in another way."""
        found = {one.recurrent for one in self.consumers if one.reads != NEUTRAL}
        return found.pop() if len(found) == 1 else None


def targets(model: onnx.ModelProto) -> dict[str, TargetTensor]:
    """Return the initializers and Constant nodes of a model by name, including those of subgraphs.

    Constant nodes of several graphs with the same name are left out, because the name would be ambiguous.

    Raises UsageError if initializers of two graphs have the same name, because the name would be ambiguous.
    """
    scopes = list(graphs(model.graph))
    consumers = Consumers.of(scopes)
    found: dict[str, TargetTensor] = {}
    for tensor in _initializers(scopes):
        if tensor.name in found:
            raise UsageError(
                f"initializers of two subgraphs are called '{tensor.name}'", todo="rename one of them first"
            )
        found[tensor.name] = TargetTensor(tensor.name, tensor, tuple(consumers.find(tensor.name)))
    constants = list(_constants(scopes))
    times = Counter([*found, *(name for name, _ in constants)])
    for name, tensor in constants:
        if times[name] == 1:
            found[name] = TargetTensor(name, tensor, tuple(consumers.find(name)), is_constant=True)
    return found


def _initializers(scopes: Sequence[onnx.GraphProto]) -> Iterator[onnx.TensorProto]:
    for scope in scopes:
        yield from (tensor for tensor in scope.initializer if tensor.name)


def _constants(scopes: Sequence[onnx.GraphProto]) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in (node for scope in scopes for node in scope.node if node.op_type == "Constant" and not node.domain):
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t") and node.output:
                yield node.output[0], attribute.t
