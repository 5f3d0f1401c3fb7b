"""`surgery bench`: reports and exit codes. Times themselves are held to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison, Measured, Memory, OperatorTime
from surgery.verification.benchmarking.statistics import Interval

BODY = "g (float[n, k] x) => (float[n, k] y) { t = Relu(x) y = Neg(t) }"
QUICK = ["--repeats", "4", "--warmup", "1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(BODY), "a.onnx")
    onnx.save(text.parse(BODY.replace("Relu", "Abs")), "b.onnx")
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        code = cli.main([str(argument) for argument in arguments])
    except SystemExit as error:  # what argparse does
        code = int(error.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "bench", "a.onnx", "b.onnx", *QUICK, "--dims", "n=3,k=8", "--profile")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == ["model", "ms", "speed", "95", "%", "interval", "session", "ms", "memory", "file"]
    assert [line.split()[0] for line in lines[1:3]] == ["a.onnx", "b.onnx"]
    assert "inputs drawn with seed 0: n=3, k=8" in lines
    assert any(line.startswith("processor time, 1 thread, optimization all; 4 rounds") for line in lines)
    table = lines[lines.index(next(line for line in lines if line.startswith("operator"))) :]
    assert table[0].split() == ["operator", "A", "nodes", "ms", "share", "B", "nodes", "ms", "share", "speed"]
    assert {line.split()[0] for line in table[1:]} == {"Relu", "Abs", "Neg"}


def test_json_has_everything_in_the_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("one.npz", x=np.ones((2, 3), np.float32))
    flags = [*QUICK, "--inputs", "one.npz", "--threads", "2", "--optimization", "basic", "--format", "json"]
    code, out, _ = surgery(capsys, "bench", "a.onnx", "b.onnx", "a.onnx", *flags)
    found = json.loads(out)
    assert code == 0 and found["ok"] is True
    assert (found["threads"], found["optimization"], found["clock"], found["level"]) == (2, "basic", "wall", 0.95)
    assert [one["name"] for one in found["models"]] == ["a.onnx", "b.onnx", "a.onnx"]
    first, second, _ = found["models"]
    assert first["speed"] is None and first["bytes"] == Path("a.onnx").stat().st_size and first["profile"] is None
    assert second["speed"]["low"] <= second["speed"]["ratio"] <= second["speed"]["high"]
    assert found["inputs"] == [{"dims": {"n": 2, "k": 3}, "character": "one.npz", "seed": None}]


def test_inputs_of_a_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text("inputs: {dims: {n: 5, k: 6}}\nsteps: [drop-identity]\n")
    code, out, _ = surgery(capsys, "bench", "a.onnx", *QUICK, "--recipe", "r.yaml", "--dims", "k=7")
    assert code == 0 and "n=5, k=7" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], "surgery: none.onnx: no such file"),
        (["a.onnx", "c.onnx"], "surgery: c.onnx: does not accept the inputs of the baseline: B needs an input 'z'"),
        (["a.onnx", "--dims", "n=1,2"], "surgery: --dims gives 'n' 2 sizes; pass one"),
        (["a.onnx", "--dims", "n=1,n=2"], "surgery: --dims gives 'n' twice"),
        (["a.onnx", "--dims", "n=1,"], "surgery: --dims n=1,: expected NAME=N"),
        (["a.onnx", "--dims", "n=1,k"], "surgery: --dims n=1,k: expected NAME=N"),
        (["a.onnx", "--dims", "n=1,k=0"], "surgery: --dims n=1,k=0: expected NAME=N"),
        (["a.onnx", "--dims", "m=1"], "surgery: the model has no dynamic dim 'm'; its dynamic dims are n, k"),
        (["a.onnx", "--inputs", "none.npz"], "surgery: none.npz: "),
        (["a.onnx", "--seconds", "0"], "argument --seconds: '0' is not a positive number"),
        (["a.onnx", "--repeats", "x"], "argument --repeats: 'x' is not a number of at least 1"),
        (["a.onnx", "--level", "95"], "argument --level: '95' is not a number between 0 and 1"),
        (["a.onnx", "--seed", "-1"], "argument --seed: '-1' is not a non-negative integer"),
        (["a.onnx", "--seconds", "1", "--repeats", "3"], "not allowed with argument --seconds"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    onnx.save(text.parse("g (float[n, k] z) => (float[n, k] y) { y = Relu(z) }"), "c.onnx")
    code, out, err = surgery(capsys, "bench", *arguments)
    assert (code, out) == (2, "") and message in err
    assert err.count("\n") == 1 or "usage:" in err


# What was measured is given here.


def found(*speeds: Interval | None, **more: Any) -> Comparison:
    models = tuple(
        Measured(f"{name}.onnx", None, 0.0123456, speed, 0.5, 2_500_000, Memory(7_000_000, 5_000_000))
        for name, speed in zip("abc", speeds)
    )
    return Comparison(models, BenchSpec(), 120, more.pop("calls", 1), 24, 14.9, "time", **more)


def given(monkeypatch: pytest.MonkeyPatch, comparison: Comparison) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = []

    def bench(*models: str, **how: Any) -> Comparison:
        asked.append({"models": models, **how})
        return comparison

    monkeypatch.setattr("surgery.bench", bench)
    return asked


def test_the_verdict_of_each_model(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, found(None, Interval(2.0, 1.8, 2.25), Interval(0.5, 0.4, 0.8)))
    _, out, _ = surgery(capsys, "bench", "a.onnx")
    assert "b.onnx is faster than a.onnx: 1.800 to 2.250 times\n" in out
    assert "c.onnx is slower than a.onnx: 1.250 to 2.500 times\n" in out
    row = next(line for line in out.splitlines() if line.startswith("b.onnx "))
    assert row.split() == ["b.onnx", "12.35", "2.000", "1.800", "to", "2.250", "500.0", "7.0", "MB", "2.5", "MB"]
    given(monkeypatch, found(None, Interval(1.01, 0.98, 1.04), calls=3))
    _, out, _ = surgery(capsys, "bench", "a.onnx")
    assert "b.onnx and a.onnx: no difference is shown\n" in out
    assert "120 rounds of 3 runs in 24 sessions" in out


def test_an_expected_speed_decides_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = given(monkeypatch, found(None, Interval(1.3, 1.2, 1.4)))
    assert surgery(capsys, "bench", "a.onnx", "--expect", "1.2")[0] == 0
    code, _, err = surgery(capsys, "bench", "a.onnx", "--expect", "1.21")
    assert code == 1 and err == "b.onnx is not shown to reach 1.21 times the speed of a.onnx\n"
    code, out, _ = surgery(capsys, "bench", "a.onnx", "--expect", "1.21", "--format", "json")
    assert code == 1 and json.loads(out)["ok"] is False
    assert [one["decide"] for one in asked] == [1.2, 1.21, 1.21]


def test_flags_are_passed_on(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = given(monkeypatch, found(None))
    flags = "--threads 4 --clock processor --optimization off --seconds 3 --width 0.05 --level 0.9 --warmup 7 --seed 5"
    surgery(capsys, "bench", "a.onnx", "b.onnx", "a.onnx", *flags.split())
    spec = BenchSpec(4, "processor", "off", 0.9, 0.05, 3.0, None, 7, 5)
    assert asked[0]["spec"] == spec and asked[0]["models"] == ("a.onnx", "b.onnx", "a.onnx")
    surgery(capsys, "bench", "a.onnx")
    assert asked[1]["spec"] == BenchSpec() and asked[1]["decide"] is None and asked[1]["profile"] is False


def test_operators_present_in_one_model_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conv, relu = OperatorTime("Conv", 0.004, 3, 0.8), OperatorTime("Relu", 0.001, 2, 0.2)
    first = Measured("a.onnx", None, 0.005, None, 0.5, profile=(conv, relu))
    half = OperatorTime("Conv", 0.002, 3, 1.0)
    second = Measured("b.onnx", None, 0.002, Interval(2.5, 2, 3), 0.5, profile=(half,))
    given(monkeypatch, Comparison((first, second), BenchSpec(), 10, 1, 2, 1.0, "time"))
    _, out, _ = surgery(capsys, "bench", "a.onnx", "b.onnx", "--profile")
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["Conv", "3", "4.000", "80.0%", "3", "2.000", "100.0%", "2.00"],
        ["Relu", "2", "1.000", "20.0%"],
    ]
