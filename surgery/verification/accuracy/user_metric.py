"""A user's metric: a function of a Python file, called in a worker because it may raise, hang or end the process."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surgery.base.errors import WorkerError
from surgery.base.workers import Worker, stage
from surgery.verification.accuracy.metrics import share
from surgery.verification.inputs.given_values import MisfitError
from surgery.verification.inputs.local_function import LocalFunctionError, find, raised
from surgery.verification.inputs.spec import MetricSpec

_DROP = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(%)?\s*")
_PERCENT = 100

Arrays = Mapping[str, Any]
"""Arrays by name; a list of arrays where the model has a sequence."""


def read_drop(text: str) -> tuple[float, bool]:
    """Parse a drop such as `0.5 %` or `0.01`; return the number, as a share for the former, and if it is relative."""
    found = _DROP.fullmatch(text)
    if found is None:
        raise ValueError("a drop is a share of the metric such as '0.5 %', or a number such as 0.01")
    number, unit = found.groups()
    return (float(number) / _PERCENT, True) if unit else (float(number), False)


def describe_metric(spec: MetricSpec) -> str:
    """Return the limit as text for messages."""
    return f"{spec.title} {'rises' if spec.lower else 'drops'} by at most {spec.allowed}"


_DEVIATIONS = 2.0
"""The margin for other inputs, in standard errors."""

_PARTS = 8
"""Maximum number of parts of the sets, each of which is left out once to estimate how much the metric varies."""


@dataclass(frozen=True)
class Score:
    """The metric of the original's outputs and of a changed model's; `problem` says why the latter has none.

    `deviation` is the standard error of their difference, 0 if it is not known.
    """

    spec: MetricSpec
    original: float
    changed: float = math.nan
    deviation: float = 0.0
    problem: str = ""

    @property
    def use(self) -> float:
        """The share of the allowed drop that is used: at most 1 if the limit holds, 0 if the metric is better."""
        return self._share(0.0)

    @property
    def guarded(self) -> float:
        """The share with a margin for other inputs."""
        return self._share(_DEVIATIONS * self.deviation)

    def _share(self, margin: float) -> float:
        if self.problem:
            return math.inf
        spec = self.spec
        drop = (self.changed - self.original) * (1.0 if spec.lower else -1.0) + margin
        return share(max(drop, 0.0), spec.drop * (abs(self.original) if spec.relative else 1.0))

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "limit": describe_metric(self.spec),
            "original": self.original,
            "value": self.changed,
            "used": self.use,
            "guarded": self.guarded,
            "problem": self.problem or None,
        }

    def __str__(self) -> str:
        if self.problem:
            return f"{self.spec.title} cannot be computed for the changed model: {self.problem}"
        same = self.changed == self.original
        spread = f" +- {self.deviation:.2g}" if self.deviation else ""
        return f"{self.spec.title} {self.changed:.6g}{'' if same else f' instead of {self.original:.6g}'}{spread}"


class UserMetric:
    """Calls the function for the outputs of models on the same sets. `close` stops its worker.

    A failure for the original is the user's error; a changed model for which the function fails has no score.
    """

    def __init__(
        self, spec: MetricSpec, sets: Sequence[Arrays], original: Sequence[Arrays], timeout: float, memory: int | None
    ) -> None:
        self.spec = spec
        self._sets = sets
        self._worker = Worker(timeout=timeout, memory=memory)
        self._filled: int | None = None
        self._broken = ""
        try:
            self.original = self._call(original)
            self._parts = self._without_parts(original)
            again = self._call(original)
            if again != self.original:
                raise MisfitError(
                    f"it returns {self.original:g} and then {again:g} for the same outputs",
                    "draw from np.random.default_rng(seed) only",
                )
        except MisfitError as error:
            self.close()
            error.complain(spec.place, spec.title)

    def score(self, outputs: Sequence[Arrays]) -> Score:
        """Return the metric of a changed model's outputs, together with that of the original."""
        try:
            score = Score(self.spec, self.original, self._call(outputs))
        except MisfitError as error:
            return Score(self.spec, self.original, problem=str(error))
        # A margin changes nothing where the drop alone is too much.
        parts = self._without_parts(outputs) if self._parts and score.use <= 1.0 else []
        return replace(score, deviation=_standard_error(self._parts, parts)) if parts else score

    def close(self) -> None:
        """Stop the worker."""
        self._worker.close()

    def _call(self, outputs: Sequence[Arrays]) -> float:
        if self._broken:
            raise MisfitError(self._broken)
        try:
            answer = self._answer(outputs)
        except WorkerError as error:
            # It is not worth waiting once for each site for a function that hangs or ends its process.
            self._broken = error.what.removeprefix(f"{self.spec.title} ")
            raise MisfitError(self._broken) from error
        if "problem" in answer:
            raise MisfitError(answer["problem"])
        return float(answer["value"])

    def _without_parts(self, outputs: Sequence[Arrays]) -> list[float]:
        """Return the metric without one part of the sets at a time; nothing if it fails for a part of the sets."""
        count = len(outputs)
        found = []
        for first in range(min(_PARTS, count) if count > 1 else 0):
            try:
                answer = self._answer(outputs, sorted(set(range(count)) - set(range(first, count, _PARTS))))
            except WorkerError:
                return []
            if "problem" in answer:
                return []
            found.append(float(answer["value"]))
        return found

    def _answer(self, outputs: Sequence[Arrays], numbers: Sequence[int] | None = None) -> dict[str, Any]:
        """Call the function in the worker for all sets, or for those with the given numbers."""
        here = "surgery.verification.accuracy.user_metric"
        where = {"file": str(self.spec.file.absolute()), "function": self.spec.function, "folder": str(Path.cwd())}
        if self._filled is None or self._worker.pid != self._filled:
            self._worker.call(f"{here}:keep", sets=[dict(one) for one in self._sets])
            self._filled = self._worker.pid
        numbers = list(range(len(outputs)) if numbers is None else numbers)
        chosen = [dict(outputs[number]) for number in numbers]
        found: dict[str, Any] = self._worker.call(f"{here}:evaluate", **where, outputs=chosen, numbers=numbers)
        return found


def _standard_error(original: Sequence[float], changed: Sequence[float]) -> float:
    """Return the standard error of the difference of two metrics by the jackknife, from their values without parts."""
    differences = np.subtract(changed, original)
    return math.sqrt((len(differences) - 1) * float(np.var(differences)))


_kept: list[Arrays] = []


def keep(sets: list[Arrays]) -> None:
    """Store the sets in a worker process, for all models."""
    _kept[:] = sets
    _lock(_kept)


def evaluate(file: str, function: str, folder: str, outputs: list[Arrays], numbers: list[int]) -> dict[str, Any]:
    """Call a user's function, in a worker process; return its `value`, or a `problem` as text for the user.

    `outputs` are those of the stored sets with these numbers.
    """
    try:
        found = find(file, function, folder)
    except LocalFunctionError as error:
        return {"problem": str(error)}
    stage(f"{Path(file).name}:{function}")
    _lock(outputs)
    try:
        value = found(outputs, [dict(_kept[number]) for number in numbers])
        if isinstance(value, str) or np.ndim(value):
            return {"problem": f"it returns a {type(value).__name__}, not a number"}
        number = float(value)
    except BaseException as error:
        return {"problem": raised(error, file)}
    return {"value": number} if math.isfinite(number) else {"problem": f"it returns {number}"}


def _lock(values: Any) -> None:
    """Make arrays read-only: a function that changed them would change those of later calls, too."""
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    elif isinstance(values, (list, dict)):
        for item in values.values() if isinstance(values, dict) else values:
            _lock(item)
