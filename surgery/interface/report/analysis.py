"""The analysis of a model, and the nodes that a runtime executes, as rich tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.base.errors import first_few
from surgery.features.inspection.amounts import Amount
from surgery.features.inspection.analysis import Analysis, Dynamic
from surgery.interface.report.formatting import size
from surgery.verification.verdict.executed_nodes import ExecutedNodes

_SHORT = 90
"""Maximum number of characters of an expression that is shown."""
_MOST = 4
_PREFIXES = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def analysis(found: Analysis, top: int) -> RenderableType:
    """Return the costs of a model, its `top` largest weights, its dynamic dims, and the findings."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for title, text in (*_costs(found), *_weights(found, top), *_dynamic(found.dynamic), *_gaps(found)):
        table.add_row(title, text)
    parts: list[RenderableType] = [Text(""), table]
    if found.findings:
        parts += [Text(""), Text("findings", style="bold"), _findings(found)]
    return Group(*parts)


def _costs(found: Analysis) -> Iterator[tuple[str, str]]:
    costs, activations = found.costs, found.activations
    yield "MACs", _amount(costs.macs, "")
    yield "FLOPs", _amount(costs.flops, "")
    for op, amount in costs.by_size()[:_MOST]:
        yield "", f"{op}: {_amount(amount, '')}"
    if costs.uncounted:
        yield "not counted", ", ".join(f"{count} {op}" for op, count in costs.uncounted.most_common(8))
    if costs.turns:
        yield "counted once", f"{', '.join(costs.turns[:_MOST])}: the number of iterations depends on data"
    unknown = f"; {activations.unknown} values unknown" if activations.unknown else ""
    yield "activations", f"{_amount(activations.peak, 'B')} at most, at {activations.at}{unknown}"


def _amount(amount: Amount, unit: str) -> str:
    plain = amount.to_json()
    if isinstance(plain, int):
        return size(plain) if unit else _count(plain)
    if len(plain) > _SHORT:
        return "an expression in the dynamic dims; give --dims for a number, or --format json for all of it"
    return f"{plain}{' bytes' if unit else ''}"


def _count(number: int) -> str:
    for factor, prefix in _PREFIXES:
        if number >= factor:
            return f"{number / factor:.3f} {prefix} ({number:,})"
    return str(number)


def _weights(found: Analysis, top: int) -> Iterator[tuple[str, str]]:
    weights = found.weights
    for number, weight in enumerate(weights.every[:top]):
        shape = ", ".join(map(str, weight.dims))
        yield "" if number else "biggest", f"{weight.name}: {weight.type}[{shape}], {size(weight.bytes)}"
    if weights.tied:
        listed = first_few((f"{weight.name} ({weight.reads} reads)" for weight in weights.tied), _MOST)
        yield "tied", f"{len(weights.tied)} constants are read more than once: {listed}"
    for number, names in enumerate(weights.duplicates[:_MOST]):
        yield "" if number else "duplicates", first_few(names, _MOST)


def _dynamic(dims: tuple[Dynamic, ...]) -> Iterator[tuple[str, str]]:
    for number, dim in enumerate(dims):
        where = f"depends on data, from {dim.made_by}" if dim.made_by else f"of {', '.join(dim.places)}"
        yield "" if number else "dynamic dims", f"{dim.name}: {where}"


def _gaps(found: Analysis) -> Iterator[tuple[str, str]]:
    if found.gaps is None:
        yield "ONNX Runtime", "does not list the operators it runs"
    elif not found.gaps:
        yield "ONNX Runtime", "runs every operator on the CPU"


def _findings(found: Analysis) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in found.findings:
        todo = f" ({item.todo})" if item.todo else ""
        table.add_row(f"  {item.count}", Text(item.code, style="yellow"), Text(f"{item.what}{todo}"))
    return table


def executed_headline(found: ExecutedNodes) -> str:
    """Return the number of executed nodes in one line."""
    return f"{found.executed}, {found.nodes} in the model"


def executed(found: ExecutedNodes) -> RenderableType:
    """Return a row for each operator: how often the model has it, and how often each provider executes it."""
    providers = sorted({provider for _, provider in found.executed.nodes})
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for title in ("model", *providers):
        table.add_column(title, justify="right")
    counts = found.executed.nodes
    for op in sorted({*found.model, *(op for op, _ in counts)}):
        table.add_row(
            op, *(str(count or "") for count in (found.model.get(op), *(counts.get((op, one)) for one in providers)))
        )
    return Group(table, Text(""), Text(executed_headline(found), style="bold"))
