"""One pass as a transaction, and the chain of them that a recipe describes.

A pass works on the live graph. Its result is serialized without weights; when that is what it was before, nothing
happened. Otherwise the result is checked, its signature compared, and its outputs compared with those of the
original model. It is committed when all hold, else the graph is taken back to the last committed state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from surgery import registry, storage
from surgery.errors import ExpectationError, PassError, SurgeryError
from surgery.graph import Graph, Refused
from surgery.parity import Parity
from surgery.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep, VerifySpec, When
from surgery.summary import Summary, data_files, operators, summarize
from surgery.verify import Verdict, Verifier, check, new_findings, signature

if TYPE_CHECKING:
    import onnx

Status = Literal["committed", "unchanged", "rolled_back", "skipped", "failed"]
_MOST_ROUNDS = 100
"""`repeat: until-stable` gives up after this many rounds: two of its passes undo each other."""


@dataclass(frozen=True)
class StepRecord:
    """What became of one step."""

    name: str
    status: Status
    nodes_before: int
    nodes_after: int
    sites: int = 0
    verdict: Verdict | None = None
    seconds: float = 0.0
    message: str = ""
    where: str = ""
    exit_code: int = 0
    refusals: tuple[Refused, ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """Give the fields of the JSON report."""
        needed = self.verdict.needed if self.verdict is not None else None
        return {
            "pass": self.name,
            "status": self.status,
            "sites": self.sites,
            "verdict": self.verdict.status if self.verdict is not None else None,
            "needed": {"rtol": needed["rtol"], "atol": needed["atol"]} if needed else {"rtol": None, "atol": None},
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "seconds": round(self.seconds, 4),
            "message": self.message,
        }


@dataclass(frozen=True)
class Expectation:
    """One thing that the recipe expects, and whether it holds."""

    what: str
    ok: bool


@dataclass(frozen=True)
class Result:
    """The account of a whole recipe. `proto` is the weightless result, whether it was written or not."""

    recipe: str
    input: Summary
    output: Summary
    steps: tuple[StepRecord, ...]
    expectations: tuple[Expectation, ...]
    bindings: tuple[Mapping[str, Any], ...]
    seconds: float
    proto: onnx.ModelProto = field(repr=False)
    stored: storage.StoredModel = field(repr=False)

    @property
    def failure(self) -> StepRecord | None:
        """The step that ended the run, if one did."""
        return next((step for step in self.steps if step.status == "failed"), None)

    @property
    def ok(self) -> bool:
        """Whether no step failed and every expectation holds."""
        return self.failure is None and all(expectation.ok for expectation in self.expectations)

    @property
    def exit_code(self) -> int:
        """0 when all is well, 3 when a pass broke, 1 when a verdict or an expectation is negative."""
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """Give the JSON report of `apply`."""
        return {
            "ok": self.ok,
            "recipe": self.recipe,
            "input": self.input.to_json(),
            "output": self.output.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "expectations": [{"what": item.what, "ok": item.ok} for item in self.expectations],
            "bindings": [dict(binding) for binding in self.bindings],
            "seconds": round(self.seconds, 4),
        }

    def save(self, path: str | Path, *, layout: storage.Layout = "keep", force: bool = False) -> Result:
        """Write the model, atomically; return the account with the written file in it."""
        stored = self.stored
        _, *data = storage.save(self.proto, Path(path), stored.weights, layout=layout, force=force)
        return replace(self, output=summarize(self.proto, [Path(path), *data]))


class Observer(Protocol):
    """Is told what the runner does, so that it can be shown as it happens."""

    def stage(self, step: str, stage: str) -> None:
        """Report that `step` has come to `stage`, such as "pass", "check" or "parity"."""

    def done(self, record: StepRecord) -> None:
        """Report that a step has ended."""


class _Silent:
    def stage(self, step: str, stage: str) -> None:
        pass

    def done(self, record: StepRecord) -> None:
        pass


class Abort(Exception):  # noqa: N818 - ends the chain, not an error of its own
    """A step failed and its recipe says that the run ends there."""


class Chain:
    """The committed state of a model, and the transactions that change it."""

    def __init__(self, stored: storage.StoredModel, recipe: Recipe, observer: Observer | None = None) -> None:
        self.stored = stored
        self.spec: VerifySpec = recipe.verify
        self.observer = observer or _Silent()
        self.records: list[StepRecord] = []
        self.expectations: list[Expectation] = []
        self.original = stored.proto.SerializeToString(deterministic=True)
        self.graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
        self._commit(storage.proto_from_ir(self.graph.ir, stored.weights))
        self._unchanged = self._bytes
        self._signature = signature(stored.proto)
        self._findings: list[str] | None = None
        self.verifier = Verifier(self.original, recipe.inputs, recipe.verify)

    @property
    def proto(self) -> onnx.ModelProto:
        """The committed model, without weights; the very message that was read when nothing was committed."""
        return self.stored.proto if self._bytes == self._unchanged else self._proto

    def _commit(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._bytes = proto.SerializeToString(deterministic=True)
        self.ops = operators(proto)

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
        return all(met for _, met in _comparisons(when.ops, when.nodes, when.opset, self.ops, self.graph.opset))

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
        if status == "failed" and step.on_failure == "rollback":
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
        declared = registry.find(step.name)
        record = StepRecord(step.name, "unchanged", 0, 0)
        self.observer.stage(step.name, "pass")
        try:
            declared.apply(self.graph, declared.bind(step.options))
            proto = storage.proto_from_ir(self.graph.ir, self.stored.weights)
        except Exception as error:
            self._restore()
            return replace(record, status="failed", exit_code=3, message=_broken(step.name, error))
        record = replace(record, sites=len(self.graph.sites), refusals=tuple(self.graph.refusals))
        data = proto.SerializeToString(deterministic=True)
        changed = data != self._bytes
        try:
            if changed:
                record = self._judge(step, declared.parity, proto, data, record)
            if record.status != "failed":
                self._expect_of_step(step, record, proto)
        except ExpectationError as error:
            record = replace(record, status="failed", exit_code=1, message=str(error))
        except SurgeryError as error:
            record = replace(record, status="failed", exit_code=error.exit_code, message=str(error))
        if record.status == "failed":
            self._restore()
        elif changed:
            self._commit(proto)
            if record.verdict is not None and record.verdict.status == "close":
                self.verifier.accept()
        return record

    def _restore(self) -> None:
        weights = self.stored.weights
        self.graph = Graph(storage.ir_from_proto(self._proto, weights), weights=weights)

    def _judge(
        self, step: PassStep, promise: Parity, proto: onnx.ModelProto, data: bytes, record: StepRecord
    ) -> StepRecord:
        """Check a changed model in the order of cost: signature, checker, parity. `failed` when it does not hold."""
        keep = step.on_failure == "keep"
        complaint = next(self._complaints(step.name, proto, data), None)
        verdict = None
        if complaint is None and self.spec.mode == "each":
            self.observer.stage(step.name, "parity")
            verdict = self.verifier.verify(data, promise)
            complaint = self._complaint(verdict)
        record = replace(record, verdict=verdict, message=complaint or _remark(verdict))
        if complaint is None or keep:
            return replace(record, status="committed")
        return replace(record, status="failed", exit_code=1)

    def _complaints(self, name: str, proto: onnx.ModelProto, data: bytes) -> Iterator[str]:
        yield from (f"signature: {item}" for item in self._signature.differences(signature(proto)))
        self.observer.stage(name, "check")
        found = check(data)
        if found and self._findings is None:
            self._findings = check(self.original)
        yield from new_findings(self._findings or [], found)

    def _complaint(self, verdict: Verdict) -> str | None:
        if verdict.status == "different" or (verdict.status == "unverified" and self.spec.unverified == "refuse"):
            return verdict.message or verdict.reason or verdict.status
        return None

    def finish(self) -> None:
        """Verify the end result when the recipe asks for that instead of each step."""
        if self.spec.mode != "end" or self.proto is self.stored.proto:
            return
        started = time.perf_counter()
        self.observer.stage("(end)", "parity")
        verdict = self.verifier.verify(self._bytes, Parity.CLOSE)
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
            Expectation(prefix + what, ok) for what, ok in _expectations(expected, self.ops, self.graph.opset)
        ]
        if expected.signature is not None:
            same = not self._signature.differences(signature(self._proto))
            self.expectations.append(Expectation(f"{prefix}signature: unchanged", same))

    def _expect_of_step(self, step: PassStep, record: StepRecord, proto: onnx.ModelProto) -> None:
        if step.expect is None:
            return
        found = list(_expectations(step.expect, operators(proto), self.graph.opset))
        if step.expect.sites is not None:
            what = f"sites: {step.expect.sites} (found {record.sites})"
            found.append((what, step.expect.sites.holds(record.sites)))
        self.expectations += [Expectation(f"{step.name}: {what}", ok) for what, ok in found]
        failed = [what for what, ok in found if not ok]
        if failed:
            raise ExpectationError(f"expected {', '.join(failed)}")


def _expectations(expected: Expect, ops: Mapping[str, int], opset: int) -> Iterator[tuple[str, bool]]:
    yield from _comparisons(expected.ops, expected.nodes, expected.opset, ops, opset)


def _comparisons(
    ops: Mapping[str, Any], nodes: Any, opset: Any, counts: Mapping[str, int], version: int
) -> Iterator[tuple[str, bool]]:
    """Yield each comparison in words, with what was found, and whether it holds."""
    for name, comparison in ops.items():
        count = counts.get(name, 0)
        yield f"{name}: {comparison} (found {count})", comparison.holds(count)
    if nodes is not None:
        total = sum(counts.values())
        yield f"nodes: {nodes} (found {total})", nodes.holds(total)
    if opset is not None:
        yield f"opset: {opset} (found {version})", opset.holds(version)


def _broken(name: str, error: Exception) -> str:
    if isinstance(error, SurgeryError):
        return str(error)
    text = " ".join(str(error).split())
    return f"pass '{name}' raised {type(error).__name__}{f': {text}' if text else ''}"


def _remark(verdict: Verdict | None) -> str:
    """What to say beside a verdict that let the step pass."""
    return (verdict.message or verdict.reason or "") if verdict is not None and verdict.status == "unverified" else ""


def run(stored: storage.StoredModel, recipe: Recipe, *, observer: Observer | None = None) -> Result:
    """Run a recipe over a loaded model. Nothing is written; see `Result.save`."""
    started = time.perf_counter()
    chain = Chain(stored, recipe, observer)
    with closing(chain.verifier) as verifier:
        try:
            chain.run(recipe.steps)
            chain.finish()
        except Abort:
            pass
        else:
            chain.expect(recipe.expect)
        bindings = tuple(verifier.bindings)
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
    result = run(stored, loaded, observer=observer)
    if output is not None and result.ok:
        result = result.save(output, layout=layout, force=force)
    return result
