"""`surgery merge`: its flags, opsets that differ, what it writes, and what it says of wrong calls."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from surgery.interface import commands as cli
from surgery.model.graph import text

NEWER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}> { h = Mul(x, w) y = Relu(h) }"""
OLDER = """<ir_version: 7, opset_import: ["" : 11]>
g (float[m, 4] features) => (float[m, 1] score) <float[4] w = {4, 3, 2, 1}> {
    h = Mul(features, w)
    score = ReduceSum<axes = [1]>(h)
}"""
X = np.array([[1, -2, 3, -4], [-1, 2, 0.5, 4]], np.float32)
SCORE = (np.maximum(X * [1, 2, 3, 4], 0) * [4, 3, 2, 1]).sum(1, keepdims=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(NEWER), tmp_path / "new.onnx")
    onnx.save(text.parse(OLDER), tmp_path / "old.onnx")
    onnx.save(text.parse(NEWER.replace("float[n, 4] y", "float[n, 4] features, float[n, 4] y").replace(
        "y = Relu(h)", "features = Neg(h) y = Relu(h)")), tmp_path / "two.onnx")  # fmt: skip
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run(path: Path, **feed: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


@pytest.mark.parametrize("flags", [[], ["--connect", "y=features"]])
def test_an_older_second_model_is_converted_first(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    code, out, err = surgery(capsys, "merge", "new.onnx", "old.onnx", *flags, "-o", "both.onnx")
    assert code == 0, out + err
    assert "old.onnx is converted from opset 11 to 17 first" in err and "model: old.opset17.onnx" in err
    made = onnx.load(folder / "both.onnx")
    assert [item.version for item in made.opset_import] == [17]
    found = run(folder / "both.onnx", x=X)
    assert [*found] == ["score"]
    np.testing.assert_allclose(found["score"], SCORE, rtol=1e-6)


def test_an_older_first_model_is_converted_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--parallel", "-o", "both.onnx", "--save-recipe", "merge.yaml"]
    code, out, err = surgery(capsys, "merge", "old.onnx", "new.onnx", *flags)
    assert code == 0, out + err
    assert "old.onnx is converted from opset 11 to 17 first" in err
    found = run(folder / "both.onnx", x=X, features=X)
    np.testing.assert_allclose(found["score"], (X * [4, 3, 2, 1]).sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(found["y"], np.maximum(X * [1, 2, 3, 4], 0), rtol=1e-6)
    assert "mode: parallel" in (folder / "merge.yaml").read_text()


def test_the_same_call_writes_the_same_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.onnx", "other.onnx"):
        assert surgery(capsys, "merge", "new.onnx", "old.onnx", "-o", name)[0] == 0
    assert (folder / "one.onnx").read_bytes() == (folder / "other.onnx").read_bytes()
    assert b"surgery-scratch" not in (folder / "one.onnx").read_bytes()


def test_flags_become_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--connect", "y=x", "--keep", "features", "--keep", "y", "--prefix", "b/", "-o", "both.onnx"]
    code, out, err = surgery(capsys, "merge", "two.onnx", "new.onnx", "--connect", "features=x", *flags)
    assert code == 2 and "'features' and 'y' would both go into 'x'" in out + err
    code, out, err = surgery(capsys, "merge", "two.onnx", "new.onnx", *flags[:2], "--keep", "y", *flags[6:])
    assert code == 0, out + err
    assert "{model: new.onnx, connect: {y: x}, prefix: b/, keep: [y]}" in err
    assert sorted(run(folder / "both.onnx", x=X)) == ["b/y", "features", "y"]


def test_weights_outside_stay_outside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, source in (("new", NEWER), ("old", OLDER)):
        model = text.parse(source.replace("float[4] w = {1, 2, 3, 4}", "float[4] k = {1, 2, 3, 4}"))
        model.graph.initializer.append(numpy_helper.from_array(np.full((900, 4), 2, np.float32), f"big_{name}"))
        node = model.graph.node.add(op_type="ReduceSum", input=[f"big_{name}"], output=[f"sum_{name}"])
        node.attribute.append(onnx.helper.make_attribute("keepdims", 0))
        model.graph.node[0].input[1] = "k" if name == "new" else "w"
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"sum_{name}", onnx.TensorProto.FLOAT, []))
        onnx.save(model, folder / f"{name}.onnx", save_as_external_data=True, location=f"{name}.data", size_threshold=0)
    code, out, err = surgery(capsys, "merge", "new.onnx", "old.onnx", "--connect", "y=features", "-o", "both.onnx")
    assert code == 0, out + err
    assert (folder / "both.onnx.data").stat().st_size >= 2 * 14400 > (folder / "both.onnx").stat().st_size
    found = run(folder / "both.onnx", x=X)
    assert found["sum_new"] == found["sum_old"] == 7200
    np.testing.assert_allclose(found["score"], SCORE, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connect", "y"], "--connect y: this is not TENSOR=INPUT; pass --connect y=features"),
        (["--connect", "features=y"], "'features' is an input of old.onnx, the second model"),
        (["--connect", "y=nope"], "old.onnx, the second model, has no input 'nope'; it has features"),
        (["--connect", "nope=features"], "there is no tensor 'nope'"),
        (["--keep", "y,"], "--keep: a name is empty"),
        (["--save-recipe", "merge.yaml"], "a recipe cannot convert the second model; run 'surgery run upgrade-opset"),
    ],
)
def test_wrong_calls(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    before = sorted(folder.iterdir())
    code, out, err = surgery(capsys, "merge", "new.onnx", "old.onnx", *arguments, "-q")
    assert code == 2 and message in " ".join((out + err).split())
    assert sorted(folder.iterdir()) == before


def test_a_model_that_cannot_be_converted_ends_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = text.parse("""<ir_version: 7, opset_import: ["" : 11, "acme" : 1]>
        g (float[m, 4] features) => (float[m, 4] score) { score = acme.Unknown(features) }""")
    old.graph.node[0].domain = ""
    onnx.save(old, folder / "old.onnx")
    code, out, err = surgery(capsys, "merge", "new.onnx", "old.onnx", "-o", "both.onnx")
    assert code and "upgrade-opset" in out + err and not (folder / "both.onnx").exists()


def test_json_has_the_report_of_the_merge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "merge", "new.onnx", "old.onnx", "--format", "json")
    found = json.loads(out)
    assert code == 0 and [step["pass"] for step in found["steps"]] == ["merge"]
