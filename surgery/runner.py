"""One pass as a transaction, and the chain of them that a recipe describes.

A pass works on the live graph. Its result is serialized without weights; when that is what it was before, nothing
happened. Otherwise the result is checked, its signature compared, and its outputs compared with those of the
original model. It is committed when all hold, else the graph is taken back to the last committed state.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery import storage
from surgery.delta import GaveUp, Search
from surgery.errors import ExpectationError, ModelFileError, PassError, RecipeError, SurgeryError, UsageError
from surgery.expectations import comparisons, expectations
from surgery.graph import Graph, Refused, Site
from surgery.parity import Parity
from surgery.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep, VerifySpec, When
from surgery.records import Expectation, Observer, RefusedSite, Result, Silent, Status, StepRecord
from surgery.summary import data_files, operators, opset, summarize
from surgery.transform import transform
from surgery.verify import Verdict, new_findings, signature, with_sets_beside
from surgery.verify.checks import CHECK_TIMEOUT, Checker
from surgery.verify.contract import Contract
from surgery.why import explained, why_so_few

if TYPE_CHECKING:
    import onnx

    from surgery.registry import Pass
    from surgery.verify import Verifier

__all__ = ["Attempt", "Chain", "Observer", "Result", "StepRecord", "apply", "run"]

_MOST_TOLD = 3
_MOST_ROUNDS = 100
"""`repeat: until-stable` gives up after this many rounds: two of its passes undo each other."""


@dataclass(frozen=True)
class Attempt:
    """What a pass made of the committed model, judged and not committed.

    `complaint` says what is wrong with it, or is empty; `exit_code` is then 1 for a negative verdict and 3 for a pass
    that broke. `proto` and `data` are the model without weights, as a message and serialized; without a result, `proto`
    is None. `renamed` says what inputs and outputs are called now.
    """

    step: PassStep
    proto: onnx.ModelProto | None = None
    data: bytes = b""
    changed: bool = False
    live: bool = False
    sites: tuple[Site, ...] = ()
    refusals: tuple[Refused, ...] = field(default=(), repr=False)
    verdict: Verdict | None = None
    complaint: str = ""
    exit_code: int = 0
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it may be committed."""
        return not self.complaint

    @property
    def applied(self) -> tuple[Site, ...]:
        """The sites that were not skipped."""
        return tuple(site for site in self.sites if not site.skipped)

    @property
    def is_wrong(self) -> bool:
        """Whether there is a changed model and it is wrong, rather than none or one that nothing is known of."""
        return bool(self.complaint) and self.changed and (self.verdict is None or self.verdict.status == "different")


class Abort(Exception):  # noqa: N818 - ends the chain, not an error of its own
    """A step failed and its recipe says that the run ends there."""


class Chain:
    """The committed state of a model, and the transactions that change it."""

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        observer: Observer | None = None,
        *,
        contained: bool = True,
    ) -> None:
        self.stored = stored
        self.spec: VerifySpec = recipe.verify
        self.observer = observer or Silent()
        self.contained = contained
        self.records: list[StepRecord] = []
        self.expectations: list[Expectation] = []
        self.original = stored.proto.SerializeToString(deterministic=True)
        self._load(stored.proto)
        ring = self.graph.cycle()
        if ring is not None:
            where = str(stored.path) if stored.path is not None else "the model in memory"
            raise ModelFileError(f"nodes read each other in a ring: {ring}", where=where, todo="nothing can run it")
        self._commit(storage.proto_from_ir(self.graph.ir, stored.weights))
        self._unchanged = self._bytes
        self._running = ""
        # Attempts of standard passes that changed nothing: as long as the model is the same, so is what they do.
        self._settled: dict[tuple[Pass, str, frozenset[int]], Attempt] = {}
        self.failed: Attempt | None = None  # the last attempt that was not committed, for what it made was wrong
        self._findings: list[str] | None = None
        inputs = with_sets_beside(recipe.inputs, stored.path)
        self.contract = Contract(self.original, inputs, recipe.verify)
        self._checker = Checker(timeout=min(self.spec.timeout, CHECK_TIMEOUT), memory=self.spec.memory)

    def close(self) -> None:
        """End what runs beside this process, and forget what the original computed."""
        self._checker.close()
        self.contract.close()

    @property
    def verifier(self) -> Verifier:
        """What compares models with the original, as far as both have the same inputs and outputs."""
        return self.contract.verifier

    @property
    def proto(self) -> onnx.ModelProto:
        """The committed model, without weights; the very message that was read when nothing was committed."""
        return self.stored.proto if self._bytes == self._unchanged else self._proto

    def _commit(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._bytes = proto.SerializeToString(deterministic=True)
        self.ops = operators(proto)

    def _load(self, proto: onnx.ModelProto) -> None:
        """Make the live graph anew; `_touched` then tells whether a pass has worked on it since."""
        self.graph = Graph(storage.ir_from_proto(proto, self.stored.weights), weights=self.stored.weights)
        self._touched = False

    @property
    def nodes(self) -> int:
        """The number of nodes of the committed model."""
        return sum(self.ops.values())

    def run(self, steps: tuple[Step, ...]) -> bool:
        """Run steps in order; tell whether any of them was committed. `Abort` when one ends the run."""
        committed = False
        for step in steps:
            if not self._holds(step.when):
                if isinstance(step, PassStep):
                    self._record(self._skipped(step))
                continue
            match step:
                case PassStep():
                    committed |= self._pass(step).status == "committed"
                case RepeatStep():
                    committed |= self._repeat(step)
                case UseStep():
                    committed |= self.run(step.recipe.steps)
                    self.expect(step.recipe.expect, f"{step.recipe.name}: ")
        return committed

    def _repeat(self, step: RepeatStep) -> bool:
        committed = False
        for _ in range(step.times if step.times is not None else _MOST_ROUNDS):
            if not self.run(step.steps):
                return committed
            committed = True
        if step.times is None:
            raise PassError(
                f"still changing after {_MOST_ROUNDS} rounds",
                where=f"{step.path}:{step.line}",
                todo="two of the passes undo each other; take one out",
            )
        return committed

    def _holds(self, when: When | None) -> bool:
        if when is None:
            return True
        return all(met for _, met in comparisons(when.ops, when.nodes, when.opset, self.ops, opset(self._proto)))

    def _skipped(self, step: PassStep) -> StepRecord:
        return StepRecord(step.name, "skipped", self.nodes, self.nodes, message="its condition 'when' does not hold")

    def _record(self, record: StepRecord) -> StepRecord:
        self.records.append(record)
        self.observer.done(record)
        return record

    # One transaction

    def _pass(self, step: PassStep) -> StepRecord:
        started = time.perf_counter()
        before = self.nodes
        outcome = self._transact(step)
        status: Status = outcome.status
        if status == "failed" and step.on_failure in ("rollback", "bisect"):
            status = "rolled_back"
        record = self._record(
            replace(
                outcome,
                status=status,
                nodes_before=before,
                nodes_after=self.nodes,
                seconds=time.perf_counter() - started,
                where=f"{step.path}:{step.line}" if step.path else "",
            )
        )
        if status == "failed":
            raise Abort
        return record

    def _transact(self, step: PassStep) -> StepRecord:
        """Run one pass and commit what it made, or take it back; the record has no times and counts yet."""
        attempt = self.attempt(step)
        refused: tuple[RefusedSite, ...] = ()
        if attempt.is_wrong and step.on_failure == "bisect":
            attempt, refused = self._spare(attempt)
        record = StepRecord(
            step.name,
            "failed",
            0,
            0,
            sites=len(attempt.applied),
            refusals=attempt.refusals,
            verdict=attempt.verdict,
            message=attempt.complaint or _tell(refused) or _remark(attempt.verdict),
            exit_code=attempt.exit_code,
            refused_sites=refused,
        )
        if attempt.proto is None or not (attempt.ok or step.on_failure == "keep"):
            self.failed = attempt
            return record
        try:
            self._expect_of_step(step, attempt)
        except ExpectationError as error:
            self.verifier.join()  # to explain a pass is to run it, in a fork maybe
            why = why_so_few(step, len(attempt.applied), self._proto, self.stored.weights)
            return replace(record, message=explained(str(error), why), exit_code=1, why=why)
        if not attempt.changed:
            return replace(record, status="rolled_back" if refused else "unchanged")
        self.commit(attempt)
        return replace(record, status="committed", exit_code=0)

    def search(self, failed: Attempt) -> Search[Attempt]:
        """Prepare to search for the sites that make an attempt fail."""

        def attempt(skip: frozenset[int]) -> Attempt:
            self._running = f"bisect, run {search.runs}: "
            try:
                return self.attempt(failed.step, skip)
            finally:
                self._running = ""

        search = Search(attempt, failed)
        return search

    def _spare(self, failed: Attempt) -> tuple[Attempt, tuple[RefusedSite, ...]]:
        """Leave out the sites with which a step fails, and give what is left, to be committed."""
        try:
            guilty, rest = self.search(failed).guilty()
        except GaveUp as reason:
            return replace(failed, complaint=f"{failed.complaint}; not bisected: {reason}"), ()
        # The graph may have been worked on since.
        return replace(rest, live=False), tuple(
            RefusedSite(found.site.number, found.site.anchor, found.trial.complaint) for found in guilty
        )

    def attempt(self, step: PassStep, skip: frozenset[int] = frozenset()) -> Attempt:
        """Run one pass on the committed model, without the sites to `skip`, and judge what it made; commit nothing."""
        declared = step.find()
        key = (declared, repr(step.options), skip)
        seen = self._settled.get(key)
        if seen is not None and seen.data is self._bytes:
            return seen
        attempt = self._attempt(step, declared, skip)
        if declared.is_standard and not attempt.changed and attempt.ok:
            self._settled[key] = attempt
        return attempt

    def _attempt(self, step: PassStep, declared: Pass, skip: frozenset[int]) -> Attempt:
        if self._touched:
            self._load(self._proto)
        if declared.is_standard:
            self._prepare()
        else:
            # It runs in a fork, and a thread would be lost there, with the locks that it holds.
            self.verifier.join()
        self._stage(step.name, "pass")
        self._touched = True
        try:
            made = transform(
                declared,
                self.graph,
                declared.bind(step.options),
                skip=skip,
                contained=self.contained,
                timeout=self.spec.timeout,
                memory=self.spec.memory,
            )
        except SurgeryError as error:
            return Attempt(step, complaint=str(error), exit_code=3)
        if made.printed:
            self.observer.said(step.name, made.printed)
        data = self._bytes if made.proto is None else made.proto.SerializeToString(deterministic=True)
        changed = data != self._bytes
        self._touched = changed and made.live
        if changed:
            self._prepare()
        proto, data = (made.proto, data) if changed else (self._proto, self._bytes)
        attempt = Attempt(step, proto, data, changed, made.live, made.sites, made.refusals)
        if not changed or proto is None:
            return attempt
        attempt = replace(attempt, renamed=self.contract.names(proto, declared.changes, made.renamed))
        try:
            return self._judged(attempt, declared)
        except (RecipeError, UsageError):
            # The inputs or libraries to verify with are wrong, whatever the pass did.
            raise
        except SurgeryError as error:
            return replace(attempt, complaint=str(error), exit_code=error.exit_code)

    def _prepare(self) -> None:
        """Start to run the original beside the passes: what they change will be compared with it."""
        if self.spec.mode != "off":
            self.verifier.begin()

    def commit(self, attempt: Attempt) -> None:
        """Make what a pass made the state that the next pass works on. It must be the latest attempt if it is live."""
        assert attempt.proto is not None
        self._commit(attempt.proto)
        if attempt.live:
            self._touched = False
        else:
            self._load(attempt.proto)
        accepted = attempt.verdict is not None and attempt.verdict.status == "close"
        self.contract.adopt(attempt.proto, attempt.data, attempt.renamed, accepted=accepted)

    def _judged(self, attempt: Attempt, declared: Pass) -> Attempt:
        """Check a changed model in the order of cost: signature, checker, parity."""
        assert attempt.proto is not None
        name = attempt.step.name
        complaint = next(self._complaints(attempt, declared), "")
        verdict = None
        if not complaint and self.spec.mode == "each":
            self._stage(name, "parity")
            verdict = self.contract.verify(attempt.proto, attempt.data, declared.parity, attempt.renamed)
            complaint = self._complaint(verdict)
        return replace(attempt, verdict=verdict, complaint=complaint, exit_code=1 if complaint else 0)

    def _complaints(self, attempt: Attempt, declared: Pass) -> Iterator[str]:
        assert attempt.proto is not None
        found = self.contract.complaints(attempt.proto, declared.changes, attempt.renamed)
        yield from (f"signature: {item}" for item in found)
        self._stage(declared.name, "check")
        findings = self._checker.check(attempt.data)
        if findings and self._findings is None:
            self._findings = self._checker.check(self.original)
        yield from new_findings(self._findings or [], findings)

    def _stage(self, name: str, stage: str) -> None:
        self.observer.stage(name, self._running + stage)

    def _complaint(self, verdict: Verdict) -> str:
        if verdict.status == "different" or (verdict.status == "unverified" and self.spec.unverified == "refuse"):
            return verdict.message or verdict.reason or verdict.status
        return ""

    def finish(self) -> None:
        """Verify the end result when the recipe asks for that instead of each step."""
        if self.spec.mode != "end" or self.proto is self.stored.proto:
            return
        started = time.perf_counter()
        self.observer.stage("(end)", "parity")
        verdict = self.contract.verify(self._proto, self._bytes, Parity.CLOSE, {})
        complaint = self._complaint(verdict)
        self._record(
            StepRecord(
                "(end)",
                "failed" if complaint else "committed",
                self.nodes,
                self.nodes,
                verdict=verdict,
                seconds=time.perf_counter() - started,
                message=complaint or _remark(verdict),
                exit_code=1 if complaint else 0,
            )
        )

    # Expectations

    def expect(self, expected: Expect, prefix: str = "") -> None:
        """Note which expectations the committed model meets."""
        self.expectations += [
            Expectation(prefix + what, ok) for what, ok in expectations(expected, self.ops, opset(self._proto))
        ]
        if expected.signature is not None:
            same = not self.contract.first.differences(signature(self._proto))
            self.expectations.append(Expectation(f"{prefix}signature: unchanged", same))

    def _expect_of_step(self, step: PassStep, attempt: Attempt) -> None:
        if step.expect is None or attempt.proto is None:
            return
        found = [*expectations(step.expect, operators(attempt.proto), opset(attempt.proto), len(attempt.applied))]
        self.expectations += [Expectation(f"{step.name}: {what}", ok) for what, ok in found]
        failed = [what for what, ok in found if not ok]
        if failed:
            raise ExpectationError(f"expected {', '.join(failed)}")


def _tell(refused: tuple[RefusedSite, ...]) -> str:
    """Say which sites were left out, and no more than a few of them."""
    more = f"; and {len(refused) - _MOST_TOLD} more" if len(refused) > _MOST_TOLD else ""
    return "; ".join(str(site) for site in refused[:_MOST_TOLD]) + more


def _remark(verdict: Verdict | None) -> str:
    """What to say beside a verdict that let the step pass."""
    return (verdict.message or verdict.reason or "") if verdict is not None and verdict.status == "unverified" else ""


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often: a graph is very many objects, which stay, and a look goes over all."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    stored: storage.StoredModel, recipe: Recipe, *, observer: Observer | None = None, contained: bool = True
) -> Result:
    """Run a recipe over a loaded model. Nothing is written; see `Result.save`.

    Passes that are not standard ones run in a process of their own, unless `contained` is false.
    """
    started = time.perf_counter()
    with _rare_collections():
        chain = Chain(stored, recipe, observer, contained=contained)
    with closing(chain), _rare_collections():
        try:
            chain.run(recipe.steps)
            chain.finish()
        except Abort:
            pass
        else:
            chain.expect(recipe.expect)
        bindings = tuple(chain.verifier.bindings)
    files = data_files(stored.proto, stored.path) if stored.path is not None else []
    return Result(
        recipe=recipe.name,
        input=summarize(stored.proto, files),
        output=summarize(chain.proto),
        steps=tuple(chain.records),
        expectations=tuple(chain.expectations),
        bindings=bindings,
        seconds=time.perf_counter() - started,
        proto=chain.proto,
        stored=stored,
    )


def apply(
    model: str | Path | onnx.ModelProto,
    recipe: str | Path | Recipe,
    *,
    output: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    observer: Observer | None = None,
    layout: storage.Layout = "keep",
    contained: bool = True,
) -> Result:
    """Run a recipe over a model; write the result to `output` when all is well.

    `model` is a path or a message in memory, `recipe` a path, the name of a shipped recipe, or a loaded one.
    Raises a `SurgeryError` for bad input. A negative verdict is no exception: look at `Result.ok`.
    """
    from surgery import recipe as recipes

    loaded = recipe if isinstance(recipe, Recipe) else recipes.load(recipe, trust=trust)
    stored = storage.load(Path(model)) if isinstance(model, str | Path) else storage.from_proto(model)
    if output is not None:
        storage.check_target(Path(output), force=force)
    result = run(stored, loaded, observer=observer, contained=contained)
    if output is not None and result.ok:
        result = result.save(output, layout=layout, force=force)
    return result
