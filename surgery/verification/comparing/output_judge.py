"""The verdict derived from outputs: by the promise, the differences, the float64 run, and vacuous outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from surgery.base.errors import counted
from surgery.base.promises import Parity
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.arbiter import Float64Arbiter, Ruling
from surgery.verification.comparing.compare import OutputDistances, compare
from surgery.verification.comparing.details import Arbitration, Details, Status, Verdict
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run

NOT_RUN, VACUOUS, NONDETERMINISTIC = "not-run", "vacuous", "nondeterministic"

_WEIGHT = ("noise", "right", "unknown", "wrong")
"""The kinds of rulings; of two rulings on different runs, the one that comes later here counts."""


class OutputJudge:
    """Judges the outputs of changed models against those of one original.

    `truth` runs the original in float64 if it is not a model that the engines can run.
    """

    def __init__(self, original: ReferenceRun, truth: Callable[[], RunOutcome] | None = None) -> None:
        self._original = original
        self._arbiter = Float64Arbiter(original, truth)

    def judge(
        self,
        runs: Sequence[Run],
        results: Sequence[Mapping[str, Any]],
        promise: Parity,
        inside: Callable[[Verdict, Mapping[str, str]], Verdict] | None = None,
        *,
        doubt: float | None = None,
    ) -> Verdict:
        """Compare the outputs of a changed model, run by run, with those of the original.

        If outputs agree but prove nothing, `inside` is given the verdict on them and the reasons, and decides. Float64
        is consulted above the share `doubt` of the tolerance; by default, a small one.
        """
        found = Findings(promise)
        self.find(runs, results, found, doubt=doubt)
        if found.negative() is not None and self._original.control():
            found = Findings(promise)
            self.find(runs, results, found, doubt=doubt)
        return self.conclude(found, inside)

    def conclude(
        self, found: Findings, inside: Callable[[Verdict, Mapping[str, str]], Verdict] | None = None
    ) -> Verdict:
        """Return the verdict that follows from the findings on all runs; for `inside`, see `judge`."""
        original, negative = self._original, found.negative()
        if original.problem is not None:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=original.problem)
        if negative is not None:
            return negative
        details = found.details()
        if original.nondeterministic:
            what = f"the original differs between its own runs in {names(original.nondeterministic)}"
            return Verdict(Status.UNVERIFIED, NONDETERMINISTIC, None, what, details)
        total = found.total
        empty = original.vacuous[found.promise if total.bits else Parity.EXACT]
        if empty and inside is None:
            what = "; ".join(f"'{name}' {why}" for name, why in sorted(empty.items()))
            return Verdict(Status.UNVERIFIED, VACUOUS, None, f"nothing is proven: {what}", details)
        text = found.tell() if total.bits else f"bit-identical in {counted(found.runs, 'run')}"
        status = Status.CLOSE if total.bits else Status.EQUAL
        verdict = Verdict(status, None, total.as_needed(), f"{text}{self._note()}", details)
        return inside(verdict, empty) if empty and inside is not None else verdict

    def changed_since(
        self, accepted: Sequence[Mapping[str, Any]], runs: Sequence[Run], results: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """Return where outputs are not bit-identical to those of a model that was accepted before; None if they are."""
        rules = self._original.rules(Parity.EXACT)
        for run, expected, outputs in zip(runs, accepted, results):
            total = OutputDistances()
            compare(expected, outputs, rules, total)
            if total.bits:
                return f"declared bit-identical to the previous step, but {total.message}{describe(run)}"
        return None

    def find(
        self, runs: Sequence[Run], results: Sequence[Mapping[str, Any]], found: Findings, *, doubt: float | None = None
    ) -> None:
        """Compare runs, in addition to those that the findings are on already; consult float64 in case of doubt."""
        rules, total = self._original.rules(found.promise), found.total
        differing = total.differing
        for run, outputs in zip(runs, results):
            before = total.needed, total.bits
            total.binding = run.binding.as_json()
            compare(run.outputs, outputs, rules, total)
            if (total.needed, total.bits) != before:
                found.worst = _named(run)
        total.require_elements()
        found.runs += len(runs)
        doubted = total.bits and found.promise is not Parity.EXACT and not total.hopeless
        doubt = self._arbiter.doubt(rules) if doubt is None else doubt
        if doubted and total.needed > doubt and (not found.ruling or total.differing > differing):
            found.settle(self._arbiter.judge(runs, results, rules))

    def _note(self) -> str:
        original = self._original
        held = ", ".join(f"'{name}' by the tolerance of {dtype}" for name, dtype in sorted(original.precision.items()))
        return (f"; {held}, in which it is computed" if held else "") + (
            f"; in the reference evaluator{self._own()}, for {original.gap}" if original.engine == "reference" else ""
        )

    def _own(self) -> str:
        """Name the operators that the reference evaluator computes by our own definitions."""
        own = self._original.inputs.evaluated
        return f" with our own form of {', '.join(own)}" if own else ""


@dataclass
class Findings:
    """The findings on a changed model, from so many `runs`. `worst` is the run with the worst element, without values.

    `ruling` is that of float64, if it was consulted.
    """

    promise: Parity
    total: OutputDistances = field(default_factory=lambda: OutputDistances(spreads={}))
    runs: int = 0
    worst: Run | None = None
    ruling: Ruling | None = None

    def settle(self, ruling: Ruling) -> None:
        """Add the ruling on more runs. What is noise in some runs and sound in others has been compared."""
        ruling = replace(ruling, run=_named(ruling.run)) if ruling.run is not None else ruling
        known = self.ruling or ruling
        counts = max(known, ruling, key=lambda one: _WEIGHT.index(one.kind))
        self.ruling = replace(counts, arbitration=_joined(known.arbitration, ruling.arbitration))

    def count_equal(self, output: str, elements: int) -> None:
        """Count elements of an output that are known to be equal."""
        self.total.elements += elements
        self.total.count_equal(output, elements)

    def negative(self) -> Verdict | None:
        """Return the verdict if the findings speak against the changed model, else None."""
        total, ruling, promise = self.total, self.ruling, self.promise
        message = f"{total.message}{describe(self.worst)}"
        if not total.hopeless and total.bits and promise is Parity.EXACT:
            return self._different(("" if total.beyond else "declared bit-identical, but ") + message)
        if total.hopeless:
            return self._different(message)
        if ruling is not None and ruling.kind == "wrong":
            return self._different(f"{ruling.message}{describe(ruling.run)}")
        if ruling is not None and ruling.kind == "noise":
            text = f"nothing is proven: {ruling.message}{describe(ruling.run)}"
            return Verdict(Status.UNVERIFIED, VACUOUS, None, text, self.details())
        if total.beyond and (ruling is None or ruling.kind == "unknown"):
            return self._different(message + self._unknown(" (not judged in float64: {})"))
        return None

    def _different(self, message: str) -> Verdict:
        return Verdict(Status.DIFFERENT, None, self.total.as_needed(), message, self.details())

    def _unknown(self, text: str) -> str:
        unknown = self.ruling is not None and self.ruling.kind == "unknown"
        return text.format(self.ruling.message) if self.ruling is not None and unknown else ""

    def details(self) -> Details:
        """Return all findings as plain values."""
        ruling, details = self.ruling, self.total.details()
        if ruling is not None and ruling.element is not None:
            details = replace(details, worst=ruling.element)
        return replace(details, float64=ruling.arbitration if ruling is not None else None)

    def tell(self) -> str:
        """Return how far apart the models are, and why that is close enough."""
        lead = self._unknown("small next to the rest of the output (not judged in float64: {}): ")
        if self.ruling is not None and self.total.needed > 1.0 and not lead:
            lead = "beyond the tolerance, but as close to float64 as the original: "
        return f"{lead}{self.total.message}{describe(self.worst)}"


def describe(run: Run | None) -> str:
    """Name the inputs of a run, in parentheses."""
    if run is None:
        return ""
    dims = ", ".join(f"{name}={extent}" for name, extent in run.binding.dims.items())
    return f" ({dims + ', ' if dims else ''}{run.binding.character} data)"


def names(items: frozenset[str]) -> str:
    """Return sorted, quoted names as text."""
    return ", ".join(f"'{name}'" for name in sorted(items))


def _named(run: Run) -> Run:
    """Return a run without its values, which are large."""
    return replace(run, feed={}, outputs={})


def _joined(one: Arbitration, other: Arbitration) -> Arbitration:
    """Join what float64 says about some runs and about others."""
    original, changed = (
        max((each for each in pair if each is not None), default=None)
        for pair in ((one.original, other.original), (one.changed, other.changed))
    )
    narrow = tuple(sorted({*one.narrow, *other.narrow}))
    return Arbitration(original, changed, narrow, one.unavailable or other.unavailable)
