"""The sensitivity of the outputs of a model to the sites of a step, on the terminal."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.features.tuning.sensitivity_study import SensitivityStudy

_WIDTH = 24
"""Length of the longest bar in characters."""

_DECADES = 4
"""Number of powers of ten below the longest bar that are drawn."""


def study(found: SensitivityStudy, limit: int) -> RenderableType:
    """Return the table, with a bar for the share of the budget that each site uses, on a logarithmic scale."""
    used = f"budget {', '.join(found.budget)}: {_share(found.use)} used"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "node"):
        table.add_column(name, overflow="fold")
    scored = any(one.score is not None for one in found.sites)
    for name in ("SNR", "top-1", *(["metric"] if scored else []), "MMACs", "of budget"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max((one.use for one in found.sites if math.isfinite(one.use)), default=0.0)
    for one in found.sites[:limit]:
        table.add_row(*_row(one, scored), _bar(one.use, largest))
    more = len(found.sites) - limit
    note = [Text(f"and {more} more (--limit shows them)", style="dim")] if more > 0 else []
    synthetic = [Text("measured on synthetic inputs; pass --evaluation with real ones", style="yellow")]
    return Group(
        Text(str(found), style="bold"), Text(used), Text(""), table, *note, *(synthetic if found.synthetic else [])
    )


def _row(one: Sensitivity, scored: bool) -> tuple[str, ...]:
    snr, top1 = one.metrics["snr"], one.metrics["top1"]
    decibels = f"{snr:.1f} dB" if math.isfinite(snr) else ("equal" if snr > 0 else "lost")
    measures = [decibels, f"{top1:.1%}"]
    if scored:
        measures.append(f"{one.score:.6g}" if one.score is not None else "-")
    return str(one.site.number), one.site.anchor, *measures, f"{one.macs / 1e6:.3g}", _share(one.use)


def _share(use: float) -> str:
    return f"{use:.2%}" if math.isfinite(use) else "does not run"


def _bar(use: float, largest: float) -> Text:
    if not math.isfinite(use):
        return Text("█" * _WIDTH, style="red")
    if use <= 0.0 or largest <= 0.0:
        return Text("")
    part = 1.0 + math.log10(use / largest) / _DECADES
    return Text("█" * max(0, round(part * _WIDTH)), style="red" if use > 1.0 else "cyan")
