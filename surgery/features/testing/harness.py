"""One case: run the pass, and find the problems of the result."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import BlockedError, SurgeryError, UsageError
from surgery.engine.bridges.run_pass import PassResult, run_pass
from surgery.engine.registry.catalog import catalog
from surgery.features.testing.calibration import GivenInputs, ranges
from surgery.features.testing.case import AFTER, Case, calibration_in, options_in, read_case, target_in
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.targets import STANDARD
from surgery.model.targets import shipped as targets

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from surgery.engine.registry.passes import Pass
    from surgery.verification.verdict.checks import Checker

TIMEOUT = 60.0
"""The time limit of a pass for a case, in seconds."""


@dataclass(frozen=True)
class CaseProblem:
    """A problem of the outcome of a case, with the difference that shows it, if any."""

    what: str
    diff: str = ""

    def __str__(self) -> str:
        return f"{self.what}:\n{self.diff}" if self.diff else self.what


@dataclass(frozen=True)
class CaseOutcome:
    """The outcome of a pass on a case: the models as skeletons, sites and reasons, and the weights of both.

    `renamed` has the new names of inputs and outputs declared by the pass, `accounts` their mappings to the old ones.
    """

    before: onnx.ModelProto
    after: onnx.ModelProto
    sites: int
    reasons: tuple[str, ...]
    weights: storage.Weights
    renamed: Mapping[str, str] = field(default_factory=dict)
    accounts: tuple[SignatureMapping, ...] = ()


@dataclass(frozen=True)
class Example:
    """The example in the docstring of a pass, and the result of the pass on it, as ONNX text."""

    before: str
    after: str


def run(
    model: onnx.ModelProto,
    declared: Pass,
    options: Mapping[str, Any],
    *,
    timeout: float = TIMEOUT,
    folder: Path = Path(),
    calibration: Mapping[str, Any] | None = None,
    target: str = STANDARD.name,
) -> CaseOutcome:
    """Run one pass on a model in memory; `calibration` has calibration inputs as lists of numbers.

    A non-standard pass runs in a separate process, for at most `timeout` seconds. Raises SurgeryError if the pass
    fails.
    """
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto), weights=stored.weights, target=targets.find(target))
    graph.calibration = GivenInputs(stored.proto, calibration) if calibration else None
    made = PassResult(None, (), (), live=True)
    try:
        made = run_pass(declared, graph, declared.bind(options, folder), timeout=timeout)
    except BlockedError:
        made = replace(made, refusals=tuple(graph.refusals))
    after = storage.proto_from_ir(graph.ir, stored.weights) if made.proto is None else made.proto
    reasons = tuple(dict.fromkeys(refused.reason for refused in made.refusals))
    sites = sum(not site.skipped for site in made.sites)
    return CaseOutcome(stored.proto, after, sites, reasons, stored.weights, made.renamed, made.accounts)


def _run(case: Case, model: onnx.ModelProto, timeout: float = TIMEOUT) -> CaseOutcome:
    """Run the pass of a case on a model, with the settings of the case."""
    declared, folder = catalog.find(case.pass_name), case.path.parent
    given, target = case.calibration, case.target
    return run(model, declared, case.options, timeout=timeout, folder=folder, calibration=given, target=target)


def check(case: Case) -> None:
    """Raise AssertionError with all problems of the outcome of a case, if there are any."""
    found = "\n".join(str(finding) for finding in findings(case))
    if found:
        raise AssertionError(f"{case.path}: {found}")


def findings(case: Case, *, timeout: float = TIMEOUT) -> list[CaseProblem]:
    """Return the problems of the outcome of a case; empty if it is as expected.

    Raises CaseError or UsageError if the case refers to something that does not exist, PassError or WorkerError if the
    pass raises, crashes or takes more than `timeout` seconds.
    """
    declared = catalog.find(case.pass_name)
    expected = case.expected() if case.after is not None else None
    if case.error is not None:
        return list(_failure(case, declared, timeout))
    outcome = _run(case, case.model(), timeout)
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    return [
        *_changes(case, before, after, expected),
        *_reasons(case, outcome.reasons),
        *_repeated(case, declared, outcome, after, timeout),
        *_verified(outcome, declared, case),
    ]


def _failure(case: Case, declared: Pass, timeout: float) -> Iterator[CaseProblem]:
    try:
        _run(case, case.model(), timeout)
    except SurgeryError as error:
        if str(error) != case.error:
            yield CaseProblem(f"the error is different: {error}")
    else:
        yield CaseProblem(f"no error, but the case expects: {case.error}")


def _changes(case: Case, before: ir.Model, after: ir.Model, expected: onnx.ModelProto | None) -> Iterator[CaseProblem]:
    changed = text.structural_diff(before, after, declared=case.declared)
    if expected is None:
        if changed:
            yield CaseProblem("the graph changed", changed)
        return
    if not changed:
        yield CaseProblem("the pass did not fire")
    stored = storage.from_proto(expected)
    wanted = storage.ir_from_proto(stored.proto, stored.weights)
    difference = text.structural_diff(wanted, after, names=("expected", "got"), declared=case.declared)
    if difference:
        yield CaseProblem("the result is different", difference)


def _reasons(case: Case, given: tuple[str, ...]) -> Iterator[CaseProblem]:
    for reason in case.refused:
        if reason not in given:
            yield CaseProblem(f"not refused because '{reason}'; the given reasons: {list(given)}")
    if case.unchanged and given:
        yield CaseProblem(f"refused ({list(given)}), which needs a '# refused:' line")


def _repeated(
    case: Case, declared: Pass, outcome: CaseOutcome, after: ir.Model, timeout: float
) -> Iterator[CaseProblem]:
    if case.repeats:
        return
    try:
        again = _run(case, storage.resolve(outcome.after), timeout)
    except UsageError:
        return  # the names that the pass refers to no longer exist
    repeated = text.structural_diff(after, storage.ir_from_proto(again.after), declared=case.declared)
    if repeated:
        yield CaseProblem("a second run changes the model again", repeated)


def _verified(outcome: CaseOutcome, declared: Pass, case: Case) -> Iterator[CaseProblem]:
    from surgery.verification.inputs.spec import AccuracySpec, InputsSpec, MetricLimit, VerifySpec
    from surgery.verification.signature.tracker import SignatureTracker

    checker = _checker(os.getpid())
    before, after = (proto.SerializeToString(deterministic=True) for proto in (outcome.before, outcome.after))
    yield from (CaseProblem(f"the case is not valid: {finding}") for finding in checker.check(before))
    if after == before:
        return
    yield from (CaseProblem(f"the result is not valid: {finding}") for finding in checker.check(after))
    limits = () if case.snr is None else (MetricLimit("snr", case.snr),)
    spec = VerifySpec(accuracy=AccuracySpec(limits))
    with closing(SignatureTracker(before, InputsSpec(tensors=ranges(case.calibration)), spec)) as contract:
        renamed = contract.names(outcome.after, declared.changes, outcome.renamed, outcome.accounts)
        complaints = list(contract.complaints(outcome.after, declared.changes, renamed))
        if complaints:
            yield from map(CaseProblem, complaints)
            return
        verdict = contract.verify(outcome.after, after, declared.promise(case.options), renamed, outcome.accounts)
    if case.unverified is not None:
        if not verdict.is_unverified or case.unverified != (verdict.message or verdict.reason):
            yield CaseProblem(f"parity: {verdict.status}, not as the case expects: {verdict.message or verdict.reason}")
    elif not verdict.status.accepted:
        yield CaseProblem(f"parity: {verdict.status}: {verdict.message or verdict.reason}")


@cache
def _checker(owner: int) -> Checker:
    """Return the checker of this process, shared by all cases; a fork cannot use the worker of its parent."""
    from surgery.verification.verdict.checks import Checker

    checker = Checker()
    atexit.register(checker.close)
    return checker


def bless(case: Case) -> Case:
    """Rewrite the expected result or reasons of a case file by the current behaviour of the pass; return the case."""
    model = case.model()
    kept = [line for line in case.before.splitlines() if not re.match(r"#\s*(refused|unchanged|error):", line)]
    body = "\n".join(kept).strip("\n")
    try:
        outcome = _run(case, model)
    except UsageError as error:
        storage.write_texts({case.path: f"# error: {error}\n{body}\n"})
        return read_case(case.path)
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    if text.structural_diff(before, after, declared=case.declared):
        result = _printed(case, model, outcome)
        blessed = f"{body}\n\n{AFTER}\n{result}\n"
    else:
        reasons = [f"# refused: {reason}" for reason in outcome.reasons] or ["# unchanged: nothing to do"]
        blessed = "\n".join([*reasons, body]) + "\n"
    storage.write_texts({case.path: blessed})
    return read_case(case.path)


def _printed(case: Case, model: onnx.ModelProto, outcome: CaseOutcome) -> str:
    """Print the result of a pass: as a bare graph if the case is one and nothing else changed."""
    resolved = storage.resolve(outcome.after)
    same_imports = list(model.opset_import) == list(resolved.opset_import)
    graph = "\n".join(line for line in case.before.splitlines() if not line.startswith("#"))
    if same_imports and not graph.lstrip().startswith("<") and not resolved.functions:
        return text.print_graph(resolved, declarations=case.declared)
    return text.print_model(resolved)


def example(declared: Pass) -> Example | None:
    """Run the example in the docstring of a pass, with options as in a case file; None if there is no example."""
    if declared.example is None:
        return None
    source, place = declared.example, declared.place
    calibration = calibration_in(source, place)
    options = options_in(source, place)
    outcome = run(text.parse(source), declared, options, calibration=calibration, target=target_in(source))
    before, after = storage.ir_from_proto(outcome.before), storage.ir_from_proto(outcome.after)
    # If only declarations changed, they are the subject of the example.
    declarations = not text.structural_diff(before, after)
    resolved = storage.resolve(outcome.after)
    beside = resolved.functions or resolved.metadata_props
    printed = text.print_model(resolved) if beside else text.print_graph(resolved, declarations=declarations)
    return Example(declared.example, printed)
