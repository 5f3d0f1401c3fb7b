"""Values inside two models, recorded and compared under the name that they have in both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import epsilon, is_float, smallest
from surgery.base.promises import Parity
from surgery.model.proto.extract import cut, describe, only
from surgery.model.proto.randomness import Origins, origins
from surgery.model.runtime.engine import Engine, EngineName
from surgery.model.shapes.declarations import declare
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare, tensors
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run, same, vacuous
from surgery.verification.inputs.input_sets import TRIVIAL
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.recorded_values import observe

if TYPE_CHECKING:
    import onnx

Observed = list[Mapping[str, Any]]

TOGETHER = 128 << 20
"""Bytes of values with known shapes that are requested from a model at once."""

LARGEST = 256 << 20
"""Bytes of a value, over all runs, above which it is not compared."""

NUDGE = 0.01
"""Relative change of each float, made to see whether a value is sensitive enough to show it."""

_RUNS = 3
_UNKNOWN = 4 << 20


@dataclass(frozen=True)
class InnerComparison:
    """The setting of a comparison: the `runs`, the `engine`, and the reference run of the `original`.

    `vacuous` maps the outputs that prove nothing in these runs to the reasons.
    """

    original: ReferenceRun
    verify: VerifySpec
    engine: EngineName
    runs: Sequence[Run]
    vacuous: Mapping[str, str]
    promise: Parity

    def open_engine(self) -> Engine:
        """Return a new engine, which the caller has to close."""
        return self.original.engine_for(self.engine)


class Inside:
    """The values called `names` in an original's main graph, and the values of the same names in a changed model.

    `eligible` are those that can be compared: not random, and not too large. `sizes` are the bytes of values, inputs
    and initializers in one run, where known. `runs` are a few of the runs, for checks that would be too expensive with
    all.
    """

    def __init__(
        self, original: onnx.ModelProto, candidate: onnx.ModelProto, names: set[str], setting: InnerComparison
    ) -> None:
        self.models = (original, candidate)
        self.setting = setting
        self.runs = _few(setting.runs)
        self.origins: Origins = origins(only(original, sorted(names)))
        self.sizes = self._measure()
        largest = LARGEST // len(self.runs)
        self.eligible = {n for n in names if n not in self.origins.random and self.sizes.get(n, 0) <= largest}

    def _measure(self) -> dict[str, int]:
        """Determine the sizes of values by shape inference."""
        original = self.models[0]
        engine = self.setting.open_engine()
        try:
            extents = {name: list(v.shape) for name, v in self.runs[0].feed.items() if isinstance(v, np.ndarray)}
            declared = engine.analyse(declare, skeleton=original.SerializeToString(), dims=extents) or {}
        finally:
            engine.close()
        shapes = {name: shape for name, (_, shape) in declared.items()}
        shapes |= {tensor.name: list(tensor.dims) for tensor in original.graph.initializer}
        return {name: 4 * int(np.prod(shape)) for name, shape in shapes.items()}

    def compare(self, names: Sequence[str]) -> dict[str, Verdict]:
        """Return verdicts on values that differ, or that agree and are not vacuous; leave out others.

        All runs are used, or a few where all would be too expensive. Values are compared in batches.
        """
        sizes = [self.sizes.get(name, _UNKNOWN) for name in names]
        every = self.setting.runs
        is_cheap = (
            self.setting.original.inputs.cost(every[0].binding) <= TRIVIAL and sum(sizes) * len(every) <= TOGETHER
        )
        runs = every if is_cheap else self.runs
        found: dict[str, Verdict] = {}
        batch: list[str] = []
        size = 0
        for name, more in zip(names, sizes):
            if batch and (size + more) * len(runs) > TOGETHER:
                found |= self._compare(batch, runs)
                batch, size = [], 0
            batch.append(name)
            size += more
        return found | self._compare(batch, runs)

    def _compare(self, names: Sequence[str], runs: Sequence[Run]) -> dict[str, Verdict]:
        mine, theirs = (self._observe(model, names, runs) for model in self.models)
        if mine is None or theirs is None:
            return {}
        judge = self._judge(names, [replace(run, outputs=values) for run, values in zip(runs, mine)])
        found = {name: self._verdict(judge, name, name, runs, mine, theirs) for name in names}
        wrong = [name for name, verdict in found.items() if verdict is not None and not verdict.passed]
        again = self._observe(self.models[0], names, runs) if wrong else mine
        for name in wrong:
            if again is None or not all(same(one[name], other[name]) for one, other in zip(mine, again)):
                # A value that varies when the original is run again shows nothing.
                found[name] = None
        return {name: verdict for name, verdict in found.items() if verdict is not None}

    def _verdict(
        self, judge: OutputJudge, name: str, other: str, runs: Sequence[Run], mine: Observed, theirs: Observed
    ) -> Verdict | None:
        """Compare the value that the changed model calls `other` with the value that the original calls `name`."""
        if any(form(values[name]) != form(found[other]) for values, found in zip(mine, theirs)):
            # The name now refers to something else.
            return None
        exact = self.setting.promise is Parity.EXACT
        kept = [i for i, values in enumerate(mine) if exact or not _is_subnormal(values[name])]
        if not kept:
            return None
        single = [replace(runs[i], outputs={name: mine[i][name]}) for i in kept]
        verdict = judge.judge(single, [{name: theirs[i][other]} for i in kept], self.setting.promise)
        if verdict.is_different:
            return replace(
                verdict, message=verdict.message.replace(f"output '{name}'", f"the intermediate value '{name}'", 1)
            )
        promise = self.setting.promise if verdict.status is Status.CLOSE else Parity.EXACT
        empty = vacuous(_declaring(name), single, self.origins, self.rules(promise))
        return verdict if verdict.passed and not empty else None

    def heir(self, name: str, values: Sequence[str]) -> str | None:
        """Find the value of the original, among `values`, that the changed model calls `name`."""
        mine, theirs = (
            self._observe(self.models[0], values, self.runs),
            self._observe(self.models[1], [name], self.runs),
        )
        if not values or mine is None or theirs is None:
            return None
        judge = self._judge(values, [replace(run, outputs=found) for run, found in zip(self.runs, mine)])
        for value in values:
            verdict = self._verdict(judge, value, name, self.runs, mine, theirs)
            if verdict is not None and verdict.passed:
                return value
        return None

    def clearing(self, differing: Sequence[str], agreeing: Sequence[str]) -> set[str]:
        """Find the agreeing values that would differ in the original if it had the changed model's differing values.

        There the changed model compensates for the difference. Other agreeing values do not depend on it, like a
        saturated Softmax in the middle of a model, and say nothing about it.
        """
        own, mine = (
            self._observe(self.models[1], differing, self.runs),
            self._observe(self.models[0], agreeing, self.runs),
        )
        if own is None or mine is None:
            return set()
        ports = {name: describe(name, own[0][name], shape=False) for name in differing}
        feeds = [{**run.feed, **values} for run, values in zip(self.runs, own)]
        given = observe(cut(self.models[0], ports, agreeing), feeds, self.setting.open_engine)
        if given is None:
            return set()
        judge = self._judge(agreeing, [replace(run, outputs=values) for run, values in zip(self.runs, mine)])
        found = {name: self._verdict(judge, name, name, self.runs, mine, given) for name in agreeing}
        return {name for name, verdict in found.items() if verdict is not None and not verdict.passed}

    def _judge(self, names: Sequence[str], runs: list[Run]) -> OutputJudge:
        """Make a judge that treats values as outputs of the original."""
        skeleton = only(self.models[0], names).SerializeToString()
        return OutputJudge(self.setting.original.inner(skeleton, runs))

    def rules(self, promise: Parity) -> ComparisonRules:
        """Return the comparison rules for a promise."""
        return ComparisonRules.of(self.setting.verify, promise)

    def _observe(self, model: onnx.ModelProto, names: Sequence[str], runs: Sequence[Run]) -> Observed | None:
        """Run a model with some values as its only outputs; None if that fails."""
        return observe(only(model, names), [run.feed for run in runs], self.setting.open_engine)


def nudge(value: Any) -> Any:
    """Change floats by the relative amount `NUDGE`, alternately up and down; return anything else unchanged."""
    if not isinstance(value, np.ndarray) or not is_float(value.dtype) or not value.size:
        return value
    signs = np.where(np.arange(value.size) % 2, 1.0, -1.0).reshape(value.shape)
    return (value.astype(np.float64) * (1.0 + NUDGE * signs)).astype(value.dtype)


def is_moved(name: str, first: Observed, second: Observed) -> bool:
    """Return whether a float value differs by more than the default tolerance in any run."""
    for one, other in zip(first, second):
        if all(is_float(tensor.dtype) for tensor in tensors(one[name])):
            total = OutputDistances()
            compare({name: one[name]}, {name: other[name]}, ComparisonRules(Parity.CLOSE), total)
            if total.needed > 1.0:
                return True
    return False


def _few(runs: Sequence[Run]) -> list[Run]:
    """Choose a few runs, most of them with the same dims, so that they show which values move."""
    groups: dict[tuple[tuple[str, int], ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.binding.dim_key].append(run)
    largest, *others = sorted(groups.values(), key=len, reverse=True)
    return [*largest[: _RUNS - 1], others[0][0]] if others else largest[:_RUNS]


def _declaring(name: str) -> onnx.ModelProto:
    """Make a model that consists only of an output of this name."""
    import onnx

    model = onnx.ModelProto()
    model.graph.output.add().name = name
    return model


def _is_subnormal(value: Any) -> bool:
    """Return whether all floats of a value are so small that they have fewer bits, where rounding shows nothing."""
    found = [tensor for tensor in tensors(value) if tensor.size]
    if not found or not all(is_float(tensor.dtype) and tensor.dtype.itemsize > 1 for tensor in found):
        return False
    least = smallest(found[0].dtype) / epsilon(found[0].dtype)
    return all(np.nanmax(np.abs(tensor.astype(np.float64)), initial=0.0) < least for tensor in found)


def form(value: Any) -> list[tuple[Any, ...]]:
    """Return the element types and shapes of a value."""
    return [(tensor.dtype, tensor.shape) for tensor in tensors(value)]
