"""Runs that are killed, and resumed: the same bytes and the same report as of a run that nobody disturbs."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.breadth import sampled
from support.cached_runs import comparable, without_distances, write_model

pytestmark = pytest.mark.slow

# Enough steps that a run can be killed amid them: some change the model, most do not.
RECIPE = """
recipe: killed
on_failure: bisect
rules:
  cut-relu: {match: y = Relu(x), emit: y = x, parity: exact}
steps:
  - use: tidy
  - cut-relu
  - use: default
"""
MOMENTS = 10


def command(place: Path, *flags: str) -> list[str]:
    arguments = ["apply", "killed.yaml", "model.onnx", "-o", "out.onnx", "--force", "--format", "json"]
    return [sys.executable, "-m", "surgery", *arguments, "--cache-dir", "cache", *flags]


def finished(place: Path, *flags: str) -> tuple[bytes, dict[str, Any], dict[str, Any], str]:
    done = subprocess.run(command(place, *flags), cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    plain = comparable(report, place)
    for key in ("environment", "recipes", "command"):
        plain.pop(key, None)
    return (place / "out.onnx").read_bytes(), without_distances(plain), report["cached"], done.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, bytes, dict[str, Any]]:
    """A folder, the seconds of a run in it, its bytes and its report."""
    place = tmp_path_factory.mktemp("undisturbed")
    write_model(place / "model.onnx")
    (place / "killed.yaml").write_text(RECIPE)
    started = time.monotonic()
    data, report, _, _ = finished(place)
    seconds = time.monotonic() - started
    shutil.rmtree(place / "cache")
    return place, seconds, data, report


@pytest.mark.parametrize("number", sampled(list(range(MOMENTS)), 5))
def test_a_killed_run_is_resumed(
    undisturbed: tuple[Path, float, bytes, dict[str, Any]], tmp_path: Path, number: int
) -> None:
    place, seconds, data, report = undisturbed
    for name in ("model.onnx", "killed.yaml"):
        shutil.copy(place / name, tmp_path / name)
    moment = seconds * random.Random(number).uniform((number + 2) / (MOMENTS + 3), (number + 3) / (MOMENTS + 3))
    running = subprocess.Popen(
        command(tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        running.wait(moment)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    kept = len(list((tmp_path / "cache").glob("v1/runs/*/*.*")))
    found, resumed, cached, said = finished(tmp_path, "--resume")
    assert found == data
    assert resumed == report
    assert cached["steps"] >= kept - 3  # the verdict on the whole, what is said of the original, and a step twice
    if kept == 0:
        assert "nothing to resume" in said or cached["steps"] == 0
    elif running.returncode != 0 and cached["steps"] < len(report["steps"]):
        assert "resumed at" in said
    again, _, cached, _ = finished(tmp_path, "--resume")
    assert again == data and cached == {"steps": len(report["steps"]), "end": True}
