"""Pages of the documentation: their files are written, their commands run in order, and print what is shown."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from ruamel.yaml import YAML
from support import ROOT, lacking, page_blocks
from support.breadth import sampled
from support.shown import normalized

from surgery.interface import commands as cli

pytestmark = pytest.mark.usefixtures("standard_passes")

DOCS = ROOT / "docs"
PAGES = [
    *("tutorial/first-model", "tutorial/first-pass", "explanation/big-models"),
    *("how-to/change-the-opset", "how-to/compare-two-models", "how-to/find-out-why", "how-to/find-the-wrong-step"),
    *("how-to/bench-models", "how-to/measure-a-model", "how-to/quantize-a-model", "how-to/scripts-and-ci"),
    *("how-to/deploy-to-a-runtime", "how-to/split-a-model", "how-to/see-what-was-done", "how-to/tune-a-recipe"),
    *("how-to/plan-a-run", "how-to/compare-with-the-last-release", "how-to/first-day", "how-to/configure"),
    *("how-to/prove-what-was-done", "how-to/run-again", "how-to/use-in-ci", "how-to/verify-two-models"),
    *("how-to/many-models", "how-to/models-elsewhere", "how-to/import-weights", "how-to/use-another-runtime-build"),
]
COVERED_ELSEWHERE = {"cookbook", "troubleshooting", "write-a-pass", "write-a-recipe", "write-a-rule", "edit-a-model"}


def blocks(page: str) -> list[tuple[str, str]]:
    return page_blocks.fenced((DOCS / f"{page}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", sampled(PAGES, 12))
def test_the_page(page: str, tmp_path: Path, short_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(short_models)
    monkeypatch.chdir(tmp_path)
    for _, body in blocks(page):
        name = page_blocks.file_name(body)
        if name is not None:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(body)
    output = ""
    commands = [line for language, body in blocks(page) if language == "console" for line in body.splitlines()]
    assert commands
    for command in commands:
        code, printed = page_blocks.run(command)
        assert code == page_blocks.expected_code(command), f"{command}\n{printed}"
        output += printed
    printed = normalized(output)
    if lacking.are_old() and "fails with the default optimizations of ONNX Runtime" in printed:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} breaks a result, which then is not as shown")
    for language, body in blocks(page):
        if language == "text" and page_blocks.file_name(body) is None:
            assert normalized(body) in printed, f"{body}\n{output}"


def test_the_workflow_runs(tmp_path: Path, short_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(short_models)
    files = {name: body for _, body in blocks("how-to/use-in-ci") if (name := page_blocks.file_name(body)) is not None}
    (tmp_path / "small.yaml").write_text(files["small.yaml"])
    workflow = YAML(typ="safe").load(files[".github/workflows/models.yaml"])
    script = [step["run"] for step in workflow["jobs"]["models"]["steps"] if step.get("run", "").startswith("surgery")]
    assert len(script) == 3
    summary = tmp_path / "summary.md"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(tmp_path), "CI": "true"}
    # As GitHub Actions runs each step.
    for line in script:
        ran = subprocess.run(["bash", "-eo", "pipefail", "-c", line], cwd=tmp_path, env=environment, check=False)
        assert ran.returncode == 0, line
    text = summary.read_text()
    titles = re.findall(r"^### \S+ surgery (.*): ", text, flags=re.MULTILINE)
    assert titles == ["recipe check", "apply", "diff"]


def test_the_pass_and_the_rule_of_the_tutorial_do_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _, body in blocks("tutorial/first-pass"):
        if (name := page_blocks.file_name(body)) is not None and "/" not in name:
            Path(name).write_text(body)
    commands = ["python model.py", "surgery run swap-negated-sub model.onnx --plugin swap.py -o swapped.onnx"]
    for command in [*commands, "surgery apply swaps.yaml model.onnx -o ruled.onnx"]:
        code, printed = page_blocks.run(command)
        assert code == 0, printed
    for name in ("swapped.onnx", "ruled.onnx"):
        assert [node.op_type for node in onnx.load(name).graph.node] == ["Sub"]


def test_every_page_with_commands_is_run() -> None:
    with_commands = {
        str(path.relative_to(DOCS).with_suffix(""))
        for path in DOCS.rglob("*.md")
        if re.search(r"^```console$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    elsewhere = {f"how-to/{name}" for name in COVERED_ELSEWHERE}
    assert {page for page in with_commands - elsewhere if not page.startswith("coming-from/")} == set(PAGES)


def keys(command: str) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        cli.main([*shlex.split(command), "--format", "json"])
    return json.loads(out.getvalue())


REPORTS = {
    "apply": ("apply tidy models/resnet-tiny.onnx", ["input", "output", "steps", "end", "bindings", "original"]),
    "verify": ("verify models/resnet-tiny.onnx models/resnet-tiny.onnx", []),
    "check": ("check models/resnet-tiny.onnx", []),
    "inspect": ("inspect models/resnet-tiny.onnx", ["analysis", "validity"]),
    "opset": ("opset models/resnet-tiny.onnx --to 10", ["candidates", "obstacles"]),
    "why": ("why fuse-gelu models/resnet-tiny.onnx", []),
    "bisect": ("bisect tidy models/resnet-tiny.onnx", []),
    "split": ("split models/resnet-tiny.onnx --parts 2", ["pieces", "verdict"]),
    "passes": ("passes fuse-conv-bn", ["options"]),
}


@pytest.mark.parametrize("command", sampled(REPORTS, 3))
def test_the_keys_of_reports_are_documented(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (?:surgery )?(\w+)\n((?:(?!^## ).*\n)*)", page, flags=re.MULTILINE))
    shared = {"verify": ["Verdicts"], "apply": ["Verdicts"], "split": ["Verdicts"], "inspect": ["check"]}
    documented = "".join(sections[name] for name in [command, *shared.get(command, [])])
    report = keys(REPORTS[command][0])
    assert report.pop("format_version") == 1
    report = report["models"][0] if "models" in report and command == "check" else report
    inner = [report[name] for name in REPORTS[command][1]]
    parts = [report, *(one[0] if isinstance(one, list) else one for one in inner if one)]
    assert [key for part in parts for key in part if f"`{key}`" not in documented] == []
