"""The random draws that the outputs of a model depend on, and share with each other.

Outputs of random operators cannot be compared by value, but by the origin of their randomness: if two draws are merged,
independent values become equal, and if a draw is folded to a constant, it is no longer random. So each set of outputs
must depend on as many draws as before. The operator of a draw does not matter: Bernoulli may become a comparison with
RandomUniformLike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery.base.operators.moving import FORM_ONLY
from surgery.base.operators.subgraphs import nested, subgraphs
from surgery.model.proto.randomness import gives_zero, is_random, is_zero

if TYPE_CHECKING:
    import onnx

_DEEPEST = 64
"""Maximum depth of nested function calls."""


class _Undecided(Exception):  # noqa: N818 - no error: the course of a branch or a loop is known only at run time
    pass


def draws(model: onnx.ModelProto) -> Counter[frozenset[str]] | None:
    """Count the draws that reach the same outputs, for each set of outputs.

    Returns None if randomness reaches a subgraph, because whether and how often it runs is decided at run time.
    """
    walk = _DrawWalk({(function.domain, function.name): function for function in model.functions})
    walk.off.update(tensor.name for tensor in model.graph.initializer if is_zero(tensor))
    marks: dict[str, int] = {}
    try:
        walk.follow(model.graph.node, marks)
    except _Undecided:
        return None
    reached = [(output.name, marks.get(output.name, 0)) for output in model.graph.output]
    found = (frozenset(name for name, mark in reached if mark >> draw & 1) for draw in range(walk.count))
    return Counter(outputs for outputs in found if outputs)


def redrawn(original: onnx.ModelProto, changed: onnx.ModelProto) -> str:
    """Return how the draws of two models differ; empty if they do not, or if that cannot be decided."""
    before, after = draws(original), draws(changed)
    if before is None or after is None or before == after:
        return ""
    for outputs in sorted(before | after, key=sorted):
        if before[outputs] != after[outputs]:
            break
    names = ", ".join(f"'{name}'" for name in sorted(outputs))
    depend = f"output {names} depends on" if len(outputs) == 1 else f"outputs {names} share"
    return f"{depend} {_times(after[outputs])} instead of {_times(before[outputs])}"


def _times(count: int) -> str:
    return f"{count or 'no'} random draw{'' if count == 1 else 's'}"


@dataclass
class _DrawWalk:
    """Assigns a bit to each draw, and to each value the bits of the draws that it depends on."""

    functions: dict[tuple[str, str], onnx.FunctionProto]
    off: set[str] = field(default_factory=set)
    count: int = 0

    def follow(self, nodes: Iterable[onnx.NodeProto], marks: dict[str, int], depth: int = 0) -> None:
        """Mark the outputs of nodes. `marks` has the visible values and is extended in place."""
        for node in nodes:
            function = self.functions.get((node.domain, node.op_type))
            if function is not None:
                self._call(function, node, marks, depth)
            elif any(graph.output for graph in subgraphs(node)):
                self._require_settled(node, marks)
            else:
                self._mark(node, marks)

    def _mark(self, node: onnx.NodeProto, marks: dict[str, int]) -> None:
        if gives_zero(node):
            self.off.update(node.output)
        inherited = 0
        if node.op_type not in FORM_ONLY or node.domain:
            for name in node.input:
                inherited |= marks.get(name, 0)
        drawn = 0
        if is_random(node, self.off):
            drawn = 1 << self.count
            self.count += 1
        is_dropout = node.op_type == "Dropout" and not node.domain
        for position, name in enumerate(node.output):
            # A mask does not depend on the data.
            marks[name] = drawn if is_dropout and position == 1 else inherited | drawn

    def _call(self, function: onnx.FunctionProto, node: onnx.NodeProto, marks: dict[str, int], depth: int) -> None:
        """Follow one call of a function: each call makes its own draws."""
        if depth >= _DEEPEST:
            raise _Undecided
        inside = {inner: marks.get(outer, 0) for inner, outer in zip(function.input, node.input)}
        self.follow(function.node, inside, depth + 1)
        marks.update((outer, inside.get(inner, 0)) for inner, outer in zip(function.output, node.output))

    def _require_settled(self, node: onnx.NodeProto, marks: dict[str, int]) -> None:
        """Skip a node with subgraphs if nothing in it is random; otherwise raise `_Undecided`."""
        for inner in nested([node]):
            calls = (inner.domain, inner.op_type) in self.functions
            if calls or is_random(inner) or any(marks.get(name) for name in inner.input):
                raise _Undecided
            if any(marks.get(output.name) for body in subgraphs(inner) for output in body.output):
                raise _Undecided
