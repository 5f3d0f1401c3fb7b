"""The page of benchmarks says what was measured, README the same, and its command is one that there is."""

from __future__ import annotations

import hashlib
import shlex
import sys

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import trained
from suite import benchmark_page, outcome, packages
from suite.outcome import Outcome


def row(model: str, tool: str, nodes: int = 50, **figures: object) -> Outcome:
    given = {"nodes_before": 100, "nodes": nodes, "cpu": 2.0, "private": 1 << 20, "signature": "kept", **figures}
    return Outcome(model, tool, {}, **given)  # type: ignore[arg-type]


def cells(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in lines[2:]}


def test_ratios_are_of_models_on_which_both_are_right() -> None:
    ours = benchmark_page.OURS
    rows = benchmark_page.stored(
        [
            row("a", ours, 40, cpu=8.0),
            row("a", "x", 80),
            row("b", ours, 10, cpu=2.0),
            row("b", "x", 10, wrong="y is off"),
            row("c", ours, 20, cpu=4.0, private=4 << 20),
            row("c", "x", 10, cpu=4.0),
            row("d", ours, failure="crashed", nodes=None),
            row("d", "x", 90, signature="changed"),
        ]
    )
    found = cells(benchmark_page.summary_table(rows))
    assert found[ours] == ["3 of 4", "0", "0", "1", "23.3 %", "", "", ""]
    # sqrt(40/80 * 20/10), sqrt(8/2 * 4/4), sqrt(1/1 * 4/1)
    assert found["x"] == ["2 of 4", "1", "1", "0", "45.0 %", "1.00", "2.00", "2.00"]
    page = benchmark_page.page({"trained": rows, "exports": {}}, {"trained": 9, "exports": 2})
    assert "4 of 9 were measured" in page and "- b, x: y is off" in page and "- d, surgery default: crashed" in page
    assert "| b | 100 | 10, 2.0 s, 1 MiB | wrong, 2.0 s, 1 MiB |" in page and "## Exports" not in page


def test_the_page_is_that_of_the_stored_rows() -> None:
    assert trained.PAGE.read_text(encoding="utf-8") == trained.benchmark_text()


def test_readme_has_the_table_of_the_page() -> None:
    measured = outcome.read(trained.MEASURED)
    names = {model.name for model in packages.read()}
    rows = benchmark_page.stored([one for one in measured if one.model in names])
    table = benchmark_page.readme_table(rows)
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(rows)} trained models" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_stored_rows_are_of_listed_models() -> None:
    listed = {model.name: model.sha256 for path in trained.GROUPS.values() for model in packages.read(path)}
    for one in outcome.read(trained.MEASURED):
        assert one.key["model"] == listed[one.model], one.model


def test_the_command_of_the_page_exists() -> None:
    words = shlex.split(benchmark_page.COMMAND)
    assert words[:2] == ["python", "benchmarks/trained.py"] and (ROOT / words[1]).is_file()
    arguments = trained.parser().parse_args(words[2:])
    assert arguments.page and [f"surgery {name}" for name in arguments.recipes] == [benchmark_page.OURS]


@pytest.mark.parametrize("model", packages.read(packages.EXPORTS), ids=lambda model: model.file)
def test_an_export_is_the_listed_file(model: packages.Trained) -> None:
    path = model.path(trained.ROOT)
    assert path == ROOT / model.file and model.name == f"surgery/models/{path.stem}"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256


def test_rows_are_read_as_they_were_written(tmp_path) -> None:
    rows = [row("a", "x", 3, cpu=1.23456, refused=["one"]), row("b", "x", failure="crashed")]
    outcome.write(tmp_path / "rows", rows)
    found = outcome.read(tmp_path / "rows")
    assert (found[0].cpu, found[0].refused, found[0].nodes) == (1.235, ["one"], 3) and found[1] == rows[1]
