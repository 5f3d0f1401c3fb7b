"""Images and functions as data for lossy passes: on the command line, in recipes and in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.photos import write_photos

import surgery
from surgery.engine import recipe
from surgery.engine.recipe import resolved
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.verification.inputs.spec import ImageSpec

FUNCTION = """
import numpy as np


def batches():
    for seed in range(4):
        yield {"x": np.random.default_rng(seed).random((1, 3, 8, 8), np.float32)}
"""


LOOSE = ("--accuracy", "snr >= 10 dB")
"""The output is noise, of which nothing is redundant."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of one convolution, images and a function."""
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model = text.parse("g (float[batch, 3, 8, 8] x) => (float[batch, 4, 6, 6] y) { y = Conv(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, "model.onnx")
    write_photos(tmp_path / "photos", 6, 8, 8)
    Path("calib.py").write_text(FUNCTION)
    return tmp_path


def _quantize(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    code = cli.main(["run", "quantize-static", "model.onnx", "-o", "out.onnx", "--force", *LOOSE, *flags])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def _input_scale() -> float:
    model = onnx.load("out.onnx")
    node = next(one for one in model.graph.node if one.op_type == "QuantizeLinear")
    return float(onnx.numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == node.input[1])))


def test_ranges_follow_the_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _quantize(capsys, "--calibration", "photos")
    assert (code, "synthetic" in said) == (0, False)
    assert "measured on 6 sets of inputs, those of the calibration" in said
    assert " needed, on the calibration data only" in " ".join(said.split()).partition("ok: ")[2]
    # Noise reaches from 0 to nearly 1.
    assert 0.9 / 255 < _input_scale() <= 1 / 254
    code, said = _quantize(capsys, "--calibration", "photos", "--image", "mean=0.5", "--image", "std=0.25")
    assert code == 0 and 3.7 / 255 < _input_scale() <= 4 / 254


def test_evaluation_may_be_on_other_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_photos(folder / "others", 3, 8, 8)
    code, said = _quantize(capsys, "--calibration", "photos", "--evaluation", "others")
    assert code == 0 and "measured on 3 sets of inputs" in said and "the calibration" not in said


def test_the_shown_recipe_does_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--calibration", "photos", "--image", "mean=0.4,0.5,0.6", "--image", "fit=crop", "--image", "limit=4")
    _, said = _quantize(capsys, *flags)
    first = Path("out.onnx").read_bytes()
    Path("shown.yaml").write_text(said.split("equivalent recipe:\n")[1])
    loaded = recipe.load("shown.yaml")
    (data,) = loaded.inputs.calibration.data
    assert data.images == ImageSpec(mean=(0.4, 0.5, 0.6), fit="crop", limit=4)
    assert surgery.apply("model.onnx", "shown.yaml", output="again.onnx").exit_code == 0
    assert onnx.load_from_string(first).graph == onnx.load("again.onnx").graph
    Path("resolved.yaml").write_text(resolved.text(loaded))
    assert recipe.load("resolved.yaml").inputs.calibration.data[0].images == data.images


def test_python_takes_images_functions_and_arrays(folder: Path) -> None:
    images = surgery.DataSpec(Path("photos"), images=surgery.ImageSpec(std=(0.5,)))
    arrays = [{"x": np.random.default_rng(seed).random((1, 3, 8, 8), np.float32)} for seed in range(3)]
    quantize = "accuracy: {budget: snr >= 10 dB}\nsteps: [quantize-static]"
    for data, count in ((images, 6), ("photos", 6), ("calib.py:batches", 4), (arrays, 3)):
        result = surgery.apply("model.onnx", quantize, calibration=data)
        assert result.ok and f"on {count} sets of inputs, those of the calibration" in result.steps[0].message
    result = surgery.apply("model.onnx", quantize, calibration="photos", evaluation=arrays)
    assert "on 3 sets of inputs" in result.steps[0].message and "those of" not in result.steps[0].message
    with pytest.raises(surgery.UsageError, match="an object of type int is no set of inputs"):
        surgery.apply("model.onnx", quantize, calibration=5)


def test_a_function_gives_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _quantize(capsys, "--calibration", "calib.py:batches")
    assert code == 0 and "measured on 4 sets of inputs, those of the calibration" in said


def test_a_recipe_with_a_function_needs_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = "calibration: {data: calib.py:batches}\naccuracy: {budget: snr >= 10 dB}\n"
    Path("r.yaml").write_text(f"{settings}steps: [quantize-static]\n")
    assert cli.main(["apply", "r.yaml", "model.onnx"]) == 2
    assert "wants to run calib.py" in capsys.readouterr().err
    assert cli.main(["apply", "r.yaml", "model.onnx", "--trust"]) == 0


def test_the_file_of_a_project_cannot_name_a_function(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("surgery.toml").write_text('[run]\ncalibration = "calib.py:batches"\n')
    assert _quantize(capsys)[0] == 2
    Path("surgery.toml").write_text('[run]\ncalibration = "photos"\n')
    assert "those of the calibration" in _quantize(capsys)[1]


def test_a_plan_with_a_function_needs_trust_or_the_flag(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text("accuracy: {budget: snr >= 10 dB}\nsteps: [quantize-static]\n")
    assert cli.main(["plan", "r.yaml", "model.onnx", "--calibration", "calib.py:batches", "-o", "p.json"]) == 0
    capsys.readouterr()
    assert cli.main(["apply", "p.json", "model.onnx", "-o", "out.onnx"]) == 2
    assert "loads local code: --calibration calib.py:batches" in capsys.readouterr().err
    assert cli.main(["apply", "p.json", "model.onnx", "-o", "out.onnx", "--trust"]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--calibration", "none"], "none: no such file or folder"),
        (["--calibration", "photos", "--image", "mean=1,2"], "mean has 2 numbers, and 'x' has 3 channels"),
        (["--calibration", "photos", "--image", "mena=1"], "expected an option of images; did you mean 'mean'?"),
        (["--calibration", "photos", "--image", "mean=a"], "expected one number, or one per channel: mean=0.485"),
        (["--calibration", "photos", "--image", "size=1x2x3"], "expected height and width: size=224, or size=224x320"),
        (["--calibration", "photos", "--image", "scale=1/0"], "expected a number: scale=1/255"),
        (["--calibration", "photos", "--image", "fit=crp"], "expected stretch, crop or pad"),
        (["--calibration", "photos", "--image", "limit=x"], "expected a whole number"),
        (["--image", "mean=1"], "--image describes a folder of images, and none is given; pass --calibration FOLDER"),
        (["--calibration", "calib.py:other"], "no function 'other' in it; it has batches"),
    ],
)
def test_mistakes_are_found_before_the_first_step(
    flags: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r.yaml").write_text("steps: [{use: tidy}, quantize-static]\n")
    assert cli.main(["apply", "r.yaml", "model.onnx", "-o", "out.onnx", *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""
