"""Charts: what is drawn where, and that their data are in a table."""

from __future__ import annotations

import re

import pytest
from support.html_pages import Page

from surgery.interface.pages import charts


def test_a_logarithmic_axis() -> None:
    axis = charts.Axis(1e-4, 1.0, "error", charts.power, log=True)
    assert [axis.share(value) for value in (1e-4, 1e-2, 1.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert axis.share(1e-9) == 0.0 and axis.share(50.0) == 1.0
    assert axis.ticks() == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])
    assert [charts.power(value) for value in axis.ticks()] == [
        "10\u207b\u2074",
        "10\u207b\u00b3",
        "10\u207b\u00b2",
        "10\u207b\u00b9",
        "1",
    ]
    assert len(charts.Axis(1e-30, 1e30, "", str, log=True).ticks()) <= 7


@pytest.mark.parametrize(("low", "high"), [(0.0, 9.7), (0.96, 1.31), (0.0, 4.0e8), (-3.0, 3.0), (5.0, 5.0)])
def test_a_linear_axis_has_round_ticks(low: float, high: float) -> None:
    ticks = charts.Axis(low, high, "", str).ticks()
    assert len(ticks) <= 9 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    assert high == low or len(ticks) >= 3


def test_a_bar_is_as_long_as_its_share() -> None:
    assert widths(charts.bar(0.25, width=100)) == [100, 25]
    assert widths(charts.bar(7.0, width=100)) == [100, 100]
    assert widths(charts.bar(0.0, width=100)) == [100, 0]
    assert widths(charts.bar(1e-9, width=100)) == [100, 1]  # something is not nothing
    assert 'd="M86.0 0V12"' in charts.bar(0.5, width=100, limit=0.86)


def test_pairs_share_a_scale() -> None:
    assert widths(charts.pair(50, 100, 200, width=100)) == [25, 50]
    assert widths(charts.pair(0, 0, 0)) == [0, 0]


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect[^>]*? width="([\d.]+)"', svg)]


def test_a_histogram() -> None:
    axis = charts.Axis(1e-3, 4.0, "error", charts.power, log=True)
    bins = [(0.25, 0.5, 1000), (0.5, 1.0, 0), (1.0, 2.0, 1)]
    found = Page(charts.histogram("h", "An output", bins, axis, limit=1.0))
    shapes = [one.attributes for one in found.all("rect")]
    assert [one["class"] for one in shapes] == ["bar", "wrong"]
    assert float(shapes[0]["height"]) > float(shapes[1]["height"]) > 5  # one element is seen
    assert [cell.text for cell in found.all("td")] == ["0.5", "1,000", "2", "1"]
    assert [one.attributes["d"] for one in found.all("path") if one.attributes["class"] == "limit"]


def test_charts_are_named_and_described() -> None:
    axis = charts.Axis(0.0, 2.0, "seconds", lambda value: f"{value:g}")
    drawn = charts.lines(
        "m",
        "<Memory>",
        [charts.Series("all", [(0, 1), (2, 2)]), charts.Series("own", [(0, 0), (2, 1)])],
        axis,
        axis,
        [(1.0, "<step>")],
    )
    found = Page(drawn)
    (svg,) = [one for one in found.all("svg") if one.attributes.get("role") == "img"]
    title, description = svg.attributes["aria-labelledby"].split()
    assert next(one for one in found.all("title") if one.attributes.get("id") == title).text == "<Memory>"
    assert "seconds, from 0 to 2" in next(one for one in found.all("desc") if one.attributes["id"] == description).text
    classes = [one.attributes["class"] for one in found.all("path")]
    assert {"line", "line two"} <= set(classes)  # told apart without color: the second is dashed
    assert [one.text for one in found.all("th")] == ["seconds", "all", "own", "0", "2"]


def test_points_are_labelled_where_labels_fit() -> None:
    x = charts.Axis(1, 1000, "x", str, log=True)
    points = [charts.ChartPoint("alone", 10, 10), *(charts.ChartPoint(f"crowd {n}", 500, 500 + n) for n in range(20))]
    found = Page(charts.scatter("s", "Points", points, x, x, charts.ChartTable("t", ("a",), [("b",)])))
    assert len(found.all("circle")) == 21
    named = [one.text for one in found.all("text") if one.attributes.get("class") == "label"]
    assert "alone" in named and len(named) <= 3
    assert [one.text for one in found.all("title")][1:] == [point.name for point in points]


def test_intervals() -> None:
    axis = charts.Axis(0.9, 1.5, "speed", lambda value: f"{value:g}")
    found = Page(
        charts.intervals(
            "i",
            "Speed",
            [charts.Estimate("a", 1.2, 1.1, 1.3), charts.Estimate("b", 1.0, 0.95, 1.05)],
            axis,
            charts.ChartTable("t", ("a",), []),
        )
    )
    whiskers = [one.attributes["d"] for one in found.all("path") if one.attributes["class"] == "whisker"]
    assert len(whiskers) == 2 and len(found.all("circle")) == 2
    low, high = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", whiskers[0]).groups()  # type: ignore[union-attr]
    at = found.all("circle")[0].attributes["cx"]
    assert float(low) < float(at) < float(high)
