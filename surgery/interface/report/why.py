"""The explanation of a pass, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surgery.base.errors import counted
from surgery.engine.why.explain import NearMiss, Refusals, RefusedNode, Silence, Why
from surgery.features.bisection.remedies import Remedies
from surgery.interface.report.formatting import quoted_names
from surgery.model.graph.state import Site

_MOST_NAMES = 6
_MOST_PLACES = 3


def why(found: Why, limit: int) -> RenderableType:
    """Return sites, near misses and refusals, at most `limit` of each."""
    parts: list[RenderableType] = [Text(_head(found), style="bold")]
    parts += [Padding(Text(_site(site)), (0, 0, 0, 2)) for site in found.sites[:limit]]
    parts += _more(len(found.sites) - limit)
    for number, miss in enumerate(found.near_misses, start=1):
        parts += _near_miss(number, miss)
    parts += _more(found.near_misses_total - len(found.near_misses))
    for refusals in found.refusals:
        parts += _refusals(refusals)
    for silence in found.silent:
        parts += _silence(silence)
    parts += [Text(line) for line in _remarks(found)]
    return Group(*parts)


def remedies(found: Remedies) -> RenderableType:
    """Return the changes that make the pass fire at more places, for each reason for leaving places unchanged."""
    parts: list[RenderableType] = []
    for left in found.left:
        parts += [Text(""), Text.assemble((f"{counted(len(left.places), 'place')}: {left.reason}", "bold"))]
        parts.append(Text(f"  first: '{left.places[0]}', in the original {_names(left.origins)}"))
        parts += [Text(f"  nodes around it were made by {', '.join(left.passes)}") for _ in left.passes[:1]]
        parts += [Text(f"  exported from {left.exported}") for _ in [left.exported] if left.exported]
        for remedy in left.remedies:
            fires = f"  fires at {remedy.places} of them with: "
            parts.append(Text.assemble(fires, (remedy.change, "green")))
    if found.in_vain:
        parts += [Text(""), Text(f"no more places with: {'; '.join(found.in_vain)}", style="dim")]
    return Group(*parts) if parts else Text("the pass leaves no place")


def _head(found: Why) -> str:
    place = f" at '{found.at}'" if found.at else ""
    sites = counted(len(found.sites), "site")
    if found.kind == "pattern":
        return f"{found.name}{place}: {sites}, {counted(found.near_misses_total, 'kind')} of near misses"
    if found.kind == "graph":
        return f"{found.name}{place}: {sites}, {counted(sum(one.count for one in found.refusals), 'refusal')}"
    return f"{found.name}{place}: {'changes' if found.operators else 'does not change'} the model"


def _more(number: int) -> list[RenderableType]:
    return [Text(f"  and {number} more (--limit shows them)", style="dim")] if number > 0 else []


def _names(names: Sequence[str]) -> str:
    return quoted_names(names, _MOST_NAMES) or "nothing"


def _site(site: Site) -> str:
    place = f" at '{site.anchor}'" if site.anchor else ""
    return f"site {site.number}{place}: removes {_names(site.removed)}; adds {_names(site.added)}"


def _near_miss(number: int, miss: NearMiss) -> Iterator[RenderableType]:
    yield Text("")
    head = f"near miss {number}: {miss.op} '{miss.anchor}', {miss.matched} of {counted(len(miss.lines), 'line')}"
    yield Text.assemble((head, "bold"), f"; pattern {miss.pattern}, opset {miss.opset}")
    table = Table.grid(padding=(0, 2))
    for line in miss.lines:
        mark, style = ("ok", "green") if line.fits else ("no" if line.node else "-", "red")
        table.add_row("", Text(mark, style=style), Text(line.text), Text(line.node, style="dim"))
    yield table
    for flaw in miss.flaws:
        yield Text.assemble("  ", (f"{flaw}", "red"), f" at '{flaw.node}', in '{flaw.line}'")
    if miss.reason:
        where = f" ({miss.where})" if miss.where else ""
        yield Text.assemble("  refused: ", (miss.reason, "red"), where)
    yield from (Text(f"  {line}") for line in miss.escapes)
    yield from (Text(f"  where {miss.values}") for _ in [miss.values] if miss.values)
    yield from (Text(f"  not known: {what}", style="yellow") for what in miss.unknown)
    if miss.bindings:
        table = Table.grid(padding=(0, 2))
        for bound in miss.bindings:
            table.add_row("   ", bound.name, Text(bound.type), Text(bound.contents), Text(bound.value, style="dim"))
        yield table
    if miss.alike:
        yield Text(f"  the same at {_names(miss.alike)}", style="dim")


def _refusals(refusals: Refusals) -> Iterator[RenderableType]:
    yield Text("")
    where = f" ({refusals.where})" if refusals.where else ""
    yield Text.assemble(f"refused {refusals.count} times: ", (refusals.reason, "red"), where)
    for place in refusals.places[:_MOST_PLACES]:
        yield Text(f"  {_place(place)}")
        yield from (Text(f"    where {place.values}") for _ in [place.values] if place.values)
        yield from (Text(f"    not known: {what}", style="yellow") for what in place.unknown)
    others = [place.anchor for place in refusals.places[_MOST_PLACES:]]
    if others:
        hidden = refusals.count - len(refusals.places)
        yield Text(f"  {_names(others)}{f' and {hidden} more' if hidden and len(others) <= _MOST_NAMES else ''}", "dim")


def _silence(silence: Silence) -> Iterator[RenderableType]:
    yield Text("")
    yield Text.assemble(f"passed over {silence.count} times without a reason: ", (silence.where, "red"))
    if silence.values:
        yield Text(f"  where {silence.values}, for the first of them" if silence.count > 1 else f"  {silence.values}")
    more = silence.count - len(silence.nodes)
    names = _names(silence.nodes)
    yield Text(f"  {names}{f' and {more} more' if more and len(silence.nodes) <= _MOST_NAMES else ''}", "dim")


def _place(place: RefusedNode) -> str:
    if not place.anchor:
        return "the model"
    if not place.op:
        return f"'{place.anchor}'"
    return f"{place.op} '{place.anchor}': {', '.join(place.inputs)} -> {', '.join(place.outputs)}"


def _remarks(found: Why) -> Iterator[str]:
    if found.sites or found.near_misses or found.refusals or found.silent or found.remark or found.absent:
        yield ""
    if found.absent:
        yield f"no pattern can match completely: the model has no {', no '.join(found.absent)}"
    if found.looked is not None and not found.at:
        looked = ", ".join(f"{count} {op or 'nodes'}" for op, count in found.looked.items())
        yield f"looked at: {looked or 'no node'}"
    for op, (before, after) in (found.operators or {}).items():
        yield f"  {op}: {before} -> {after}"
    if found.remark:
        yield found.remark
