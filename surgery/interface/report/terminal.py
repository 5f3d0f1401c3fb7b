"""Records as rich tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surgery.base.errors import counted, first_few
from surgery.interface.report import accuracy_loss, missed_expectations, proof, step_table
from surgery.interface.report.formatting import (
    change,
    duration,
    moved_nodes,
    needed,
    not_met,
    shrunk,
    size,
    used,
)
from surgery.model.storage.summary import OperatorCount, histogram
from surgery.model.wire.digests import STATEMENT_KEY
from surgery.verification.comparing.details import REPRODUCED, Status

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result, StepRecord
    from surgery.features.inspection.inspect import Inspection, Port
    from surgery.model.storage.summary import Summary
    from surgery.model.wire.descriptions import DescriptionBytes
    from surgery.verification.comparing.deployment import Deployed
    from surgery.verification.verdict.pair import Pair
    from surgery.verification.verdict.validity import Validity

_MOST_DIMS = 4
_MOST_KEYS = 4


def histogram_table(counts: Sequence[OperatorCount], *, every: bool = False) -> Table:
    """Return a table with one row per operator: before, after, difference.

    The unchanged operators are one row, unless `every` is set.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True)
    before, after = sum(count.before for count in counts), sum(count.after for count in counts)
    table.add_column("operator", footer="all", overflow="fold")
    table.add_column("before", footer=str(before), justify="right", no_wrap=True)
    table.add_column("after", footer=str(after), justify="right", no_wrap=True)
    table.add_column("difference", footer=change(after - before), justify="right", no_wrap=True)
    same = [count for count in counts if not count.difference]
    folds = not every and len(same) > 1
    for count in counts:
        style = "" if count.difference else "dim"
        if count.difference or not folds:
            table.add_row(Text(count.op, style=style), str(count.before), str(count.after), change(count.difference))
    if folds:
        number = str(sum(count.before for count in same))
        table.add_row(Text(f"{len(same)} operators unchanged", style="dim"), number, number, "")
    return table


@dataclass(frozen=True)
class _RunReport:
    """The report of a run. With a `height`, the part from the steps on fits a terminal of that many lines."""

    account: Result
    every: bool
    height: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        account, rows, lines = self.account, None, None
        end: list[RenderableType] = [
            *_remarks(account),
            *_expected(account),
            *_executed(account.deployed),
            *_unfit(account),
            *([Text(lost, style="yellow")] if (lost := account.lost_empty) else []),
            *_details(account, every=self.every),
            conclusion(account),
        ]
        fits = self.height is not None and not self.every
        if self.height is not None and fits:
            room = self.height - _below(console, options, Group(*end))
            lines = max(room // 3, 1)
        said = list(step_table.messages_shown(account.steps, lines, every=self.every))
        if self.height is not None and fits:
            rows = room = self.height - _below(console, options, Group(*said, *end)) - 1
            while rows > 0 and _below(console, options, step_table.steps_shown(account.steps, rows)) > room:
                rows -= 1  # lines were wrapped
        yield from _of_original(account)
        counts = histogram(account.input.ops, account.output.ops)
        if any(count.difference for count in counts):
            yield histogram_table(counts, every=self.every)
            yield Text("")
        yield step_table.steps_shown(account.steps, rows, every=self.every)
        yield from said
        yield Text("")
        yield from end


def _below(console: Console, options: ConsoleOptions, shown: RenderableType) -> int:
    """Return the number of lines of a renderable."""
    return len(console.render_lines(shown, options.update(height=None), pad=False))


def result(account: Result, *, every: bool = False, height: int | None = None) -> RenderableType:
    """Return the report of `apply`: operators before and after, steps, messages, expectations, the verdict.

    `every` shows all steps and operators. `height` is the number of lines for the steps and the rest: the least
    important steps and the ends of long messages are left out.
    """
    return _RunReport(account, every, height)


def _remarks(account: Result) -> Iterator[RenderableType]:
    yield from (Padding(Text(line, style="yellow"), (0, 0, 0, 2)) for line in remarks(account.bindings))
    yield from (Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in refused_sizes(account.bindings))


def _expected(account: Result) -> Iterator[Text]:
    met = tuple(f": {item.what}" for item in account.expectations if item.ok)
    for item in account.expectations:
        if item.ok and item.what.endswith(met):
            continue  # what holds for a nested recipe holds for the whole, too
        yield Text.assemble(("met     " if item.ok else "not met ", "green" if item.ok else "red"), f" {item.what}")
        yield from (Text(f"         {line}", style="yellow") for line in missed_expectations.advice(account, item))


def _unfit(account: Result) -> Iterator[Text]:
    if account.misfits is not None:
        reason = f"{account.misfits.words}; " if account.misfits.is_met else ""
        advice = f"'surgery inspect --target {account.target}' lists the nodes, and the steps that help"
        yield Text(f"{reason}{advice}", style="yellow")


def _executed(found: Deployed | None) -> Iterator[Text]:
    """Yield the number of nodes that the runtime executes of the result and, if known, of the original."""
    if found is None:
        return
    if found.executed is not None:
        before = ""
        if found.original is not None:
            same = found.original.total == found.executed.total
            before = ", as many as before" if same else f", {found.original.total} before"
        yield Text(f"as deployed: {found.executed} by {found.runtime}{before}", style="dim")
    elif found.is_elsewhere and found.verdict.status.accepted:
        yield Text(f"as deployed: right in {found.runtime}", style="dim")
    if found.is_elsewhere and found.verdict.is_unverified:
        yield Text(f"as deployed: {found.verdict.message}", style="yellow")
    if found.note:
        yield Text(f"not run on the target: {found.note}", style="yellow")


def invalid(found: Validity) -> Iterator[RenderableType]:
    """Yield the findings on the input model, if it is invalid, and what keeps passes from its weights."""
    if not found.ok:
        yield Text(f"the input model: {found}", style="yellow")
    if found.repaired:
        yield Text(f"the input model: {found.repaired}; repaired", style="yellow")
    if found.remark:
        yield Text(f"the input model: {found.remark}", style="yellow")


def _of_original(account: Result) -> Iterator[RenderableType]:
    """Yield what is to be said of the input model before the steps, unless a step has dealt with it."""
    found = account.validity
    if found is not None:
        yield from invalid(replace(found, overridable=0) if account.has_frozen_weights else found)


def brief(account: Result) -> RenderableType:
    """Return the verdict on a run, preceded by what makes it negative: a failed step, expectations that are not met."""
    failed = [] if account.failure is None else [account.failure]
    failed += account.broken if account.ok or not account.strict else account.refused
    said = [text for _, text in step_table.messages(failed)]
    expected = _expected(replace(account, expectations=tuple(one for one in account.expectations if not one.ok)))
    end = conclusion(account)
    if not said:  # nothing stands above
        end = Text(end.plain.replace(", see above", ""), style=end.style)
    return Group(*said, *expected, end)


def conclusion(account: Result) -> Text:
    """Return the verdict on a run: the change of the model, the time and how it was verified, or why it failed."""
    found = _conclusion(account)
    return Text.assemble(found, _from_cache(account, " From" if found.plain.endswith(".") else "; from"))


def _details(account: Result, *, every: bool) -> Iterator[Text]:
    """Yield what exactly was compared, if all details are asked for and something was."""
    committed = [step for step in account.steps if step.status == "committed"]
    if every and account.ok and committed:
        yield Text(proof.details(committed, account), style="dim")


def _from_cache(account: Result, start: str) -> str:
    """Return the number of results taken from the cache."""
    taken, end = account.cached
    count = len(account.steps)
    parts = [f"{taken} of {counted(count, 'step')}"] if taken else []
    parts += ["the verdict on the whole model"] if end else []
    return f"{start} the cache: {' and '.join(parts)}{'.' if start[0] == ' ' else ''}" if parts else ""


def _conclusion(account: Result) -> Text:
    shrinkage = f"{shrunk(account.input, account.output)}, {duration(account.seconds)}"
    committed = [step for step in account.steps if step.status == "committed"]
    if account.failure is not None:
        step = account.failure
        return _failed(f"step '{step.name}' {_fault(step)}", account, _advice(step, account))
    unmet = sum(not item.ok for item in account.expectations)
    if unmet:
        lossy = accuracy_loss.missed(account)
        before, after = account.input.nodes, account.output.nodes
        nodes = counted(after, "node") if before == after else moved_nodes(before, after)
        return _failed(f"{not_met(unmet)}; {f'{lossy}; ' if lossy else ''}{nodes}", account)
    if account.unverifiable:
        advice = (
            "pass --inputs, --dims or --custom-op-library to make it run, or --unverified accept to accept it "
            "unverified"
        )
        known = account.validity is not None and account.unverifiable in str(account.validity)
        reason = "the model does not run, see above" if known else account.unverifiable
        return _failed(f"nothing can be verified: {reason}", account, advice)
    if not account.ok:
        found = "; ".join(one.words for one in account.unmet) or _not_kept(account.refused)
        return Text(f"failed: {found}; --strict writes no file", style="bold red")
    wrong = [step for step in account.refused if not step.broke and not _is_named(step, account)]
    refused = f"; {_not_kept(wrong)}" if wrong else ""
    refused += _defective(len(account.defects))
    lossy = accuracy_loss.lead(account)
    style = "bold yellow" if refused else "bold cyan" if lossy else "bold green"
    if not committed:
        return _with_purpose(*_unchanged(account, refused, style), account)
    made = f" for {account.target}" if account.is_targeted and not account.fails_on_target else ""
    compared = proof.sentence(committed, account)
    words = f"{f'{lossy}; ' if lossy else ''}{shrinkage}{refused}.{f' {compared}.' if compared else ''}"
    return _with_purpose(f"ok{made}", words, style, account)


def _is_named(step: StepRecord, account: Result) -> bool:
    """Return whether what the run did not reach says that a step was undone."""
    return step.status == "rolled_back" and any(f"'{step.name}'" in one.words for one in account.unmet)


def _failed(why: str, account: Result, advice: str = "") -> Text:
    """Return why a run failed and how long it took; advice is on a line of its own."""
    line = f"failed: {why}; {duration(account.seconds)}; no file was written"
    return Text("\n".join(filter(None, (line, advice))), style="bold red")


def _fault(step: StepRecord) -> str:
    """Say what is wrong with a step that ended the run; its message has the particulars."""
    verdict = step.verdict
    if verdict is None:
        return "broke" if step.exit_code > 1 else "was refused"
    if not verdict.is_different:
        return "cannot be verified"
    is_lossy = verdict.details is not None and verdict.details.accuracy is not None
    return "exceeds the accuracy budget" if is_lossy else "changes the results"


def _with_purpose(start: str, words: str, style: str, account: Result) -> Text:
    """Return the verdict, with what was not reached in place of the `start`, such as a target that runs the result."""
    unmet = [one.words for one in account.unmet]
    shortfall = account.shortfall
    if shortfall is not None and shortfall.is_met:
        start, words, style = start or "ok", f"{shortfall.words}; {words}", ""
    if unmet:
        return Text("; ".join([*unmet, words]), style="bold red")
    return Text(f"{start}: {words}" if start else words, style=style)


def _unchanged(account: Result, refused: str, style: str) -> tuple[str, str, str]:
    """Return the verdict on a run that changed nothing, which proves nothing about a model that never ran.

    It is the start, the words and the style.
    """
    only = account.steps[0] if len(account.steps) == 1 else None
    found = only.finding() if only is not None and only.status == "unchanged" and account.shortfall is None else ""
    words = f"nothing changed{refused}" if refused else f"nothing to change{f': {found}' if found else ''}"
    if account.validity is not None and account.validity.failure:
        return "", f"{words}, but no input was found on which the model runs, see above", "bold yellow"
    if account.validity is not None and account.validity.repaired:
        words = f"no step changed anything{refused}; nodes of the input model were repaired, see above"
    return "ok", words, style


def _not_kept(refused: Sequence[StepRecord]) -> str:
    """Describe the refused steps, and the refused sites of other steps."""
    whole = sum(1 for step in refused if not step.refused_sites)
    sites = sum(len(step.refused_sites) for step in refused)
    found = [counted(count, one) for count, one in ((whole, "step"), (sites, "site")) if count]
    return f"{' and '.join(found)} {'was' if whole + sites == 1 else 'were'} refused and undone, see above"


def _defective(count: int) -> str:
    """Return the remark that passes lost sites to exceptions; empty if they lost none."""
    if not count:
        return ""
    places = "place, which stays" if count == 1 else "places, which stay"
    return f"; a standard pass raised an exception at {count} {places} as before: a defect of surgery, please report it"


def _advice(step: StepRecord, account: Result) -> str:
    """Return advice about a step that ended the run."""
    if step.verdict is None and not step.applied:
        return "--on-failure rollback goes on without the step"
    advice = "--on-failure bisect keeps the correct sites; 'surgery bisect' finds the wrong ones"
    if step.verdict is None or not step.verdict.is_unverified:
        return advice
    if step.message and account.validity is not None and step.message in str(account.validity):
        return "the input model does not run, see above: --unverified accept accepts the step unverified"
    return (
        f"pass --inputs or --dims to make the change visible, or --unverified accept to accept it unverified; {advice}"
    )


def inspection(facts: Inspection) -> RenderableType:
    """Return the report of `inspect`."""
    head = Table.grid(padding=(0, 2))
    head.add_column(style="bold", no_wrap=True)
    head.add_column()
    head.add_row("model", str(facts.path) if facts.path else "in memory")
    head.add_row("producer", facts.producer or "?")
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts.opsets.items())
    head.add_row("IR version", f"{facts.ir_version}, opsets: {opsets}")
    for title, ports in (("input", facts.inputs), ("overridable", facts.overridable), ("output", facts.outputs)):
        for port in ports:
            head.add_row(title, _port(port))
    head.add_row("nodes", f"{facts.nodes}, depth {facts.depth}")
    kinds = ", ".join(f"{count} {name}" for name, count in facts.parameters_by_type.items())
    head.add_row("parameters", f"{facts.parameters:,}{f' ({kinds})' if kinds else ''}")
    head.add_row("weights", _of(facts.weight_bytes, facts.bytes))
    if facts.metadata_bytes.entries or facts.metadata_bytes.doc_strings:
        head.add_row("metadata", f"{_of(facts.metadata_bytes.total, facts.bytes)}: {_keys(facts.metadata_bytes)}")
    head.add_row("domains", ", ".join(f"{domain} {count}" for domain, count in facts.domains.items()))
    for name, count in facts.functions.items():
        head.add_row("function", f"{name}, {count} nodes")
    for key, value in facts.metadata.items():
        if key == STATEMENT_KEY:
            head.add_row("provenance", "stated; 'surgery provenance' shows and checks it")
        else:
            head.add_row("metadata", f"{key}: {' '.join(value.split())[:100]}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("count", justify="right")
    for op, count in facts.ops.items():
        table.add_row(op, str(count))
    return Group(head, Text(""), table)


def _of(part: int, whole: int | None) -> str:
    return size(part) if whole is None else f"{size(part)} of {size(whole)}"


def _keys(found: DescriptionBytes) -> str:
    """List the keys of metadata that take the most bytes, and doc strings."""
    parts = [*found.entries.items(), *([("doc strings", found.doc_strings)] if found.doc_strings else [])]
    parts.sort(key=lambda item: -item[1])
    return first_few([f"{name} {size(taken)}" for name, taken in parts], _MOST_KEYS)


def _port(port: Port) -> str:
    return f"{port.name}: {port}"


def pair(found: Pair, *, every: bool = False) -> RenderableType:
    """Return the report of `verify`; `every` adds the tolerances in numbers, and the distances of outputs."""
    verdict = found.verdict
    parts = []
    if found.complaints:
        parts = [Text(_complaint(found), style="red")]
    parts += [Text(_outputs(found, every=every), style=verdict.status.style)]
    parts += [Text(f"  {verdict.message or verdict.reason}")] if verdict.message or verdict.reason else []
    parts += [Text(f"  signature: {item}", style="yellow") for item in found.signature]
    for kind, pairs in (("input", found.inputs), ("output", found.outputs)):
        parts += [
            Text(f"  {kind} '{mine}' paired with '{theirs}'", style="dim") for mine, theirs in pairs if mine != theirs
        ]
    if found.deployed is not None and (found.deployed.is_elsewhere or found.deployed.note):
        parts += list(_executed(found.deployed))
    parts += [Text(f"  {line}", style="yellow") for line in remarks(found.bindings)]
    parts += [Text(f"  {line}", style="dim") for line in refused_sizes(found.bindings)]
    return Group(*parts)


def pair_headline(found: Pair) -> str:
    """Return the verdict on two models in one line."""
    return "; ".join([*([_complaint(found)] if found.complaints else []), _outputs(found)])


def _complaint(found: Pair) -> str:
    takes = "accepts less than A" if found.interface == "keep" and found.narrowed else "is not valid where A is"
    return f"B {takes}: {'; '.join(found.complaints)}"


def _outputs(found: Pair, *, every: bool = False) -> str:
    """Describe how the outputs compare."""
    verdict = found.verdict
    runs = sum(1 for binding in found.bindings if not binding.get("refused"))
    shown = f", rtol needed {needed(verdict)}" if needed(verdict) else ""
    if verdict.status is Status.CLOSE and verdict.details is not None:
        shown = f", {step_table.distance(verdict)}"
    share = used(verdict)
    detail = shown if every else f", tolerance used: {share}" if share else ""
    number = f" on {counted(runs, 'input set')}" if runs else ""
    return f"{'outputs: ' if found.complaints else ''}{verdict.status}{number}{detail}"


def remarks(bindings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return remarks on given input sets, which have no seed, that were refused or whose expected outputs differ."""
    given = [binding for binding in bindings if binding["seed"] is None]
    lines = [f"{item['character']} is not used: {item['refused']}" for item in given if "refused" in item]
    for item in given:
        outcome = item.get("expected_outputs", REPRODUCED)
        if outcome != REPRODUCED:
            lines.append(f"{item['character']}: the original does not reproduce the expected outputs: {outcome}")
    return lines


def refused_sizes(bindings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line with the sizes of dynamic dims that the original rejected, if any."""
    drawn = [binding for binding in bindings if binding["seed"] is not None]
    run = {dim for binding in drawn if "refused" not in binding for dim in binding["dims"].items()}
    tried: dict[str, set[int]] = {}
    for name, extent in (dim for binding in drawn for dim in binding["dims"].items()):
        if run and (name, extent) not in run:
            tried.setdefault(name, set()).add(extent)
    shown = [f"{name} = {', '.join(map(str, sorted(sizes)))}" for name, sizes in list(tried.items())[:_MOST_DIMS]]
    more = f"; and {len(tried) - _MOST_DIMS} more dims" if len(tried) > _MOST_DIMS else ""
    return [f"sizes rejected by the original: {'; '.join(shown)}{more}"] if shown else []


def summary(found: Summary) -> str:
    """Describe a written model by path and size."""
    return f"{found.path} ({found.nodes} nodes, {size(found.bytes)})"
