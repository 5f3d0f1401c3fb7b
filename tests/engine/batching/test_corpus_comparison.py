"""Two runs next to each other: what changed, and what of it is for the worse."""

from __future__ import annotations

from typing import Any

import pytest
from support.batches import row

from surgery.engine.batching.corpus_comparison import ModelChange, Thresholds, What, compare
from surgery.interface.report import corpus


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None, **allowed: float) -> list[tuple[str, bool]]:
    """Return the changes of one model: what, and whether for the worse."""
    sides = [[] if values is None else [row("m", **values)] for values in (before, after)]
    found = compare(*sides, Thresholds(**allowed))
    assert found.same == (not found.changes)
    return [(change.what, change.is_worse) for change in found.changes]


FAILED = {"state": "failed", "kind": "crash", "stage": "check"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, []),
        ({}, None, [("missing", True)]),
        (FAILED, None, [("missing", False)]),
        (None, {}, [("new", False)]),
        (None, FAILED, [("new", True)]),
        ({"state": "skipped"}, None, []),
        ({}, FAILED, [("broken", True)]),
        ({}, {"state": "queued"}, [("broken", True)]),
        ({}, {"state": "skipped"}, [("broken", False)]),
        (FAILED, {}, [("fixed", False)]),
        (FAILED, FAILED, []),
        (FAILED, {**FAILED, "kind": "time"}, [("verdict", False)]),
        ({"nodes_after": 5}, {"nodes_after": 6}, [("nodes", True)]),
        ({"nodes_after": 6}, {"nodes_after": 5}, [("nodes", False)]),
        ({"bytes_after": 100}, {"bytes_after": 101}, [("bytes", True)]),
        ({"verdict": "equal"}, {"verdict": "close"}, [("verdict", True)]),
        ({"verdict": "close"}, {"verdict": "equal"}, [("verdict", False)]),
        ({"verdict": None}, {"verdict": "equal"}, [("verdict", True)]),
        ({"verdict": "close"}, {"verdict": "unverified"}, [("verdict", True)]),
        ({"seconds": 1.0}, {"seconds": 1.4}, []),
        ({"seconds": 1.0}, {"seconds": 1.6}, [("seconds", True)]),
        ({"seconds": 2.0}, {"seconds": 0.9}, [("seconds", False)]),
        ({"seconds": 0.1}, {"seconds": 0.4}, []),
        ({"tolerance": 0.2}, {"tolerance": 0.3}, []),
        ({"tolerance": 0.2}, {"tolerance": 0.5}, [("tolerance", True)]),
        ({"tolerance": 0.001}, {"tolerance": 0.01}, [("tolerance", False)]),
        # The bounds belong to what is no change.
        ({"seconds": 1.0}, {"seconds": 1.5}, []),
        ({"seconds": 0.2}, {"seconds": 0.5}, [("seconds", True)]),
        ({"seconds": 0.2}, {"seconds": 0.49}, []),
        ({"seconds": None}, {"seconds": 1.0}, [("seconds", True)]),
        ({"tolerance": 0.25}, {"tolerance": 0.5}, []),
        ({"tolerance": 0.0}, {"tolerance": 0.2}, [("tolerance", True)]),
        ({"tolerance": 0.3}, {"tolerance": 0.0}, [("tolerance", False)]),
        ({"tolerance": 0.0}, {"tolerance": 0.1}, [("tolerance", False)]),
        ({"tolerance": 0.0}, {"tolerance": 0.0}, []),
        ({"tolerance": None}, {"tolerance": 0.2}, []),
        ({"nodes_after": None}, {"nodes_after": 5}, []),
        ({"verdict": "equal"}, {"verdict": "unheard of"}, [("verdict", True)]),
        ({"verdict": "unheard of"}, {"verdict": "unknown, too"}, [("verdict", False)]),
        ({"state": "queued"}, FAILED, [("verdict", False)]),
        ({"state": "skipped"}, {}, [("fixed", False)]),
        (FAILED, {**FAILED, "stage": "run"}, [("verdict", False)]),
        (None, {"state": "skipped"}, []),
        ({"state": "queued"}, None, [("missing", False)]),
        ({"output_sha256": "1"}, {"output_sha256": "2"}, [("contents", False)]),
        ({"output_sha256": "1"}, {"output_sha256": "2", "nodes_after": 4}, [("nodes", False)]),
        ({"input_sha256": "1"}, {"input_sha256": "2"}, [("contents", False)]),
    ],
)
def test_changes_of_one_model(before: Any, after: Any, expected: list[tuple[str, bool]]) -> None:
    assert changes(before, after) == expected


def test_a_failure_is_named_by_its_kind_and_stage() -> None:
    sides = [[row("m", state="failed", kind="crash", stage=stage)] for stage in ("check", "")]
    (change,) = compare(*sides).changes
    assert (change.what, change.before, change.after) == ("verdict", "crash at check", "crash")


def test_missing_figures_count_as_none_in_totals() -> None:
    rows = [row("a", nodes_after=None, seconds=None), row("b")]
    assert (compare(rows, rows).totals.nodes, compare(rows, rows).totals.seconds) == ((5, 5), (1.0, 1.0))


def test_thresholds_are_relative_to_the_earlier_run() -> None:
    assert changes({"bytes_after": 100}, {"bytes_after": 105}, bytes=0.05) == []
    assert changes({"bytes_after": 100}, {"bytes_after": 106}, bytes=0.05) == [("bytes", True)]
    assert changes({"nodes_after": 10}, {"nodes_after": 9}, nodes=0.1) == []
    assert changes({"seconds": 1.0}, {"seconds": 2.9}, seconds=2.0) == []
    assert changes({"tolerance": 0.2}, {"tolerance": 0.5}, tolerance=2.0) == []


def test_totals_cover_models_done_in_both_runs() -> None:
    before = [row("a"), row("b", nodes_after=50), row("c")]
    after = [row("a", nodes_after=4, bytes_after=90), row("b", **FAILED), row("d")]
    found = compare(before, after)
    assert (found.before, found.after, found.same) == (3, 3, 0)
    assert (found.totals.models, found.totals.nodes, found.totals.bytes) == (1, (5, 4), (100, 90))
    assert found.counts() == {
        "nodes": {"worse": 0, "other": 1},
        "bytes": {"worse": 0, "other": 1},
        "broken": {"worse": 1, "other": 0},
        "missing": {"worse": 1, "other": 0},
        "new": {"worse": 0, "other": 1},
    }
    assert [change.name for change in found.worse] == ["b", "c"]


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("bytes", 1900, 2900, ("1.9 kB", "2.9 kB")),
        ("bytes", 1901, 1902, ("1,901 B", "1,902 B")),
        ("seconds", 1.0, 2.0, ("1.0 s", "2.0 s")),
        ("seconds", 1.001, 1.002, ("1.001 s", "1.002 s")),
        ("tolerance", 0.1, 0.1004, ("10.00%", "10.04%")),
        ("verdict", None, "equal", ("unchanged", "equal")),
        ("new", None, "done", ("", "done")),
    ],
)
def test_values_that_differ_are_shown_differently(
    what: What, before: Any, after: Any, expected: tuple[str, str]
) -> None:
    assert corpus.sides(ModelChange("m", what, before, after, True)) == expected


def test_one_model_is_not_plural() -> None:
    before, after = [row("a"), row("b")], [row("a", nodes_after=9), row("b")]
    assert corpus.headline(compare(before[:1], before[:1])).startswith("no change in 1 model; 5 -> 5 nodes")
    assert "1 model changed, not for the worse, 1 is the same; " in corpus.headline(compare(after, before))
    said = corpus.headline(compare(before, after))
    assert said.startswith("1 model changed and got worse, 1 is the same; ")
    assert said.endswith("in the 2 models that both have done")


def test_the_report_has_its_version() -> None:
    assert compare([], []).to_json()["format_version"] == 1
