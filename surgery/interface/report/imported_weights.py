"""The results of `import-weights` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.features.frameworks.importing import Imported, amounts

_FEW = 10
_TITLES = {
    "missing": "initializers without a tensor",
    "unexpected": "tensors without an initializer",
    "shape": "other dims",
    "dtype": "types that are not converted",
    "range": "values that are too large",
    "layout": "unclear layout",
}


def report(found: Imported, *, every: bool = False) -> RenderableType:
    """Return the imported tensors, their conversions, and the misfits; `every` lists all of them."""
    plan, most = found.plan, None if every else _FEW
    parts: list[RenderableType] = []
    if plan.assignments:
        parts.append(_changes(found))
    for kind, title in _TITLES.items():
        misfits = [(one.name, one.message) for one in plan.misfits if one.kind == kind]
        if misfits:
            parts += [Text(f"{title}: {len(misfits)}", style="red"), _listed(misfits, most)]
    if every:
        parts += _every(found)
    if found.suggestions:
        parts.append(_suggestions(found))
    return Group(*parts, conclusion(found))


def _changes(found: Imported) -> RenderableType:
    plan = found.plan
    table = Table.grid(padding=(0, 2))
    table.add_row("imported", str(len(plan.assignments)), f"{found.unchanged} of them already had these elements")
    for what, count in sorted(amounts(plan).items()):
        table.add_row(what, str(count), _reasons(found) if what == "transposed" else "")
    for what, names in (("kept", plan.kept), ("ignored", plan.ignored)):
        if names:
            table.add_row(what, str(len(names)), _some(names))
    if plan.tied:
        table.add_row("tied", str(len(plan.tied)), _some(f"{name} = {other}" for name, other in plan.tied))
    return table


def _reasons(found: Imported) -> str:
    reasons = Counter(one.why for one in found.plan.assignments if one.order is not None)
    return ", ".join(f"{count} {why}" if len(reasons) > 1 else why for why, count in reasons.most_common())


def _some(names: Iterable[str], most: int = 2) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")


def _listed(rows: list[tuple[str, str]], most: int | None) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, message in rows[:most]:
        table.add_row(f"  {name}", message)
    if most is not None and len(rows) > most:
        table.add_row(f"  and {len(rows) - most} more (-v lists them)")
    return table


def _every(found: Imported) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    for one in found.plan.assignments:
        how = [f"transposed, {one.why}" if one.order is not None else one.why]
        how += one.reordered
        if one.dtype != one.target.dtype:
            how.append(f"from {one.dtype.name.lower()}")
        table.add_row(f"  {one.target.name}", ", ".join(one.source.tensors), "; ".join(filter(None, how)))
    return [Text("initializers and their tensors"), table]


def _suggestions(found: Imported) -> RenderableType:
    made = found.suggestions
    lines = [f"--name '{new}={old}' would match {count}" for new, (old, count) in made.prefixes.items()]
    if made.single:
        some = _some((f"{new} = {old}" for new, (old, _) in made.single.items()), 3)
        lines.append(f"{len(made.single)} may belong together: {some}; --suggest FILE writes them to a mapping file")
    if made.joined:
        some = _some((f"{new} = {' + '.join(old)}" for new, (old, _) in made.joined.items()), 3)
        lines.append(f"{len(made.joined)} of recurrent layers: {some}; --suggest FILE writes them to a mapping file")
    return Text("\n".join(f"suggested, not used: {line}" for line in lines), style="yellow")


def conclusion(found: Imported) -> RenderableType:
    """Return the result in one line."""
    plan = found.plan
    count = len(plan.assignments)
    if not count:
        return Text("nothing imported: no tensor has the same name as an initializer", style="red")
    counts = Counter(one.kind for one in plan.misfits)
    lack = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if not plan.misfits:
        return Text(f"ok: {count} initializers imported, all tensors used", style="green")
    if found.partial:
        return Text(f"ok: {count} initializers imported; left out, as --partial allows: {lack}", style="green")
    return Text(f"not imported: {lack}; --partial imports the {count} that fit", style="red")
