"""Verdicts on the targets of a region, from groups of runs that are dropped once they are judged."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import is_float
from surgery.base.promises import Parity
from surgery.model.proto.randomness import origins
from surgery.model.runtime.engine import Engine
from surgery.model.shapes.declarations import element_types
from surgery.verification.comparing.arbiter import DOUBT
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import Findings, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.tolerance import BLOCK
from surgery.verification.comparing.vacuity import Evidence, Run, same, tensors
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.regions import Region
from surgery.verification.running.precision import mentions_narrower, narrowest

_Results = Sequence[Mapping[str, Any]]


@dataclass
class _Target:
    """The findings on one target. `equal` elements have the same bits, and are not among the findings."""

    findings: Findings
    is_equal: bool = True
    equal: int = 0
    rough: OutputDistances | None = None
    verdict: Verdict | None = None


class Tally:
    """The verdicts on the targets of a region, with fewer checks for the `few` runs of one of many similar regions."""

    def __init__(
        self, region: Region, original: ReferenceRun, verify: VerifySpec, engine: Engine, promise: Parity, *, few: bool
    ) -> None:
        self.region = region
        self._original = original
        self._engine = engine
        self._promise = promise
        self._rules = ComparisonRules.of(verify, Parity.CLOSE)
        self._skeleton = region.before.SerializeToString()
        rough = few and promise is Parity.CLOSE
        self._targets = {
            output: _Target(Findings(promise), rough=OutputDistances() if rough else None) for output in region.outputs
        }
        self._precision: Mapping[str, np.dtype[Any]] | None = None
        self._shown = {} if few else self._evidence(verify)
        self._constant = _Constants(region.outputs)

    def _evidence(self, verify: VerifySpec) -> dict[Parity, Evidence]:
        found, piece = origins(self.region.before), self.region.before
        promises = dict.fromkeys((Parity.EXACT, self._promise))
        return {one: Evidence(piece, found, ComparisonRules.of(verify, one)) for one in promises}

    def add(self, runs: list[Run], results: _Results) -> None:
        """Judge more runs."""
        if self._precision is None:
            self._precision = self._narrower(runs[0])
        inner = self._original.inner(self._skeleton, runs)
        inner.precision = self._precision
        judge = OutputJudge(inner)
        for output, target in self._targets.items():
            if target.verdict is None:
                mine = [replace(run, outputs={output: run.outputs[output]}) for run in runs]
                self._compare(target, judge, mine, [{output: values[output]} for values in results])
        for run, values in zip(runs, results):
            for evidence in self._shown.values():
                evidence.add(run)
            if self._promise is not Parity.EXACT and self._shown:
                self._constant.add(run, values, self._shown[self._promise].unmoved)

    def _compare(self, target: _Target, judge: OutputJudge, runs: list[Run], results: _Results) -> None:
        pairs = [(run.outputs[name], values[name]) for run, values in zip(runs, results) for name in values]
        if all(same(one, other) for one, other in pairs):
            target.equal += sum(tensor.size for one, _ in pairs for tensor in tensors(one))
            target.findings.runs += len(runs)
            return
        target.is_equal = False
        if target.rough is not None:
            for run, values in zip(runs, results):
                compare(run.outputs, values, self._rules, target.rough)
            if target.rough.needed <= DOUBT:
                return
            target.rough = None
        judge.find(runs, results, target.findings)
        if target.findings.negative() is not None:
            target.verdict = judge.conclude(target.findings)

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict on each target, by name, from all runs."""
        found = zip(self.region.targets, self.region.outputs)
        return {name: self._verdict(output, self._targets[output]) for name, output in found}

    def _verdict(self, output: str, target: _Target) -> Verdict:
        if target.verdict is not None:
            return target.verdict
        if target.is_equal:
            return Verdict(Status.EQUAL, message="bit-identical")
        if (total := target.rough) is not None:
            return Verdict(Status.CLOSE, None, total.as_needed(), total.message, total.details())
        target.findings.count_equal(output, target.equal)
        inner = self._original.inner(self._skeleton, [])
        inner.precision = self._precision or {}
        return OutputJudge(inner).conclude(target.findings)

    def vacuous(self, promise: Parity) -> Mapping[str, str]:
        """Return the outputs that prove nothing under a promise, with reasons."""
        return self._shown[promise].vacuous()

    def is_constant(self, output: str) -> bool:
        """Return whether an output has equal elements in all runs with the same dims, in both models; -0 equals 0."""
        return self._constant.holds(output)

    def _narrower(self, run: Run) -> Mapping[str, np.dtype[Any]]:
        """Return the types in which outputs are computed, for outputs of wider types than these."""
        arrays = [value for value in map(run.outputs.get, self.region.outputs) if isinstance(value, np.ndarray)]
        wide = max((array.dtype.itemsize for array in arrays if is_float(array.dtype)), default=0)
        if not mentions_narrower(self.region.before, wide):
            return {}
        types = self._engine.analyse(element_types, skeleton=self._skeleton)
        return narrowest(self.region.before, types or {})


@dataclass
class _Constants:
    """Outputs that have been constant so far, and digests of the first values of each with each choice of dims."""

    outputs: Sequence[str]
    moved: set[str] = field(default_factory=set)
    repeated: bool = False
    firsts: dict[Hashable, dict[str, tuple[Hashable, Hashable]]] = field(default_factory=dict)

    def add(self, run: Run, values: Mapping[str, Any], left: Sequence[str]) -> None:
        """Note one run; only outputs that are `left` still matter."""
        self.moved.update(name for name in self.outputs if name not in left)
        dims = run.binding.dim_key
        self.repeated = self.repeated or dims in self.firsts
        left = [name for name in self.outputs if name not in self.moved]
        own = {name: (_digest(run.outputs[name]), _digest(values[name])) for name in left}
        first = self.firsts.setdefault(dims, own)
        self.moved.update(name for name, pair in own.items() if first.get(name, pair) != pair)
        for known in self.firsts.values():
            for name in self.moved & known.keys():
                del known[name]

    def holds(self, output: str) -> bool:
        return self.repeated and output not in self.moved


def _digest(value: Any) -> Hashable:
    """Return what is the same for values with equal elements, sequences included; a value itself may be large."""
    return tuple((tensor.dtype.name, tensor.shape, _elements_digest(tensor)) for tensor in tensors(value))


def _elements_digest(tensor: np.ndarray[Any, Any]) -> bytes:
    digest = hashlib.sha256()
    flat = tensor.reshape(-1)
    for begin in range(0, flat.size, BLOCK):
        part = flat[begin : begin + BLOCK]
        if part.dtype.kind in "OUS":
            digest.update(repr(part.tolist()).encode(errors="surrogatepass"))
            continue
        if is_float(part.dtype):
            part = np.where(part == 0, np.zeros_like(part), part)  # -0 is 0
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()
