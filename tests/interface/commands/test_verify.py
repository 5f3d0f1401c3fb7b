"""`surgery verify`, and the flags on inputs and libraries that `apply` and `run` share with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.given_sets import BODY, arrays, expected, model, write_set

from surgery.interface import commands as cli
from surgery.model.graph import text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "a.onnx")
    onnx.save(model("t = Relu(x) y = Neg(t) j = Identity(i)"), "right.onnx")
    onnx.save(model(BODY.replace("Relu", "Abs")), "wrong.onnx")
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        code = cli.main([str(argument) for argument in arguments])
    except SystemExit as error:  # what argparse does
        code = int(error.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_exit_code_is_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "verify", "a.onnx", "right.onnx")
    assert (code, err) == (0, "") and out.startswith("equal on ")
    code, out, err = surgery(capsys, "verify", "a.onnx", "wrong.onnx")
    assert (code, err) == (1, "") and out.startswith("different on ") and "output 'y'" in out
    code, out, err = surgery(capsys, "verify", "a.onnx", "a.onnx")
    assert (code, out, err) == (0, "equal\n  the same bytes\n", "")


def test_json_has_everything_in_the_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = arrays()
    write_set(folder / "test_data_set_0", given, {**expected(given), "j": given["i"] + 1})
    code, out, _ = surgery(capsys, "verify", "a.onnx", "right.onnx", "--dims", "batch=1,8", "--format", "json")
    found = json.loads(out)
    assert code == 0 and found["ok"] is True and found["verdict"] == "equal" and found["by"] == "name"
    assert found["inputs"] == [["x", "x"], ["i", "i"]] and found["outputs"] == [["y", "y"], ["j", "j"]]
    assert found["signature"] == []
    first, *drawn = found["bindings"]
    assert first["character"] == "test_data_set_0" and first["seed"] is None
    assert first["expected_outputs"].startswith("output 'j'[0]: 0 instead of 1")
    assert {item["dims"]["batch"] for item in drawn} == {1, 8}
    _, out, _ = surgery(capsys, "verify", "a.onnx", "right.onnx")
    assert "test_data_set_0: the original does not reproduce the expected outputs: output 'j'" in out


def test_by_position(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = "g (float[n, 4] p, int64[n] q) => (float[n, 4] r, int64[n] s) { t = Relu(p) r = Neg(t) s = Identity(q) }"
    onnx.save(text.parse(other), "other.onnx")
    code, out, _ = surgery(capsys, "verify", "a.onnx", "other.onnx")
    assert code == 1 and "--by position" in out
    code, out, _ = surgery(capsys, "verify", "a.onnx", "other.onnx", "--by", "position")
    assert code == 0 and "input 'x' paired with 'p'" in out and "signature: output 'y' is missing" in out
    onnx.save(text.parse("g (float[n] p) => (float[n] r) { r = Relu(p) }"), "fewer.onnx")
    code, out, err = surgery(capsys, "verify", "a.onnx", "fewer.onnx", "--by", "position")
    assert (code, out) == (2, "") and "A has 2 inputs (x, i), B has 1 input (p)" in err


def test_sets_of_inputs_may_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("one.npz", **arrays(2))
    write_set(folder / "sets" / "test_data_set_0", arrays(5))
    for command in (
        ["verify", "a.onnx", "right.onnx"],
        ["run", "drop-identity", "a.onnx"],
        ["apply", "tidy", "a.onnx"],
    ):
        flags = ["--inputs", "one.npz", "--inputs", "sets", "--format", "json"]
        code, out, _ = surgery(capsys, *command, *flags)
        given = [item for item in json.loads(out)["bindings"] if item["seed"] is None]
        assert code == 0
        assert [(item["character"], item["dims"]["batch"]) for item in given] == [
            ("one.npz", 2),
            ("test_data_set_0", 5),
        ]


def test_verification_settings_come_from_a_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("one.npz", **arrays(2))
    Path("r.yaml").write_text(
        "steps: [drop-identity]\ninputs: {data: one.npz, only_given: true}\nverify: {rtol: 0.5, atol: 9, seed: 4}\n"
    )
    near = model("t = Relu(x) c = Constant<value = float {0.01}>() u = Sub(t, c) y = Neg(u) j = Identity(i)")
    onnx.save(near, "near.onnx")
    code, out, _ = surgery(capsys, "verify", "a.onnx", "near.onnx", "--recipe", "r.yaml")
    assert code == 0 and out.startswith("close on 1 input set")
    code, out, _ = surgery(
        capsys, "verify", "a.onnx", "near.onnx", "--recipe", "r.yaml", "--rtol", "1e-4", "--atol", "0"
    )
    assert code == 1 and out.startswith("different on 1 input set")
    code, out, _ = surgery(capsys, "verify", "a.onnx", "near.onnx", "--recipe", "r.yaml", "--exact")
    assert code == 1 and "bit-identical" in out


def test_a_recipe_with_a_generator_needs_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gen.py").write_text(
        "import numpy as np\n\n\ndef make(dims, seed):\n    n = dims['batch']\n"
        "    return {'x': np.full((n, 4), seed, 'f4'), 'i': np.arange(n)}\n"
    )
    Path("r.yaml").write_text("steps: [drop-identity]\ninputs: {generator: gen.py:make}\n")
    for command in (["apply", "r.yaml", "a.onnx"], ["verify", "a.onnx", "right.onnx", "--recipe", "r.yaml"]):
        code, out, err = surgery(capsys, *command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "wants to run gen.py (sha256 " in err and "--trust" in err
        code, out, _ = surgery(capsys, *command, "--trust", "--format", "json")
        assert code == 0 and json.loads(out)["bindings"][0]["character"] == "generator"


def test_wrong_inputs_end_a_run_despite_on_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gen.py").write_text("def make(dims, seed):\n    return {}[seed]\n")
    Path("r.yaml").write_text(
        "steps: [{pass: drop-identity, on_failure: rollback}]\ninputs:\n  generator: gen.py:make\n"
    )
    code, out, err = surgery(capsys, "apply", "r.yaml", "a.onnx", "--trust", "-o", "out.onnx")
    assert (code, out) == (2, "") and not Path("out.onnx").exists()
    assert err == "r.yaml:3:14: gen.py:make: line 2: KeyError: 0; called with dims {'batch': 2}\n"


def test_unverified_may_be_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, body in (("c.onnx", "t = Identity(x) y = com.acme.Foo(t)"), ("d.onnx", "y = com.acme.Foo<a = 1>(x)")):
        proto = text.parse(f"g (float[2] x) => (float[2] y) {{ {body} }}")
        proto.opset_import.add(domain="com.acme", version=1)
        onnx.save(proto, name)
    for command in (["verify", "c.onnx", "d.onnx"],):
        for flags, code in (([], 1), (["--unverified", "accept"], 0), (["--unverified", "refuse"], 1)):
            found, out, _ = surgery(capsys, *command, *flags)
            assert found == code and "com.acme:Foo is a custom operator" in out


MISTAKES = [
    (["--inputs", "no.npz"], "surgery: no.npz: no such file or folder"),
    (["--inputs", "empty"], "surgery: empty: no inputs in this folder"),
    (["--inputs", "a.onnx"], "surgery {}: argument --inputs: invalid value: 'a.onnx'; a model is not an input set"),
    (["--inputs", "text.npz"], "surgery: text.npz: cannot be read"),
    (["--dims", "bach=1"], "surgery: the model has no dynamic dim 'bach'; did you mean 'batch'?"),
    (["--dims", "width=1"], "surgery: the model has no dynamic dim 'width'; its dynamic dims are batch"),
    (["--dims", "batch"], "surgery: --dims batch: expected NAME=N"),
    (["--dims", "batch=0"], "surgery: --dims batch=0: expected NAME=N"),
    (["--dims", "batch=1,x"], "surgery: --dims batch=1,x: expected NAME=N"),
    (["--dims", "batch=1", "--dims", "batch=2"], "surgery: --dims gives 'batch' twice"),
    (["--custom-op-library", "no.so"], "surgery: no.so: no such file"),
    (["--custom-op-library", "."], "surgery: .: is a directory"),
    (["--custom-op-library", "text.npz"], "surgery: text.npz: not a library of custom operators"),
]


@pytest.mark.parametrize(("flags", "words"), MISTAKES, ids=lambda value: value if isinstance(value, str) else None)
def test_mistakes_are_answered_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    Path("text.npz").write_text("hello")
    Path("empty").mkdir()
    for command in (["verify", "a.onnx", "wrong.onnx"], ["run", "drop-identity", "a.onnx"]):
        code, out, err = surgery(capsys, *command, *flags)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(words.format(command[0]))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--by", "nmae"], "invalid choice: 'nmae'"),
        (["--rtol", "tight"], "'tight' is not a non-negative number"),
        (["--atol", "-1"], "'-1' is not a non-negative number"),
        (["--rtol", "nan"], "'nan' is not a non-negative number"),
        (["--seed", "-1"], "'-1' is not a non-negative integer"),
        (["--recipe", "tdy"], "no recipe 'tdy'; did you mean 'tidy'?"),
        (["--recipe", "a.onnx"], "a.onnx"),
    ],
)
def test_mistakes_in_flags(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    code, out, err = surgery(capsys, "verify", "a.onnx", "wrong.onnx", *flags)
    assert (code, out) == (2, "") and words in err


@pytest.mark.parametrize("which", [0, 1])
def test_files_that_are_not_models(folder: Path, capsys: pytest.CaptureFixture[str], which: int) -> None:
    Path("text.onnx").write_text("hello, I am a text file\nwith lines\n")
    Path("folder").mkdir()
    for path, words in (("no.onnx", "no such file"), ("folder", "directory"), ("text.onnx", "text")):
        models = ["a.onnx", "a.onnx"]
        models[which] = path
        code, out, err = surgery(capsys, "verify", *models)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert path in err and words in err
