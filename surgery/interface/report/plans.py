"""Plans as tables: the steps with their sites and savings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.base.errors import counted, first_few
from surgery.interface.report.formats.markdown import code
from surgery.interface.report.formatting import change, moved_bytes, moved_nodes, not_met, size

if TYPE_CHECKING:
    from surgery.features.planning.plan_document import Operations, PlannedNode, PlannedSite, PlannedStep, Savings
    from surgery.features.planning.plan_making import Planning

_MOST_SITES = 5
_MOST_NODES = 4
_LONGEST = 40
"""Maximum number of characters of an expression in the names of dims; longer ones are only in JSON."""
_LONGEST_NAME = 32
"""Maximum number of characters of the name of a node; longer ones are shortened unless `every` site is listed."""
_SHIPPED = "shipped:"
_VERIFIED = {"none": "not verified", "each": "each step verified", "end": "verified at the end"}


def plan(planning: Planning, *, every: bool = False) -> RenderableType:
    """Return the steps, the sites of each (the first few, unless `every` is set), and the totals."""
    found: list[RenderableType] = []
    for step in planning.plan.steps:
        found.append(
            Text(
                f"{step.step}  {step.name}  {_savings(step.saves)}  ({step.where.removeprefix(_SHIPPED)})", style="bold"
            )
        )
        found.append(_sites(step, every))
    if found:
        found.append(Text(""))
    return Group(*found, *_expected(planning), conclusion(planning))


def conclusion(planning: Planning) -> Text:
    """Return the result of the plan in one line, or the step that ends the run."""
    if planning.failure is not None:
        failed = planning.failure
        return Text(f"failed: step '{failed.name}' ({failed.place}): {failed.message}", style="red")
    made = planning.plan
    unmet = sum(not item.ok for item in made.expectations)
    start = f"failed: {not_met(unmet)}; " if unmet else ""
    if not made.steps:
        return Text(f"{start}nothing to do: {counted(made.before.nodes, 'node')}, {_VERIFIED[made.verified]}")
    sizes = moved_bytes(made.before.bytes, made.after.bytes) if made.after.bytes is not None else ""
    parts = [moved_nodes(made.before.nodes, made.after.nodes), sizes]
    parts.append(_operations(made.before.operations, made.after.operations))
    sites = f"{counted(made.sites, 'site')} in {counted(len(made.steps), 'step')}"
    return Text(f"{start}plan: {', '.join(filter(None, parts))}; {sites}, {_VERIFIED[made.verified]}")


def markdown(planning: Planning) -> str:
    """Return the plan for a pull request: a table of the steps, and the sites of each below a fold."""
    made = planning.plan
    lines = [f"### surgery plan: {code(made.basis.pins['recipe'])}", "", code(conclusion(planning).plain, 500), ""]
    lines += [f"- {'met' if one.ok else 'not met'}: {code(one.what)}" for one in made.expectations]
    if made.steps:
        lines += ["", "| step | pass | sites | nodes | bytes | operations |", "|---:|---|---:|---:|---:|---:|"]
    for step in made.steps:
        saves = step.saves
        cells = str(step.step), code(step.name), str(len(step.sites)), f"{-saves.nodes:+d}", _bytes(saves.bytes)
        lines.append(f"| {' | '.join(cells)} | {_cell(saves.operations)} |")
    for step in made.steps:
        lines += ["", f"<details><summary>step {step.step}: {code(step.name)}</summary>", ""]
        lines += [f"- {site.site}: {code(_takes(site))} -> {code(_made(site))}" for site in step.sites]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _expected(planning: Planning) -> Iterator[Text]:
    for item in planning.plan.expectations:
        yield Text.assemble(("met     " if item.ok else "not met ", "green" if item.ok else "red"), f" {item.what}")


def _sites(step: PlannedStep, every: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    most = None if every else _LONGEST_NAME
    shown: Sequence[PlannedSite] = step.sites if every else step.sites[:_MOST_SITES]
    for site in shown:
        number = f"    {step.step}:{site.site}"
        table.add_row(number, _takes(site, most), f"-> {_made(site, most)}", change(-site.saves.nodes))
    if len(shown) < len(step.sites):
        table.add_row("", Text(f"and {counted(len(step.sites) - len(shown), 'more site')} (-v lists all)", style="dim"))
    return table


def _takes(site: PlannedSite, most: int | None = None) -> str:
    """Return the nodes that a site removes, or else its anchor; names with up to `most` characters."""
    return _named(site.removes, most) or _shortened(site.anchor, most) or "(the whole model)"


def _made(site: PlannedSite, most: int | None = None) -> str:
    return _named(site.adds, most) or ("nothing" if site.removes else "changed in place")


def _named(nodes: Sequence[PlannedNode], most: int | None) -> str:
    names = ((node, _shortened(node.name, most)) for node in nodes)
    return first_few((f"{node.op} {name}" if node.op else name for node, name in names), _MOST_NODES)


def _shortened(name: str, most: int | None) -> str:
    """Return the end of a long name, which differs where exporters name nodes by their modules."""
    return name if most is None or len(name) <= most else f"…{name[1 - most :]}"


def _savings(saves: Savings) -> str:
    parts = [f"{-saves.nodes:+d} nodes" if saves.nodes else "", _bytes(saves.bytes)]
    operations = _cell(saves.operations)
    return ", ".join(filter(None, [*parts, f"{operations} operations" if operations else ""]))


def _bytes(saved: int) -> str:
    return f"{'-' if saved > 0 else '+'}{size(abs(saved))}" if saved else ""


def _cell(saved: Operations) -> str:
    """Return the change of the number of operations; an expression is shown as a saving, unless it is long."""
    if saved is None or saved == 0 or len(str(saved)) > _LONGEST:
        return ""
    return f"{-saved:+,d}" if isinstance(saved, int) else f"-({saved})"


def _operations(before: Operations, after: Operations) -> str:
    if before == after or not (isinstance(before, int) and isinstance(after, int)):
        return ""
    return f"{before:,} -> {after:,} operations"
