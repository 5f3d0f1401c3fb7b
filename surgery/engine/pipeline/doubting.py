"""Inferred shapes that runs contradict: a rule of shape inference, or a declaration, was wrong.

A number must be the extent that was seen, and an expression in the names of the inputs' dims must have its value. The
shapes of the original's values are seen in runs of the original. A value that a pass creates is looked at in a run of
the changed model, unless a run has confirmed the rule for a node with the same operator and attributes: to look at each
such node would take longer than to compare the models.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.operators import traits
from surgery.model.shapes.facts import Dim, Doubt, dims
from surgery.verification.comparing.observed_shapes import Seen
from surgery.verification.comparing.probing import SearchEnded
from surgery.verification.inputs.dims import calculate
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, ir.Shape]


class Doubting:
    """Compares inferred shapes of values with those in runs. `found` are the contradicted ones."""

    def __init__(self) -> None:
        self.found: dict[str, Doubt] = {}
        self._verifier: Verifier | None = None
        self._runs: Sequence[Seen] = ()
        self._compared: dict[str, ir.Shape] = {}
        self._settled: set[Hashable] = set()

    def learn(self, verifier: Verifier, shapes: Shapes, changed: onnx.ModelProto) -> None:
        """Compare inferred shapes of a changed model, by name, with those in runs on the inputs of a verifier.

        The shapes of its inputs bind the names of dims. A run that was abandoned shows nothing, and none shows what a
        pass makes of inputs that it changes.
        """
        if verifier is not self._verifier:
            with suppress(SearchEnded):
                self._verifier, self._compared, self._runs = verifier, {}, ()
                self._runs = verifier.seen()
        new = {name: shape for name, shape in shapes.items() if self._compared.get(name) is not shape}
        self._compared.update(new)
        if not new or not self._runs:
            return
        self._compare(self._runs, shapes, new)
        seen = self._runs[0].shapes
        kinds = _kinds(changed, new)
        self._settled.update(kinds[name] for name in new if name in seen and name in kinds and name not in self.found)
        first = {kinds[name]: name for name in reversed(new) if name in kinds and name not in seen}
        made = {name: new[name] for kind, name in first.items() if kind not in self._settled}
        if made:
            with suppress(SearchEnded):
                self._compare(verifier.seen(changed.SerializeToString(), list(made)), shapes, made)
            self._settled.update(kinds[name] for name in made if name not in self.found)

    def _compare(self, runs: Sequence[Seen], shapes: Shapes, new: Shapes) -> None:
        """Compare some inferred shapes with those that were seen in runs."""
        for seen in runs:
            at = _Point()
            for name in seen.inputs:
                for dim, extent in zip(dims(shapes.get(name)) or (), seen.shapes[name]):
                    if isinstance(dim, str):
                        at.bound.setdefault(dim, extent)
            for name, shape in new.items():
                if name in seen.shapes:
                    self._note(name, dims(shape) or (), seen.shapes[name], at)

    def _note(self, name: str, inferred: Sequence[Dim], extents: Sequence[int], at: _Point) -> None:
        if len(inferred) != len(extents):
            self.found[name] = None
            return
        pairs = zip(inferred, extents)
        axes = {axis for axis, (dim, extent) in enumerate(pairs) if not at.agrees(dim, extent)}
        known = self.found.get(name, ())
        if axes and known is not None:
            self.found[name] = tuple(sorted(axes.union(known)))


class _Point:
    """The extents of the dims of inputs in one run, `bound` by name."""

    def __init__(self) -> None:
        self.bound: dict[str, int] = {}
        self._values: dict[str, int | None] = {}

    def agrees(self, dim: Dim, extent: int) -> bool:
        """Return whether a dim may have an extent, which is unknown of names that inference generated."""
        if dim is None or isinstance(dim, int):
            return dim in (None, extent)
        if dim.isidentifier() or not extent:  # expressions hold for names that are at least 1
            return self.bound.get(dim, extent) == extent
        if dim not in self._values:
            self._values[dim] = self._value(dim)
        found = self._values[dim]
        # Where a window is larger than its input, ONNX Runtime rounds towards 0, and a pooling has one result.
        return found in (None, extent) or (found < 1 and "floor" in dim)

    def _value(self, dim: str) -> int | None:
        try:
            return calculate(dim, self.bound)
        except (ValueError, SyntaxError, ZeroDivisionError):
            return None


def _kinds(model: onnx.ModelProto, names: Container[str]) -> dict[str, Hashable]:
    """Return the rules for the nodes of the main graph with some outputs: all elementwise operators share one."""
    found: dict[str, Hashable] = {}
    for node in model.graph.node:
        if not any(name in names for name in node.output):
            continue
        given = tuple(sorted(attribute.name for attribute in node.attribute))
        is_shared = node.op_type in traits.BROADCASTING | traits.UNARY_ELEMENTWISE
        kind = "elementwise" if is_shared else (node.domain, node.op_type, given)
        found.update((name, (kind, place)) for place, name in enumerate(node.output))
    return found
