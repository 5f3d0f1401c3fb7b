"""The nodes that read an initializer, directly or through nodes that convert or rearrange it, and how they read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import onnx

from surgery.base.operators.subgraphs import BODIES
from surgery.base.operators.torch_modules import module_of
from surgery.features.frameworks import recurrent
from surgery.features.frameworks.recurrent import Recurrent

ROWS, COLUMNS, OTHER, UNKNOWN, NEUTRAL = "rows", "columns", "other", "unknown", "neutral"
"""How a node reads a matrix: in a product as [in, out], in a product as [out, in], in a way that PyTorch and ONNX
share (a table, an elementwise operand), in a way that is not known, or only its dims or sums."""

_WEIGHTS: Final = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm"), 1),
    **dict.fromkeys(("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), 1),
    "QLinearMatMul": 3,
}
"""The input of products that is the matrix of a Linear layer."""
_CONVERSIONS: Final = frozenset({"Cast", "CastLike", "Identity", "QuantizeLinear", "DequantizeLinear"})
_VIEWS: Final = frozenset(
    {"Expand", "Flatten", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that rearrange their first input. All operators are followed if all their inputs are constants."""
_KEEP_AXES: Final = frozenset({"Add", "Clip", "Concat", "Div", "Mul", "Neg", "Pad", "Slice", "Split", "Sub", "Where"})
_STANDARD: Final = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_TABLES: Final = frozenset({"EmbedLayerNormalization", "GroupQueryAttention", "MultiHeadAttention", "RotaryEmbedding"})
"""Operators of other domains that read their matrices as PyTorch has them: tables by position."""


@dataclass(frozen=True)
class Consumer:
    """A node that reads an initializer: its operator and name, and how it reads the initializer.

    `module` is the module of a PyTorch model that it comes from, as far as it is recorded or the name is a path.
    """

    op_type: str
    name: str
    reads: str
    recurrent: Recurrent | None = None
    is_state: bool = False
    operands: tuple[str, ...] = ()
    module: str = ""


class _Path(NamedTuple):
    """A value computed from an initializer: whether its axes are swapped (None if lost), and its elements the same."""

    value: str
    swapped: bool | None = False
    same: bool = True


@dataclass(frozen=True)
class Consumers:
    """The nodes of all graphs by the values that they read, and the values that depend on constants only."""

    readers: Mapping[str, Sequence[tuple[onnx.NodeProto, int]]]
    constants: frozenset[str]
    results: frozenset[str] = field(default_factory=frozenset)
    """The outputs of subgraphs, which other nodes read under another name."""

    @classmethod
    def of(cls, scopes: Sequence[onnx.GraphProto]) -> Consumers:
        """Index graphs; each must come after the graph that contains it."""
        readers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        constants: set[str] = set()
        for scope in scopes:
            constants.update(tensor.name for tensor in scope.initializer)
            for node in scope.node:
                for index, name in enumerate(node.input):
                    if name:
                        readers[name].append((node, index))
                inputs = {name for name in node.input if name}
                if node.op_type == "Constant" or (inputs and inputs <= constants and node.op_type not in BODIES):
                    constants.update(node.output)
        results = frozenset(value.name for scope in scopes[1:] for value in scope.output)
        return cls(readers, frozenset(constants), results)

    def find(self, name: str) -> Iterator[Consumer]:
        """Yield the nodes that read an initializer; nodes that convert or rearrange it are followed."""
        pending = [_Path(name)]
        seen = set(pending)
        while pending:
            path = pending.pop()
            if path.value in self.results:
                yield Consumer("", "", UNKNOWN)
            for node, index in self.readers.get(path.value, ()):
                found = self._after(path, node, index)
                if not found:
                    yield _consumer(path, node, index)
                pending.extend(one for one in found if one not in seen)
                seen.update(found)

    def _after(self, path: _Path, node: onnx.NodeProto, index: int) -> list[_Path]:
        """Return the outputs of a node that are followed; none if the node is a reader."""
        kind = node.op_type
        if node.domain not in _STANDARD or kind in _WEIGHTS or kind in BODIES or _is_neutral(node):
            return []
        outputs = [name for name in node.output if name]
        if kind in _CONVERSIONS:
            return [path._replace(value=name) for name in outputs] if index == 0 else []
        constant = kind not in ("Gather", *recurrent.OPERATORS) and self.constants.issuperset(outputs)
        if not constant and (kind not in _VIEWS or index):
            return []
        swapped = path.swapped if kind in _KEEP_AXES else None
        if kind == "Transpose" and path.swapped is not None and _is_of_matrix(node):
            swapped = not path.swapped
        return [_Path(name, swapped, same=False) for name in outputs]


def _is_neutral(node: onnx.NodeProto) -> bool:
    return node.domain in _STANDARD and (node.op_type in ("Shape", "Size") or node.op_type.startswith("Reduce"))


def _is_of_matrix(node: onnx.NodeProto) -> bool:
    """Return whether a Transpose swaps two axes; without `perm` it does, as other ranks are not asked for."""
    return all(list(attribute.ints) == [1, 0] for attribute in node.attribute if attribute.name == "perm")


def _consumer(path: _Path, node: onnx.NodeProto, index: int) -> Consumer:
    is_state = path.same and node.op_type in recurrent.OPERATORS and index in recurrent.STATES
    reader = recurrent.read_by(node, index) if path.same else None
    module = module_of(node) or node.name.strip("/").rpartition("/")[0].replace("/", ".")
    return Consumer(node.op_type, node.name, _reads(path, node, index), reader, is_state, tuple(node.input), module)


def _reads(path: _Path, node: onnx.NodeProto, index: int) -> str:
    """Return how a node reads its input: `MatMul(x, w)` reads [in, out], and Gemm depends on transB."""
    if _is_neutral(node):
        return NEUTRAL
    if node.op_type in _WEIGHTS:
        if index != _WEIGHTS[node.op_type]:
            return OTHER
        if path.swapped is None:
            return UNKNOWN
        turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        return COLUMNS if turned != path.swapped else ROWS
    if node.op_type in BODIES or node.op_type == "Einsum":
        return UNKNOWN
    return OTHER if node.domain in _STANDARD or node.op_type in _TABLES else UNKNOWN
