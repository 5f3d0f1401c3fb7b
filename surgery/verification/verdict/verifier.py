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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from surgery.base.promises import Parity
from surgery.model.runtime.engine import FEW_WEIGHTS, Engine, RunOutcome
from surgery.verification.accuracy.loss_evaluation import Evaluation, Loss
from surgery.verification.accuracy.measured_part import MeasuredPart
from surgery.verification.accuracy.samples import CALIBRATION_SEED, Samples, measured_on, samples
from surgery.verification.comparing.deployment import Deployed, DeploymentCheck
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.observed_shapes import Seen, seen
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run, misdeclared
from surgery.verification.inputs.defaults import overridable, without_defaults
from surgery.verification.inputs.given import without_given_sets
from surgery.verification.inputs.search import Found
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.running.pieces import too_much
from surgery.verification.verdict.change_verifier import ChangeVerifier
from surgery.verification.verdict.equal_draws import EqualDraws


class Verifier:
    """Verifies changed models against one original.

    The facts about the `original` (legal inputs, reference outputs, control runs) are determined once, by its `prepare`
    or the first `verify`; `changes` judges models. Models are skeletons as bytes. Random operators draw the same
    numbers in both models where that is possible, unless not `seeded`. For `found`, see `ReferenceRun`.
    """

    def __init__(
        self,
        original: bytes,
        inputs: InputsSpec | None = None,
        verify: VerifySpec | None = None,
        *,
        seeded: bool = True,
        found: Found | None = None,
    ) -> None:
        self.spec = verify or VerifySpec()
        self._draws = EqualDraws.of(original) if seeded else None
        self._accepted: bytes | None = None
        self._apart: set[bytes] = set()
        self._unseeded = partial(Verifier, original, inputs, verify, seeded=False)
        self._unsplit = original
        original = self._seeded(original)
        self.original = ReferenceRun(original, inputs or InputsSpec(), self.spec, found=found)
        self._judge = OutputJudge(self.original)
        accuracy = measured_on(self.spec.accuracy, inputs or InputsSpec())
        self.accuracy = Evaluation(self.original, accuracy, calibrated=accuracy is not self.spec.accuracy)
        self._deployments: dict[str, DeploymentCheck] = {}
        self._overridable = overridable(original)
        self._overriding: Verifier | None = None
        self._inputs = inputs or InputsSpec()
        if self._overridable and (drawn := without_given_sets(self._inputs)) is not None:
            self._overriding = Verifier(without_defaults(original, self._overridable), drawn, verify)
        note = ""
        if self._draws is not None:
            self.original.drawn, note = self._draws.outputs, self._draws.note
        override = None if self._overriding is None else self._override
        self.changes = ChangeVerifier(self.original, self._judge, self.accuracy, self.spec, override, note)

    @cached_property
    def _by_distribution(self) -> Verifier:
        """The verifier of models that draw in another way."""
        found = self._unseeded()
        if self._accepted is not None:
            found.accept(self._accepted)
        return found

    @cached_property
    def part(self) -> MeasuredVerifier | None:
        """The part in which losses are measured, if custom operators keep the original from running; else None.

        The user's metric takes the outputs of the whole model, so it cannot be measured on a part.
        """
        self.changes.prepare_whole()
        if self.original.problem is None or self.spec.accuracy.metric is not None:
            return None
        part = MeasuredPart.of(self._unsplit)
        if part is None:
            return None
        inputs = replace(self._inputs, data=part.data(self.original.given))
        return MeasuredVerifier(part, Verifier(part.skeleton, inputs, self.spec))

    def _is_apart(self, model: bytes) -> bool:
        return bool(self._apart) and hashlib.sha256(model).digest() in self._apart

    def _seeded(self, model: bytes) -> bytes:
        return model if self._draws is None else self._draws.seeded(model)

    def misdeclared(self) -> frozenset[str]:
        """Run the original; return the outputs whose declared shapes differ from those that it computes."""
        self.original.prepare()
        return misdeclared(self.original.skeleton, self.original.runs)

    @cached_property
    def calibration(self) -> Samples:
        """The inputs that passes calibrate with, under the names of the original."""
        if self.part is not None:
            return self.part.verifier.calibration
        return samples(self.original, self._inputs.calibration, CALIBRATION_SEED)

    def seen(self, changed: bytes = b"", names: Sequence[str] = ()) -> Sequence[Seen]:
        """Return the shapes of values in runs of the original, or of some values of a changed model in such runs."""
        return seen(self.original, lambda: self._seeing, self._seeded(changed) if changed else changed, names)

    @cached_property
    def _seeing(self) -> Engine:
        """The worker in which shapes are looked at, often and briefly: it would start anew each time."""
        return self.original.engine_for(self.original.engine)

    def _rest(self) -> None:
        """End the processes that parts of models run in: a whole model takes more memory."""
        self.changes.rest()
        if "_seeing" in vars(self):
            self._seeing.close()

    def measure(self, candidate: bytes, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        """Measure the loss of a changed model, see `Evaluation.measure`."""
        if self.part is not None:
            return self.part.measure(candidate, optimized=optimized, sets=sets)
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
        if promise is Parity.LOSSY and self.part is not None:
            return self.part.verify(candidate)
        if self._draws is None:
            return self.changes.verify(candidate, promise, before, later)
        # The models draw the same random numbers if their draws can be paired; then equality is meaningful.
        older = before if before is None else self._seeded(before)
        newer = later if later is None else (later[0], self._seeded(later[1]))
        verdict = self._draws.judge(candidate, promise, lambda model: self.changes.verify(model, promise, older, newer))
        if verdict is not None:
            return verdict
        # The draws cannot be paired, so single elements say nothing: the distributions of the outputs are compared.
        self._apart.add(hashlib.sha256(candidate).digest())
        return self._by_distribution.verify(candidate, promise, before, later)

    def compare_ahead(self, before: bytes, candidate: bytes, promise: Parity) -> bool:
        """Compare the regions of a change that will be verified; return whether they decide."""
        return self.changes.compare_ahead(self._seeded(before), self._seeded(candidate), promise)

    def is_original(self, candidate: bytes) -> bool:
        """Return whether a model is the original itself."""
        return self._seeded(candidate) == self.original.skeleton

    def deploy_ahead(self) -> None:
        """Start to run the original for `deploy` without a target, if that will run it."""
        self.original.prepare()
        if self.spec.deployment != "off" and self._draws is None and self._is_light and self.original.problem is None:
            self.deployment().begin()

    @property
    def _is_light(self) -> bool:
        """Whether the original takes so little memory that it runs as deployed, too, to count its executed nodes."""
        return self.original.weights + self.original.inputs.plan.listed <= FEW_WEIGHTS

    def deploy(self, candidate: bytes, *, target: str = "", with_original: bool = False) -> Deployed:
        """Run a changed model with the default options of ONNX Runtime, and compare its outputs with the original's.

        `target` is the execution provider or the other runtime that the model is made for, on which it runs where that
        is installed and starts.

        The executed nodes of the original are counted only if it is small, or `with_original`: running it, too,
        takes as much time and memory.
        """
        self.original.prepare()
        if self._draws is not None and (target or self._is_apart(candidate)):
            # Other providers and runtimes draw other numbers with the same seed.
            return self._by_distribution.deploy(candidate, target=target, with_original=with_original)
        candidate = self._seeded(candidate)
        weights = self.original.weights
        if not self.original.holds(weights):
            return Deployed(Verdict(Status.UNVERIFIED, NOT_RUN, message=too_much(weights, self.spec.memory)))
        self._rest()
        deployment = self.deployment(target)
        found = deployment.check(candidate)
        return deployment.with_original(found) if with_original or self._is_light else found

    def deployment(self, target: str = "") -> DeploymentCheck:
        """Return the check of changed models as deployed, on an execution provider or in another runtime."""
        if target not in self._deployments:
            self._deployments[target] = DeploymentCheck(self.original, self._judge, target)
        return self._deployments[target]

    def confirm(self, candidate: bytes, verdict: Verdict, promise: Parity = Parity.CLOSE) -> Verdict:
        """Compare the region of a change, too, given the verdict on the outputs of the whole model.

        The region may show what the outputs cannot; if the outputs hide a difference, the verdict is `unverified`.
        """
        if self._is_apart(candidate):
            return self._by_distribution.confirm(candidate, verdict, promise)
        return self.changes.confirm(self._seeded(candidate), verdict, promise)

    def look_inside(self, before: bytes, candidate: bytes, promise: Parity, verdict: Verdict) -> Verdict:
        """Compare the region of a change to the verified model `before`, because agreeing outputs prove nothing.

        The whole model was compared, so the verdict counts as a verdict on the whole.
        """
        if self._is_apart(candidate):
            return self._by_distribution.look_inside(before, candidate, promise, verdict)
        return self.changes.look_inside(self._seeded(before), self._seeded(candidate), promise, verdict)

    def judge(self, run: Callable[[Sequence[Run], Callable[[], Engine]], RunOutcome], promise: Parity) -> Verdict:
        """Compare outputs that `run` computes, for the runs of the original, by other means than one model."""
        return self.changes.whole.judge(run, promise)

    def run(self, feeds: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any] | str]:
        """Run the original on other inputs; return its outputs, or why it rejects the inputs."""
        self.original.prepare()
        engine = self.original.engine_for(self.original.engine)
        try:
            outcome = engine.run(self.original.skeleton, feeds)
        finally:
            engine.close()
        return outcome.runs if outcome.failure is None else [outcome.failure] * len(feeds)

    def accept(self, candidate: bytes) -> None:
        """Accept a verified model as the one that later exact steps must equal bit by bit."""
        self._accepted = candidate
        self.changes.whole.accepted = accepted = self._seeded(candidate)
        if self._overriding is not None:
            self._overriding.accept(without_defaults(accepted, self._overridable))
        if "_by_distribution" in vars(self):
            self._by_distribution.accept(candidate)

    def _override(self, candidate: bytes, promise: Parity) -> Verdict:
        """Verify a changed model with explicit values for the inputs that have a default."""
        assert self._overriding is not None
        return self._overriding.verify(without_defaults(candidate, self._overridable), promise)

    def close(self) -> None:
        """Forget the reference outputs, and stop the processes that prepare them in parallel."""
        self.original.abandon()
        for deployment in self._deployments.values():
            deployment.close()
        self._rest()
        self.accuracy.close()
        self.original.runs = []
        self.changes.close()
        if self._overriding is not None:
            self._overriding.close()
        if vars(self).get("part") is not None:
            vars(self)["part"].verifier.close()
        if "_by_distribution" in vars(self):
            self._by_distribution.close()


@dataclass(frozen=True)
class MeasuredVerifier:
    """Measures losses in the part of an original that runs without its custom operators."""

    part: MeasuredPart
    verifier: Verifier

    def verify(self, candidate: bytes) -> Verdict:
        """Return whether this part of a changed model stays within the accuracy budget."""
        changed = self.part.of_changed(candidate)
        if changed is None:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=self._lacking)
        found = self.verifier.verify(changed, Parity.LOSSY)
        details = found.details
        if details is None or details.accuracy is None:
            return found
        summary = f"{details.accuracy['summary']}, before {self.part.custom}"
        details = replace(details, accuracy={**details.accuracy, "summary": summary})
        return replace(found, message=f"{found.message}; {self.part.remark}", details=details)

    def measure(self, candidate: bytes, *, optimized: bool, sets: tuple[int, ...]) -> Loss:
        """Measure the loss in this part of a changed model."""
        changed = self.part.of_changed(candidate)
        if changed is None:
            return Loss({}, self._lacking)
        return self.verifier.measure(changed, optimized=optimized, sets=sets)

    @property
    def _lacking(self) -> str:
        return f"the changed model lacks an input of {self.part.custom}, where the loss is measured"
