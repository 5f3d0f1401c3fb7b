"""The nodes upstream of an output that proves nothing, run on generated values.

A Softmax with an input of 10^9 is saturated whatever comes before it; with ordinary numbers it shows what it computes.
So the nodes between values that are known to be the same in both models and the outputs in question are cut out of
both, and run on drawn values with the recorded shapes and types, within the recorded signs. Integers, which may be
indices or shapes, stay as recorded. If the outputs agree, and also move when all floats change by 1%, the nodes compute
the same. If they differ, nothing is known: a rewrite may rely on properties of the actual values before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import is_float
from surgery.base.promises import Parity
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import cut, describe, only
from surgery.model.proto.randomness import origins
from surgery.verification.comparing.compare import OutputDistances, compare, tensors
from surgery.verification.comparing.fingerprint import ModelRelation
from surgery.verification.comparing.vacuity import Run, vacuous
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.regions.inner_values import Inside, Observed, is_moved, nudge
from surgery.verification.regions.recorded_values import observe

if TYPE_CHECKING:
    import onnx

AFFORDABLE = 256 << 20
"""Maximum bytes of recorded and drawn values, where their sizes are known. Runs are left out to stay below it."""

_SCALES = (1.0, 1.0, 0.1, 0.001)
"""Factors of the drawn numbers. After many layers, only small numbers keep a Softmax in its range."""

_ZEROS = 0.02
_SHARE = 0.5


@dataclass(frozen=True)
class UpstreamRegion:
    """Nodes of the original and of the changed model that compute the same `outputs` from the same values.

    `needed` is the smallest tolerance that covers the outputs, None if all bits agree.
    """

    before: set[int]
    after: set[int]
    outputs: tuple[str, ...]
    needed: Mapping[str, float] | None


@dataclass(frozen=True)
class RegionTrials:
    """The context for trying regions: both models, their relation, the values that agree, and how to run them."""

    models: tuple[onnx.ModelProto, onnx.ModelProto]
    lineage: ModelRelation
    agreeing: set[str]
    inside: Inside

    def find(self, outputs: set[str]) -> list[UpstreamRegion]:
        """Find outputs that agree on drawn values, with the nodes between them and the values known to agree.

        Constants are kept at first. Outputs that do not move then, because weights may be uniform too, are tried with
        other values for constant tensors and for values computed from them.
        """
        before = self.lineage.before
        inputs = set(before.inputs) - before.constants
        known = (self.lineage.same | self.agreeing) - set(self.lineage.after.outputs)
        moving = {name for number in before.below(inputs) for name in before.makes(number)} | inputs
        found: list[UpstreamRegion] = []
        for stop in (known & moving, known):
            left = sorted(outputs.difference(*(region.outputs for region in found)))
            region = self._try(left, stop) if left else None
            found += [region] if region is not None else []
        return found

    def _try(self, outputs: Sequence[str], stop: set[str]) -> UpstreamRegion | None:
        before, after = self.lineage.before, self.lineage.after
        names = {name for flow in (before, after) for name in _entering(flow, outputs, stop)}
        if names <= set(before.inputs) - before.constants:
            # The boundary consists only of inputs that the models were already run on.
            return None
        size = sum(self.inside.sizes.get(name, 0) for name in names)
        draws = 1 if size * (1 + len(_SCALES)) * len(self.inside.runs) > AFFORDABLE else len(_SCALES)
        taken = self.inside.runs[: AFFORDABLE // (size * (1 + draws))] if size else self.inside.runs
        recorded = self._run(only(self.models[0], sorted(names)), [run.feed for run in taken])
        if not recorded:
            return None
        given = [name for name in sorted(names) if _worth(name, recorded[0][name], before)]
        if not any(_drawable(recorded[0][name]) for name in given):
            return None
        ports = {name: describe(name, recorded[0][name], shape=False) for name in given}
        parts = [cut(model, ports, list(outputs)) for model in self.models]
        drawn = [
            (run.binding, {name: self._draw(name, values[name], draw) for name in given})
            for run, values in zip(taken, recorded)
            for draw in range(draws)
        ]
        sound, needed = self._judge(parts, drawn)
        return UpstreamRegion(before.above(sound, given), after.above(sound, given), sound, needed) if sound else None

    def _judge(
        self, parts: Sequence[onnx.ModelProto], drawn: Sequence[tuple[Binding, Mapping[str, Any]]]
    ) -> tuple[tuple[str, ...], Mapping[str, float] | None]:
        """Find the outputs that agree and that move with the given values, and the tolerance that they need."""
        feeds = [feed for _, feed in drawn]
        mine, theirs = self._run(parts[0], feeds), self._run(parts[1], feeds)
        nudged = self._run(parts[0], [{name: nudge(value) for name, value in feed.items()} for feed in feeds])
        if mine is None or theirs is None or nudged is None:
            return (), None
        runs = [Run(binding, feed, values) for (binding, feed), values in zip(drawn, mine)]
        found = origins(parts[0])
        exact = self.inside.setting.promise is Parity.EXACT
        rules = self.inside.rules(self.inside.setting.promise)
        worst = OutputDistances()
        sound = []
        for output in parts[0].graph.output:
            name = output.name
            total = OutputDistances()
            for run, values in zip(runs, theirs):
                compare({name: run.outputs[name]}, {name: values[name]}, rules, total)
            if total.needed > 1.0 or (total.bits and exact) or name in found.random or not found.inputs[name]:
                continue
            is_tight = not all(is_float(t.dtype) for t in tensors(mine[0][name])) or is_moved(name, mine, nudged)
            empty = vacuous(parts[0], runs, found, rules if total.bits else self.inside.rules(Parity.EXACT))
            if is_tight and name not in empty:
                sound.append(name)
                worst = total if total.needed >= worst.needed else worst
        return tuple(sound), worst.as_needed() if worst.bits else None

    def _run(self, model: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]]) -> Observed | None:
        return observe(model, feeds, self.inside.setting.open_engine)

    def _draw(self, name: str, value: Any, draw: int) -> Any:
        """Draw other floats, and after the first draw other bools; one value under two names stays one value."""
        rng = np.random.default_rng([draw, self.lineage.numbers[name]])
        if isinstance(value, np.ndarray) and value.dtype.kind == "b" and draw:
            return rng.random(value.shape) < _SHARE
        return _redraw(value, _SCALES[draw], rng) if _drawable(value) else value


def _entering(flow: Flow, outputs: Sequence[str], stop: set[str]) -> set[str]:
    """Return the values in `stop` that the nodes upstream of outputs read."""
    return {name for number in flow.above(outputs, stop) for name in flow.reads[number] if name in stop}


def _worth(name: str, value: Any, flow: Flow) -> bool:
    """Return whether a value is given from outside: a constant only if it is a float tensor of several elements."""
    return name not in flow.constants or (_drawable(value) and value.size > 1)


def _drawable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_float(value.dtype) and value.size > 0


def _redraw(value: Any, scale: float, rng: np.random.Generator) -> Any:
    """Draw as many normal numbers, some of them zero, with the signs of `value`, and within [0, 1] if `value` is."""
    numbers = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (-1.0, 1.0)
    drawn = np.where(rng.random(value.shape) < _ZEROS, 0.0, rng.standard_normal(value.shape))
    if low >= 0:
        drawn = rng.random(value.shape) if high <= 1 else np.abs(drawn)
    elif high <= 0:
        drawn = -np.abs(drawn)
    return np.asarray(drawn * scale).astype(value.dtype)
