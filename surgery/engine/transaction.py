"""One pass as a transaction: run on the committed model, judged by what it made, committed or not.

A pass works on the live graph. Its result is serialized without weights; when that is what it was before, nothing
happened. Otherwise the result is checked, its signature compared, and its outputs compared with those of the
original model. It may be committed when all hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery import storage
from surgery.bridges.run_pass import transform
from surgery.engine.candidate import Attempt
from surgery.engine.delta_debugging import MOST_RUNS, Search
from surgery.engine.records import Observer, Silent
from surgery.engine.reference_start import Beginning, begin
from surgery.engine.speculation import State
from surgery.errors import ModelFileError, RecipeError, SurgeryError, UsageError, internal
from surgery.graph.graph import Graph
from surgery.promises import Parity
from surgery.proto.summary import operators
from surgery.recipe.schema import PassStep, Recipe
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker
from surgery.verification.verdict.validity import Validity, validity
from surgery.verification.verdict.verifier import Verdict

if TYPE_CHECKING:
    import onnx

    from surgery.registry.declare import Pass
    from surgery.verification.signature.tracker import Model
    from surgery.verification.verdict.verifier import Verifier


class Transactions:
    """The committed state of a model, and the attempts to change it."""

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        observer: Observer | None = None,
        *,
        contained: bool = True,
        begun: Beginning | None = None,
    ) -> None:
        self.stored = stored
        self.spec: VerifySpec = recipe.verify
        self.observer = observer or Silent()
        self.contained = contained
        begun = begun or begin(stored, recipe.inputs, recipe.verify)
        self.original, self.contract = begun.skeleton, begun.contract
        self._first = self.contract.verifier
        self._checker = Checker(timeout=min(self.spec.timeout, CHECK_TIMEOUT), memory=self.spec.memory)
        self._running = ""
        # Attempts of standard passes that changed nothing: as long as the model is the same, so is what they do.
        self._settled: dict[tuple[Pass, str, frozenset[int]], Attempt] = {}
        # Steps that were refused as a whole, and the model of which that is known.
        self._refused: dict[tuple[Pass, str, frozenset[int]], tuple[bytes, Attempt]] = {}
        self._findings: list[str] | None = None
        self._names: frozenset[str] = frozenset()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Make the live graph; `ModelFileError` when its nodes have no order."""
        loaded = storage.without_alias(self.stored.proto)
        self._load(loaded)
        self._names = self.graph.reserved = self.graph.names()
        ring = self.graph.cycle()
        if ring is not None:
            where = str(self.stored.path) if self.stored.path is not None else "the model in memory"
            raise ModelFileError(f"nodes read each other in a ring: {ring}", where=where, todo="nothing can run it")
        if storage.residue_of(self.graph.ir.graph) is not None:  # the IR alone does not give back what was read
            loaded = storage.proto_from_ir(self.graph.ir, self.stored.weights)
        data = loaded.SerializeToString(deterministic=True)
        self._state = self._loaded = state_of(loaded, data)
        self._base = data
        self._is_open = self.spec.mode == "end"  # whether anything committed since is not compared as a whole
        self.end: Verdict | None = None

    def close(self) -> None:
        """End what runs beside this process, and forget what the original computed."""
        self._checker.close()
        self.contract.close()

    @property
    def verifier(self) -> Verifier:
        """What compares models with the original, as far as both have the same inputs and outputs."""
        return self.contract.verifier

    def validity(self) -> Validity:
        """Say whether the original is valid; it is loaded for that, unless it has run."""
        if self._findings is None:
            self._findings = self._checker.check(self.original)
        if self._first.runs and self._first.problem is None:
            return Validity(tuple(self._findings), self._first.gap, bool(self._first.gap))
        return validity(self.stored, self.spec, self._findings)

    def why_unknown(self) -> str:
        """Say why nobody can run the original; empty when somebody can."""
        self._first.prepare()
        return self._first.problem or ""

    @property
    def proto(self) -> onnx.ModelProto:
        """The committed model, without weights; the very message that was read when nothing was committed."""
        return self.stored.proto if self._state.data == self._loaded.data else self._state.proto

    @property
    def nodes(self) -> int:
        """The number of nodes of the committed model."""
        return self._state.nodes

    def _load(self, proto: onnx.ModelProto) -> None:
        """Make the live graph anew; `_touched` then tells whether a pass has worked on it since."""
        model = storage.ir_from_proto(proto, self.stored.weights)
        self.graph = Graph(model, weights=self.stored.weights, reserved=self._names)
        self._touched = False

    def _enter(self, state: State, *, live: bool) -> None:
        """Let the next pass work on a model, which the graph holds if it is `live`."""
        self._state = state
        if live:
            self._touched = False
        else:
            self._load(state.proto)

    def attempt(self, step: PassStep, skip: frozenset[int] = frozenset()) -> Attempt:
        """Run one pass on the committed model, without the sites to `skip`, and judge what it made; commit nothing."""
        declared = step.find()
        return self._judge(self._made(step, declared, skip), declared)

    def search(self, failed: Attempt, most: int = MOST_RUNS, seconds: float | None = None) -> Search[Attempt]:
        """Prepare to search for the sites that make an attempt fail, in so many runs that begin in so many seconds."""

        def attempt(skip: frozenset[int]) -> Attempt:
            self._running = f"bisect, run {search.runs}: "
            try:
                return self.attempt(failed.step, skip)
            finally:
                self._running = ""

        search = Search(attempt, failed, most=most, seconds=seconds)
        return search

    # What a pass makes

    def _made(self, step: PassStep, declared: Pass, skip: frozenset[int] = frozenset()) -> Attempt:
        """Run one pass on the committed model; what it made is not judged."""
        key = _key(step, declared, skip)
        seen = self._settled.get(key)
        if seen is not None and seen.data is self._state.data:
            return seen
        made_of, refused = self._refused.get(key, (None, None))
        if refused is not None and made_of is self._state.data:
            return refused
        try:
            attempt = self._make(step, declared, skip)
        except (RecipeError, UsageError):
            raise
        except Exception as error:
            self._touched = True
            return Attempt(step, complaint=internal(error), exit_code=3)
        if declared.is_standard and not attempt.changed and attempt.ok:
            self._settled[key] = attempt
        return attempt

    def _make(self, step: PassStep, declared: Pass, skip: frozenset[int]) -> Attempt:
        state = self._state
        if self._touched:
            self._load(state.proto)
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
                step.bind(),
                skip=skip,
                contained=self.contained,
                timeout=self.spec.timeout,
                memory=self.spec.memory,
            )
        except SurgeryError as error:
            refusals = tuple(self.graph.refusals)
            return Attempt(step, refusals=refusals, complaint=str(error), exit_code=error.exit_code)
        if made.printed:
            self.observer.said(step.name, made.printed)
        data = state.data if made.proto is None else made.proto.SerializeToString(deterministic=True)
        changed = data != state.data
        self._touched = changed and made.live
        if not changed or made.proto is None:
            return Attempt(step, state.proto, state.data, False, made.live, made.sites, made.refusals)
        self._prepare()
        renamed = self.contract.names(made.proto, declared.changes, made.renamed, made.accounts)
        return Attempt(
            step,
            made.proto,
            data,
            True,
            made.live,
            made.sites,
            made.refusals,
            renamed=renamed,
            accounts=made.accounts,
        )

    def _prepare(self) -> None:
        """Start to run the original beside the passes: what they change will be compared with it."""
        if self.spec.mode != "off":
            self.verifier.begin()

    # Whether it is right

    def _judge(self, attempt: Attempt, declared: Pass, findings: list[str] | None = None) -> Attempt:
        """Check and verify what a pass made, if it made anything; `findings` are those of the checker, if known."""
        if not (attempt.ok and attempt.changed):
            return attempt
        try:
            return self._judged(attempt, declared, findings)
        except (RecipeError, UsageError):
            # The inputs or libraries to verify with are wrong, whatever the pass did.
            raise
        except Exception as error:
            return replace(attempt, complaint=internal(error), exit_code=getattr(error, "exit_code", 3))

    def _ahead_of_judging(
        self, what: Callable[[Model, Model, Parity], None], before: State, attempt: Attempt, findings: list[str]
    ) -> None:
        """Find out before a change is judged what will be asked for then; `what` is a method of the contract."""
        if attempt.proto is None or findings or not self._compares(attempt):
            return
        # What fails here does so once more where it is judged.
        with suppress(Exception):
            if self.contract.keeps_terms(attempt.proto, attempt.promise, attempt.renamed, attempt.accounts):
                what((before.proto, before.data), (attempt.proto, attempt.data), attempt.promise)

    def _judged(self, attempt: Attempt, declared: Pass, findings: list[str] | None) -> Attempt:
        """Check a changed model in the order of cost: signature, checker, parity."""
        assert attempt.proto is not None
        name = attempt.step.name
        complaint = next(self._complaints(attempt, declared, findings), "")
        verdict = None
        if not complaint and self._compares(attempt):
            self._stage(name, "parity")
            told = attempt.renamed, attempt.accounts
            verdict = self.contract.verify(attempt.proto, attempt.data, attempt.promise, *told)
            complaint = self._complaint(verdict)
        return replace(attempt, verdict=verdict, complaint=complaint, exit_code=1 if complaint else 0)

    def _complaints(self, attempt: Attempt, declared: Pass, findings: list[str] | None) -> Iterator[str]:
        assert attempt.proto is not None
        found = self.contract.complaints(attempt.proto, declared.changes, attempt.renamed)
        yield from (f"signature: {item}" for item in found)
        self._stage(declared.name, "check")
        findings = self._find(attempt) if findings is None else findings
        if findings and self._findings is None:
            self._findings = self._checker.check(self.original)
        yield from self._checker.new(self.original, self._findings or [], attempt.data, findings)

    def _find(self, attempt: Attempt) -> list[str]:
        """Return what the checker finds in what a pass made."""
        try:
            return self._checker.check(attempt.data)
        except Exception as error:
            return [f"checker: {internal(error)}"]

    def _stage(self, name: str, stage: str) -> None:
        self.observer.stage(name, self._running + stage)

    def _complaint(self, verdict: Verdict) -> str:
        if verdict.is_different or (verdict.is_unverified and self.spec.unverified == "refuse"):
            return verdict.message or verdict.reason or verdict.status
        return ""

    def _compares(self, attempt: Attempt) -> bool:
        """Whether a step is verified by itself: in the mode "end", one that nothing behind it is compared across."""
        return self.spec.mode == "each" or (self.spec.mode == "end" and attempt.promise is Parity.INTENDED)

    # What becomes of it

    def refuse(self, attempt: Attempt) -> None:
        """Remember that a step was refused as a whole, so that it is not judged again on the same model."""
        key = _key(attempt.step, attempt.step.find(), frozenset())
        self._refused[key] = self._state.data, replace(attempt, live=False, final=True)

    def commit(self, attempt: Attempt) -> None:
        """Make what a pass made the state that the next pass works on. It must be the latest attempt if it is live."""
        assert attempt.proto is not None
        self._enter(state_of(attempt.proto, attempt.data), live=attempt.live)
        self._adopt(attempt)

    def _adopt(self, attempt: Attempt) -> None:
        """Hold what follows to the signature of what was committed, and to its bits if it rounds otherwise."""
        assert attempt.proto is not None
        right = attempt.ok and attempt.verdict is not None and attempt.verdict.passed
        accepted = attempt.verdict is not None and attempt.verdict.status is Status.CLOSE
        intended = attempt.promise is Parity.INTENDED
        told = attempt.renamed, attempt.accounts
        self.contract.adopt(attempt.proto, attempt.data, *told, right=right, accepted=accepted, intended=intended)
        if intended:
            self._base, self._is_open = attempt.data, self.spec.mode == "end"
        elif attempt.verdict is not None and attempt.verdict.region is not None:
            self._is_open = True


def _key(step: PassStep, declared: Pass, skip: frozenset[int]) -> tuple[Pass, str, frozenset[int]]:
    """Return what tells two runs of passes apart on the same model."""
    return declared, repr(step.options), skip


def state_of(proto: onnx.ModelProto, data: bytes) -> State:
    """Return the state in which a model is committed, given as a message and serialized."""
    return State(proto, data, operators(proto))
