"""The difference of two models, as rich tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.base.errors import first_few
from surgery.features.differences.changes import Change
from surgery.features.differences.constant_differences import Constant, ConstantPair, Constants
from surgery.features.differences.constant_distances import Distance
from surgery.features.differences.difference import Difference
from surgery.features.differences.node_differences import ChangeKind, Correspondence
from surgery.interface.report import formatting, terminal

_FEW = 20
"""Maximum number of kinds of changes shown, unless every change is requested."""
_FEW_CONSTANTS = 5
"""Maximum number of constants of a kind shown, unless all are requested."""
_LONG = 100
"""Maximum number of characters of a change shown, unless every change is requested."""


def difference(found: Difference, *, every: bool = False) -> RenderableType:
    """Return the report of `diff`; with `every`, with each changed node and constant."""
    parts: list[RenderableType] = [terminal.histogram_table(found.operators, every=every), Text("")]
    parts += [Text("nodes", style="bold"), *_nodes(found.nodes, every=every)]
    parts += [Text(""), Text("constants", style="bold"), *_constants(found.constants, every=every)]
    sections = {
        "signature": found.signature,
        "opsets": found.opsets,
        "functions": found.functions,
        "metadata": found.metadata,
        "sizes": found.sizes,
    }
    for title, changes in sections.items():
        if changes:
            parts += [Text(""), Text(title, style="bold"), _changes(changes)]
    if same := [title for title, changes in sections.items() if not changes]:
        parts += [Text(""), Text(f"{', '.join(same)}: the same", style="dim")]
    if found.parity is not None:
        parts += [Text(""), Text("parity", style="bold"), terminal.pair(found.parity, every=every)]
    return Group(*parts, Text(""), Text(headline(found), style="bold"))


def headline(found: Difference) -> str:
    """Return in one line whether the models and their outputs differ."""
    shown = "the models are the same" if found.same else "the models differ"
    counts = found.nodes
    told = f"{counts.unexplained} of {counts.total} differing nodes are not explained" if counts.unexplained else ""
    parity = f"outputs: {terminal.pair_headline(found.parity)}" if found.parity is not None else ""
    return "; ".join(filter(None, (shown, f"{found.before.nodes} -> {found.after.nodes} nodes", told, parity)))


def _changes(changes: Sequence[Change]) -> Table:
    table = Table.grid(padding=(0, 2))
    for item in changes:
        before, after = formatting.value(item.before), formatting.value(item.after)
        table.add_row(f"  {item.what}", Text(before, style="red"), "->", Text(after, style="green"))
    return table


def _nodes(found: Correspondence, *, every: bool) -> Iterator[RenderableType]:
    yield Text(f"  {_matched(found)}")
    if found.total:
        known = found.total - found.unexplained
        yield Text(f"  {known} of {found.total} differing nodes are explained ({known / found.total:.1%})")
    kinds = found.kinds if every else found.kinds[:_FEW]
    if kinds:
        yield _kinds(kinds, every=every)
    if len(kinds) < len(found.kinds):
        yield Text(f"  {len(found.kinds) - len(kinds)} more kinds of changes; -v lists each change", style="dim")


def _matched(found: Correspondence) -> str:
    """Return the numbers of matched nodes, by sign, and of changed, replaced, removed and added ones."""
    ways = ", ".join(f"{count} by {how}" for how, count in found.matched.items())
    parts = [f"{sum(found.matched.values())} are in both{f' ({ways})' if ways else ''}"]
    if found.changed:
        parts.append(f"{len(found.changed)} of them changed")
    if found.groups:
        became = sum(len(group.before) for group in found.groups)
        parts.append(f"{became} became {sum(len(group.after) for group in found.groups)} new")
    return ", ".join([*parts, f"{len(found.removed)} removed", f"{len(found.added)} added"])


def _kinds(kinds: Sequence[ChangeKind], *, every: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 1), header_style="bold")
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("change", overflow="fold")
    table.add_column("with", justify="right", no_wrap=True)
    for title in ("by", "which" if every else "where, or such as"):
        table.add_column(title, overflow="fold")
    for kind in kinds:
        rows = [(1, example) for example in kind.examples] if every else [(len(kind.examples), _where(kind))]
        for count, which in rows:
            others = f"+{kind.others}" if kind.others and not every else ""
            table.add_row(str(count), Text(kind.change), Text(others, style="dim"), Text(kind.by), Text(which))
    return table


def _where(kind: ChangeKind) -> str:
    return kind.where if len(kind.examples) > 1 and kind.where else _cut(kind.examples[0])


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def _constants(found: Constants, *, every: bool) -> Iterator[RenderableType]:
    equal = sum(pair.equal for pair in found.pairs)
    parts = [f"{equal} are the same"]
    for count, what in ((len(found.renamed), "renamed"), (len(found.moved), "between nodes and initializers")):
        parts += [f"{count} of them {what}"] if count else []
    parts += [f"{len(found.changed)} changed", _sum(found.removed, "removed"), _sum(found.added, "added")]
    yield Text(f"  {', '.join(parts)}")
    table = Table.grid(padding=(0, 2))
    for title, rows in (
        ("changed", [(_names(pair), _apart(pair)) for pair in found.changed]),
        ("removed", [(str(one), formatting.size(one.bytes)) for one in _largest(found.removed)]),
        ("added", [(str(one), formatting.size(one.bytes)) for one in _largest(found.added)]),
        ("", [(tie.what, f"{_some(tie.before)} -> {_some(tie.after)}") for tie in found.ties]),
    ):
        shown = rows if every else rows[:_FEW_CONSTANTS]
        for what, how in shown:
            table.add_row(f"  {title}", Text(what), Text(how))
        if len(shown) < len(rows):
            table.add_row("", Text(f"{len(rows) - len(shown)} more; -v lists each", style="dim"))
    if table.row_count:
        yield table


def _sum(constants: Sequence[Constant], what: str) -> str:
    size = f" ({formatting.size(sum(one.bytes for one in constants))})" if constants else ""
    return f"{len(constants)} {what}{size}"


def _largest(constants: Sequence[Constant]) -> list[Constant]:
    return sorted(constants, key=lambda one: -one.bytes)


def _some(constants: Sequence[Constant]) -> str:
    return first_few((one.name for one in constants), 2)


def _names(pair: ConstantPair) -> str:
    before, after = str(pair.before), str(pair.after)
    if before == after:
        return before
    return f"{before} -> {after.removeprefix(f'{pair.before.name}: ')}"


def _apart(pair: ConstantPair) -> str:
    """Return the distance of the elements as text."""
    return "another number of elements" if pair.distance is None else _distance(pair.distance)


def _distance(far: Distance) -> str:
    parts = [f"{far.different:,} of {far.elements:,} elements"]
    if far.largest is not None and far.different > far.not_finite:
        parts.append(f"by at most {far.largest:.3g}")
        parts += [f"{far.relative:.2g} of the largest"] if far.relative is not None else []
    parts += [f"{far.not_finite:,} NaN or infinite in one only"] if far.not_finite else []
    return ", ".join(parts)
