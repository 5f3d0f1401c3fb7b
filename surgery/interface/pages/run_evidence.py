"""The evidence for the verdict of a run, and its data: errors, operators, weights, cost, inputs, memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from surgery.interface.pages import charts, marks, page_text
from surgery.interface.pages.page import PageSection, render
from surgery.interface.pages.run_verdict import final, share

_SHARE = 10_000
"""Operators with less than one in this many parts of the largest cost are not drawn."""

_MOST_CHARTS = 8
"""Maximum number of outputs whose errors are drawn; the table has all of them."""


def evidence(run: Mapping[str, Any]) -> list[PageSection]:
    """Return the sections on the measurements, without those missing in the report."""
    made = [
        ("errors", "Accuracy", errors(run)),
        ("operators", "Operators", operators(run)),
        ("costs", "Cost by operator", costs(run)),
        ("weights", "Weights", weights(run)),
        ("inputs", "Inputs tried", inputs(run)),
        ("memory", "Memory", memory(run)),
    ]
    return [PageSection(anchor, title, body) for anchor, title, body in made if body]


def errors(run: Mapping[str, Any]) -> Markup:
    """Return the section on the errors of the outputs of the result relative to the original."""
    found = final(run)
    details = (found or {}).get("details")
    if found is None or not details:
        return (
            Markup("")
            if found is None
            else render("run/plain.html.jinja", mark=marks.verdict(found["verdict"]), found=found)
        )
    outputs = details.get("outputs") or []
    drawn = [one for one in outputs if sum(one["shares"]["counts"])][:_MOST_CHARTS]
    return render(
        "run/errors.html.jinja",
        found=found,
        details=details,
        outputs=outputs,
        lossy=not all(map(_in_tolerances, outputs)),
        pictures=[_spread(number, one) for number, one in enumerate(drawn)],
        mark=marks.verdict(found["verdict"]),
        share=share,
        is_number=_is_number,
    )


def _spread(number: int, output: Mapping[str, Any]) -> Markup:
    """Return the histogram of the errors of one output."""
    first, counts = output["shares"]["first"], output["shares"]["counts"]
    bins = [(2.0 ** (first + place), 2.0 ** (first + place + 1), count) for place, count in enumerate(counts)]
    low, high = min(2.0**first, 1e-3), max(2.0 ** (first + len(counts)), 4.0)
    in_tolerances = _in_tolerances(output)
    unit = "tolerances" if in_tolerances else "root mean squares of the output"
    axis = charts.Axis(low, high, f"error in {unit}, logarithmic", charts.power, log=True)
    title = f"{page_text.clip(output['output'], 80)}: {_moved(output)}"
    return charts.histogram(f"spread-{number}", title, bins, axis, limit=1.0 if in_tolerances else None)


def _in_tolerances(output: Mapping[str, Any]) -> bool:
    """Return whether the errors of an output are in units of the tolerance, as always in reports of older versions."""
    return bool(output.get("unit", "tolerance") == "tolerance")


def _moved(output: Mapping[str, Any]) -> str:
    same = f"{page_text.integer(output['equal'])} of {page_text.integer(output['elements'])} elements are equal"
    return same + (f", {page_text.integer(output['endless'])} differ beyond any tolerance" if output["endless"] else "")


def operators(run: Mapping[str, Any]) -> Markup:
    """Return the operators before and after as bars."""
    before, after = run["input"]["ops"], run["output"]["ops"]
    rows = sorted(
        ((op, before.get(op, 0), after.get(op, 0)) for op in {**before, **after}),
        key=lambda row: (-max(row[1:]), row[0]),
    )
    most = max((max(row[1:]) for row in rows), default=0)
    moved = [(*row, charts.pair(row[1], row[2], most)) for row in rows if row[1] != row[2]]
    same = [row for row in rows if row[1] == row[2]]
    return render("run/operators.html.jinja", moved=moved, same=same)


_TITLES = {"before": "The original", "after": "The result"}


def costs(run: Mapping[str, Any], titles: Mapping[str, str] = _TITLES) -> Markup:
    """Return the cost of each operator, in operations and bytes moved, for each model that has a title."""
    found = run.get("costs")
    if not found:
        return Markup("")
    sides = [(name, found[name]) for name in titles if found.get(name)]
    axes = _cost_axes([one for _, side in sides for one in _drawable(side)])
    drawn = [(titles[name], cost_chart(f"cost-{name}", titles[name], side, axes), side) for name, side in sides]
    return render("run/costs.html.jinja", sides=drawn, sizes=found.get("sizes") or {})


def _drawable(side: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the operators with a relevant share of operations or bytes; the others would stretch the axes."""
    known = [one for one in side["by_op"] if _is_number(one["flops"]) and _is_number(one["bytes"])]
    most = [max((one[what] for one in known), default=0) / _SHARE for what in ("flops", "bytes")]
    return [
        one for one in known if one["flops"] > 0 < one["bytes"] and (one["flops"] > most[0] or one["bytes"] > most[1])
    ]


def _cost_axes(drawn: Sequence[Mapping[str, Any]]) -> tuple[charts.Axis, charts.Axis] | None:
    """Return the axes for bytes and operations, shared by both models; None if there is nothing to draw."""
    if not drawn:
        return None
    x = charts.around([float(one["bytes"]) for one in drawn], "bytes moved, logarithmic", page_text.size)
    return x, charts.around([float(one["flops"]) for one in drawn], "operations, logarithmic", page_text.amount)


def cost_chart(
    name: str, title: str, side: Mapping[str, Any], axes: tuple[charts.Axis, charts.Axis] | None = None
) -> Markup:
    """Return a chart of operations against bytes moved by operator, or only the table if there is nothing to draw."""
    axes = axes or _cost_axes(_drawable(side))
    points = [
        charts.ChartPoint(
            one["op"], float(one["bytes"]), float(one["flops"]), 4 + min(6.0, math.log10(one["nodes"] + 1) * 3)
        )
        for one in _drawable(side)
    ]
    head = "operator", "nodes", "operations", "bytes moved", "operations a byte"
    rows = [
        (
            one["op"],
            page_text.integer(one["nodes"]),
            page_text.amount(one["flops"]),
            page_text.size(one["bytes"]),
            _intensity(one),
        )
        for one in side["by_op"]
    ]
    table = charts.ChartTable(f"{title}: cost by operator", head, rows)
    if axes is None:
        return charts.data_table(table)
    x, y = axes
    # Lines of constant operations per byte: operators to the left of a line are not limited by memory bandwidth.
    balance = [
        charts.Series(f"{ratio} a byte", [(low, ratio * low), (high, ratio * high)])
        for ratio in (1, 10, 100)
        for low, high in [(max(x.low, y.low / ratio), min(x.high, y.high / ratio))]
        if high > low
    ]
    return charts.scatter(name, f"{title}: operations and bytes moved in one run", points, x, y, table, balance)


def _intensity(one: Mapping[str, Any]) -> str:
    if not _is_number(one["flops"]) or not _is_number(one["bytes"]) or not one["bytes"]:
        return page_text.MISSING
    return f"{one['flops'] / one['bytes']:.2g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def weights(run: Mapping[str, Any]) -> Markup:
    """Return the section on the weights before and after: sizes, changes, and distributions of values."""
    found = run.get("weights")
    if not found:
        return Markup("")
    most = max((one["bytes"] for one in found["largest"]), default=0)
    rows = [
        (one, charts.bar(one["bytes"] / most if most else 0.0), small(one.get("values"))) for one in found["largest"]
    ]
    types = sorted(
        {*found["before"]["by_type"], *found["after"]["by_type"]},
        key=lambda name: -max(found["before"]["by_type"].get(name, 0), found["after"]["by_type"].get(name, 0)),
    )
    return render("run/weights.html.jinja", found=found, rows=rows, types=types)


def small(values: Mapping[str, Any] | None) -> Markup:
    """Return a small histogram of the values of a tensor, from the smallest to the largest."""
    counts = (values or {}).get("counts")
    if not values or not counts:
        return Markup("")
    top, step = max(counts), 120 / len(counts)
    shapes = Markup("").join(
        Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            place * step, 22 - 22 * count / top, max(step - 0.5, 0.5), 22 * count / top
        )
        for place, count in enumerate(counts)
        if count
    )
    spoken = f"Values from {page_text.scientific(values['low'])} to {page_text.scientific(values['high'])}"
    return Markup(
        '<svg class="plot chart-inline" viewBox="0 0 120 22" width="120" height="22" role="img" aria-label="{}"'
        ' focusable="false">{}</svg>'
    ).format(spoken, shapes)


def inputs(run: Mapping[str, Any]) -> Markup:
    """Return the section on the input sets that the models were run on, and those that the original refused."""
    bindings = run.get("bindings") or []
    if not bindings:
        return Markup("")
    used = [one for one in bindings if not one.get("refused")]
    refused = [one for one in bindings if one.get("refused")]
    names = list(dict.fromkeys(name for one in bindings for name in one["dims"]))
    return render("run/inputs.html.jinja", used=used, refused=refused, names=names, providers=run.get("providers"))


def memory(run: Mapping[str, Any]) -> Markup:
    """Return the section on the private memory of the process and its workers over the time of the run."""
    found = run.get("memory")
    if not found or len(found["samples"]) < 2:
        return Markup("")
    samples = found["samples"]
    top = max(own + workers for _, own, workers in samples)
    x = charts.Axis(0.0, max(samples[-1][0], 1e-3), "seconds", lambda value: f"{value:g}")
    y = charts.Axis(0.0, top * 1.08 or 1.0, "", page_text.size)
    lines = [
        charts.Series("all", [(at, own + workers) for at, own, workers in samples]),
        charts.Series("this process", [(at, own) for at, own, _ in samples]),
        charts.Series("workers", [(at, workers) for at, _, workers in samples]),
    ]
    placed = [(at, name) for at, name in found.get("steps") or []]
    picture = charts.lines(
        "memory-time", "Private memory over the run; upright lines are steps that ended", lines, x, y, placed
    )
    return render("run/memory.html.jinja", picture=picture, found=found, top=top)
