"""Charts as inline SVG: bars, histograms on a logarithmic scale, lines, scatter plots, intervals.

A chart is a `figure` with its data as a table below it, initially closed. It has a title and a description for screen
readers, and gets its colors from the page through classes, because a page allows no style attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from surgery.interface.pages.page_text import clip, integer, scientific

WIDTH, HEIGHT = 640, 250
_CROWD = 400
"""Maximum number of points of a scatter plot that are labelled with names."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 30, 26, 40

_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")

Write = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """One axis from `low` to `high`, on a logarithmic scale if `log` (then both ends are positive).

    `write` formats the number at a tick, `label` describes the numbers.
    """

    low: float
    high: float
    label: str
    write: Write
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value from 0 at the low end to 1 at the high end; values beyond are at the ends."""
        low, high, at = self.low, self.high, max(value, self.low)
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5

    def ticks(self, most: int = 7) -> list[float]:
        """Return the numbers to mark on the axis."""
        if self.log:
            lowest, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - lowest + 1) / most))
            return [10.0**power for power in range(lowest, last + 1, every)]
        step = _step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class ChartPoint:
    """A point of a scatter plot, with its name; `size` is the radius in px."""

    name: str
    x: float
    y: float
    size: float = 5.0


@dataclass(frozen=True)
class Series:
    """A line: its name and its points, in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ChartTable:
    """The data of a chart: its caption, header, and rows as text."""

    caption: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def bar(share: float, kind: str = "bar", *, width: int = 120, limit: float | None = None) -> Markup:
    """Return a small bar for a table row: `share` of its length is filled, `limit` is marked.

    It is hidden from screen readers, because the numbers are next to it.
    """
    filled = max(0.0, min(1.0, share)) * width
    mark = ""
    if limit is not None:
        mark = Markup('<path class="limit" d="M{x:.1f} 0V12"/>').format(x=limit * width)
    return Markup(
        '<svg class="plot chart-inline" viewBox="0 0 {w} 12" width="{w}" height="12"'
        ' aria-hidden="true" focusable="false">'
        '<rect class="track" y="3" width="{w}" height="6" rx="1"/>'
        '<rect class="{kind}" y="3" width="{filled:.1f}" height="6" rx="1"/>{mark}</svg>'
    ).format(w=width, kind=kind, filled=max(filled, 1.0) if share > 0 else 0.0, mark=mark)


def pair(before: float, after: float, most: float, *, width: int = 220) -> Markup:
    """Return two bars, one above the other, for a table row that has both numbers."""

    def length(value: float) -> float:
        return max(1.0, value / most * width) if value > 0 and most > 0 else 0.0

    return Markup(
        '<svg class="plot chart-inline" viewBox="0 0 {w} 16" width="{w}" height="16" aria-hidden="true"'
        ' focusable="false"><rect class="before" y="1" width="{b:.1f}" height="6" rx="1"/>'
        '<rect class="after" y="9" width="{a:.1f}" height="6" rx="1"/></svg>'
    ).format(w=width, b=length(before), a=length(after))


def histogram(
    name: str, title: str, bins: Sequence[tuple[float, float, int]], axis: Axis, *, limit: float | None = None
) -> Markup:
    """Return a histogram: `bins` have two ends and a count. The height is logarithmic, so a single element is visible.

    `limit` is marked; bins beyond it have another color.
    """
    top = max((count for _, _, count in bins), default=1)
    heights = Axis(
        0.5, 10.0 ** math.ceil(math.log10(max(top, 2))), "elements", lambda value: integer(round(value)), True
    )
    area = _Area(axis, heights)
    parts = [area.frame()]
    for low, high, count in bins:
        if count:
            left, right, y = area.x(low), area.x(high), area.y(count)
            kind = "wrong" if limit is not None and low >= limit else "bar"
            parts.append(_rect(kind, left + 0.5, y, max(1.0, right - left - 1), area.bottom - y))
    if limit is not None and axis.low <= limit <= axis.high:
        parts.append(area.upright(limit, "tolerance"))
    head = f"from ({axis.label})", "to", "elements"
    rows = [(axis.write(low), axis.write(high), integer(count)) for low, high, count in bins if count]
    return figure(name, title, area.describe(f"{len(rows)} bars"), parts, ChartTable(title, head, rows))


def lines(
    name: str, title: str, series: Sequence[Series], x: Axis, y: Axis, marks: Sequence[tuple[float, str]] = ()
) -> Markup:
    """Return lines over a common axis, distinguished by dashes too; `marks` are named places of x."""
    area = _Area(x, y)
    parts = [area.frame()]
    for at, what in marks:
        parts.append(
            Markup('<path class="grid" d="M{0:.1f} {1}V{2}"><title>{3}</title></path>').format(
                area.x(at), area.top, area.bottom, clip(what, 80)
            )
        )
    kinds = ("line", "line two", "line three")
    for number, one in enumerate(series):
        path = "L".join(f"{area.x(a):.1f} {area.y(b):.1f}" for a, b in one.points)
        parts.append(Markup('<path class="{}" d="M{}"/>').format(kinds[number % len(kinds)], path))
    legend = [(one.name, kinds[number % len(kinds)]) for number, one in enumerate(series)]
    head = (x.label, *(one.name for one in series))
    rows = [
        (x.write(points[0][0]), *(y.write(b) for _, b in points)) for points in zip(*(one.points for one in series))
    ]
    return figure(name, title, area.describe(), parts, ChartTable(title, head, rows), legend)


def scatter(
    name: str,
    title: str,
    points: Sequence[ChartPoint],
    x: Axis,
    y: Axis,
    table: ChartTable,
    lines: Sequence[Series] = (),
) -> Markup:
    """Return a scatter plot with points labelled as far as there is room; dashed `lines` are drawn below them."""
    area = _Area(x, y, height=320)
    parts = [area.frame()]
    for line in lines:
        path = "L".join(f"{area.x(a):.1f} {area.y(b):.1f}" for a, b in line.points)
        parts.append(Markup('<path class="grid dashed" d="M{}"><title>{}</title></path>').format(path, line.name))
        a, b = line.points[-1]
        parts.append(_text(area.x(a) - 6, area.y(b) + 12, line.name, "end"))
    places = [(area.x(one.x), area.y(one.y)) for one in points]
    for one, (cx, cy) in zip(points, places):
        shape = Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>')
        parts.append(shape.format(cx, cy, one.size, clip(one.name, 80)))
    parts += _names(points, places)
    return figure(name, title, area.describe(f"{len(points)} points"), parts, table)


def _names(points: Sequence[ChartPoint], places: Sequence[tuple[float, float]]) -> Iterator[Markup]:
    """Yield labels of points as far as there is room, in order; a label covers no point and no other label."""
    taken = [(x - one.size, x + one.size, y) for one, (x, y) in zip(points[:_CROWD], places)]
    for one, (x, y) in zip(points[:_CROWD], places):
        name = clip(one.name, 24)
        gap, width = one.size + 4, 6.6 * len(name)
        sides = ((x + gap, "start"), (x - gap - width, "end"))
        for left, anchor in sides:
            free = left > _LEFT and left + width < WIDTH
            if free and all(abs(y - other) > 11 or left > end or left + width < start for start, end, other in taken):
                taken.append((left, left + width, y))
                yield _text(left if anchor == "start" else left + width, y + 4, name, anchor, "label")
                break


@dataclass(frozen=True)
class Estimate:
    """A measured number with its interval."""

    name: str
    value: float
    low: float
    high: float


def intervals(name: str, title: str, found: Sequence[Estimate], axis: Axis, table: ChartTable) -> Markup:
    """Return numbers with their intervals, one per line, and a line at 1 for comparison."""
    row, left = 30, 190
    height = _TOP + row * len(found) + _BOTTOM
    area = _Area(axis, Axis(0, 1, "", str), left=left, height=height)
    parts = [area.frame(across=False)]
    if axis.low <= 1.0 <= axis.high:
        parts.append(area.upright(1.0, ""))
    for number, one in enumerate(found):
        y = _TOP + row * (number + 0.5)
        low, high, at = area.x(one.low), area.x(one.high), area.x(one.value)
        parts += [
            _text(left - 12, y + 4, clip(one.name, 26), "end", "label"),
            Markup('<path class="whisker" d="M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}v8M{1:.1f} {3:.1f}v8"/>').format(
                low, high, y, y - 4
            ),
            Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(at, y),
        ]
    return figure(name, title, area.describe(f"{len(found)} intervals"), parts, table, height=height)


def figure(
    name: str,
    title: str,
    description: str,
    parts: Sequence[Markup],
    table: ChartTable,
    legend: Sequence[tuple[str, str]] = (),
    height: int | None = None,
) -> Markup:
    """Return a chart from its parts: heading, legend, picture, and the data as a table. `name` is used for ids."""
    tall = height or (320 if "points" in description else HEIGHT)
    picture = Markup(
        '<div class="scroll" tabindex="0" role="group" aria-label="{title}">'
        '<svg class="plot" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
        ' aria-labelledby="{id}-title {id}-desc">'
        '<title id="{id}-title">{title}</title><desc id="{id}-desc">{desc}</desc>{parts}</svg></div>'
    ).format(w=WIDTH, h=tall, id=name, title=title, desc=description, parts=Markup("").join(parts))
    return Markup('<figure class="chart"><figcaption>{}</figcaption>{}{}{}</figure>').format(
        title, _legend(legend), picture, data_table(table)
    )


def data_table(table: ChartTable) -> Markup:
    """Return the data of a chart as a collapsed table."""
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(Markup(' class="num"') if place else "", what)
        for place, what in enumerate(table.head)
    )
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            clip(row[0]), Markup("").join(Markup('<td class="num">{}</td>').format(clip(cell)) for cell in row[1:])
        )
        for row in table.rows
    )
    return Markup(
        '<details class="screen-only"><summary>Data</summary><div class="wide" tabindex="0" role="group" '
        'aria-label="{}"><table><caption>{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div></details>"
    ).format(table.caption, table.caption, head, rows)


class _Area:
    """The area of the axes of a chart, in px."""

    def __init__(self, across: Axis, upward: Axis, *, left: int = _LEFT, height: int = HEIGHT) -> None:
        self.across, self.upward = across, upward
        self.left, self.right = left, WIDTH - _RIGHT
        self.top, self.bottom = _TOP, height - _BOTTOM

    def x(self, value: float) -> float:
        """Return the x coordinate of a value of the horizontal axis."""
        return self.left + self.across.share(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value of the vertical axis."""
        return self.bottom - self.upward.share(value) * (self.bottom - self.top)

    def frame(self, across: bool = True) -> Markup:
        """Return the axes with ticks and labels, and with horizontal lines if `across`."""
        parts = []
        for value in self.upward.ticks(5) if across else ():
            y = self.y(value)
            parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(self.left, y, self.right))
            parts.append(_text(self.left - 8, y + 4, self.upward.write(value), "end"))
        for value in self.across.ticks():
            x = self.x(value)
            parts.append(Markup('<path class="axis" d="M{:.1f} {}v4"/>').format(x, self.bottom))
            parts.append(_text(x, self.bottom + 17, self.across.write(value), "middle"))
        parts.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(self.left, self.bottom, self.right))
        parts.append(_text(self.right, self.bottom + 33, self.across.label, "end"))
        if self.upward.label:
            parts.append(_text(self.left - 8, self.top - 12, self.upward.label, "start"))
        return Markup("").join(parts)

    def upright(self, value: float, label: str) -> Markup:
        """Return a dashed vertical line at a value of the horizontal axis."""
        x = self.x(value)
        path = Markup('<path class="limit" d="M{:.1f} {}V{}"/>').format(x, self.top, self.bottom)
        return path + (_text(x - 5, self.top + 10, label, "end") if label else Markup(""))

    def describe(self, what: str = "") -> str:
        """Return a description of the axes."""
        parts = [what] if what else []
        for axis, place in ((self.across, "Across"), (self.upward, "Upward")):
            if axis.label:
                scale = ", on a logarithmic scale" if axis.log else ""
                parts.append(f"{place}: {axis.label}, from {axis.write(axis.low)} to {axis.write(axis.high)}{scale}")
        return ". ".join(parts) + ". The data is in the table that follows."


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    if not entries:
        return Markup("")
    sample = Markup(
        '<span><svg class="plot" width="26" height="8" aria-hidden="true" focusable="false">'
        '<path class="{}" d="M1 4H25"/></svg>{}</span>'
    )
    items = Markup("").join(sample.format(kind, what) for what, kind in entries)
    return Markup('<div class="legend">{}</div>').format(items)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    shape = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
    return shape.format(kind, x, y, width, height)


def _text(x: float, y: float, what: str, anchor: str, kind: str = "") -> Markup:
    shape = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>')
    return shape.format(x, y, anchor, Markup(' class="{}"').format(kind) if kind else "", escape(what))


def _step(least: float) -> float:
    """Return the smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`."""
    if least <= 0 or not math.isfinite(least):
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def around(values: Sequence[float], label: str, write: Write) -> Axis:
    """Return a logarithmic axis of whole powers of ten around positive values."""
    low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)) + 1e-9)
    return Axis(low, max(high, low * 10), label, write, log=True)


def power(value: float) -> str:
    """Format a power of ten with a superscript, and other numbers briefly."""
    exponent = math.log10(value)
    if value in (1.0, 10.0) or abs(exponent - round(exponent)) > 1e-9:
        return f"{value:g}" if value in (1.0, 10.0) else scientific(value)
    return f"10{str(round(exponent)).translate(_RAISED)}"
