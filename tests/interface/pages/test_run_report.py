"""Reports of runs: every kind of outcome, what they say, and the way over the JSON report."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from support import ROOT, SUPPORT
from support.breadth import sampled
from support.html_pages import Page, checked

from surgery.base.errors import OutputError, UsageError
from surgery.interface import commands as cli
from surgery.interface.pages import marks
from surgery.interface.pages.run_report import report
from surgery.model import storage
from surgery.verification.comparing.details import Status

EVIL = "</script><script>alert('x')</script>\u202e\x1b[31m"
WRONG = SUPPORT / "plugin_wrong.py"
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y) <float[4, 4] w = {WEIGHTS}> {
  a = MatMul(x, w)
  b = Identity(a)
  c = Relu(b)
  y = Identity(c)
}""".replace("WEIGHTS", ", ".join(str(round(0.37 * n - 2.5, 3)) for n in range(16)))

Run = Callable[..., tuple[int, Page, dict[str, Any]]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


@pytest.fixture
def run(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Apply a recipe, given as its text, with flags; return the exit code, the report, and the JSON report."""

    def apply(recipe: str, *flags: str, on: Path = model) -> tuple[int, Page, dict[str, Any]]:
        (tmp_path / "recipe.yaml").write_text(recipe)
        page = tmp_path / "out.html"
        argv = ["apply", str(tmp_path / "recipe.yaml"), str(on), "--trust", *flags]
        monkeypatch.setattr(sys, "argv", ["surgery", *argv])
        code = cli.main([*argv, "--report", str(page), "--force", "--format", "json"])
        return code, checked(page.read_text(encoding="utf-8")), json.loads(capsys.readouterr().out)

    return apply


def sections(page: Page) -> list[str]:
    return [one.attributes["id"] for one in page.all("section")]


def banner(page: Page) -> tuple[str, str]:
    """Return the tone and the headline of the verdict."""
    (found,) = [one for one in page.elements if one.attributes.get("class", "").startswith("verdict ")]
    (line,) = [one for one in page.elements if one.attributes.get("class") == "headline"]
    return found.attributes["class"].split()[1], " ".join(line.text.split())[1:].strip()


def test_each_verdict_has_a_mark() -> None:
    assert [marks.verdict(one).word for one in Status] == list(Status)
    assert "none" not in [marks.verdict(one).tone for one in Status]


def test_a_successful_run(run: Run, model: Path, tmp_path: Path) -> None:
    code, page, data = run("steps:\n  - drop-identity\n  - drop-no-op\n", "-o", str(tmp_path / "out.onnx"))
    assert code == 0 and banner(page) == ("ok", "The result is bit-identical to the original.")
    assert [name for name in sections(page) if name != "graph"] == [
        *("verdict", "steps", "errors", "operators", "costs", "weights", "inputs", "memory", "recipe", "environment")
    ]
    step = page.by_id("step-1").text.split()
    assert step[:3] == ["1", "drop-identity", "=equal"]
    assert "removed: Identity" in page.text or "removed" in page.text
    line = page.by_id("recipe-0-2")
    assert "drop-identity" in line.text and "step 1" in line.text
    assert page.by_id("environment").text.count(data["input"]["sha256"]) == 1
    assert f"surgery apply {tmp_path / 'recipe.yaml'} {model}" in page.text
    for name in ("onnxruntime", "python", "processor"):
        assert data["environment"][name] in page.text


def test_the_json_contains_all_findings(run: Run) -> None:
    _, _, data = run("steps: [drop-identity]\n")
    assert {"command", "environment", "recipes", "memory", "weights", "costs"} <= data.keys()
    assert [site["anchor"] for site in data["steps"][0]["applied"]]
    (output,) = (
        data["steps"][0]["details"]["outputs"] if data["steps"][0]["details"] else data["end"]["details"]["outputs"]
    )
    assert output["output"] == "y" and output["equal"] == output["elements"] > 0
    assert data["costs"]["before"]["macs"] == data["costs"]["after"]["macs"] > 0
    assert data["weights"]["kept"] == 1 and data["weights"]["largest"][0]["name"] == "w"
    assert data["memory"]["peak"] > 0 and data["memory"]["steps"][0][1] == "drop-identity"
    assert data["recipes"][0]["text"] == "steps: [drop-identity]\n"


def test_a_step_that_fails(run: Run, tmp_path: Path) -> None:
    text = f"plugins: [{WRONG}]\nsteps:\n  - drop-identity\n  - wrong-drop-relu\n"
    code, page, data = run(text, "-o", str(tmp_path / "out.onnx"))
    assert code == 1 and not (tmp_path / "out.onnx").exists()
    assert banner(page) == ("bad", "The run ended at wrong-drop-relu. Nothing was written.")
    row = page.by_id("step-2")
    assert "bad-row" in row.attributes["class"] and "\u2715failed" in row.text.replace(" ", "")
    details = [one for one in page.all("details") if "of step 2" in one.text]
    assert details and "open" in details[0].attributes
    worst = data["steps"][1]["details"]["worst"]
    assert f"y[{', '.join(map(str, worst['index']))}]" in page.by_id("steps").text


def test_a_step_that_is_rolled_back(run: Run) -> None:
    text = f"plugins: [{WRONG}]\non_failure: rollback\nsteps:\n  - wrong-drop-relu\n  - drop-identity\n"
    code, page, data = run(text)
    assert code == 0 and data["refused"][0]["pass"] == "wrong-drop-relu"
    tone, headline = banner(page)
    assert tone == "warn" and "Parts of 1 step were wrong and undone." in headline
    assert "warn-row" in page.by_id("step-1").attributes["class"]
    assert "recipe.yaml:4" in page.by_id("verdict").text


def test_sites_that_are_refused(run: Run, tmp_path: Path) -> None:
    two = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x, float[4] p) => (float[4] y, float[4] z) { y = Relu(x)  q = Abs(p)  z = Relu(q) }"""
    )
    path = tmp_path / "two.onnx"
    onnx.save(two, path)
    text = f"plugins: [{WRONG}]\non_failure: bisect\nsteps: [wrong-drop-relu]\n"
    code, page, data = run(text, on=path)
    (refused,) = data["steps"][0]["refused_sites"]
    assert code == 0 and data["steps"][0]["sites"] == 1
    steps = page.by_id("steps").text
    assert "(1 refused)" in steps and "Refused sites" in steps and refused["why"] in " ".join(steps.split())


def test_strict_runs_fail_if_anything_was_refused(run: Run) -> None:
    text = f"plugins: [{WRONG}]\non_failure: rollback\nsteps: [wrong-drop-relu, drop-identity]\n"
    code, page, _ = run(text, "--strict")
    assert code == 1 and banner(page)[0] == "bad" and "--strict" in banner(page)[1]


def test_an_expectation_that_is_missed(run: Run) -> None:
    code, page, _ = run("steps: [drop-identity]\nexpect: {nodes: '<= 1'}\n")
    assert code == 1 and banner(page)[0] == "bad" and "expectation" in banner(page)[1]
    assert "\u2715missed" in page.by_id("verdict").text.replace(" ", "")


def test_a_run_with_nothing_to_do(run: Run) -> None:
    code, page, _ = run("steps: [fuse-gelu]\n")
    assert code == 0 and banner(page) == ("info", "Nothing to do: no step changed the model.")
    assert "1 step found nothing to change" in page.by_id("steps").text
    assert "The number of nodes of each operator is unchanged." in page.by_id("operators").text


def test_a_run_without_verification(run: Run) -> None:
    code, page, _ = run("steps: [drop-identity]\nverify: {mode: 'off'}\n")
    assert code == 0 and banner(page) == ("warn", "The model was changed, and not compared with the original.")
    assert "inputs" not in sections(page)


def test_a_model_that_cannot_be_run(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "nobody" : 1]>
    g (float[4] x) => (float[4] y) { a = nobody.Knows(x)  b = Identity(a)  y = Relu(b) }"""
    path = tmp_path / "odd.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    code, page, data = run("steps: [drop-identity]\nverify: {compare: whole}\n", on=path)
    assert code == 1 and data["unverifiable"] is not None
    assert banner(page)[0] == "bad" and data["unverifiable"].split("'")[0].strip() in page.text


def test_executed_nodes_stand_among_the_numbers(run: Run) -> None:
    code, page, data = run("steps: [drop-identity]\n")
    executed, before = data["deployed"]["executed"]["nodes"], data["deployed"]["original"]["nodes"]
    assert code == 0 and 0 < executed <= before
    assert re.search(
        rf"Executed nodes\s*{executed}\s*{'as before' if executed == before else f'from {before}'}", page.text
    )
    _, page, data = run("steps: [drop-identity]\nverify: {mode: 'off'}\n")
    assert data["deployed"] is None and "Executed nodes" not in page.text


def test_a_lossy_run(run: Run) -> None:
    code, page, data = run("steps: [to-float16]\naccuracy: {budget: snr >= 30 dB}\n")
    assert code == 0 and data["steps"][0]["verdict"] == "lossy"
    tone, headline = banner(page)
    assert tone == "info" and headline.startswith("The result is less accurate on purpose, within its budget: SNR 3")
    assert headline.endswith(" dB of 30 needed, on synthetic inputs only.")
    assert "Metrics" in page.by_id("errors").text and "snr" in page.by_id("errors").text
    assert "Budget" in page.by_id("errors").text and "bit-identical" not in page.by_id("errors").text
    (output,) = data["steps"][0]["details"]["outputs"]
    assert output["unit"] == "rms" and sum(output["shares"]["counts"]) + output["equal"] == output["elements"]
    # An error of a root mean square of the output is no limit, and the shares are no shares of a tolerance.
    assert "root mean squares of the output" in page.by_id("errors").text
    assert "Tolerance used" not in page.by_id("errors").text


def test_errors_are_spread_over_the_outputs(run: Run) -> None:
    text = f"plugins: [{WRONG}]\nsteps: [{{wrong-by-a-little: {{error: 0.000001}}}}]\n"
    code, page, data = run(text)
    step = data["steps"][0]
    assert code == 0 and step["verdict"] == "close" and 0 < step["needed"]["factor"] < 1
    end = data["end"] or step
    (output,) = end["details"]["outputs"]
    assert sum(output["shares"]["counts"]) + output["equal"] == output["elements"]
    first, counts = output["shares"]["first"], output["shares"]["counts"]
    assert 2.0 ** (first + len(counts) - 1) <= output["largest"] < 2.0 ** (first + len(counts))
    assert [one for one in page.all("svg") if one.attributes.get("aria-labelledby", "").startswith("spread-0")]


def test_names_of_a_model_are_escaped(run: Run, tmp_path: Path) -> None:
    long = "n" * 10_000
    x = helper.make_tensor_value_info(f"x{EVIL}", TensorProto.FLOAT, [f"b{EVIL}", 2])
    y = helper.make_tensor_value_info(f"y{EVIL}", TensorProto.FLOAT, [f"b{EVIL}", 2])
    weight = helper.make_tensor(f"w{EVIL}", TensorProto.FLOAT, [2, 2], [1, -2, 3, 4])
    nodes = [
        helper.make_node("MatMul", [x.name, weight.name], [long], name=f"matmul{EVIL}"),
        helper.make_node("Identity", [long], [f"i{EVIL}"], name=f"identity{EVIL}"),
        helper.make_node("Relu", [f"i{EVIL}"], [y.name], name=long),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, f"g{EVIL}", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 8
    made.doc_string = EVIL
    path = tmp_path / "evil\u202e<b>.onnx"
    onnx.save(made, path)
    text = f"plugins: [{WRONG}]\non_failure: rollback\nsteps: [drop-identity, wrong-drop-relu]  # {EVIL[:8]}\n"
    _, page, data = run(text, on=path)
    assert data["steps"][1]["status"] == "rolled_back"
    assert "identity</script><script>alert('x')</script>\\u202e\\x1b[31m" in page.text
    assert "(10,0" in page.text and long not in page.text
    assert len([one for one in page.all("script") if not one.attributes.get("type")]) == 1
    assert not page.all("b")


def test_the_json_report_makes_the_same_page(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, run_file = tmp_path / "out.onnx", tmp_path / "run.json"
    assert cli.main(["apply", "tidy", str(model), "-o", str(out), "--format", "json"]) == 0
    run_file.write_text(capsys.readouterr().out)
    assert cli.main(["report", str(run_file)]) == 0
    page = checked((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert {"verdict", "steps", "errors", "operators", "costs", "weights", "memory", "recipe"} <= set(sections(page))
    assert banner(page)[0] == "ok"
    # The files have changed: what is drawn from them is left out, and the page says so.
    out.write_bytes(out.read_bytes() + b"")
    onnx.save(onnx.parser.parse_model(MODEL.replace("Relu", "Abs")), model)
    assert cli.main(["report", str(run_file), "-o", str(tmp_path / "later.html")]) == 0
    later = checked((tmp_path / "later.html").read_text(encoding="utf-8"))
    assert "weights" not in sections(later) and "has changed since the run" in later.by_id("environment").text


def test_a_report_of_an_older_version(run: Run) -> None:
    _, _, data = run("steps: [drop-identity]\n")
    for key in ("command", "environment", "recipes", "memory", "weights", "costs", "problems"):
        del data[key]
    for step in data["steps"]:
        for key in ("where", "applied", "declined"):
            del step[key]
        del step["needed"]["factor"]
        if step["details"]:
            del step["details"]["outputs"]
    if data["end"]:
        del data["end"]["details"]["outputs"]
    page = checked(report(data))
    assert banner(page)[0] == "ok" and "memory" not in sections(page)


@pytest.mark.parametrize(
    "run_json",
    [{}, {"ok": True}, [], {"ok": True, "recipe": "r", "input": {}, "output": {}, "steps": [{}], "seconds": 1}],
)
def test_a_file_that_is_not_a_report_of_a_run(run_json: Any) -> None:
    with pytest.raises(UsageError, match=r"report of (a|the) run"):
        report(run_json)


def test_a_report_does_not_overwrite_files(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "out.html"
    page.write_text("mine")
    assert cli.main(["apply", "tidy", str(model), "--report", str(page)]) == 2
    assert page.read_text() == "mine" and "--force" in capsys.readouterr().err
    same = str(tmp_path / "same")
    assert cli.main(["apply", "tidy", str(model), "--report", same, "-o", same]) == 2
    assert not Path(same).exists()


def test_unreadable_reports_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    for given, said in (
        ("no.json", "is not valid JSON"),
        ("list.json", "not the report of a run"),
        ("gone.json", "cannot read"),
    ):
        assert cli.main(["report", str(tmp_path / given)]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize("name", sampled(["resnet-tiny", "bert-tiny", "gpt2-tiny", "whisper-enc-tiny"], 4))
def test_reports_of_bundled_models(name: str, short_models: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    file = short_models / f"{name}.onnx"
    assert cli.main(["apply", "default", str(file), "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    found = checked(text)
    assert len(text) < 1_500_000
    for anchor in ("verdict", "steps", "errors", "operators", "costs", "weights", "inputs", "recipe", "environment"):
        assert len(found.by_id(anchor).text.split()) > 10, anchor
    assert str(ROOT / "recipes/default.yaml") in found.text


@pytest.mark.parametrize(
    ("error", "code", "headline", "remark"),
    [
        (
            OutputError("cannot be written: no space is left", where="out.onnx"),
            2,
            "The run ended with an error after 2 steps. The model was not written.",
            "out.onnx: cannot be written: no space is left",
        ),
        (KeyboardInterrupt(), 130, "The run was interrupted after 2 steps. The model was not written.", ""),
    ],
)
def test_a_run_that_is_cut_short(
    error: BaseException,
    code: int,
    headline: str,
    remark: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(storage, "save", end)
    recipe, page = tmp_path / "recipe.yaml", tmp_path / "out.html"
    recipe.write_text("steps: [drop-identity, drop-no-op]\n")
    argv = ["apply", str(recipe), str(model), "-o", str(tmp_path / "out.onnx"), "--report", str(page)]
    assert cli.main(argv) == code
    found = checked(page.read_text(encoding="utf-8"))
    assert banner(found) == ("bad", headline) and remark in found.text
    assert {"verdict", "steps", "recipe", "environment", "graph"} <= set(sections(found))
    assert "drop-identity" in found.by_id("step-1").text


def test_an_error_before_the_first_step_leaves_no_report(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    assert cli.main(["apply", "tidy", str(tmp_path / "gone.onnx"), "--report", str(page)]) == 2
    assert not page.exists()


@pytest.mark.parametrize("flags", [(), ("--plugin", str(WRONG))])
def test_a_report_has_the_command_that_opens_the_model_in_the_workbench(
    run: Run, model: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    _, page, data = run("steps: [drop-identity]\n", *flags)
    command = ["surgery", "open", str(model), "--recipe", str(tmp_path / "recipe.yaml"), "--trust", *flags]
    assert data["open"] == command and shlex.join(command) in page.by_id("environment").text


def test_a_report_of_a_plan_opens_the_plan(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, page = str(tmp_path / "plan.json"), str(tmp_path / "out.html")
    assert cli.main(["plan", "default", str(model), "-o", plan]) == 0
    assert cli.main(["apply", plan, "--report", page]) == 0
    assert f"surgery open {plan}" in checked(Path(page).read_text(encoding="utf-8")).by_id("environment").text


def test_a_model_that_was_on_standard_input_cannot_be_opened_again(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    command = [sys.executable, "-m", "surgery", "apply", "default", "-", "--report", str(page)]
    subprocess.run(command, input=model.read_bytes(), check=True, capture_output=True)
    assert "surgery open" not in page.read_text(encoding="utf-8").partition("<script>")[0]
