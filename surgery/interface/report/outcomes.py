"""Conversion of the records of a command to its outcome, from which formats for other tools are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import Problem, RecipeError, SurgeryError, counted, internal
from surgery.interface.report import accuracy_loss, difference, fit, missed_expectations, terminal
from surgery.interface.report.formats.outcome import Check, Level, Outcome, SummaryTable, placed
from surgery.interface.report.formatting import needed, size, value
from surgery.model.storage.summary import histogram

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Expectation, Result, StepRecord
    from surgery.features.differences.changes import Change
    from surgery.features.differences.difference import Difference
    from surgery.features.inspection.fit import Fit
    from surgery.model.storage.summary import OperatorCount
    from surgery.verification.verdict.pair import Pair
    from surgery.verification.verdict.validity import Validity

_LEVELS: Mapping[str, Level] = {
    "committed": "passed",
    "unchanged": "passed",
    "skipped": "skipped",
    "rolled_back": "undone",
    "failed": "failed",
}
_BROKEN = 3
"""The exit code of a run that could not be completed."""


# A run


def of_result(found: Result, command: str, places: Mapping[str, str], about: Mapping[str, str]) -> Outcome:
    """Return the outcome of a run: a check for each step and each expectation.

    `places` maps the place of a step of a nested recipe to that of the step that uses it, and `about` the names of
    passes to their summaries.
    """
    model = str(found.input.path) if found.input.path is not None else ""
    checks = [
        replace(_step(step, found, model), about=about.get(step.name, ""), **_at(places.get(step.where, step.where)))
        for step in found.steps
    ]
    checks += [_expectation(item, found) for item in found.expectations]
    checks += _purposes(found, model)
    checks += _of_original(found, model)
    checks += _of_empty(found, model)
    named = f"{found.recipe} on {Path(model).name}" if model else found.recipe
    return Outcome(
        command,
        named,
        terminal.conclusion(found).plain,
        found.exit_code,
        tuple(checks),
        (
            *_accuracy(found),
            _amounts(found),
            _changed(found.steps),
            _operators(histogram(found.input.ops, found.output.ops)),
        ),
        found.seconds,
    )


def _purposes(found: Result, model: str) -> Iterator[Check]:
    """Yield a check for each purpose that is not met."""
    about = "Whether a recipe for another precision changed the precision."
    fits = f"Whether {found.target} runs the result."
    named = (found.shortfall, "precision", about), (found.misfits, f"fits {found.target}", fits)
    for unmet, name, text in named:
        if unmet is not None:
            level: Level = "remark" if unmet.is_met and not found.strict else "failed"
            yield Check("purpose", name, level, unmet.words, model, about=text)


def _at(where: str) -> dict[str, Any]:
    """Return the fields for the place of a check."""
    path, line, column = placed(where)
    return {"path": path, "line": line, "column": column}


def _step(step: StepRecord, found: Result, model: str) -> Check:
    level = _LEVELS[step.status]
    if step.defects or step.broke or (step.status == "failed" and step.exit_code == _BROKEN):
        level = "broken"
    elif step.status == "committed" and step.refused_sites:
        level = "remark"
    if found.strict and level in ("undone", "remark"):
        level = "failed"
    anchors = *(defect.anchor for defect in step.defects), *(site.anchor for site in step.refused_sites)
    nodes = tuple(filter(None, anchors))
    message = f"{step.message or _told(step)}{' (cached)' if step.cached else ''}"
    return Check(step.name, step.name, level, message, model=model, nodes=nodes, seconds=step.seconds)


def _told(step: StepRecord) -> str:
    """Return a description of a step without a message."""
    if step.status == "unchanged":
        return "nothing to change"
    verdict = f", {step.verdict.status}" if step.verdict is not None else ""
    return f"{step.nodes_before} -> {step.nodes_after} nodes, {step.sites} sites{verdict}"


def _expectation(item: Expectation, found: Result) -> Check:
    return Check(
        "expectation",
        f"expect {item.what.partition(' (')[0]}",
        "passed" if item.ok else "failed",
        "; ".join([f"{'met' if item.ok else 'not met'}: {item.what}", *missed_expectations.advice(found, item)]),
        **_at(item.where),
        about="What the recipe expects of the result.",
    )


def _of_original(found: Result, model: str) -> Iterator[Check]:
    """Yield checks for an original that is invalid or cannot be run."""
    about = "Whether the input model is valid and can be run."
    if found.validity is not None and not found.validity.ok:
        yield Check("original", "original", "remark", f"the input model: {found.validity}", model, about=about)
    if found.unverifiable:
        message = f"nothing can be verified: {found.unverifiable}"
        yield Check("original", "original can be run", "failed", message, model, about=about)


def _accuracy(found: Result) -> Iterator[SummaryTable]:
    """Yield the loss of a lossy run against its budget."""
    if found.loss is not None:
        title = f"Accuracy, measured on {accuracy_loss.source(found.loss)}"
        yield SummaryTable(title, ("budget", "worst", "output", "used"), tuple(accuracy_loss.rows(found.loss)))


def _of_empty(found: Result, model: str) -> Iterator[Check]:
    """Yield a remark on a result that takes no empty batch where the original may."""
    if found.lost_empty:
        about = "Whether the result takes an empty batch or sequence as far as the original does."
        yield Check("empty", "empty batch", "remark", found.lost_empty, model, about=about)


def _amounts(found: Result) -> SummaryTable:
    rows = [("nodes", str(found.input.nodes), str(found.output.nodes), _signed(found.output.nodes - found.input.nodes))]
    if found.input.bytes and found.output.bytes:
        far = f"{(found.output.bytes - found.input.bytes) / found.input.bytes:+.1%}"
        rows.append(("bytes", size(found.input.bytes), size(found.output.bytes), far))
    if found.figures.speed is not None:
        rows.append(("speed", "1", f"{found.figures.speed:.2f}", f"{found.figures.speed - 1:+.0%}"))
    return SummaryTable("Size", ("", "before", "after", "difference"), tuple(rows))


def _changed(steps: Sequence[StepRecord]) -> SummaryTable:
    rows = tuple(
        (
            step.name,
            f"{step.nodes_before} -> {step.nodes_after}",
            str(step.sites),
            str(step.verdict.status) if step.verdict is not None else "",
            needed(step.verdict),
        )
        for step in steps
        if step.status == "committed"
    )
    title = f"{len(rows)} of {len(steps)} steps changed something"
    return SummaryTable(title, ("step", "nodes", "sites", "verdict", "needed"), rows, is_folded=True)


def _operators(counts: Iterable[OperatorCount]) -> SummaryTable:
    rows = tuple(
        (count.op, str(count.before), str(count.after), _signed(count.difference))
        for count in counts
        if count.difference
    )
    title = f"{len(rows)} operators changed in number"
    return SummaryTable(title, ("operator", "before", "after", "difference"), rows, is_folded=True)


def _signed(number: int) -> str:
    return f"{number:+d}" if number else ""


# Two models


def of_pair(found: Pair, first: str, second: str) -> Outcome:
    """Return the outcome of `verify`: the outputs, and the deficiencies of the second model."""
    shown = terminal.pair_headline(found)
    return Outcome(
        "verify",
        f"{Path(second).name} against {Path(first).name}",
        shown,
        0 if found.ok else 1,
        tuple(_of_pair(found, second, shown)),
    )


def _of_pair(found: Pair, model: str, shown: str) -> Iterator[Check]:
    verdict = found.verdict
    agrees = verdict.passed or (found.accepts and verdict.is_unverified)
    remark = verdict.message or verdict.reason
    level: Level = "failed" if not agrees else "remark" if verdict.is_unverified else "passed"
    message = f"{shown}; {remark}" if remark else shown
    yield Check("outputs", "outputs", level, message, model, about="Whether the outputs of two models agree.")
    about = "Whether the second model accepts what the first accepts, and is as valid."
    kept: Level = "failed" if found.interface == "keep" else "remark"
    yield from (Check("interface", f"interface: {text}", kept, text, model, about=about) for text in found.narrowed)
    yield from (Check("validity", f"validity: {text}", "failed", text, model, about=about) for text in found.findings)
    about = "How the signatures of two models differ."
    yield from (Check("signature", text, "remark", text, model, about=about) for text in found.signature)


def of_difference(found: Difference, exit_code: int) -> Outcome:
    """Return the outcome of `diff`: the changes, and the comparison of the outputs if requested."""
    before, after = str(found.before.path or "before"), str(found.after.path or "after")
    headline = difference.headline(found)
    changes = (*found.signature, *found.opsets, *found.functions, *found.metadata)
    level: Level = "failed" if exit_code and not found.same and found.parity is None else "passed"
    checks = [Check("difference", "same", level, headline, after, about="Whether two models are the same.")]
    if found.parity is not None:
        checks += _of_pair(found.parity, after, terminal.pair_headline(found.parity))
    tables = (
        _values("Size", found.sizes),
        _values("Signature, opsets, functions, metadata", changes),
        _kinds(found),
        _operators(found.operators),
    )
    subject = f"{Path(before).name} -> {Path(after).name}"
    return Outcome("diff", subject, headline, exit_code, tuple(checks), tables)


def _values(title: str, changes: Sequence[Change]) -> SummaryTable:
    rows = tuple((change.what, value(change.before), value(change.after)) for change in changes)
    return SummaryTable(title, ("", "before", "after"), rows)


def _kinds(found: Difference) -> SummaryTable:
    rows = tuple(
        (str(len(kind.examples)), kind.change, f"+{kind.others}" if kind.others else "", kind.by, _where(kind))
        for kind in found.nodes.kinds
    )
    title = f"{len(rows)} kinds of changes of nodes"
    return SummaryTable(title, ("count", "change", "with", "by", "where, or such as"), rows, is_folded=True)


def _where(kind: Any) -> str:
    return str(kind.where if len(kind.examples) > 1 and kind.where else kind.examples[0])


# One model


def of_models(answers: Sequence[tuple[str, Validity | str]], exit_code: int) -> Outcome:
    """Return the outcome of `check`: for each path, the validity of the model, or why it cannot be read."""
    about = "Whether a model is valid, loads in ONNX Runtime and runs there."
    checks = []
    for path, found in answers:
        if isinstance(found, str):
            checks.append(Check("unreadable", path, "failed", found, path, about="Whether a file is a model."))
            continue
        message = "" if found.ok else str(found)
        checks.append(Check("validity", path, "passed" if found.ok else "failed", message, path, about=about))
    valid = sum(not check.is_negative for check in checks)
    subject = answers[0][0] if len(answers) == 1 else f"{len(answers)} models"
    return Outcome("check", subject, f"{valid} of {len(checks)} models are valid", exit_code, tuple(checks))


def of_fit(found: Fit, model: str) -> Outcome:
    """Return the outcome of `inspect --target`: a check for each reason why a runtime does not run the model."""
    checks = tuple(
        Check(
            f"{found.target.name}/{row.misfit.reason.kind}",
            row.misfit.reason.words,
            "failed",
            f"{row.misfit}{f'; helps: {row.help}' if row.help else ''}",
            model,
            model=model,
            nodes=row.misfit.first if row.misfit.reason.op else (),
            about=f"What {found.target.name} runs.",
        )
        for row in found.rows
    )
    fits = Check(found.target.name, f"fits {found.target.name}", "passed", path=model)
    rows = tuple((str(row.misfit.count), row.misfit.reason.words, row.help) for row in found.rows)
    table = SummaryTable("Reasons", ("nodes", "reason", "helps"), rows, is_folded=True)
    named = f"{Path(model).name} on {found.target.name}"
    return Outcome("inspect", named, fit.headline(found), int(not found.fits), checks or (fits,), (table,))


def of_recipes(answers: Sequence[tuple[str, Sequence[Problem], str]]) -> Outcome:
    """Return the outcome of `recipe check`: for each recipe, its problems, or the error if it cannot be read."""
    checks: list[Check] = []
    for name, problems, message in answers:
        checks += [_problem(problem) for problem in problems]
        if not problems:
            checks.append(Check("recipe", name, "failed" if message else "passed", message, name, about=_RECIPE))
    wrong = sum(bool(problems or message) for _, problems, message in answers)
    subject = answers[0][0] if len(answers) == 1 else f"{len(answers)} recipes"
    headline = f"{len(answers) - wrong} of {len(answers)} recipes are fine"
    return Outcome("recipe check", subject, headline, SurgeryError.exit_code if wrong else 0, tuple(checks))


_RECIPE = "Whether a recipe can be read and its passes and options exist."


def _problem(problem: Problem) -> Check:
    message = problem.message
    name = f"{problem.path}:{problem.line}:{problem.column}"
    return Check("recipe", name, "failed", message, problem.path, problem.line, problem.column, about=_RECIPE)


# Errors


def of_error(command: str, error: Exception) -> Outcome:
    """Return the outcome of a command that ended with an error."""
    code = error.exit_code if isinstance(error, SurgeryError) else _BROKEN
    about = "Errors that end a command."
    if isinstance(error, RecipeError):
        checks = tuple(_problem(problem) for problem in error.problems)
        headline = f"the recipe has {counted(len(checks), 'mistake')}"
        return Outcome(command, checks[0].path, headline, code, checks, is_complete=False)
    kind = error.code if isinstance(error, SurgeryError) else "internal"
    where = error.where or "" if isinstance(error, SurgeryError) else ""
    path, line, column = placed(where)
    level: Level = "broken" if code == _BROKEN else "failed"
    if not Path(path).is_file():
        path, line, column = "", 0, 0
    text = internal(error)
    check = Check(kind, "error", level, text, path, line, column, about=about)
    return Outcome(command, "error", text, code, (check,), is_complete=False)
