"""A run with a lossy step is never said to agree: every report leads with the loss against the budget."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.engine import recipe
from surgery.engine.batching import job
from surgery.engine.batching.ledger import LedgerRow
from surgery.engine.pipeline import records, runner
from surgery.interface import commands as cli
from surgery.interface.pages import run_verdict
from surgery.interface.report import terminal
from surgery.interface.report.batch import _line
from surgery.interface.report.formats.github import github
from surgery.interface.report.formats.markdown import markdown
from surgery.interface.report.outcomes import of_result
from surgery.model.graph import text

# The step before the lossy one rounds, and is verified in its region, the one after it exact.
STEPS = ("[fuse-matmul-add, to-float16]", "[to-float16, drop-identity]", "[fuse-matmul-add, to-float16, drop-identity]")
LOSS = "less accurate on purpose, within the budget: SNR "
WORDS = ("of 20 needed", "on synthetic inputs only")


def model() -> onnx.ModelProto:
    found = text.parse(
        "g (float[n,16] x) => (float[n,16] y) { m = MatMul(x, w) a = Add(m, b) r = Relu(a) i = Identity(r) y = Neg(i) }"
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w", (16, 16)), ("b", (16,))):
        found.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return found


@pytest.fixture(scope="module", params=STEPS)
def run(request: pytest.FixtureRequest) -> records.Result:
    found = runner.apply(model(), recipe.parse(f"accuracy: {{budget: snr >= 20 dB}}\nsteps: {request.param}"))
    assert found.ok and [step.verdict.status for step in found.steps if step.name == "to-float16"] == ["lossy"]
    return found


def test_the_verdict_on_the_result_is_lossy(run: records.Result) -> None:
    end = run.to_json()["end"]
    assert end["verdict"] == "lossy" and end["details"]["accuracy"]["summary"].startswith("SNR ")
    made = run.origin()
    assert made is not None and made.end == "lossy"
    assert job._figures(run)["verdict"] == "lossy"


def test_the_line_on_the_terminal_leads_with_the_loss(run: records.Result) -> None:
    line = terminal.conclusion(run).plain
    assert line.startswith(f"ok: {LOSS}") and all(word in line for word in WORDS)
    assert ". Otherwise same results" in line


def test_pages_and_notebooks_lead_with_the_loss(run: records.Result) -> None:
    found = run_verdict.outcome(run.to_json())
    assert found.tone == "info"
    assert found.headline.startswith("The result is less accurate on purpose, within its budget: SNR ")
    assert found.headline in str(run) and str(run).startswith(f"{run.recipe}: {found.headline}")
    shown = run._repr_html_()
    assert found.headline in shown and "agrees with the original" not in shown


def test_reports_of_older_versions_lead_with_the_loss(run: records.Result) -> None:
    """They have the verdict on the model before the lossy step as `end`."""
    report = json.loads(json.dumps(run.to_json()))
    for verdict in ("close", "equal"):
        report["end"] = {**report["end"], "verdict": verdict}
        assert "less accurate on purpose" in run_verdict.outcome(report).headline


def test_summaries_for_other_tools_have_the_loss(run: records.Result) -> None:
    outcome = of_result(run, "apply", {}, {})
    assert f"ok: {LOSS}" in github(outcome)
    summary = markdown(outcome)
    assert f"ok: {LOSS}" in summary
    (row,) = [line for line in summary.splitlines() if "snr >= 20 dB" in line and line.startswith("|")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:] == ["y", "0%"] and float(cells[1]) > 50


def test_the_speed_is_said_with_the_loss(run: records.Result) -> None:
    fast = records.replace(run, figures=records.Figures(speed=1.5))
    assert "; 1.50 times as fast; " in terminal.conclusion(fast).plain
    assert "| speed | 1 | 1.50 | +50% |" in markdown(of_result(fast, "apply", {}, {}))


def test_a_batch_says_the_loss_of_each_model(run: records.Result) -> None:
    row = LedgerRow("m", "m.onnx", "r", "done", verdict="lossy", reason=job._loss(run))
    assert "lossy (SNR " in _line(row) and all(word in _line(row) for word in WORDS)


def test_the_quiet_line_and_the_report_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text(f"accuracy: {{budget: snr >= 20 dB}}\nsteps: {STEPS[0]}")
    paths = [str(tmp_path / name) for name in ("r.yaml", "m.onnx")]
    assert cli.main(["apply", *paths, "-q"]) == 0
    assert capsys.readouterr().out.startswith(f"ok: {LOSS}")
    assert cli.main(["apply", *paths, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["end"]["verdict"] == "lossy"


def test_a_run_without_a_lossy_step_is_as_before() -> None:
    found = runner.apply(model(), recipe.parse("steps: [fuse-matmul-add, drop-identity]"))
    assert found.loss is None and terminal.conclusion(found).plain.startswith("ok: 5 -> 3 nodes")
    assert "accurate" not in markdown(of_result(found, "apply", {}, {}))
