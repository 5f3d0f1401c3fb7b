"""Find a cut of two versions of a model that reproduces the error of the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import SurgeryError
from surgery.base.promises import Parity
from surgery.features.bisection.cuts import MOST_NODES, Cut, Cutter, count_nodes
from surgery.features.bisection.probe import ProbedDifference, Prober
from surgery.features.bisection.shrink import shrink
from surgery.model import storage
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.runtime.setup import SessionSetup
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.recorded_values import record

if TYPE_CHECKING:
    import onnx

    from surgery.verification.verdict.verifier import Verifier

_MOST_PLACES = 256
_MOST_AT_ONCE = 16
"""Maximum number of places whose values are recorded in one run, since they are held in memory."""

_MOST_GROWN = 4
_INLINE = 512 << 20
"""Maximum size of weights, in bytes, of a cut that is loaded into memory and shrunk."""

_TIMEOUT = 30.0
"""Time limit for a run of a cut, in seconds."""


class NoRepro(Exception):  # noqa: N818 - an answer, not an error of its own
    """No cut shows the difference; the message gives the reason."""


@dataclass(frozen=True)
class Repro:
    """A cut and the difference that it shows. `weights` are those of the models; `setup` is the setup of the sessions.

    `timeout` is the time limit of a run, in seconds.
    """

    cut: Cut
    shown: ProbedDifference
    weights: storage.Weights
    promise: Parity
    timeout: float
    setup: SessionSetup

    @property
    def nodes(self) -> tuple[int, int]:
        """The number of nodes of each model of the cut."""
        return count_nodes(self.cut.original), count_nodes(self.cut.changed)


def make(
    verifier: Verifier,
    original: onnx.ModelProto,
    changed: onnx.ModelProto,
    weights: storage.Weights,
    *,
    promise: Parity = Parity.CLOSE,
    spec: VerifySpec | None = None,
) -> Repro:
    """Find a small cut in which the changed model is wrong on the inputs used to verify it.

    Raises `NoRepro` if there is none.
    """
    spec = spec or VerifySpec()
    if verifier.original.engine != "onnxruntime":
        raise NoRepro("the original runs in the reference evaluator only, not in ONNX Runtime")
    rules = ComparisonRules.of(spec, promise)
    search = _InputSearch(original, changed, weights, rules, spec)
    try:
        return search.run([run.feed for run in verifier.original.runs])
    except SurgeryError as error:
        raise NoRepro(str(error)) from error


class _InputSearch:
    def __init__(
        self,
        original: onnx.ModelProto,
        changed: onnx.ModelProto,
        weights: storage.Weights,
        rules: ComparisonRules,
        spec: VerifySpec,
    ) -> None:
        self.original = original
        self.changed = changed
        self.weights = weights
        self.rules = rules
        self.spec = spec
        self.size = max(external_bytes(original), external_bytes(changed))

    def run(self, feeds: Sequence[Mapping[str, Any]]) -> Repro:
        feed, whole = self._failing(feeds)
        timeout = min(self.spec.timeout, _TIMEOUT)
        with closing(self._prober(timeout)) as prober:
            cut, shown = self._place(feed, whole, prober)
            if external_bytes(cut.original) + external_bytes(cut.changed) <= _INLINE:
                original, changed = (storage.resolve(model, self.weights) for model in (cut.original, cut.changed))
                cut = replace(cut, original=original, changed=changed)
                if shown.kind != "hang":
                    cut, shown = shrink(cut, shown, _show(prober))
        return Repro(cut, shown, self.weights, self.rules.promise, timeout, self.spec.setup)

    def _failing(self, feeds: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ProbedDifference]:
        """Return the smallest inputs on which the whole changed model is wrong, with the difference."""
        with closing(self._prober(self.spec.timeout)) as prober:
            for feed in sorted(feeds, key=_extent):
                shown = prober.show(self.original, self.changed, feed)
                if shown is not None:
                    return feed, shown
        raise NoRepro("the difference does not appear when both are run again")

    def _place(self, feed: Mapping[str, Any], whole: ProbedDifference, prober: Prober) -> tuple[Cut, ProbedDifference]:
        """Return the smallest cut that fails like the whole model."""
        cutter = Cutter(self.original, self.changed, feed, lambda model, names: self._record(model, feed, names))
        best: tuple[Cut, ProbedDifference] | None = None
        for cut in _cuts(cutter):
            if best is not None and cut.size >= best[0].size:
                continue
            shown = _show(prober)(cut)
            # If only the cut is refused or crashes, the cut itself may be at fault.
            if shown is not None and (shown.kind in ("values", whole.kind)):
                best = cut, shown
                if cut.size <= MOST_NODES:
                    break
        if best is None:
            raise NoRepro("the difference does not appear in any small part alone")
        return best

    def _record(self, model: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        return record(
            model.SerializeToString(),
            feed,
            names,
            timeout=self.spec.timeout,
            memory=self.spec.memory,
            setup=self.spec.setup,
        )

    def _prober(self, timeout: float) -> Prober:
        return Prober(self.rules, timeout, self.spec.memory, self.size, self.spec.setup)


def _cuts(cutter: Cutter) -> Iterator[Cut]:
    """Yield the smallest cut at each place, then larger ones at the first places."""
    outputs = cutter.outputs()[:_MOST_PLACES]
    for start in range(0, len(outputs), _MOST_AT_ONCE):
        batch = outputs[start : start + _MOST_AT_ONCE]
        cutter.prepare(batch)
        for output in batch:
            cut = cutter.smallest(output)
            if cut is not None:
                yield cut
    for output in outputs[:_MOST_GROWN]:
        yield from cutter.larger(output)


def _show(prober: Prober) -> Callable[[Cut], ProbedDifference | None]:
    return lambda cut: prober.show(cut.original, cut.changed, cut.feed)


def _extent(feed: Mapping[str, Any]) -> int:
    """Count the elements of inputs; those of a sequence are added up."""
    return sum(
        item.size
        for value in feed.values()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    )
