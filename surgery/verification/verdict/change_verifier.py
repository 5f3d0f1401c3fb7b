"""Verdicts on changes of models: by the regions that changed, or by the whole models."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.base.operators.forms import plain_domain
from surgery.base.promises import Parity
from surgery.verification.accuracy.loss_evaluation import Evaluation
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.time_budget import COSTLY
from surgery.verification.verdict.failing_models import failure_of
from surgery.verification.verdict.whole_models import WholeModels, digest

if TYPE_CHECKING:
    from surgery.verification.regions.regional_verdict import ComparedRegions, Regional

REGION_NODE = 1.5e-4
"""Seconds per node of a model for finding the regions of a change."""

_CHEAP_REGION, _WORTH = 0.2, 0.75
"""Seconds that the regions of a change may always take, and the share of the whole model's seconds they may take."""


class ChangeVerifier:
    """Verifies changes of models against one original, in the region of a change where that is enough.

    `whole` compares the whole models. One thread at a time compares regions.
    """

    def __init__(
        self,
        original: ReferenceRun,
        judge: OutputJudge,
        accuracy: Evaluation,
        verify: VerifySpec,
        overriding: Callable[[bytes, Parity], Verdict] | None,
        note: str,
    ) -> None:
        self._original = original
        self._accuracy = accuracy
        self._verify = verify
        self._lock = threading.Lock()
        self._regional: Regional | None = None
        self._compared: dict[Hashable, ComparedRegions] = {}
        self.whole = WholeModels(original, judge, verify, overriding, self.rest, note)

    def verify(
        self, candidate: bytes, promise: Parity, before: bytes | None, later: tuple[int, bytes] | None
    ) -> Verdict:
        """Return the verdict on a changed model, see `Verifier.verify`."""
        if candidate == self._original.skeleton:
            return Verdict(Status.EQUAL, message="the same bytes")
        if promise is Parity.LOSSY:
            self.prepare_whole()
            return self._accuracy.judge(candidate)
        if before is None:
            return self.whole.verify(candidate, promise)
        change = before, candidate, promise
        found = self._compared.pop(digest(*change), None) or self._compare_affordable(*change)
        if found.verdict.passed:
            return self._refused(candidate, found) or found.verdict
        self.prepare_whole()
        whole = self._verify_together(later, promise) or self.whole.verify(candidate, promise)
        if found.verdict.reason == COSTLY:
            verdict = self._with_hidden(whole, *change, found)
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
        return self._with_hidden(whole, *change, found)

    def _affords(self, before: bytes) -> float:
        """Return the seconds that the regions of a change may take; 0 if searching for them takes too long."""
        if self._original.problem is not None:
            return math.inf
        original = self._original
        left = min(1.0, len(before) / len(original.skeleton))
        afford = max(_CHEAP_REGION, _WORTH * original.cost_of_all(left))
        return afford if original.inputs.plan.nodes * left * REGION_NODE < afford else 0.0

    def compare_ahead(self, before: bytes, candidate: bytes, promise: Parity) -> bool:
        """Compare the regions of a change that will be verified; return whether they decide."""
        change = before, candidate, promise
        found = self._compared[digest(*change)] = self._compare_affordable(*change)
        return found.verdict.passed

    def _compare_affordable(self, before: bytes, candidate: bytes, promise: Parity) -> ComparedRegions:
        """Compare the regions of a change if that takes less time than running the whole model."""
        from surgery.verification.regions.regional_verdict import ComparedRegions

        self._original.prepare()
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

        self._original.prepare()
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
        return failure_of(self.whole.run(candidate, original.engine), original.runs)

    def confirm(self, candidate: bytes, verdict: Verdict, promise: Parity) -> Verdict:
        """Compare the region of a change, too, given the verdict on the outputs of the whole model."""
        before = self._original.skeleton
        if verdict.is_different or candidate == before or promise is Parity.LOSSY:
            return verdict
        found = self.compare_regions(before, candidate, promise)
        region = found.verdict
        if region.passed:
            return verdict if verdict.passed else replace(region, message=f"{region.message}; {verdict.message}")
        if self._original.is_postponed:
            self.prepare_whole()
            verdict = self.whole.verify(candidate, promise)
        if verdict.is_unverified and region.reason != NOT_RUN:
            return replace(verdict, message=f"{verdict.message}; {region.message}")
        return self._with_hidden(verdict, before, candidate, promise, found)

    def look_inside(self, before: bytes, candidate: bytes, promise: Parity, verdict: Verdict) -> Verdict:
        """Compare the region of a change, because the agreeing outputs of the whole model prove nothing."""
        region = self.compare_regions(before, candidate, promise).verdict
        if region.passed:
            return replace(region, message=f"{region.message}; {verdict.message}", region=None)
        return replace(verdict, message=f"{verdict.message}; {region.message}")

    def _with_hidden(
        self, verdict: Verdict, before: bytes, candidate: bytes, promise: Parity, regions: ComparedRegions
    ) -> Verdict:
        """Return the verdict on the outputs, or `unverified` if they hide one of the values that differ inside."""
        if not verdict.passed or not regions.differing or self._original.random:
            return verdict
        from surgery.verification.regions.hidden_differences import hidden_differences

        found = hidden_differences(self._original, before, candidate, regions, promise, self._verify)
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
        verdict = self.whole.verify(model, promise)
        if not verdict.passed:
            return None
        return replace(verdict, together=steps, status=Status.CLOSE if promise is Parity.CLOSE else verdict.status)

    def prepare_whole(self) -> None:
        """Prepare for comparing whole models, in pieces if they do not fit into memory."""
        self._original.prepare()
        with self._lock:
            self._original.run_large()

    def rest(self) -> None:
        """End the processes that regions run in: a whole model takes more memory than its parts."""
        if self._regional is not None:
            self._regional.rest()

    def close(self) -> None:
        """Forget verdicts and outputs, and end the processes that regions run in."""
        self.whole.forget()
        self._compared.clear()
        if self._regional is not None:
            self._regional.close()


def _opsets(skeleton: bytes) -> dict[str, int]:
    """Return the versions of the operator sets of a model, by domain."""
    import onnx

    return {plain_domain(item.domain): item.version for item in onnx.load_model_from_string(skeleton).opset_import}
