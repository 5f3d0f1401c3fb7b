"""The formats for other tools, from the commands: each says the same, with the exit code of the text."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from support.breadth import sampled

from surgery.interface import commands as cli
from surgery.model.graph import text

FORMATS = ["github", "junit", "sarif", "markdown"]
MODEL = "g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }"
RECIPE = """recipe: mine
model: m.onnx
steps:
  - use: tidy
  - pass: fuse-gelu
    when: {nodes: "> 99"}
expect:
  ops:
    Identity: 0
    Relu: 3
"""
WRONG = """recipe: wrong
model: m.onnx
on_failure: rollback
rules:
  to-tanh:
    about: Takes one for the other.
    match: y = Relu(x)
    emit: y = Tanh(x)
    parity: close
steps:
  - drop-identity
  - use: {recipe: inner, steps: [drop-dropout]}
  - to-tanh
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    onnx.save(text.parse(MODEL), "m.onnx")
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = Tanh(x) }"), "other.onnx")
    Path("mine.yaml").write_text(RECIPE)
    Path("wrong.yaml").write_text(WRONG)
    return tmp_path


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = cli.main(list(arguments))
    return code, capsys.readouterr().out


def suite(shown: str) -> ElementTree.Element:
    found = ElementTree.fromstring(shown.encode()).find("testsuite")
    assert found is not None
    return found


def results(shown: str) -> list[dict]:
    return json.loads(shown)["runs"][0]["results"]


RUNS = [
    (["apply", "mine.yaml"], 1),
    (["apply", "tidy", "m.onnx"], 0),
    (["apply", "wrong.yaml"], 0),
    (["apply", "wrong.yaml", "--strict"], 1),
    (["run", "drop-identity", "m.onnx"], 0),
    (["check", "m.onnx"], 0),
    (["check", "m.onnx", "mine.yaml"], 2),
    (["verify", "m.onnx", "m.onnx"], 0),
    (["verify", "m.onnx", "other.onnx"], 1),
    (["diff", "m.onnx", "other.onnx"], 0),
    (["diff", "m.onnx", "other.onnx", "--exit-code"], 1),
    (["inspect", "m.onnx", "--target", "ort-cpu"], 0),
    (["recipe", "check", "mine.yaml"], 0),
    (["apply", "none.yaml", "m.onnx"], 2),
    (["apply", "tidy", "none.onnx"], 2),
]


# In `make test`, each run in one of the formats, and each format with several runs.
@pytest.mark.parametrize(("form", "arguments", "code"), sampled([(form, *run) for form in FORMATS for run in RUNS], 16))
def test_the_format_does_not_change_the_exit_code(form: str, arguments: list[str], code: int, capsys) -> None:
    found, shown = run(*arguments, "--format", form, capsys=capsys)
    assert found == code
    if form == "junit":
        assert bool(int(suite(shown).get("failures"))) == bool(code)
    elif form == "markdown":
        assert shown.startswith("### ❌" if code else ("### ✅", "### ⚠️"))
    elif form == "github":
        assert ("::error" in shown) == bool(code)
    elif code:
        assert any(one["level"] == "error" for one in results(shown)) or "toolExecutionNotifications" in shown


def test_an_expectation_is_annotated_at_its_line(capsys) -> None:
    code, shown = run("apply", "mine.yaml", "--format", "github", capsys=capsys)
    assert code == 1
    first = "::error file=mine.yaml,line=10,col=5,title=expect Relu%3A == 3::not met: Relu: == 3 (found 1)"
    assert shown.splitlines()[0] == first


def test_a_step_that_was_undone_is_a_warning_at_its_line_and_a_failure_if_strict(capsys) -> None:
    _, shown = run("apply", "wrong.yaml", "--format", "github", capsys=capsys)
    assert shown.startswith("::warning file=wrong.yaml,line=13,col=5,title=to-tanh::output 'y'")
    _, shown = run("apply", "wrong.yaml", "--format", "junit", capsys=capsys)
    cases = {case.get("name"): case for case in suite(shown).findall("testcase")}
    assert list(cases) == ["drop-identity", "drop-dropout", "to-tanh"]
    assert "output 'y'" in cases["to-tanh"].find("skipped").get("message")
    _, shown = run("apply", "wrong.yaml", "--strict", "--format", "sarif", capsys=capsys)
    (result,) = results(shown)
    assert result["level"] == "error" and result["ruleId"] == "to-tanh"
    assert json.loads(shown)["runs"][0]["tool"]["driver"]["rules"][0]["shortDescription"]["text"] == (
        "Takes one for the other."
    )


def test_a_step_of_a_used_recipe_is_placed_where_it_is_used(capsys) -> None:
    _, shown = run("apply", "mine.yaml", "--format", "junit", capsys=capsys)
    cases = suite(shown).findall("testcase")
    assert cases[0].get("name") == "drop-identity" and cases[0][0].text.startswith("mine.yaml:4: ")
    skipped = next(case for case in cases if case.get("name") == "fuse-gelu")
    assert skipped.find("skipped").get("message") == "its condition 'when' is false"


def test_each_mistake_of_a_recipe_is_annotated(capsys) -> None:
    Path("bad.yaml").write_text("steps:\n  - no-such-pass\n  - drop-identiti\n")
    for arguments in (["apply", "bad.yaml", "m.onnx"], ["recipe", "check", "bad.yaml"]):
        code, shown = run(*arguments, "--format", "github", capsys=capsys)
        assert code == 2
        assert [line.partition(",title")[0] for line in shown.splitlines()[:2]] == [
            "::error file=bad.yaml,line=2,col=5",
            "::error file=bad.yaml,line=3,col=5",
        ]


def test_the_step_summary_is_appended_to(folder: Path, monkeypatch, capsys) -> None:
    summary = folder / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    summary.write_text("# Before\n")
    run("apply", "tidy", "m.onnx", "--format", "github", capsys=capsys)
    run("check", "m.onnx", "--format", "github", capsys=capsys)
    shown = summary.read_text()
    assert shown.startswith("# Before\n### ✅ surgery apply") and "\n### ✅ surgery check: `m.onnx`\n" in shown
    before = shown
    run("check", "m.onnx", "--format", "markdown", capsys=capsys)
    assert summary.read_text() == before


def test_a_summary_that_cannot_be_written_fails_nothing(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "none" / "summary.md"))
    assert cli.main(["check", "m.onnx", "--format", "github"]) == 0
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err
    full = folder / "full.md"
    full.write_bytes(b"x" * 1024 * 1024)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(full))
    assert cli.main(["check", "m.onnx", "--format", "github"]) == 0
    assert "is full" in capsys.readouterr().err and full.stat().st_size == 1024 * 1024


def test_a_misfit_names_its_nodes(capsys) -> None:
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = com.acme.Odd(x) }"), "odd.onnx")
    code, shown = run("inspect", "odd.onnx", "--target", "ort-cpu", "--format", "sarif", capsys=capsys)
    assert code == 1
    (result,) = results(shown)
    assert result["ruleId"].startswith("ort-cpu/")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "odd.onnx"
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].startswith("odd.onnx/")


def test_inspect_supports_annotation_formats_only_with_a_target(capsys) -> None:
    assert cli.main(["inspect", "m.onnx", "--format", "sarif"]) == 2
    assert "--format sarif requires --target" in capsys.readouterr().err


def test_recipe_show_does_not_support_annotation_formats(capsys) -> None:
    assert cli.main(["recipe", "--format", "github", "show", "mine.yaml"]) == 2
    assert "recipe check" in capsys.readouterr().err


def test_case_files_become_junit_test_cases(folder: Path, capsys) -> None:
    cases = folder / "cases" / "drop-identity"
    cases.mkdir(parents=True)
    body = "g (float[n] x) => (float[n] y) {{ {} }}"
    before, after = body.format("i = Identity(x) y = Relu(i)"), body.format("y = Relu(x)")
    (cases / "drops_it.onnxtxt").write_text(f"{before}\n# after\n{after}\n")
    (cases / "is_wrong.onnxtxt").write_text(f"{before}\n# after\n{body.format('y = Tanh(x)')}\n")
    code, shown = run("test", "cases", "--format", "junit", capsys=capsys)
    assert code == 1
    found = {case.get("name"): case for case in suite(shown).findall("testcase")}
    assert found["drop-identity/drops_it"].find("failure") is None
    assert found["drop-identity/is_wrong"].find("failure") is not None


@pytest.mark.parametrize("form", FORMATS)
def test_names_of_a_model_are_escaped(form: str, capsys) -> None:
    evil = "</a>\x1b[31m|`@all\n::error::x"
    model = text.parse(MODEL)
    model.graph.node[1].name = evil
    model.graph.node[1].output[0] = model.graph.output[0].name = evil
    onnx.save(model, "evil.onnx")
    _, shown = run("diff", "m.onnx", "evil.onnx", "--format", form, capsys=capsys)
    assert "\x1b" not in shown and "\n::error::x" not in shown
    if form == "junit":
        suite(shown)
    if form == "markdown":
        assert "</a>" not in shown.replace(f"`{evil}`", "") or all(
            "`" in line for line in shown.splitlines() if "</a>" in line
        )
