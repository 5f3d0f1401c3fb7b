"""The pages for people who know another tool: their commands exist, run, and make models that compute the same."""

import argparse
import contextlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support import ROOT, lacking, page_blocks
from support.breadth import sampled
from support.shown import normalized

from surgery.engine.recipe import recipe_lookup
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli

pytestmark = pytest.mark.usefixtures("standard_passes")

FOLDER = ROOT / "docs" / "coming-from"
PROFILES = ROOT / "surgery" / "model" / "targets" / "profiles"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
COMPARED = {"onnxsim": 3, "onnxslim": 1, "onnxoptimizer": 2, "onnx-graphsurgeon": 2, "onnxruntime": 5}
"""How many results of a tool that the tests have are compared with ours."""
LONG, SLOW = {"olive", "onnxoptimizer", "onnxruntime", "onnxsim", "onnxslim", "polygraphy"}, pytest.mark.slow
SIZES = {"batch": 2, "N": 2, "sequence": 5, "height": 40, "width": 32}


def text(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def tool(command: str) -> str:
    """Return the package that a command of another tool needs."""
    words = shlex.split(command)
    return words[2].partition(".")[0] if words[:2] == ["python", "-m"] else words[0]


def run_theirs(language: str, body: str) -> None:
    """Run commands or Python of another tool, where it is installed."""
    if language == "python":
        if importlib.util.find_spec("onnx_graphsurgeon"):
            exec(compile(body, "page", "exec"), {})
        return
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in body.replace("\\\n", " ").splitlines():
        if importlib.util.find_spec(tool(command)):
            subprocess.run(
                ["bash", "-ec", command], check=True, capture_output=True, timeout=60, env={**os.environ, "PATH": path}
            )


def outputs(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    drawn = np.random.default_rng(5)
    feeds = {}
    for given in sorted(session.get_inputs(), key=lambda given: given.name):
        dims = [dim if isinstance(dim, int) else SIZES.get(dim, 9) for dim in given.shape]
        if given.type == "tensor(float)":
            feeds[given.name] = drawn.normal(size=dims).astype(np.float32)
        else:
            feeds[given.name] = drawn.integers(1, 2 if "mask" in given.name else 300, dims)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def compare(ours: Path, theirs: Path) -> None:
    expected, found = outputs(theirs), outputs(ours)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(array).max())))


@pytest.mark.parametrize("page", [pytest.param(page, marks=SLOW) if page in LONG else page for page in PAGES])
def test_the_commands_of_both_tools_agree(page: str, tmp_path: Path, short_models: Path) -> None:
    (tmp_path / "models").symlink_to(short_models)
    with contextlib.chdir(tmp_path):
        for section in re.split(r"^(?=## )", text(page), flags=re.MULTILINE):
            run_section(section)
    pairs = [(path, tmp_path / path.name.replace("ours", "theirs")) for path in sorted(tmp_path.glob("ours*.onnx"))]
    compared = [compare(ours, theirs) for ours, theirs in pairs if theirs.is_file()]
    assert len(compared) >= COMPARED.get(page, 0)


def run_section(section: str) -> None:
    """Run what a section shows, in order; its `text` is printed by our commands."""
    printed = ""
    for language, body in page_blocks.fenced(section):
        name = page_blocks.file_name(body)
        if name is not None:
            Path(name).write_text(body)
        elif language in ("sh", "python"):
            run_theirs(language, body)
        elif language == "console":
            for command in body.splitlines():
                code, said = page_blocks.run(command)
                assert code == page_blocks.expected_code(command), f"{command}\n{said}"
                printed += said
        elif language == "text":
            assert lacking.are_old() or normalized(body) in normalized(printed), printed


def spans(page: str) -> list[str]:
    """Return what stands in backticks in the last two columns of the tables of a page."""
    rows = [line.split(" | ") for line in text(page).splitlines() if line.startswith("| ") and " | " in line]
    return [span for row in rows for cell in row[1:] for span in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_name_commands_and_flags_that_exist(page: str) -> None:
    parser = cli.parser()
    [commands] = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for words in (shlex.split(span)[1:] for span in spans(page) if span.startswith("surgery ")):
        if any(word.startswith("IN") for word in words):
            parser.parse_args(words)
            if words[0] == "run" and words[1] != "PASS":
                known = catalog.get(words[1])
                given = {words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--set"}
                assert known and given <= {option.name for option in known.options}, words
        else:
            flags = {word for word in words if word.startswith("-")}
            assert flags <= set(commands.choices[words[0]]._option_string_actions), words


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_name_passes_and_steps_that_exist(page: str, tmp_path: Path) -> None:
    known = {*catalog.passes(), *recipe_lookup.names(), *(path.stem for path in PROFILES.glob("*.yaml"))}
    named = {span for span in spans(page) if re.fullmatch("[a-z0-9]+(-[a-z0-9]+)+", span)}
    assert named - known == set()
    steps = [f"  - {span}" for span in spans(page) if re.fullmatch("[a-z0-9-]+: {.*}", span)]
    (tmp_path / "steps.yaml").write_text("\n".join(["recipe: steps", "steps: ", "  - use: tidy", *map(filled, steps)]))
    code, said = page_blocks.run(f"surgery recipe check {tmp_path / 'steps.yaml'}")
    assert code == 0, said


def filled(step: str) -> str:
    """Return a step in which values stand for the placeholders."""
    return step.replace("BYTES", "1MB").replace("block: N", "block: 32")


def test_every_pass_of_onnxoptimizer_has_a_row() -> None:
    onnxoptimizer = pytest.importorskip("onnxoptimizer")
    missing = [name for name in onnxoptimizer.get_available_passes() if f"`{name}`" not in text("onnxoptimizer")]
    assert missing == ["nop"]


@pytest.mark.parametrize(("page", "module"), sampled([("onnxsim", "onnxsim"), ("onnxslim", "onnxslim")], 2))
def test_every_option_of_a_simplifier_is_on_its_page(page: str, module: str) -> None:
    pytest.importorskip(module)
    ran = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  (?:-\w[^\n-]*, )?(--[a-z][\w-]+)", ran.stdout, flags=re.MULTILINE))
    groups = {"--mlir-", "--coreml-", "--tflite-", "--qoperator-quantize-", "--dynamic-quantize-", "--fp8-"}
    groups |= {"--weight-only-quantize-int", "--static-quantize-", "--help", "--version", "--enable-fuse-bn"}
    alone = {name for name in listed if not name.startswith(tuple(groups)) or name == "--weight-only-quantize-int4"}
    # A deprecated flag without effect.
    alone.discard("--dynamic-input-shape")
    assert [name for name in sorted(alone) if not re.search(rf"{name}\b(?!-)", text(page))] == []
