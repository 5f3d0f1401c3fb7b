"""The initializers that a checkpoint may provide, and how their consumers read them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import onnx
import onnx_ir as ir

from surgery.errors import UsageError
from surgery.operators.subgraphs import graphs

ROWS, COLUMNS, OTHER = "rows", "columns", "other"
"""How a consumer reads a matrix of a Linear layer: as [in, out], as [out, in], or in another way."""

FLOATS: Final = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_MADE_UP: Final = re.compile(r"(onnx::|/|val_|_val|Constant|const)", re.IGNORECASE)


@dataclass(frozen=True)
class Consumer:
    """A node that reads an initializer: its operator and name, and how it reads the initializer."""

    op_type: str
    name: str
    reads: str


@dataclass(frozen=True)
class Target:
    """An initializer: its tensor in the model, and the nodes that read it."""

    tensor: onnx.TensorProto
    consumers: tuple[Consumer, ...]

    @property
    def name(self) -> str:
        """The name of the initializer."""
        return self.tensor.name

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        return ir.DataType(self.tensor.data_type)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims of the initializer."""
        return tuple(self.tensor.dims)

    @property
    def is_weight(self) -> bool:
        """Whether a checkpoint is expected to contain it.

        Integers, scalars, and single numbers with names made up by exporters are constants of the graph.
        """
        if self.dtype not in FLOATS or not self.dims:
            return False
        return self.dims != (1,) or _MADE_UP.match(self.name) is None

    @property
    def reads(self) -> str:
        """How its consumers read it; OTHER if they do not agree."""
        found = {one.reads for one in self.consumers}
        return found.pop() if len(found) == 1 else OTHER


def targets(model: onnx.ModelProto) -> dict[str, Target]:
    """Return the initializers of a model by name, including those of subgraphs.

    Raises UsageError if initializers of two graphs have the same name, because the name would be ambiguous.
    """
    consumers: dict[str, list[Consumer]] = defaultdict(list)
    scopes = list(graphs(model.graph))
    for scope in scopes:
        for node in scope.node:
            for index, name in enumerate(node.input):
                if name:
                    consumers[name].append(Consumer(node.op_type, node.name, _reads(node, index)))
    found: dict[str, Target] = {}
    for tensor in _initializers(scopes):
        if tensor.name in found:
            raise UsageError(
                f"initializers of two subgraphs are called '{tensor.name}'", todo="rename one of them first"
            )
        found[tensor.name] = Target(tensor, tuple(consumers[tensor.name]))
    return found


def _initializers(scopes: Sequence[onnx.GraphProto]) -> Iterator[onnx.TensorProto]:
    for scope in scopes:
        yield from (tensor for tensor in scope.initializer if tensor.name)


def _reads(node: onnx.NodeProto, index: int) -> str:
    """Return how a node reads its input: `MatMul(x, w)` reads [in, out], and Gemm depends on transB."""
    if index != 1 or node.op_type not in ("MatMul", "Gemm", "FusedMatMul", "FusedGemm"):
        return OTHER
    turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return COLUMNS if turned else ROWS
