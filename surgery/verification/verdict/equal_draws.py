"""Verdicts on models with random operators, from runs in which both models draw the same numbers.

With equal draws, each element can be compared: `x + r` and `x - r` differ, although they have the same distribution.
Models that draw in another way are compared by distribution instead, with draws of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.promises import Parity
from surgery.model.proto.draws import redrawn
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, names
from surgery.verification.verdict.seeding import Seeded, Seeds

if TYPE_CHECKING:
    import onnx

_KEPT = 8
"""Number of models whose copies with seeds are kept: a step refers to the model before it, and to the one after it."""

_NAMES = tuple(name.encode() for name in traits.SEEDED)


class EqualDraws:
    """The draws of an original. `skeleton` is its copy with seeds."""

    def __init__(self, original: onnx.ModelProto, seeds: Seeds, skeleton: bytes) -> None:
        self.skeleton = skeleton
        self._original = original
        self._seeds = seeds
        self._known: dict[bytes, Seeded | None] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, original: bytes) -> EqualDraws | None:
        """Return the draws of a model; None if its outputs depend on none, or if these cannot all have seeds."""
        import onnx

        if not any(name in original for name in _NAMES):
            return None
        model = onnx.load_model_from_string(original)
        seeds = Seeds(model)
        found = seeds.seed(onnx.load_model_from_string(original)) if seeds.outputs else None
        return None if found is None else cls(model, seeds, found.skeleton)

    def seeded(self, model: bytes) -> bytes:
        """Return the copy of a model with the seeds of the original, or the model if it draws elsewhere."""
        found = self._seed(model)
        return model if found is None else found.skeleton

    def _seed(self, model: bytes) -> Seeded | None:
        import onnx

        with self._lock:
            if model not in self._known:
                if len(self._known) == _KEPT:
                    del self._known[next(iter(self._known))]
                self._known[model] = self._seeds.seed(onnx.load_model_from_string(model))
            return self._known[model]

    def judge(self, candidate: bytes, promise: Parity, alike: Callable[[bytes], Verdict]) -> Verdict | None:
        """Return the verdict on a changed model, by `alike` on its copy; None if its draws decide nothing.

        A difference counts if each draw is certainly one of the original's.
        """
        import onnx

        found = self._seed(candidate)
        if found is None:
            return None
        verdict = alike(found.skeleton)
        if verdict.passed or verdict.reason == NOT_RUN or promise is Parity.LOSSY:
            return verdict
        other = redrawn(self._original, onnx.load_model_from_string(candidate))
        if other:
            return Verdict(Status.DIFFERENT, message=other)
        if not verdict.is_different or not found.is_certain:
            return None
        return replace(verdict, message=f"{verdict.message}; both models drew the same random numbers")

    @property
    def outputs(self) -> frozenset[str]:
        """The outputs that depend on the draws."""
        return self._seeds.outputs

    @property
    def note(self) -> str:
        """What the comparison of outputs relies on."""
        operators = ", ".join(sorted(self._seeds.operators))
        return f"; {names(self._seeds.outputs)} with the same random numbers in both models ({operators})"
