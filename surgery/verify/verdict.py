"""The verdict: does a changed model compute what the original computes?

Both run in the same engine on the same inputs, and their outputs are compared by name. Controls come first, so
that nothing is blamed on a change that the original does by itself.

What proves nothing is said to prove nothing: `vacuity` says what an output must do to count. Before an output is called
vacuous, more runs with other data try to move it. A vacuous output that is equal gives no verdict but `unverified`,
whatever the pass promised; one that differs is a difference like any other. When all bits are equal, the stricter
measure of EXACT decides what counts as moving, also under a CLOSE promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from surgery.parity import Parity
from surgery.recipe.schema import InputsSpec, VerifySpec
from surgery.verify.checks import signature
from surgery.verify.compare import Difference, Rules, compare
from surgery.verify.engine import Engine, EngineName, Outcome
from surgery.verify.original import Original
from surgery.verify.vacuity import Run

Status = Literal["equal", "close", "different", "unverified"]

NOT_RUN, VACUOUS, NONDETERMINISTIC = "not-run", "vacuous", "nondeterministic"


@dataclass(frozen=True)
class Verdict:
    """The result of a verification.

    `equal`: bit-identical. `close`: within the tolerance; `needed` is the smallest rtol and atol, together, that
    would have passed. `different`: beyond the tolerance or the promise, or the changed model fails; `needed` is
    None when no tolerance would have helped. `unverified`: `reason` is "not-run", "vacuous" or "nondeterministic".
    """

    status: Status
    reason: str | None = None
    needed: Mapping[str, float] | None = None
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the models are shown to agree."""
        return self.status in ("equal", "close")


class Verifier:
    """Verifies changed models against one original.

    What it learns of the original (legal inputs, reference outputs, controls) is found once, by `prepare` or the
    first `verify`. Models are skeletons as bytes.
    """

    def __init__(self, original: bytes, inputs: InputsSpec | None = None, verify: VerifySpec | None = None) -> None:
        self._verify = verify or VerifySpec()
        self._original = Original(original, inputs or InputsSpec(), self._verify)
        self._last: tuple[bytes, Sequence[Any]] | None = None
        self._accepted: Sequence[Any] | None = None

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """The inputs used, for the report: dims, character and seed; with `refused` those that the original refuses."""
        return self._original.bindings

    def prepare(self) -> None:
        """Find legal inputs and run the original on them, with its controls."""
        self._original.prepare()

    def verify(self, candidate: bytes, promise: Parity = Parity.CLOSE) -> Verdict:
        """Say whether a changed model keeps what its pass promised.

        A promise of identical bits is held against the model that was accepted last, if one was: behind a step
        that rounds differently nothing can be bit-identical to the original, to which it must then be close.
        """
        original = self._original
        if candidate == original.skeleton:
            return Verdict("equal", message="the same bytes")
        self.prepare()
        if original.problem is not None:
            return Verdict("unverified", NOT_RUN, message=original.problem)
        outcome = self._run(candidate, original.engine)
        runs = original.runs
        if outcome.unsupported is not None and original.engine == "onnxruntime":
            # The change uses something that ONNX Runtime lacks: judge both by the reference evaluator.
            mine, theirs = self._run(original.skeleton, "reference"), self._run(candidate, "reference")
            if mine.failure or theirs.failure or any(isinstance(run, str) for run in mine.runs):
                return Verdict("unverified", NOT_RUN, message=outcome.unsupported)
            runs = [
                Run(run.binding, run.feed, outputs)
                for run, outputs in zip(runs, mine.runs)
                if not isinstance(outputs, str)
            ]
            outcome = theirs
        self._last = (candidate, outcome.runs) if runs is original.runs else None
        failure = _failure(outcome, runs)
        if failure is not None:
            return failure
        if promise is not Parity.EXACT or self._accepted is None:
            return self._judge(runs, outcome.runs, promise)
        verdict = self._judge(runs, outcome.runs, Parity.CLOSE)
        changed = self._changed_since_accepted(runs, outcome.runs) if verdict.passed else None
        return verdict if changed is None else Verdict("different", None, verdict.needed, changed)

    def accept(self, candidate: bytes) -> None:
        """Take a model that was verified as the one that exact steps after it must equal bit by bit."""
        if self._last is None or self._last[0] != candidate:
            self.verify(candidate)
        self._accepted = None if self._last is None else self._last[1]

    def _changed_since_accepted(self, runs: Sequence[Run], results: Sequence[Any]) -> str | None:
        """Say where the outputs are not bit-identical to those of the accepted model."""
        original = self._original
        rules = Rules(Parity.EXACT, None, None, original.random | original.nondeterministic)
        for run, accepted, outputs in zip(runs, self._accepted or (), results):
            total = Difference()
            compare(accepted, outputs, rules, total)
            if total.bits:
                return f"promised to be bit-identical to the step before, but {total.message}{_describe(run)}"
        return None

    def close(self) -> None:
        """Forget the reference outputs. No process outlives a call, so that there is nothing else to end."""
        self._original.runs = []
        self._last = self._accepted = None

    def _run(self, skeleton: bytes, name: EngineName) -> Outcome:
        """Run a model on the inputs of the original, as far as it has such inputs."""
        import onnx

        original = self._original
        model = onnx.load_model_from_string(skeleton)
        names = {port.name for port in signature(model).inputs}
        feeds = [{key: value for key, value in run.feed.items() if key in names} for run in original.runs]
        engine = Engine(name, self._verify.timeout, self._verify.memory, original.weights)
        try:
            return engine.run(skeleton, feeds)
        finally:
            engine.close()

    def _judge(self, runs: Sequence[Run], results: Sequence[Any], promise: Parity) -> Verdict:
        original = self._original
        unsteady = original.random | original.nondeterministic
        rules = Rules(promise, self._verify.rtol, self._verify.atol, unsteady)
        total = Difference()
        where = ""
        for run, outputs in zip(runs, results):
            before = total.needed, total.bits
            compare(run.outputs, outputs, rules, total)
            if (total.needed, total.bits) != before:
                where = _describe(run)
        if total.beyond or (total.bits and promise is Parity.EXACT):
            broken = "promised to be bit-identical, but " if not total.beyond else ""
            return Verdict("different", None, total.as_needed(), f"{broken}{total.message}{where}")
        if original.nondeterministic:
            names = _names(original.nondeterministic)
            return Verdict(
                "unverified", NONDETERMINISTIC, None, f"the original differs from itself from run to run in {names}"
            )
        empty = original.vacuous[promise if total.bits else Parity.EXACT]
        if empty:
            what = "; ".join(f"'{name}' {why}" for name, why in sorted(empty.items()))
            return Verdict("unverified", VACUOUS, None, f"nothing is proved: {what}")
        note = self._note(runs)
        if total.bits:
            return Verdict("close", None, total.as_needed(), f"{total.message}{where}{note}")
        return Verdict("equal", None, {"rtol": 0.0, "atol": 0.0}, f"bit-identical in {_count(runs)}{note}")

    def _note(self, runs: Sequence[Run]) -> str:
        original = self._original
        notes = []
        if original.random:
            operators = ", ".join(sorted(original.operators))
            notes.append(f"{_names(original.random)} by shape and type only, being random ({operators})")
        if original.engine == "reference":
            notes.append(f"in the reference evaluator, for {original.gap}")
        return "; " + "; ".join(notes) if notes else ""


def verify_models(
    original: bytes,
    changed: bytes,
    inputs: InputsSpec | None = None,
    verify: VerifySpec | None = None,
    promise: Parity = Parity.CLOSE,
) -> tuple[Verdict, list[str], list[dict[str, Any]]]:
    """Compare any two models: the verdict, the differences of their signatures, the bindings used."""
    import onnx

    verifier = Verifier(original, inputs, verify)
    try:
        verdict = verifier.verify(changed, promise)
        before = signature(onnx.load_model_from_string(original))
        after = signature(onnx.load_model_from_string(changed))
        return verdict, before.differences(after), verifier.bindings
    finally:
        verifier.close()


def _failure(outcome: Outcome, runs: Sequence[Run]) -> Verdict | None:
    """Give the verdict for a changed model that does not run where the original does."""
    if outcome.crash is not None:
        return Verdict("different", message=f"the changed model fails where the original runs: {outcome.crash.what}")
    if outcome.unsupported is not None:
        return Verdict("unverified", NOT_RUN, message=outcome.unsupported)
    if outcome.invalid is not None:
        return Verdict("different", message=f"the runtime refuses the changed model: {outcome.invalid}")
    for run, result in zip(runs, outcome.runs):
        if isinstance(result, str):
            return Verdict(
                "different", message=f"the changed model fails where the original runs: {result}{_describe(run)}"
            )
    return None


def _describe(run: Run) -> str:
    dims = ", ".join(f"{name}={extent}" for name, extent in run.binding.dims.items())
    return f" ({dims + ', ' if dims else ''}{run.binding.character} data)"


def _names(names: frozenset[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _count(runs: Sequence[Run]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"
