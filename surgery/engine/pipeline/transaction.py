"""One step as a transaction: run a pass on the committed model, judge the candidate, commit it or roll it back.

A pass works on the live graph. Its result is serialized without weights; if the bytes are the same as before, the step
changed nothing. Otherwise the judge compares the signature, runs the checker, and compares outputs with those of the
original. The candidate is committed if all of these hold. With `on_failure: bisect`, the sites that make it fail are
left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from surgery.base.errors import ExpectationError, RaisedError, SurgeryError, first_few, internal, require_machine
from surgery.base.promises import COMPARING, Parity
from surgery.engine.bridges.except_selectors import (
    NothingExceptedError,
    excepted_nodes,
    left_alone,
    unmeasured_nodes,
)
from surgery.engine.bridges.run_pass import PassResult, run_pass
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.committed import CommittedModel
from surgery.engine.pipeline.delta_debugging import MOST_RUNS, Guilts, SearchLimit, SiteSearch
from surgery.engine.pipeline.expectations import answers, expectations, fits
from surgery.engine.pipeline.judging import Judge
from surgery.engine.pipeline.records import DEPLOYED, Expectation, Journal, RefusedSite, StepRecord, StepStatus
from surgery.engine.pipeline.sensitivity import Sensitivity, SiteChooser, costs_by_label
from surgery.engine.pipeline.site_choice import SiteChoice, chosen
from surgery.engine.pipeline.step_cache_interface import Judged, NoCache, StepCache
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph.state import CalibrationSource, Defect, Feed, Refused
from surgery.model.storage.summary import operators, opset
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import VerifySpec

_RUNS_UNVERIFIED = 16
"""Maximum number of runs in a search for the sites that cannot be verified: most often none of them can."""

_RUNS_EVALUATED = 8
"""Maximum number of runs of a search if the slow reference evaluator runs the model."""

_RUNS_BY_REGIONS = 8
"""The same if the whole model cannot be run, so that only sites verified in their region can be kept."""

_MOST_SPARED = 16
"""Maximum number of nodes that a pass is run again without, because it raised an exception there."""

_MOST_LISTED = 3


class RefusedEndError(Exception):
    """The end result is wrong as a whole or as deployed, although each step was accepted by itself."""

    def __init__(self, record: StepRecord) -> None:
        super().__init__(record.message)
        self.record = record


@dataclass(frozen=True)
class Workbench:
    """The state shared by the transactions of one run: the committed model, the judge and its spec, and the journal.

    With `contained`, non-standard passes run in a fork. `guilts` are the sites to avoid, `cache` has the outcomes of
    earlier runs, and `choice` says which other sites are left out, if any.
    """

    model: CommittedModel
    spec: VerifySpec
    judge: Judge
    journal: Journal
    guilts: Guilts
    contained: bool
    cache: StepCache
    choice: SiteChoice | None = None

    def check_deployed(self, original: State, *, with_original: bool = False) -> Deployed | None:
        """Run the committed model as deployed unless it is the original; return the result, or None.

        `with_original` runs the original, too, to count its nodes. Raises `RefusedEndError` if the model is wrong.
        """
        state, started = self.model.state, time.perf_counter()
        if "off" in (self.spec.deployment, self.spec.mode) or state.data == original.data:
            return None
        # Whether another runtime is installed, and which release, is not part of the keys of a cache.
        cache = NoCache() if self.model.target.runtime else self.cache
        known = cache.find_deployed(state)
        if known is not None and with_original and known.original is None:
            known = None
        found = known or self.judge.deploy(state, with_original=with_original)
        if known is None:
            cache.note_deployed(state, found)
        if found.ok:
            return found
        record = StepRecord(
            DEPLOYED,
            "rolled_back",
            state.nodes,
            state.nodes,
            verdict=found.verdict,
            seconds=time.perf_counter() - started,
            message=f"{found.verdict.message}; so the model was run as deployed after each step",
            exit_code=1,
            cached=known is not None,
        )
        if self.spec.deployment != "each":
            raise RefusedEndError(record)
        self.journal.record(replace(record, status="failed", message=found.verdict.message))
        return found

    def verify_committed(self, name: str) -> None:
        """Verify the committed model as a whole if the judge requires it, and record the result under a name.

        Raises `RefusedEndError` if it does not hold.
        """
        state, started = self.model.state, time.perf_counter()
        if not self.judge.is_open(state):
            return
        known = self.cache.find_whole(name, state)
        verdict = known or self.judge.verify_whole(state, name)
        self.cache.note_whole(name, state, verdict)
        found = self.judge.conclude_whole(replace(verdict, cached=known is not None))
        if found is None:
            return
        verdict, complaint = found
        record = StepRecord(
            name,
            "rolled_back" if complaint else "committed",
            state.nodes,
            state.nodes,
            verdict=verdict,
            seconds=time.perf_counter() - started,
            message=f"{complaint}; so each step was verified" if complaint else _remark(verdict),
            exit_code=1 if complaint else 0,
            cached=known is not None,
        )
        if complaint:
            raise RefusedEndError(record)
        self.journal.record(record)


@dataclass(frozen=True)
class _Fixed:
    """Calibration inputs that already exist."""

    found: Sequence[Feed]
    is_drawn: bool

    def feeds(self) -> Sequence[Feed]:
        return self.found


class Transaction:
    """One step on the committed model of a workbench. `seconds` is the time already spent on it."""

    def __init__(self, step: PassStep, bench: Workbench, seconds: float = 0.0) -> None:
        self.step = step
        self.declared = step.find()
        self._bench = bench
        self._started = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """The seconds since it began, including earlier ones."""
        return time.perf_counter() - self._started

    def run(self, skip: frozenset[int] = frozenset()) -> Candidate:
        """Run the pass on the committed model, without the sites to `skip`; return the candidate, not yet judged."""
        choice = self._bench.choice
        return self._excused(self._run(skip) if choice is None else chosen(choice, self.step, self._run, skip))

    def _excused(self, candidate: Candidate) -> Candidate:
        """Return a candidate whose defects are refusals if the original is invalid: a pass may rely on valid nodes."""
        bench = self._bench
        wrong = bench.judge.fault(bench.model.stored) if candidate.defects else ""
        if not wrong:
            return candidate
        reason = f"the input model is invalid: {wrong}"
        refusals = (*candidate.refusals, *(Refused(defect.anchor, reason) for defect in candidate.defects))
        if candidate.proto is None:
            state = bench.model.state
            return Candidate(self.step, state.proto, state.data, refusals=refusals)
        return replace(candidate, refusals=refusals, defects=())

    def _run(self, skip: frozenset[int]) -> Candidate:
        step, declared, bench = self.step, self.declared, self._bench
        known = bench.model.known(step, declared, skip)
        if known is not None:
            return replace(known, step=step)  # it may have been another step with the same pass
        if declared.is_standard:
            bench.judge.prepare()
        else:
            bench.judge.join()  # it runs in a fork
        bench.journal.stage(step.name, "pass")
        try:
            made = self._made(skip)
        except NothingExceptedError as error:
            error.where = f"step '{step.name}'"
            raise
        except Exception as error:
            require_machine(error)
            return self._failed(error)
        if made.printed:
            bench.journal.observer.said(step.name, made.printed)
        return bench.judge.names(bench.model.candidate(step, declared, skip, made), declared)

    def _failed(self, error: Exception) -> Candidate:
        """Return the candidate of a pass that raised an exception."""
        step, bench = self.step, self._bench
        if isinstance(error, RaisedError):
            defects = (Defect("", str(error)),)
            return Candidate(step, complaint=str(error), exit_code=error.exit_code, defects=defects)
        if not isinstance(error, SurgeryError):
            return Candidate(step, complaint=internal(error), exit_code=3)
        refusals = tuple(bench.model.graph.refusals)
        if error.printed:
            bench.journal.observer.said(step.name, error.printed)
        return Candidate(step, refusals=refusals, complaint=str(error), exit_code=error.exit_code)

    def _made(self, skip: frozenset[int]) -> PassResult:
        """Run the pass, without the nodes at which it raises an exception; raise `RaisedError` if that cannot help."""
        bench, options, defects = self._bench, self.step.bind(), list[Defect]()
        while True:
            graph = bench.model.editable()
            graph.calibration = self._calibration()
            graph.spared = frozenset(defect.anchor for defect in defects)
            graph.keeps_empty = bench.model.keeps_empty or self.step.keeps_empty
            graph.libraries, graph.unmeasured = bench.spec.custom_op_library, self._unmeasured()
            refused = graph.unmeasured if bench.spec.unverified == "refuse" else ()
            left_out = unmeasured_nodes(graph, refused)
            graph.excepted = {**left_out, **excepted_nodes(self.step.excepted, graph, bench.model.stored)}
            limits = bench.spec.timeout, bench.spec.memory
            try:
                made = run_pass(self.declared, graph, options, *limits, skip=skip, contained=bench.contained)
            except RaisedError as error:
                compared = self.declared.promise(self.step.options) in COMPARING
                if not compared or not error.at or error.at in graph.spared or len(defects) == _MOST_SPARED:
                    raise
                defects.append(Defect(error.at, str(error)))
                continue
            finally:
                graph.spared, graph.excepted = frozenset(), {}
            return replace(made, defects=(*defects, *made.defects))

    def _unmeasured(self) -> Collection[str]:
        """Return the results of the nodes that a LOSSY step leaves alone, because its loss there cannot be measured."""
        lossy = self.declared.promise(self.step.options) is Parity.LOSSY
        return self._bench.judge.unmeasured(self._bench.model.state) if lossy else ()

    def _calibration(self) -> CalibrationSource:
        """Return the judge, or the inputs themselves for a pass that runs in a fork, without the judge's threads."""
        judge = self._bench.judge
        lossy = self.declared.promise(self.step.options) is Parity.LOSSY
        return _Fixed(judge.feeds(), judge.is_drawn) if lossy and not self.declared.is_standard else judge

    def avoid_guilty_sites(self, candidate: Candidate) -> Candidate:
        """With `on_failure: bisect`, run the pass again without the sites that were guilty in an earlier round."""
        if self.step.on_failure == "bisect" and candidate.ok and candidate.changed:
            return self._bench.guilts.avoid(self._key, candidate, self.run)
        return candidate

    def judge(self, candidate: Candidate) -> Candidate:
        """Judge a candidate of this step; run the pass again if it relied on shapes that a run contradicts."""
        judged = self._bench.judge.judge(candidate, self.declared)
        if not judged.is_outdated:
            return judged
        self._bench.model.doubt(self._bench.judge.doubts)
        again = self.avoid_guilty_sites(self.run())
        return self._bench.judge.judge(again, self.declared)

    def reduce(self, candidate: Candidate) -> Judged:
        """Reduce a judged candidate that fails to the part that holds, if there is one."""
        kept: tuple[Sensitivity, ...] = ()
        if candidate.promise is Parity.LOSSY and candidate.is_over_budget:
            candidate, kept = self._keep_sensitive(candidate)
        if self.step.on_failure == "bisect" and self._may_hold_in_part(candidate):
            return replace(self._spare(candidate), kept=kept)
        return Judged(candidate, kept=kept)

    def conclude(self, judged: Judged) -> StepRecord:
        """Commit a candidate, or roll back; return the record."""
        bench, before, candidate = self._bench, self._bench.model.state, judged.candidate
        bench.guilts.add(self._key, judged.guilty)

        def concluded(status: StepStatus) -> StepRecord:
            record = account(candidate, status, before, bench.model.state, self.seconds, judged.refused)
            message = _with_kept(record.message, judged.kept)
            return replace(record, kept=judged.kept, message=message, cached=judged.cached)

        if candidate.proto is None or not candidate.keeps:
            bench.model.refuse(candidate)
            return concluded("failed")
        failed = self._expect(candidate)
        if failed:
            from surgery.engine.why.explain import explained, why_so_few  # only for steps that fail

            bench.judge.join()  # explaining a pass runs it, maybe in a fork
            why = why_so_few(
                *(self.step, len(candidate.applied), before.proto, bench.model.stored.weights), bench.model.target
            )
            record = concluded("failed")
            return replace(record, message=explained(str(failed), why), exit_code=1, why=why)
        if not candidate.changed:
            return concluded("rolled_back" if judged.refused else "unchanged")
        if bench.judge.moves_baseline(candidate):
            bench.verify_committed(f"(before {self.step.name})")
        bench.model.enter(State.of(candidate.proto, candidate.data), live=candidate.live)
        bench.judge.adopt(candidate)
        return concluded("committed")

    def _expect(self, candidate: Candidate) -> ExpectationError | None:
        """Record which expectations of the step are met; return an error that lists the missed ones, if any."""
        expected = self.step.expect
        if expected is None or candidate.proto is None or self._bench.judge.trusts:
            return None
        said = self._bench.journal.observer.said
        found = [
            *expectations(expected, operators(candidate.proto), opset(candidate.proto), len(candidate.applied)),
            *answers(expected.predicates, self._bench.model.stored, candidate.proto, self._bench.spec, said),
        ]
        if expected.target is not None:
            found.append(fits(expected.target, self._bench.model.stored, candidate.proto))
        self._bench.journal.expectations += [
            Expectation(f"{self.step.name}: {what}", ok, expected.where(what)) for what, ok in found
        ]
        missed = [what for what, ok in found if not ok]
        return ExpectationError(f"expected {', '.join(missed)}") if missed else None

    # Where a candidate fails

    def search(self, failed: Candidate, most: int = MOST_RUNS, seconds: float | None = None) -> SiteSearch[Candidate]:
        """Prepare a search for the sites that make it fail, limited to `most` runs started within `seconds`."""
        journal = self._bench.journal

        def attempt(skip: frozenset[int]) -> Candidate:
            journal.prefix = f"bisect, run {search.runs}: "
            try:
                return self.judge(self.run(skip))
            finally:
                journal.prefix = ""

        search = SiteSearch(attempt, failed, most=most, seconds=seconds)
        return search

    def _may_hold_in_part(self, candidate: Candidate) -> bool:
        """Return whether a failed candidate is worth trying without some of its sites."""
        if candidate.final or candidate.proto is None:
            return False
        if candidate.promise is Parity.LOSSY and candidate.is_unverified and not self._bench.judge.can_run:
            return False  # without a run of the whole model, the loss of no part can be measured
        return candidate.is_wrong or candidate.is_unverified

    def chooser(self) -> SiteChooser:
        """Return the chooser that measures and chooses the sites of a LOSSY step."""
        journal, judge, name = self._bench.journal, self._bench.judge, self.step.name
        costs = costs_by_label(self._bench.model.editable())
        return SiteChooser(self.run, judge.loss, judge.limits, costs, lambda what: journal.stage(name, what))

    def _keep_sensitive(self, failed: Candidate) -> tuple[Candidate, tuple[Sensitivity, ...]]:
        """Leave the most sensitive sites of a LOSSY step unchanged, so that the rest stays within the budget."""
        choice = self.chooser().choose(failed.applied)
        if choice.candidate is None:
            return failed, choice.kept
        # The live graph may have changed since.
        return self.judge(replace(choice.candidate, live=False)), choice.kept

    def _spare(self, failed: Candidate) -> Judged:
        """Leave out the sites that make a step fail; return the remaining candidate, with the refused sites."""
        unverified = _RUNS_UNVERIFIED if self._bench.judge.can_run else _RUNS_BY_REGIONS
        most = unverified if failed.is_unverified else _RUNS_EVALUATED if self._bench.judge.is_evaluated else MOST_RUNS
        search = self.search(failed, most, self._bench.spec.timeout)
        left_out: tuple[RefusedSite, ...] = ()
        try:
            _, rest = search.guilty()
        except SearchLimit as reason:
            best = search.best
            if best is None:
                return Judged(replace(failed, complaint=f"{failed.complaint}; not bisected: {reason}"), cut_short=True)
            rest = best
            tried = {site.number for site in rest.applied} | {found.site.number for found in search.found}
            why = f"left out without a test, because the search for the wrong sites {reason}"
            left_out = tuple(RefusedSite(s.number, s.anchor, why) for s in failed.applied if s.number not in tried)
        guilty = tuple(RefusedSite(one.site.number, one.site.anchor, one.trial.complaint) for one in search.found)
        sites = tuple(one.site for one in search.found)
        # The live graph may have changed since.
        cut_short = bool(left_out) or not all(one.trial.is_certain for one in search.found)
        return Judged(replace(rest, live=False), guilty + left_out, sites, cut_short=cut_short)

    @property
    def _key(self) -> object:
        """The pass with its options, for which guilty sites are remembered."""
        return self.declared, self.step.settings


def account(
    candidate: Candidate,
    status: StepStatus,
    before: State,
    after: State | None = None,
    seconds: float = 0.0,
    refused: tuple[RefusedSite, ...] = (),
) -> StepRecord:
    """Return the record of a step that was tried on the state `before`."""
    step = candidate.step
    return StepRecord(
        step.name,
        status,
        before.nodes,
        (after or before).nodes,
        sites=len(candidate.applied),
        verdict=candidate.verdict,
        seconds=seconds,
        message=candidate.complaint
        or _listed((*candidate.defects, *refused))
        or "; ".join(filter(None, (left_alone(candidate.refusals), *candidate.remarks)))
        or _remark(candidate.verdict),
        where=f"{step.path}:{step.line}" if step.path else "",
        exit_code=0 if status == "committed" else candidate.exit_code,
        refusals=candidate.refusals,
        refused_sites=refused,
        applied=candidate.applied,
        defects=candidate.defects,
        is_foreign=candidate.proto is None and _is_foreign(step),
    )


def _is_foreign(step: PassStep) -> bool:
    """Return whether the pass of a step, or the tool that it runs, is not a part of surgery."""
    declared = step.find()
    return not declared.is_standard or bool(declared.requires)


def _listed(refused: Iterable[RefusedSite | Defect]) -> str:
    """List the first few sites that were left out."""
    return first_few(refused, _MOST_LISTED, ";")


def _with_kept(message: str, kept: Sequence[Sensitivity]) -> str:
    """Add the most sensitive of the sites that stay unchanged to a message, and how the runtime failed with them."""
    if not kept:
        return message
    named = first_few(kept, _MOST_LISTED, ";")
    failed = [one.why for one in kept if one.why]
    because = f"; with {len(failed)} of them, the converted model fails as deployed: {failed[0]}" if failed else ""
    return f"{message}; {len(kept)} {'site stays' if len(kept) == 1 else 'sites stay'} unchanged: {named}{because}"


def _remark(verdict: Verdict | None) -> str:
    """Return the remark on a verdict that lets a step pass without a comparison."""
    shown = verdict is None or verdict.passed or verdict.is_different
    return "" if verdict is None or shown else verdict.message or verdict.reason or ""
