"""`surgery extract`: its flags, what it writes, and what it says of wrong ones."""

import json
from pathlib import Path

import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[4] s) => (float[n, 4] y, float[n, 4] z) {
    ["enc/relu"] a = Relu(x)
    ["enc/mul"] b = Mul(a, s)
    ["dec/exp"] c = Exp(b)
    ["dec/neg"] y = Neg(c)
    ["dec/abs"] z = Abs(c)
}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), tmp_path / "model.onnx")
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def ends(path: Path) -> tuple[list[str], list[str], list[str]]:
    graph = onnx.load(path).graph
    return (
        [value.name for value in graph.input],
        [value.name for value in graph.output],
        [node.op_type for node in graph.node],
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--inputs", "a,s", "--outputs", "c"], (["a", "s"], ["c"], ["Mul", "Exp"])),
        (["--inputs", "s", "--inputs", "a", "--outputs", "c, b"], (["s", "a"], ["c", "b"], ["Mul", "Exp"])),
        (["--outputs", "b"], (["x", "s"], ["b"], ["Relu", "Mul"])),
        (["--inputs", "c"], (["c"], ["y", "z"], ["Neg", "Abs"])),
        (["--nodes", "dec/*"], (["b"], ["y", "z"], ["Exp", "Neg", "Abs"])),
        (["--nodes", "{op: [Exp, Mul]}"], (["a", "s"], ["c"], ["Mul", "Exp"])),
        (["--nodes", "[enc/mul, {op: Relu}]"], (["x", "s"], ["b"], ["Relu", "Mul"])),
    ],
)
def test_writes_a_piece(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], expected: tuple[list[str], ...]
) -> None:
    code, out, err = surgery(capsys, "extract", "model.onnx", *flags, "-o", "piece.onnx", "--dims", "n=2,5")
    assert code == 0, out + err
    assert "equal" in out and "wrote" in err
    assert ends(folder / "piece.onnx") == expected


def test_shows_the_recipe_and_saves_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--inputs", "a,s", "--outputs", "c"]
    code, _, err = surgery(capsys, "extract", "model.onnx", *flags)
    assert code == 0 and "equivalent recipe:" in err and "extract:" in err
    code, _, _ = surgery(capsys, "extract", "model.onnx", *flags, "--save-recipe", "piece.yaml")
    assert code == 0
    code, _, _ = surgery(capsys, "apply", "piece.yaml", "model.onnx", "-o", "again.onnx")
    assert code == 0
    assert ends(folder / "again.onnx")[0] == ["a", "s"]


def test_verifies_on_sets_of_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    np.savez(folder / "set.npz", x=np.full((3, 4), 2, np.float32), s=np.ones(4, np.float32))
    flags = ["--inputs", "a,s", "--outputs", "c", "--input-data", "set.npz", "--format", "json"]
    code, out, _ = surgery(capsys, "extract", "model.onnx", *flags)
    assert code == 0
    assert json.loads(out)["steps"][0]["verdict"] == "equal"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "extract needs a selection"),
        (["--inputs", "aa", "--outputs", "c"], "there is no tensor 'aa'; did you mean 'a'?"),
        (["--inputs", "a", "--outputs", "c"], "the outputs also depend on 's'"),
        (["--inputs", "a,", "--outputs", "c"], "--inputs: a name is empty"),
        (["--nodes", "enk/mul"], "no node has the name 'enk/mul'; did you mean 'enc/mul'?"),
        (["--nodes", "{opp: Mul}"], "a selector has no key 'opp'; did you mean 'op'?"),
        (["--nodes", "enc/*", "--outputs", "c"], "extract takes either 'nodes' or 'inputs' and 'outputs'"),
        (["--inputs", "a,s", "--outputs", "c", "--dims", "m=2"], "the model has no dynamic dim 'm'"),
    ],
)
def test_mistakes_are_explained(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], told: str) -> None:
    code, out, err = surgery(capsys, "extract", "model.onnx", *flags, "-o", "piece.onnx")
    assert code == 2
    assert told in " ".join((out + err).split())
    assert not (folder / "piece.onnx").exists()


def test_overwrites_nothing_by_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "piece.onnx").write_text("mine")
    code, _, err = surgery(capsys, "extract", "model.onnx", "--outputs", "b", "-o", "piece.onnx")
    assert code == 2 and "piece.onnx" in err
    assert (folder / "piece.onnx").read_text() == "mine"


def test_a_missing_model_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = surgery(capsys, "extract", "other.onnx", "--outputs", "b")
    assert code == 2 and "other.onnx" in err
