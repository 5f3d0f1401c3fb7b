"""Inferred shapes that runs of the original contradict: a rule of shape inference, or a declaration, was wrong.

A number must be the extent that was seen, and an expression in the names of the inputs' dims must have its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import onnx_ir as ir

from surgery.shapes.facts import Dim, Doubt, dims
from surgery.verification.comparing.observed_shapes import Observed
from surgery.verification.comparing.probing import SearchEnded
from surgery.verification.inputs.dims import evaluate
from surgery.verification.verdict.verifier import Verifier


class Doubting:
    """Compares inferred shapes of values with those in runs of the reference. `found` are the contradicted ones."""

    def __init__(self) -> None:
        self.found: dict[str, Doubt] = {}
        self._verifier: Verifier | None = None
        self._runs: Sequence[Observed] = ()
        self._compared: dict[str, ir.Shape] = {}

    def learn(self, verifier: Verifier, shapes: Mapping[str, ir.Shape]) -> None:
        """Compare inferred shapes, by name, with those in runs of the reference of a verifier.

        The shapes of its inputs bind the names of dims. A run that was abandoned shows nothing, and none shows what a
        pass makes of inputs that it changes.
        """
        if verifier is not self._verifier:
            with suppress(SearchEnded):
                self._verifier, self._compared, self._runs = verifier, {}, ()
                self._runs = verifier.observed
        new = {name: shape for name, shape in shapes.items() if self._compared.get(name) is not shape}
        self._compared.update(new)
        for seen in self._runs if new else ():
            point: dict[str, int] = {}
            for name in seen.inputs:
                for dim, extent in zip(dims(shapes.get(name)) or (), seen.shapes[name]):
                    if isinstance(dim, str):
                        point.setdefault(dim, extent)
            for name, shape in new.items():
                if name in seen.shapes:
                    self._note(name, dims(shape) or (), seen.shapes[name], point)

    def _note(self, name: str, inferred: Sequence[Dim], extents: Sequence[int], point: Mapping[str, int]) -> None:
        if len(inferred) != len(extents):
            self.found[name] = None
            return
        pairs = zip(inferred, extents)
        axes = {axis for axis, (dim, extent) in enumerate(pairs) if not _agrees(dim, extent, point)}
        known = self.found.get(name, ())
        if axes and known is not None:
            self.found[name] = tuple(sorted(axes.union(known)))


def _agrees(dim: Dim, extent: int, point: Mapping[str, int]) -> bool:
    """Return whether a dim may have an extent, which is unknown of names that inference generated."""
    if dim is None or isinstance(dim, int):
        return dim in (None, extent)
    if dim.isidentifier() or not extent:  # expressions hold for names that are at least 1
        return point.get(dim, extent) == extent
    try:
        return evaluate(dim, point) == extent
    except (ValueError, SyntaxError, ZeroDivisionError):
        return True
