"""`surgery tune`: one real run, and what is written and refused, on timings that are made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.engine import recipe
from surgery.engine.provenance.model_digests import identity_of
from surgery.features.tuning import tune_recipe
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.storage.summary import operators
from surgery.verification.benchmarking.statistics import Interval

pytestmark = pytest.mark.slow

SIZE, EXTRA = 192, 4
MODEL = f"""
g (float[{SIZE},{SIZE}] x) => (float[{SIZE},{SIZE}] y) {{
    i = Identity(x)
    a = MatMul(i, w)
    b = MatMul(a, w)
    c = MatMul(b, w)
    d = MatMul(c, w)
    e = Mul(d, tiny)
    y = Add(a, e)
}}
"""
PLUGIN = f'''
import numpy as np
from surgery import Graph, Parity, graph_pass


@graph_pass("tune-cut", parity=Parity.LOSSY)
def cut(graph: Graph) -> None:
    """Drop what adds little."""
    for node in graph.nodes("Add"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], node.required_input(0))


@graph_pass("tune-delay", parity=Parity.LOSSY)
def delay(graph: Graph) -> None:
    """Multiply by what is nearly the identity."""
    _delay(graph, 1.0001)


@graph_pass("tune-delay-exactly", parity=Parity.CLOSE)
def delay_exactly(graph: Graph) -> None:
    """Multiply by the identity."""
    _delay(graph, 1.0)


def _delay(graph: Graph, factor: float) -> None:
    node = graph.nodes("MatMul")[0]
    with graph.site(node) as new:
        value = node.required_input(0)
        eye = new.constant(np.eye({SIZE}, dtype=np.float32) * np.float32(factor), "eye")
        for _ in range({EXTRA}):
            value = new.node("MatMul", value, eye)
        new.set_input(node, 0, value)
'''
RECIPE = """
recipe: try
on_failure: rollback
accuracy: {budget: snr >= 40 dB}
steps:
  - drop-identity
  - tune-delay
  - tune-cut
expect: {signature: unchanged, speed: ">= 0.5"}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugins") / "tune_passes.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model, rng = text.parse(MODEL), np.random.default_rng(0)
    weight = rng.standard_normal((SIZE, SIZE)).astype(np.float32) / np.float32(SIZE**0.5)
    for name, array in {"w": weight, "tiny": np.array(1e-4, np.float32)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "try.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let each product take as long as any other; return the ratios that decisions are asked at."""
    asked: list[Any] = []

    def compare(models: Sequence[Any], feeds: object, spec: object, *, decide: float | None) -> SimpleNamespace:
        asked.append(decide)
        before, after = (operators(one.proto)["MatMul"] for one in models)
        return SimpleNamespace(speed=Interval(before / after, before / after * 0.99, before / after * 1.01))

    monkeypatch.setattr(tune_recipe, "compare", compare)
    return asked


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def tune(capsys: pytest.CaptureFixture[str], plugin: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    code, out, err = surgery(capsys, "tune", "try.yaml", "model.onnx", "--plugin", plugin, "--format", "json", *more)
    return code, json.loads(out or "{}"), err


def steps(path: Path) -> list[str]:
    return [step.name for step in recipe.load(path, trust=True).steps if isinstance(step, recipe.PassStep)]


def test_a_real_run(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--seconds", 2, "--model-output", "made.onnx"]
    code, found, err = tune(capsys, plugin, *more)
    assert code == 0, err
    assert [(one["pass"], one["kept"], one["why"]) for one in found["trials"]] == [
        ("tune-delay", False, "slower"),
        ("tune-cut", True, "faster"),
    ]
    assert found["trials"][1]["verdict"] == "lossy"
    assert found["trials"][1]["details"]["metrics"]["snr"] > 40
    assert found["speed"]["low"] > 1.5
    written = folder / "model.tuned.yaml"
    assert steps(written) == ["drop-identity", "tune-cut"]
    code, _, err = surgery(capsys, "apply", written, "model.onnx", "-o", "applied.onnx", "--trust")
    assert code == 0, err
    applied, made = (identity_of(storage.load(folder / name)) for name in ("applied.onnx", "made.onnx"))
    assert applied.parts == made.parts


def test_the_table(folder: Path, plugin: Path, timings: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "tune", "try.yaml", "model.onnx", "--plugin", plugin, "-o", "best.yaml")
    assert code == 0, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1].startswith("tune-delay 1 lossy, ")
    assert lines[1].endswith("0.500 0.495 to 0.505 left out: slower")
    assert lines[2].endswith("4.000 3.960 to 4.040 kept: faster")
    assert any(line.startswith("the recipe as a whole: 4.000 times as fast as the original") for line in lines)
    assert "wrote best.yaml" in err
    assert timings == [1.0, 1.0, None]
    head = (folder / "best.yaml").read_text().splitlines()[:4]
    assert head == [
        "# Found by 'surgery tune' from try.yaml: 1 thread, confidence 0.95.",
        "# The recipe as a whole: 4.000 times as fast (3.960 to 4.040).",
        "# tune-delay: left out, slower, 0.500 times as fast (0.495 to 0.505)",
        "# tune-cut: kept, faster, 4.000 times as fast (3.960 to 4.040)",
    ]


@pytest.mark.usefixtures("timings")
def test_flags_become_part_of_the_recipe(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "real.npz", x=np.ones((SIZE, SIZE), np.float32))
    more = ["--accuracy", "cosine >= 0.99", "--evaluation", "real.npz", "--gain", "1.1"]
    code, _, err = tune(capsys, plugin, *more)
    assert code == 0, err
    written = recipe.load(folder / "model.tuned.yaml", trust=True)
    (limit,) = written.verify.accuracy.limits
    assert (limit.metric, limit.value) == ("cosine", 0.99)
    assert [one.path for one in written.verify.accuracy.samples.data] == [folder / "real.npz"]
    assert written.plugins == (str(plugin),)


@pytest.mark.usefixtures("timings")
def test_a_step_over_the_budget_is_left_out(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = tune(capsys, plugin, "--accuracy", "snr >= 150 dB")
    assert code == 0, err
    assert [one["kept"] for one in found["trials"]] == [False, False]
    assert all("budget" in one["why"] for one in found["trials"])
    assert steps(folder / "model.tuned.yaml") == ["drop-identity"]


@pytest.mark.usefixtures("timings")
@pytest.mark.parametrize("on_failure", ["abort", "keep"])
def test_a_step_over_the_budget_is_left_out_whatever_its_on_failure(
    on_failure: str, folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even a recipe that keeps what fails keeps no step that is over the budget."""
    (folder / "try.yaml").write_text(RECIPE.replace("rollback", on_failure))
    code, found, err = tune(capsys, plugin, "--accuracy", "snr >= 150 dB")
    assert code == 0, err
    assert [one["kept"] for one in found["trials"]] == [False, False]
    assert all("budget" in one["why"] for one in found["trials"])


@pytest.mark.usefixtures("timings")
def test_a_slower_model_is_not_written(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "try.yaml").write_text("steps: [tune-delay-exactly, tune-delay]")
    code, found, _ = tune(capsys, plugin)
    assert code == 1
    assert found["complaint"].startswith("the resulting recipe makes the model slower: 0.500 times")
    assert not (folder / "model.tuned.yaml").exists()
    # Unless the step that is to blame is named.
    (folder / "try.yaml").write_text("steps: [drop-identity, tune-delay-exactly, tune-cut]")
    code, found, _ = tune(capsys, plugin, "--optional", "tune-delay-exactly")
    assert (code, steps(folder / "model.tuned.yaml")) == (0, ["drop-identity", "tune-cut"])


@pytest.mark.usefixtures("timings")
def test_a_recipe_that_expects_more_is_not_written(
    folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "try.yaml").write_text(RECIPE.replace("0.5", "9"))
    code, found, _ = tune(capsys, plugin)
    assert code == 1 and not (folder / "model.tuned.yaml").exists()
    assert found["complaint"].startswith("the recipe expects a speed of 9")


@pytest.mark.usefixtures("timings")
def test_no_recipe_is_written_if_no_step_remains(
    folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "try.yaml").write_text("steps: [tune-delay]")
    code, out, err = surgery(capsys, "tune", "try.yaml", "model.onnx", "--plugin", plugin)
    assert code == 0, err
    assert "no optional step is measurably faster" in out and "no recipe to write" in out
    assert not (folder / "model.tuned.yaml").exists()


def test_files_are_not_overwritten(folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.tuned.yaml").write_text("mine")
    code, found, err = tune(capsys, plugin)
    assert (code, found) == (2, {})
    assert "exists" in err and (folder / "model.tuned.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [drop-identity]", "has no lossy step"),
        ("{verify: {mode: off}, steps: [tune-cut]}", "turns verification off"),
    ],
)
def test_recipes_that_cannot_be_tuned(
    text: str, message: str, folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "try.yaml").write_text(text)
    code, _, err = tune(capsys, plugin)
    assert code == 2 and message in err


def test_a_recipe_that_fails_without_its_optional_steps(
    folder: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "{verify: {mode: each}, steps: [{pass: drop-identity, expect: {sites: 7}}, tune-cut]}"
    (folder / "try.yaml").write_text(text)
    code, _, err = tune(capsys, plugin)
    assert code == 1 and "without its optional steps the recipe fails: the step 'drop-identity' fails" in err
