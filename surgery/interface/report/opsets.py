"""The opsets that a model can have, for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.features.inspection.opsets import Blocker, ImportedDomain, OpsetCandidate, Study
from surgery.interface.report.formatting import quoted_names

_MOST_NAMES = 3
_MOST_CHANGES = 4


def study(found: Study, *, verbose: bool = False) -> RenderableType:
    """Return the requirements of the model and how it gets to each opset; `verbose` lists all names."""
    most = sys.maxsize if verbose else _MOST_NAMES
    parts: list[RenderableType] = [Text(_head(found), style="bold")]
    parts += [Text(line) for line in _others(found)]
    if found.candidates:
        parts += [Text(""), _table(found.candidates, sys.maxsize if verbose else _MOST_CHANGES)]
        parts += [Text(line, style="dim") for line in _remark(found)]
    parts += _obstacles(found, most)
    parts += _blockers(found, most)
    return Group(*parts)


def _head(found: Study) -> str:
    reader = f"ONNX Runtime {found.reader} or newer" if found.reader else "no known release of ONNX Runtime reads it"
    file = f"{found.path.name}: " if found.path is not None else ""
    if found.lowest is None:
        return f"{file}no operator of the default domain; IR version {found.ir_version} ({reader})"
    lines = [f"{file}opset {found.opset}, IR version {found.ir_version} ({reader})"]
    lines += [f"lowest opset without conversion: {found.lowest}"]
    converted = found.lowest_converted
    if converted is not None and converted < found.lowest:
        lines[-1] += f"; converted: {converted}"
    return "\n".join(lines)


def _others(found: Study) -> Iterator[str]:
    for name, opset in found.functions.items():
        yield f"function {name}: {f'opset {opset}' if opset else 'no operator of the default domain'}"
    for domain in found.domains:
        yield f"{domain.name} {domain.version}: {_nodes(domain.nodes)}, {_kind(domain)}"


def _remark(found: Study) -> Iterator[str]:
    reached = [one.release.ir_version for one in found.candidates if one.is_reached]
    if any(version is not None and version < found.ir_version for version in reached):
        yield f"releases are those for the IR version next to them; downgrade-opset keeps {found.ir_version}"
        yield "unless --set lower_ir_version=true is given"


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _kind(domain: ImportedDomain) -> str:
    if domain.kind == "unknown":
        return "unknown domain; the runtime has to provide the operators"
    if domain.kind == "ONNX Runtime":
        return "operators of ONNX Runtime"
    if domain.kind == "ONNX" and domain.lowest is not None:
        return f"operators of ONNX; lowest version without conversion: {domain.lowest}"
    return "operators of ONNX" if domain.kind == "ONNX" else domain.kind


def _table(candidates: Sequence[OpsetCandidate], most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("opset", "how", "changes", "onnx", "IR", "onnxruntime"):
        table.add_column(title, justify="right" if title in ("opset", "IR") else "left", no_wrap=title != "changes")
    styles = {"current": "bold", "blocked": "red", "converted": "yellow", "as it stands": "green"}
    for one in candidates:
        release = one.release
        known = [release.onnx or "-", str(release.ir_version or "-"), release.runtime or "-"]
        table.add_row(str(one.opset), Text(_how(one), style=styles[one.how]), _changes(one, most), *known)
    return table


def _how(candidate: OpsetCandidate) -> str:
    return candidate.by if candidate.how == "converted" else candidate.how


def _changes(candidate: OpsetCandidate, most: int) -> str:
    if candidate.how == "blocked":
        count = sum(len(blocker.nodes) for blocker in candidate.blockers)
        return f"{_nodes(count)} cannot" if count else ""
    items = sorted(candidate.operators.items(), key=lambda item: item[1][1] - item[1][0])
    shown = [f"{op} {before} -> {after}" for op, (before, after) in items[:most]]
    return ", ".join([*shown, *([f"{len(items) - most} more"] if len(items) > most else [])])


def _obstacles(found: Study, most: int) -> Iterator[RenderableType]:
    if found.obstacles:
        yield Text("\nwhat prevents lower opsets, without conversion", style="bold")
    for obstacle in found.obstacles:
        yield Text.assemble(f"  {obstacle}", (f"  {quoted_names(obstacle.nodes, most)}", "dim"))


def _blockers(found: Study, most: int) -> Iterator[RenderableType]:
    """Yield the refusals of a pass, once for all opsets with the same ones."""
    blocked = [candidate for candidate in found.candidates if candidate.blockers]
    for _, group in groupby(blocked, key=lambda one: (one.by, one.blockers)):
        same = list(group)
        numbers = [candidate.opset for candidate in same]
        span = f"opset {numbers[0]}" if len(numbers) == 1 else f"opsets {numbers[-1]} to {numbers[0]}"
        yield Text(f"\nwhat {same[0].by} cannot take to {span}", style="bold")
        yield from (_blocker(blocker, most) for blocker in same[0].blockers)


def _blocker(blocker: Blocker, most: int) -> Text:
    return Text.assemble("  ", (str(blocker), "red"), (f"  {quoted_names(blocker.nodes, most)}", "dim"))
