"""A recipe whose figures are held to those of the last release."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.recipe_texts import mistakes

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import baseline, runner
from surgery.engine.pipeline.records import Figures
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import resolved
from surgery.engine.recipe.schema import Baseline, Share
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.verification.benchmarking import bench as benching
from surgery.verification.benchmarking.measurements import Comparison, Measured
from surgery.verification.benchmarking.statistics import Interval

BODY = """
g (float[n, 4] x) => (float[n, 4] y)
<float[4] w = {3, 5, 7, 9}>
{ i = Identity(x) t = Mul(i, w) u = Mul(t, w) y = Neg(u) }
"""
TIDY = "recipe: tidied\nsteps: [drop-identity]\nexpect: {nodes: 3}\nbaseline: {report: last.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(BODY), tmp_path / "m.onnx")
    return tmp_path


def last(folder: Path, **figures: Any) -> None:
    """Write the report of an earlier run with these figures."""
    (folder / "last.json").write_text(json.dumps({"figures": figures}))


def expectations(folder: Path, bounds: str) -> list[tuple[str, bool]]:
    (folder / "r.yaml").write_text(f"{TIDY}{bounds}}}\n")
    result = runner.apply(folder / "m.onnx", folder / "r.yaml", output=folder / "out.onnx", force=True)
    assert result.ok == all(one.ok for one in result.expectations) == (folder / "out.onnx").exists()
    assert all(one.where.startswith("r.yaml:") or "r.yaml:" in one.where for one in result.expectations)
    (folder / "out.onnx").unlink(missing_ok=True)
    return [(one.what, one.ok) for one in result.expectations[1:]]


def figures(folder: Path) -> Figures:
    return runner.apply(folder / "m.onnx", recipes.parse("recipe: t\nsteps: [drop-identity]\n")).figures


def test_twice_the_size_fails_by_default(folder: Path) -> None:
    size = figures(folder).bytes
    assert size is not None
    last(folder, nodes=2, bytes=size)
    assert expectations(folder, "") == [
        ("baseline nodes: < 2x of the last, 2 (found 3, 1.5x)", True),
        (f"baseline bytes: < 2x of the last, {size} (found {size}, 1x)", True),
    ]
    last(folder, nodes=1.5, bytes=size / 2)
    assert [ok for _, ok in expectations(folder, "")] == [False, False]


def test_bounds_of_a_recipe_replace_the_defaults(folder: Path) -> None:
    last(folder, nodes=2, bytes=10**6, tolerance=0.0)
    found = expectations(folder, ", nodes: <= 1.5x, bytes: < 0.1x, tolerance: <= 2x")
    assert [ok for _, ok in found] == [True, True, True]
    assert [ok for _, ok in expectations(folder, ", nodes: <= 1.4x")] == [False, True]


def test_the_figures_describe_the_result(folder: Path) -> None:
    recipe = recipes.parse("recipe: t\nsteps: [drop-identity]\n")
    result = runner.apply(folder / "m.onnx", recipe, output=folder / "o.onnx", options=RunOptions(provenance=False))
    assert result.figures == Figures(nodes=3, bytes=(folder / "o.onnx").stat().st_size, tolerance=0.0, speed=None)
    assert result.to_json()["figures"] == {"nodes": 3, "bytes": result.figures.bytes, "tolerance": 0.0, "speed": None}


def test_an_older_report_gives_partial_figures(folder: Path) -> None:
    report = {
        "steps": [{"needed": {"factor": 0.25}}, {"needed": {"factor": None}}],
        "end": {"needed": {"factor": 0.5}},
        "output": {"nodes": 7, "bytes": 100},
    }
    (folder / "last.json").write_text(json.dumps(report))
    assert baseline.read(Baseline(folder / "last.json"), None) == Figures(7, 100, 0.5)


def test_a_report_of_the_command_is_a_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "r.yaml").write_text(f"{TIDY}, nodes: <= 1x, bytes: <= 1x, tolerance: <= 1x}}\n")
    assert cli.main(["apply", "r.yaml", "m.onnx"]) == 2
    assert capsys.readouterr().err == (
        "surgery: last.json: the baseline cannot be read: No such file or directory; "
        "make one: surgery apply RECIPE MODEL --no-baseline --format json\n"
    )
    assert cli.main(["apply", "r.yaml", "m.onnx", "--no-baseline", "--format", "json"]) == 0
    (folder / "last.json").write_text(capsys.readouterr().out)
    assert cli.main(["apply", "r.yaml", "m.onnx", "-o", "out.onnx"]) == 0
    assert "met      baseline nodes: <= 1x of the last, 3 (found 3, 1x)" in capsys.readouterr().out
    last(folder, nodes=2, bytes=1, tolerance=0)
    assert cli.main(["apply", "r.yaml", "m.onnx", "-o", "other.onnx"]) == 1
    assert "not met  baseline nodes: <= 1x of the last, 2 (found 3, 1.5x)" in capsys.readouterr().out
    assert not (folder / "other.onnx").exists()


def test_results_of_a_batch_are_a_baseline(folder: Path) -> None:
    rows = [
        {"name": "m", "model": "zoo/m.onnx", "nodes_after": 3, "bytes_after": 400, "tolerance": 0.1},
        {"name": "k", "model": "zoo/k.onnx", "nodes_after": 9, "bytes_after": 900, "tolerance": None},
    ]
    path = folder / "last.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert baseline.read(Baseline(path), Path("m.onnx")) == Figures(3, 400, 0.1)
    with pytest.raises(UsageError, match=r"last\.jsonl: no rows are about a model 'other\.onnx'"):
        baseline.read(Baseline(path), Path("other.onnx"))


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("{", "the baseline is not JSON: "),
        ("[1]", "the baseline is neither a report of surgery apply nor a result of a batch"),
        (
            '{"figures": {"nodes": 3}}',
            "the report has no 'bytes', which the baseline compares; make one: surgery apply",
        ),
    ],
)
def test_an_invalid_report_is_refused(folder: Path, report: str, message: str) -> None:
    (folder / "last.json").write_text(report)
    with pytest.raises(UsageError) as caught:
        baseline.read(Baseline(folder / "last.json"), None)
    assert str(caught.value).startswith(f"{folder}/last.json: {message}")


def test_a_speed_bound_needs_a_speed_in_the_report(folder: Path) -> None:
    last(folder, nodes=3, bytes=300)
    with pytest.raises(UsageError, match="the report has no 'speed'"):
        baseline.read(Baseline(folder / "last.json", speed=Share(">=", 0.9)), None)


def test_the_speed_is_compared_with_the_last_speed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def compare(subjects: list[Any], feeds: Any, spec: Any, **how: Any) -> Comparison:
        asked.append(how["decide"])
        speeds = (None, Interval(1.2, 1.1, 1.3))
        models = tuple(Measured(one.name, None, 0.01, speed, 0.1) for one, speed in zip(subjects, speeds))
        return Comparison(models, spec, 10, 1, 2, 1.0, "decided")

    monkeypatch.setattr(benching, "compare", compare)
    measured = "found 1.200, between 1.100 and 1.300 with a confidence of 95%"
    remedy = "; 'surgery tune' finds the steps and sites that are faster"
    for before, ok in ((1.2, True), (1.4, True), (1.5, False)):
        last(folder, nodes=3, bytes=10**4, speed=before)
        (*_, told) = expectations(folder, ", speed: '>= 0.9x'")
        assert told == (
            f"baseline speed: >= 0.9x of the last, {before:.3f} ({measured if ok else measured + remedy})",
            ok,
        )
    assert asked == [pytest.approx(0.9 * 1.2), pytest.approx(0.9 * 1.4), pytest.approx(0.9 * 1.5)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{nodes: <= 1x}", "3:11: 'baseline' needs 'report', the JSON report of an earlier run"),
        ("last.json", "3:11: 'baseline' takes a mapping such as {report: last.json}, not 'last.json'"),
        (
            "{report: a, nodes: 2}",
            "3:30: 'nodes' takes a multiple of the last figure such as '<= 1.1x', not 2",
        ),
        (
            "{report: a, bytes: '>= 1x'}",
            "3:30: '>= 1x': this figure needs an upper bound, such as '<= 1.1x'",
        ),
        ("{report: a, speed: '<= 1x'}", "3:30: '<= 1x': a speed needs a lower bound, such as '>= 0.9x'"),
        ("{report: a, size: <= 1x}", "3:23: no key 'size'; "),
    ],
)
def test_mistakes_are_reported_with_their_place(given: str, message: str) -> None:
    (found,) = mistakes(f"recipe: r\nsteps: [drop-identity]\nbaseline: {given}\n")
    assert found.startswith(f"r.yaml:{message}")


def test_a_baseline_is_written_out(folder: Path) -> None:
    recipe = recipes.parse(f"{TIDY}, nodes: <= 1x}}\n", folder / "r.yaml")
    assert recipe.baseline == Baseline(folder / "last.json", nodes=Share("<=", 1.0))
    again = recipes.parse(resolved.text(recipe))
    assert again.baseline == recipe.baseline
