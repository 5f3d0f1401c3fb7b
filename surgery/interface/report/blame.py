"""The results of `bisect` on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from surgery.features.bisection.bisect import Blame, GuiltySite
from surgery.interface.report.formatting import quoted_names

_MOST_NAMES = 12
_MOST_SITES = 4


def blame(found: Blame) -> RenderableType:
    """Return the report of the failing step, its guilty sites, and the location of the repro."""
    step = found.step
    if step is None:
        return Text(f"ok: no step of recipe '{found.recipe}' fails", style="bold green")
    place = f" ({step.place})" if step.where else ""
    verdict = (step.verdict.status, step.verdict.status.style) if step.verdict is not None else ("failed", "red")
    head = Text.assemble(f"step '{step.name}'{place}: ", verdict)
    parts: list[RenderableType] = [head, Padding(Text(step.message), (0, 0, 0, 2)), Text("")]
    for one in found.guilty[:_MOST_SITES]:
        parts += _site(one, found.sites)
    if len(found.guilty) > _MOST_SITES:
        more = ", ".join(str(one.site.number) for one in found.guilty[_MOST_SITES:])
        parts += [Text(f"guilty too: site {more}"), Text("")]
    parts.append(Text(_conclusion(found), style="bold red"))
    parts += [Text(line) for line in _repro(found)]
    return Group(*parts)


def _site(one: GuiltySite, sites: int) -> list[RenderableType]:
    anchor = f" at '{one.site.anchor}'" if one.site.anchor else ""
    lines = [f"removed {_names(one.site.removed)}", f"added {_names(one.site.added)}", one.why]
    if one.needs:
        others = ", ".join(f"{site.number} at '{site.anchor}'" for site in one.needs)
        lines.append(f"fails only together with site {others}")
    elif one.tried:
        lines.append("fails alone")
    head = Text(f"site {one.site.number} of {sites}{anchor}", style="bold")
    return [head, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines), Text("")]


def _names(names: Sequence[str]) -> str:
    return quoted_names(names, _MOST_NAMES) or "nothing"


def _conclusion(found: Blame) -> str:
    runs = _count(found.tries, "try", "tries") + ", " + _count(found.runs, "parity run", "parity runs")
    if not found.guilty:
        return f"no site to blame after {runs}: {found.remark}"
    many = "1 site is" if len(found.guilty) == 1 else f"{len(found.guilty)} sites are"
    left = found.sites - len(found.guilty)
    rest = f"; without {'it' if len(found.guilty) == 1 else 'them'} the step holds" if found.rest and left else ""
    remark = f"; {found.remark}" if found.remark else ""
    return f"{many} guilty{rest}; found after {runs}{remark}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _repro(found: Blame) -> Iterator[str]:
    if found.folder is None:
        if found.no_repro:
            yield f"no repro: {found.no_repro}"
        return
    before, after = found.nodes or (0, 0)
    nodes = _count(before, "node", "nodes")
    yield f"wrote {found.folder}: {nodes} before, {after} after; python {found.folder / 'repro.py'} shows it"
    if not found.reproduced:
        yield "but plain ONNX Runtime did not reproduce it"
