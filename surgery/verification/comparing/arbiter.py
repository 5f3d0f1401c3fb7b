"""Arbitration by float64 between two results that differ by more, or by less, than rounding explains.

A tolerance cannot distinguish a right rewrite of a deep net, whose rounding errors accumulate, from a wrong one whose
error is small. The distances of both sides from the original in float64 can: rounding moves both about equally far. An
error that only the changed model has stands out by the factor by which it exceeds the original's rounding error, which
in real networks in float32 is 2e-7 to 1e-5 of an output's range: mostly thirty times less than the tolerance.

The rule, for each output of each run: the distance of each element from its float64 value, in units of the original's
typical distance around it (`distances.typical`: by its row, its column, its magnitude), may be

- beyond the tolerance: k times the largest such distance of the original, and the geometric mean of all of them k
  times that of the original;
- within the tolerance, but above a share of it: 2 * k times the largest, and the geometric mean over all runs four
  times that of the original. A result beyond these limits is wrong too.

`k` is 4 for 32 elements or more. The largest of 32 normally distributed errors is below one standard deviation in 1
case of 200,000, and then an error of four happens in 1 case of 16,000. Down to 8 elements `k` is 8. Below 8, the errors
of all runs are combined, and `k` is 16.

If 16-bit weights are stored, the original runs again with these weights rounded once more, before a changed model is
judged wrong: a rewrite that folds a number into such a weight must round it. The largest distance of these runs from
float64 then counts as the original's.

Float64 results are ignored where the original already computes in float64, where the original itself is off by more
than a sixteenth of the output's range, or where the shape of the result differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from surgery.base.operators.rounding_behavior import ROUNDING_ONCE
from surgery.base.promises import Parity
from surgery.model.runtime.engine import RunOutcome
from surgery.model.runtime.rounding import FACTORS, reround
from surgery.verification.comparing.compare import ComparisonRules, describe
from surgery.verification.comparing.details import Arbitration, Element
from surgery.verification.comparing.distances import Float64Case, Float64Finding, Float64Output, cases
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.input_sets import TRIVIAL

DOUBT, CHEAP_DOUBT = 0.25, 1 / 32
"""Shares of the tolerance above which a result within it is doubted; the second if a run costs next to nothing."""

_EXACT = 1e6
"""Multiple of the original's distance from float64 above which the number is not informative."""


@dataclass(frozen=True)
class Ruling:
    """The ruling of float64 on a changed model.

    "right": where it is beyond the tolerance, it is as near to float64 as the original. "wrong": it is not, or it is
    suspiciously far off within the tolerance; `message` says where. "noise": the original itself is too far off.
    "unknown": there is no float64 result, for the reason in `message`.
    """

    kind: Literal["right", "wrong", "noise", "unknown"]
    message: str
    arbitration: Arbitration
    element: Element | None = None
    run: Run | None = None


class Float64Arbiter:
    """Judges changed models by the original in float64, which runs once, at the first doubt.

    `truth` runs the original in float64 if it is not a model that the engines can run.
    """

    def __init__(self, original: ReferenceRun, truth: Callable[[], RunOutcome] | None = None) -> None:
        self._original = original
        self._run = truth
        self._outcome: RunOutcome | None = None
        self._rounded: list[RunOutcome] | None = None

    def doubt(self, rules: ComparisonRules) -> float:
        """Return the share of the tolerance above which a result is worth a float64 run.

        A tolerance given by the recipe is applied as is.
        """
        original = self._original
        if rules.promise is not Parity.CLOSE or not rules.is_default:
            return 1.0
        return CHEAP_DOUBT if original.inputs.cost(original.runs[0].binding) <= TRIVIAL else DOUBT

    def judge(self, runs: Sequence[Run], results: Sequence[Any], rules: ComparisonRules) -> Ruling:
        """Compare the distances of the original's and the changed model's outputs from float64."""
        outcome = self._truth()
        if outcome.failure is not None:
            return Ruling("unknown", outcome.failure, Arbitration(unavailable=outcome.failure))
        shared = sorted(set(outcome.narrow) - ROUNDING_ONCE)
        ruling = self._rule(runs, results, rules, bool(shared), ())
        if ruling.kind == "wrong" and (rerounded := self._rerounded()):
            ruling = self._rule(runs, results, rules, bool(shared), rerounded)
        if ruling.kind == "wrong" and shared:
            return Ruling("unknown", f"{', '.join(shared)} ran in float32", ruling.arbitration)
        return ruling

    def _rule(
        self,
        runs: Sequence[Run],
        results: Sequence[Any],
        rules: ComparisonRules,
        shares: bool,
        rerounded: Sequence[RunOutcome],
    ) -> Ruling:
        """Compare the distances from the original in float64, also using runs with `rerounded` weights.

        If the float64 run `shares` rounding with the original, nothing is doubted within the tolerance.
        """
        outcome, own = self._truth(), [id(run.feed) for run in self._original.runs]
        truths, *others = (dict(zip(own, one.runs)) for one in (outcome, *rerounded))
        found: dict[str, list[Float64Case]] = {}
        for run, outputs in zip(runs, results):
            answers = [one[id(run.feed)] for one in (truths, *others)]
            truth, *rest = ({} if isinstance(answer, str) else answer for answer in answers)
            for case in cases(run, outputs, truth, rules, rest):
                found.setdefault(case.pair.name, []).append(case)
        doubt = self.doubt(rules) if not shares else inf
        return _together(
            [Float64Output(items, doubt if doubt < 1.0 else inf) for items in found.values()], outcome.narrow
        )

    def _rerounded(self) -> list[RunOutcome]:
        """Run the original with its 16-bit weights, if it has any, rounded again in several ways."""
        if self._rounded is None:
            import onnx

            original = self._original
            made = (reround(onnx.load_model_from_string(original.skeleton), factor) for factor in FACTORS)
            models = [model.SerializeToString() for model in made if model is not None]
            engine = original.engine_for("onnxruntime")
            try:
                outcomes = [engine.run(model, [run.feed for run in original.runs]) for model in models]
            finally:
                engine.close()
            self._rounded = [outcome for outcome in outcomes if outcome.failure is None]
        return self._rounded

    def _truth(self) -> RunOutcome:
        """Run the original in float64 on the inputs of all runs."""
        original = self._original
        if self._outcome is None:
            if self._run is not None:
                self._outcome = self._run()
            elif original.operators:
                self._outcome = RunOutcome(unsupported=f"random numbers ({', '.join(sorted(original.operators))})")
            else:
                engine = original.engine_for("float64")
                try:
                    self._outcome = engine.run(original.skeleton, [run.feed for run in original.runs])
                finally:
                    engine.close()
        return self._outcome


def _together(outputs: Sequence[Float64Output], narrow: tuple[str, ...]) -> Ruling:
    """Combine the findings on all outputs and runs into one ruling."""
    findings = {output: list(output.findings()) for output in outputs}
    distances = Arbitration(
        max((output.near for output in outputs), default=0.0),
        max((output.far for output in outputs), default=0.0),
        narrow,
    )
    everything = [finding for items in findings.values() for finding in items]
    for kind in ("wrong", "suspicious"):
        marked = [finding for finding in everything if finding.kind == kind]
        if marked:
            worst = max(marked, key=lambda finding: finding.times)
            return Ruling("wrong", _blame(worst), distances, worst.element, worst.run)
    for items in findings.values():
        # An output that is noise in one run and sound in another has been compared.
        if items and all(finding.kind == "noise" for finding in items):
            worst = items[0]
            assert worst.element is not None
            what = f"float64 gives {worst.truth:.6g}, far from both: {describe(worst.element)}"
            return Ruling("noise", f"the original is rounding noise: {what}", distances, worst.element, worst.run)
    return Ruling("right", "", distances)


def _blame(finding: Float64Finding) -> str:
    """Describe the problem with an element."""
    assert finding.element is not None
    if not finding.times:
        return describe(finding.element)
    times = f"{finding.times:.0f} times as far from float64 ({finding.truth:.9g}) as the original is"
    if finding.times > _EXACT:
        times = f"where float64 ({finding.truth:.9g}) agrees with the original"
    lead = "within the tolerance, but " if finding.kind == "suspicious" else ""
    return f"{lead}{describe(finding.element)}, {times}"
