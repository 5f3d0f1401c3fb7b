"""Runs of two models on the same inputs, to find whether and how they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.promises import Parity
from surgery.model.runtime.engine import RunOutcome
from surgery.model.runtime.setup import SessionSetup
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.running.ensembles import EnsembleEngine, KnownOutputs

if TYPE_CHECKING:
    import onnx

Kind = Literal["values", "refused", "crash", "hang"]
"""Other outputs; the runtime refuses the changed model or its inputs; the process crashes; the run does not end."""


@dataclass(frozen=True)
class ProbedDifference:
    """A difference. `actual` is None if the changed model produces no outputs."""

    kind: Kind
    message: str
    expected: Mapping[str, Any]
    actual: Mapping[str, Any] | None = None

    def is_like(self, other: ProbedDifference) -> bool:
        """Return whether another difference is of the same kind, except for numbers and names."""
        return self.kind == other.kind and (self.kind == "values" or _gist(self.message) == _gist(other.message))


class Prober:
    """Runs pairs of models in a worker. `timeout` is in seconds per run, `memory` in bytes."""

    def __init__(
        self, rules: ComparisonRules, timeout: float, memory: int | None, weights: int, setup: SessionSetup
    ) -> None:
        self._rules = rules
        self._engine = EnsembleEngine("onnxruntime", timeout, memory, weights, setup, known=KnownOutputs())

    def show(
        self, original: onnx.ModelProto, changed: onnx.ModelProto, feed: Mapping[str, Any]
    ) -> ProbedDifference | None:
        """Run both models and return the difference; None if they agree, or if the original does not run either."""
        mine = self._run(original, feed)
        if mine.failure is not None or isinstance(mine.runs[0], str):
            return None
        expected = mine.runs[0]
        theirs = self._run(changed, feed)
        if theirs.crash is not None:
            return ProbedDifference(
                "hang" if theirs.crash.signal == "timeout" else "crash", theirs.crash.what, expected
            )
        if theirs.failure is not None:
            return ProbedDifference("refused", theirs.failure, expected)
        actual = theirs.runs[0]
        if isinstance(actual, str):
            return ProbedDifference("refused", actual, expected)
        total = OutputDistances()
        compare(expected, actual, self._rules, total)
        if total.beyond or (total.bits and self._rules.promise is Parity.EXACT):
            return ProbedDifference("values", total.message, expected, actual)
        return None

    def close(self) -> None:
        """End the worker."""
        self._engine.close()

    def _run(self, model: onnx.ModelProto, feed: Mapping[str, Any]) -> RunOutcome:
        names = {value.name for value in model.graph.input}
        given = {name: value for name, value in feed.items() if name in names}
        return self._engine.run(model.SerializeToString(), [given])


def _gist(message: str) -> str:
    return re.sub(r"'[^']*'|[\d.,{}\[\]]+", "", message)
