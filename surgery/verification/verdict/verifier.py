"""The verdict: whether a changed model computes the same as the original.

Both run in the same engine on the same inputs, and their outputs are compared by name. Control runs come first, so that
a change is not blamed for behavior of the original.

Outputs that prove nothing are reported as such: `vacuity` defines when an output counts. Before an output is called
vacuous, more runs with other data try to move it. A vacuous output that differs is a difference like any other. For one
that is equal, `intermediate` looks for values inside the models that prove something; without them the verdict is
`unverified`, whatever the pass promised. If all bits are equal, the stricter criterion of EXACT decides what counts as
moving, also under a CLOSE promise.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from surgery.base.operators.cost import REGION_NODE
from surgery.base.operators.forms import plain_domain
from surgery.base.promises import Parity
from surgery.model.runtime.engine import FEW_WEIGHTS, Engine, EngineName, RunOutcome
from surgery.verification.accuracy.loss_evaluation import Evaluation, Loss
from surgery.verification.accuracy.samples import CALIBRATION_SEED, Samples, samples
from surgery.verification.comparing.deployment import Deployed, DeploymentCheck
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.observed_shapes import Seen, seen
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run, misdeclared
from surgery.verification.inputs.defaults import overridable, without_defaults
from surgery.verification.inputs.given import without_given_sets
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.regions.time_budget import COSTLY
from surgery.verification.running.pieces import too_much
from surgery.verification.verdict.equal_draws import EqualDraws
from surgery.verification.verdict.failing_models import failure_of
from surgery.verification.verdict.whole_models import WholeModels, digest

if TYPE_CHECKING:
    from surgery.verification.regions.regional_verdict import ComparedRegions, Regional

__all__ = ["Verdict", "Verifier"]

_CHEAP_REGION, _WORTH = 0.2, 0.75
"""Seconds that the regions of a change may always take, and the share of the whole model's seconds they may take."""


class Verifier:
    """Verifies changed models against one original.

    The facts about the original (legal inputs, reference outputs, control runs) are determined once, by `prepare` or
    the first `verify`. Models are skeletons as bytes. Random operators draw the same numbers in both models where that
    is possible, unless not `seeded`.
    """

    def __init__(
        self,
        original: bytes,
        inputs: InputsSpec | None = None,
        verify: VerifySpec | None = None,
        *,
        seeded: bool = True,
    ) -> None:
        self._verify = verify or VerifySpec()
        self._draws = EqualDraws.of(original) if seeded else None
        self._accepted: bytes | None = None
        self._apart: set[bytes] = set()
        self._unseeded = partial(Verifier, original, inputs, verify, seeded=False)
        original = self._seeded(original)
        self._original = ReferenceRun(original, inputs or InputsSpec(), self._verify)
        self._judge = OutputJudge(self._original)
        self.accuracy = Evaluation(self._original, self._verify.accuracy)
        self._compared: dict[Hashable, ComparedRegions] = {}
        self._lock = threading.Lock()
        self._regional: Regional | None = None
        self._deployments: dict[str, DeploymentCheck] = {}
        self._overridable = overridable(original)
        self._overriding: Verifier | None = None
        self._inputs = inputs or InputsSpec()
        if self._overridable and (drawn := without_given_sets(self._inputs)) is not None:
            self._overriding = Verifier(without_defaults(original, self._overridable), drawn, verify)
        note = ""
        if self._draws is not None:
            self._original.drawn, note = self._draws.outputs, self._draws.note
        override = None if self._overriding is None else self._override
        self._whole = WholeModels(self._original, self._judge, self._verify, override, self._rest, note)

    @cached_property
    def _by_distribution(self) -> Verifier:
        """The verifier of models that draw in another way."""
        found = self._unseeded()
        if self._accepted is not None:
            found.accept(self._accepted)
        return found

    def _is_apart(self, model: bytes) -> bool:
        return bool(self._apart) and hashlib.sha256(model).digest() in self._apart

    def _seeded(self, model: bytes) -> bytes:
        return model if self._draws is None else self._draws.seeded(model)

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """The inputs used, for the report: dims, character and seed; with `refused` for rejected ones."""
        return self._original.bindings

    @property
    def runs(self) -> Sequence[Run]:
        """The inputs used and the original's outputs for them, once there are any."""
        return self._original.runs

    def misdeclared(self) -> frozenset[str]:
        """Run the original; return the outputs whose declared shapes differ from those that it computes."""
        self.prepare()
        return misdeclared(self._original.skeleton, self.runs)

    @property
    def problem(self) -> str | None:
        """Why the original cannot be run; known after the preparation."""
        return self._original.problem

    @property
    def rejection(self) -> tuple[str, bool] | None:
        """Why the original failed on every input, see `ReferenceRun`; known after the preparation."""
        return self._original.rejection

    @property
    def spec(self) -> VerifySpec:
        """How strictly it verifies."""
        return self._verify

    @property
    def gap(self) -> str:
        """What ONNX Runtime lacks to run the original, if anything."""
        return self._original.gap

    @property
    def given(self) -> tuple[DataSpec, ...]:
        """The given sets of inputs, as arrays."""
        return self._original.given

    @cached_property
    def calibration(self) -> Samples:
        """The inputs that passes calibrate with, under the names of the original."""
        self._prepare_whole()
        return samples(self._original, self._inputs.calibration, CALIBRATION_SEED)

    def seen(self, changed: bytes = b"", names: Sequence[str] = ()) -> Sequence[Seen]:
        """Return the shapes of values in runs of the original, or of some values of a changed model in such runs."""
        return seen(self._original, self._seeded(changed) if changed else changed, names)

    @property
    def engine(self) -> EngineName:
        """The engine that runs the original."""
        return self._original.engine

    def begin(self) -> None:
        """Start the preparation in parallel with other work."""
        self._original.begin()

    def join(self) -> None:
        """Wait until the parallel preparation has ended."""
        self._original.join()

    def prepare(self) -> None:
        """Find legal inputs and run the original on them, with control runs, unless it does not fit into memory."""
        self._original.prepare()

    def _prepare_whole(self) -> None:
        """Prepare for comparing whole models, in pieces if they do not fit into memory."""
        self.prepare()
        with self._lock:
            self._original.run_large()

    def measure(self, candidate: bytes, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        """Measure the loss of a changed model, see `Evaluation.measure`."""
        self._prepare_whole()
        return self.accuracy.measure(self._seeded(candidate), optimized=optimized, sets=sets)

    def verify(
        self,
        candidate: bytes,
        promise: Parity = Parity.CLOSE,
        before: bytes | None = None,
        later: tuple[int, bytes] | None = None,
    ) -> Verdict:
        """Return whether a changed model keeps what its pass promised.

        `before` is the verified model that it was made from. If the two agree in the region of the change, that is
        enough; else the whole model is compared with the original. A promise of identical bits is then checked against
        the model that was accepted last, if any: after a step that rounds differently, nothing can be bit-identical to
        the original, and models must be close to it instead. A LOSSY promise is checked against the accuracy budget.

        `later` is the model after some more steps, with the number of these steps. If it holds as a whole, the
        candidate is not run.
        """
        if self._draws is None:
            return self._verify_change(candidate, promise, before, later)
        older = before if before is None else self._seeded(before)
        newer = later if later is None else (later[0], self._seeded(later[1]))
        verdict = self._draws.judge(candidate, promise, lambda model: self._verify_change(model, promise, older, newer))
        if verdict is not None:
            return verdict
        self._apart.add(hashlib.sha256(candidate).digest())
        return self._by_distribution.verify(candidate, promise, before, later)

    def _verify_change(
        self, candidate: bytes, promise: Parity, before: bytes | None, later: tuple[int, bytes] | None
    ) -> Verdict:
        if candidate == self._original.skeleton:
            return Verdict(Status.EQUAL, message="the same bytes")
        if promise is Parity.LOSSY:
            self._prepare_whole()
            return self.accuracy.judge(candidate)
        if before is None:
            return self._whole.verify(candidate, promise)
        change = before, candidate, promise
        found = self._compared.pop(digest(*change), None) or self._compare_affordable(*change)
        if found.verdict.passed:
            return self._refused(candidate, found) or found.verdict
        self._prepare_whole()
        whole = self._verify_together(later, promise) or self._whole.verify(candidate, promise)
        if found.verdict.reason == COSTLY:
            verdict = self._with_hidden(whole, *change, found.differing)
            if not verdict.is_unverified:
                return verdict
            refused = self._refused(candidate, found)
            if refused is not None:
                return refused  # whatever the regions show
            found = self.compare_regions(*change)
            if found.verdict.passed:
                return self._refused(candidate, found) or found.verdict
        if whole.is_unverified and found.verdict.reason != NOT_RUN:
            return replace(whole, message=f"{whole.message}; {found.verdict.message}")
        return self._with_hidden(whole, *change, found.differing)

    def _affords(self, before: bytes) -> float:
        """Return the seconds that the regions of a change may take; 0 if searching for them takes too long."""
        if self.problem is not None:
            return math.inf
        original = self._original
        left = min(1.0, len(before) / len(original.skeleton))
        afford = max(_CHEAP_REGION, _WORTH * original.cost_of_all(left))
        return afford if original.nodes * left * REGION_NODE < afford else 0.0

    def compare_ahead(self, before: bytes, candidate: bytes, promise: Parity) -> bool:
        """Compare the regions of a change that will be verified; return whether they decide."""
        change = self._seeded(before), self._seeded(candidate), promise
        found = self._compared[digest(*change)] = self._compare_affordable(*change)
        return found.verdict.passed

    def _compare_affordable(self, before: bytes, candidate: bytes, promise: Parity) -> ComparedRegions:
        """Compare the regions of a change if that takes less time than running the whole model."""
        from surgery.verification.regions.regional_verdict import ComparedRegions

        self.prepare()
        afford = self._affords(before)
        if afford > 0.0:
            return self.compare_regions(before, candidate, promise, afford)
        message = "searching for regions takes longer than running the model"
        verdict = Verdict(Status.UNVERIFIED, COSTLY, message=message)
        return ComparedRegions(verdict, changed_opsets=_opsets(before) != _opsets(candidate))

    def compare_regions(
        self, before: bytes, candidate: bytes, promise: Parity = Parity.CLOSE, afford: float = math.inf
    ) -> ComparedRegions:
        """Compare a changed model with the model it was made from where they differ, see `regional_verdict`."""
        from surgery.verification.regions.regional_verdict import Regional

        self.prepare()
        with self._lock:
            self._regional = self._regional or Regional(self._original, self._verify)
            return self._regional.compare(before, candidate, promise, afford)

    def _refused(self, candidate: bytes, found: ComparedRegions) -> Verdict | None:
        """Return the verdict on an agreeing model with other opsets that the runtime rejects as a whole, else None.

        The kernel of a node may depend on the opset of the model, although its operator is the same in both: if there
        is no kernel, ONNX Runtime decomposes the operator, but not for every opset.
        """
        original = self._original
        if not found.changed_opsets or not original.runs:
            return None
        return failure_of(self._whole.run(candidate, original.engine), original.runs)

    def is_original(self, candidate: bytes) -> bool:
        """Return whether a model is the original itself."""
        return self._seeded(candidate) == self._original.skeleton

    def deploy(self, candidate: bytes, *, target: str = "", with_original: bool = False) -> Deployed:
        """Run a changed model with the default options of ONNX Runtime, and compare its outputs with the original's.

        `target` is the execution provider or the other runtime that the model is made for, on which it runs where that
        is installed and starts.

        The executed nodes of the original are counted only if it is small, or `with_original`: running it, too,
        takes as much time and memory.
        """
        self.prepare()
        if self._draws is not None and (target or self._is_apart(candidate)):
            # Other providers and runtimes draw other numbers with the same seed.
            return self._by_distribution.deploy(candidate, target=target, with_original=with_original)
        candidate = self._seeded(candidate)
        weights = self._original.weights
        if not self._original.holds(weights):
            return Deployed(Verdict(Status.UNVERIFIED, NOT_RUN, message=too_much(weights, self._verify.memory)))
        self._rest()
        deployment = self.deployment(target)
        found = deployment.check(candidate)
        is_light = weights + self._original.listed <= FEW_WEIGHTS
        return deployment.with_original(found) if with_original or is_light else found

    def deployment(self, target: str = "") -> DeploymentCheck:
        """Return the check of changed models as deployed, on an execution provider or in another runtime."""
        if target not in self._deployments:
            self._deployments[target] = DeploymentCheck(self._original, self._judge, target)
        return self._deployments[target]

    def confirm(self, candidate: bytes, verdict: Verdict, promise: Parity = Parity.CLOSE) -> Verdict:
        """Compare the region of a change, too, given the verdict on the outputs of the whole model.

        The region may show what the outputs cannot; if the outputs hide a difference, the verdict is `unverified`.
        """
        if self._is_apart(candidate):
            return self._by_distribution.confirm(candidate, verdict, promise)
        candidate = self._seeded(candidate)
        if verdict.is_different or candidate == self._original.skeleton or promise is Parity.LOSSY:
            return verdict
        before = self._original.skeleton
        found = self.compare_regions(before, candidate, promise)
        region = found.verdict
        if region.passed:
            return verdict if verdict.passed else replace(region, message=f"{region.message}; {verdict.message}")
        if self._original.is_postponed:
            self._prepare_whole()
            verdict = self._whole.verify(candidate, promise)
        if verdict.is_unverified and region.reason != NOT_RUN:
            return replace(verdict, message=f"{verdict.message}; {region.message}")
        return self._with_hidden(verdict, before, candidate, promise, found.differing)

    def look_inside(self, before: bytes, candidate: bytes, promise: Parity, verdict: Verdict) -> Verdict:
        """Compare the region of a change to the verified model `before`, because agreeing outputs prove nothing.

        The whole model was compared, so the verdict counts as a verdict on the whole.
        """
        if self._is_apart(candidate):
            return self._by_distribution.look_inside(before, candidate, promise, verdict)
        region = self.compare_regions(self._seeded(before), self._seeded(candidate), promise).verdict
        if region.passed:
            return replace(region, message=f"{region.message}; {verdict.message}", region=None)
        return replace(verdict, message=f"{verdict.message}; {region.message}")

    def _with_hidden(
        self, verdict: Verdict, before: bytes, candidate: bytes, promise: Parity, differing: Sequence[str]
    ) -> Verdict:
        """Return the verdict on the outputs, or `unverified` if they hide one of the values that differ inside."""
        if not verdict.passed or not differing or self._original.random:
            return verdict
        from surgery.verification.regions.hidden_differences import hidden_differences

        found = hidden_differences(self._original, before, candidate, differing, promise, self._verify)
        if not found:
            return verdict
        message = f"{verdict.message}; but {found}"
        return replace(verdict, status=Status.UNVERIFIED, reason=VACUOUS, needed=None, message=message)

    def _verify_together(self, later: tuple[int, bytes] | None, promise: Parity) -> Verdict | None:
        """Return the verdict on the model after more steps; None if it does not hold.

        The last of several models that round differently may have the bits of the original; that shows only that the
        others are close.
        """
        if later is None:
            return None
        steps, model = later
        verdict = self._whole.verify(model, promise)
        if not verdict.passed:
            return None
        return replace(verdict, together=steps, status=Status.CLOSE if promise is Parity.CLOSE else verdict.status)

    def judge(self, run: Callable[[Sequence[Run], Callable[[], Engine]], RunOutcome], promise: Parity) -> Verdict:
        """Compare outputs that `run` computes, for the runs of the original, by other means than one model."""
        return self._whole.judge(run, promise)

    def run(self, feeds: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any] | str]:
        """Run the original on other inputs; return its outputs, or why it rejects the inputs."""
        self.prepare()
        engine = self._original.engine_for(self.engine)
        try:
            outcome = engine.run(self._original.skeleton, feeds)
        finally:
            engine.close()
        return outcome.runs if outcome.failure is None else [outcome.failure] * len(feeds)

    def accept(self, candidate: bytes) -> None:
        """Accept a verified model as the one that later exact steps must equal bit by bit."""
        self._accepted = candidate
        self._whole.accepted = accepted = self._seeded(candidate)
        if self._overriding is not None:
            self._overriding.accept(without_defaults(accepted, self._overridable))
        if "_by_distribution" in vars(self):
            self._by_distribution.accept(candidate)

    def _rest(self) -> None:
        if self._regional is not None:
            self._regional.rest()  # the whole model takes more memory than its parts

    def _override(self, candidate: bytes, promise: Parity) -> Verdict:
        """Verify a changed model with explicit values for the inputs that have a default."""
        assert self._overriding is not None
        return self._overriding.verify(without_defaults(candidate, self._overridable), promise)

    def close(self) -> None:
        """Forget the reference outputs, and stop the processes that prepare them in parallel."""
        self._original.abandon()
        self.accuracy.close()
        self._original.runs = []
        self._whole.forget()
        self._compared.clear()
        if self._regional is not None:
            self._regional.close()
        if self._overriding is not None:
            self._overriding.close()
        if "_by_distribution" in vars(self):
            self._by_distribution.close()


def _opsets(skeleton: bytes) -> dict[str, int]:
    """Return the versions of the operator sets of a model, by domain."""
    import onnx

    return {plain_domain(item.domain): item.version for item in onnx.load_model_from_string(skeleton).opset_import}
