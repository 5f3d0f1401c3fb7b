"""Pages of measurements: the sensitivity of the sites of a lossy step, and the speed of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from surgery.interface.pages import charts, page_text
from surgery.interface.pages.page import PageSection, page, render
from surgery.interface.pages.run_verdict import share

_DECADES = 4
"""Number of powers of ten below the longest bar that are drawn."""


def sensitivity(found: Mapping[str, Any]) -> str:
    """Return the page of a sensitivity study; `found` is the output of `surgery sensitivity --format json`."""
    uses = [_number(one["use"]) for one in found["sites"]]
    largest = max((use for use in uses if use is not None), default=0.0)
    rows = [(one, use, _bar(use, largest)) for one, use in zip(found["sites"], uses)]
    body = render(
        "measurements/sensitivity.html.jinja",
        found=found,
        use=_number(found["use"]),
        rows=rows,
        picture=_trade(found["sites"]),
        share=share,
        metric=_metric,
    )
    name = page_text.clip(str(found.get("model", "")).rpartition("/")[2], 120)
    title = f"{name}, {page_text.clip(found['pass'], 60)}" if name else page_text.clip(found["pass"], 60)
    return page(
        title, [PageSection("sensitivity", "Sensitivity of each site", body)], kind="Sensitivity of a lossy step"
    )


def _number(value: object) -> float | None:
    """Return a finite number; None for values that JSON represents as text, such as infinity."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _bar(use: float | None, largest: float) -> Markup:
    """Return the bar of a site on a logarithmic scale; full and red if it cannot be converted."""
    if use is None:
        return charts.bar(1.0, "wrong", width=180)
    if use <= 0 or largest <= 0:
        return charts.bar(0.0, width=180)
    return charts.bar(max(0.02, 1 + math.log10(use / largest) / _DECADES), "wrong" if use > 1 else "bar", width=180)


def _metric(value: object) -> str:
    number = _number(value)
    return page_text.clip(value, 20) if number is None else f"{number:.4g}"


def _trade(sites: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart of budget use against MACs of the sites; those low and to the right are worth converting."""
    known = [(one, use) for one in sites if (use := _number(one["use"])) is not None and use > 0 and one["macs"] > 0]
    if len(known) < 2:
        return Markup("")
    # The ends of paths are alike, and there is no room for the whole: the table has the site of each number.
    points = [charts.ChartPoint(f"site {one['site']}", float(one["macs"]), use) for one, use in known]
    x = charts.around([point.x for point in points], "multiply-accumulates, logarithmic", page_text.amount)
    y = charts.around([point.y for point in points], "share of the budget alone, logarithmic", charts.power)
    head = "site", "at", "multiply-accumulates", "share of the budget"
    rows = [(str(one["site"]), one["anchor"], page_text.amount(one["macs"]), f"{use:.3g}") for one, use in known]
    title = "What each site uses of the budget, and what it computes"
    if len(known) < len(sites):
        title += f"; {len(sites) - len(known)} without multiply-accumulates or error are in the table below"
    return charts.scatter("sensitivity-trade", title, points, x, y, charts.ChartTable(title, head, rows))


def bench(found: Mapping[str, Any]) -> str:
    """Return the page of a speed measurement; `found` is the output of `surgery bench --format json`."""
    models = found["models"]
    body = render(
        "measurements/bench.html.jinja",
        found=found,
        models=models,
        picture=_speeds(models, found["level"]),
        operators=_profiles(models),
    )
    names = [page_text.clip(one["name"].rpartition("/")[2], 60) for one in models]
    title = names[0] if len(names) == 1 else f"{', '.join(names[1:])} against {names[0]}"
    return page(title, [PageSection("speed", "Speed", body)], kind="Measurement of speed")


def _speeds(models: Sequence[Mapping[str, Any]], level: float) -> Markup:
    """Return a chart of the speeds of models relative to the baseline, with intervals."""
    measured = [(one, one["speed"]) for one in models if one["speed"] is not None]
    if not measured:
        return Markup("")
    found = [charts.Estimate(one["name"], speed["ratio"], speed["low"], speed["high"]) for one, speed in measured]
    low, high = min(0.9, *(one.low for one in found)), max(1.1, *(one.high for one in found))
    margin = (high - low) * 0.06
    axis = charts.Axis(low - margin, high + margin, "speed, the baseline is 1", lambda value: f"{value:.3g}")
    head = "model", "speed", "low", "high"
    rows = [(one.name, f"{one.value:.3f}", f"{one.low:.3f}", f"{one.high:.3f}") for one in found]
    title = f"Speed next to {page_text.clip(models[0]['name'], 80)}, with intervals of {level:.0%} confidence"
    return charts.intervals("speed-intervals", title, found, axis, charts.ChartTable(title, head, rows))


def _profiles(models: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, float, float, Markup]]]]:
    """Return, for each model profiled against the first one, the time of each operator before and after."""
    if not models[0]["profile"]:
        return []
    base = {one["op"]: one["seconds"] for one in models[0]["profile"]}
    found = []
    for model in models[1:] or models:
        own = {one["op"]: one["seconds"] for one in model["profile"] or ()}
        most = max((*base.values(), *own.values()), default=0.0)
        ops = sorted({*base, *own}, key=lambda op: -max(base.get(op, 0.0), own.get(op, 0.0)))
        rows = [
            (op, base.get(op, 0.0), own.get(op, 0.0), charts.pair(base.get(op, 0.0), own.get(op, 0.0), most))
            for op in ops
        ]
        found.append((model["name"], rows))
    return found
