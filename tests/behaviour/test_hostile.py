"""Input that is wrong or meant to harm: one clear line, exit code 2, soon, and nothing that a terminal obeys."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.base.errors import ModelFileError
from surgery.interface import commands as cli
from surgery.interface.command_line import _output
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.wire import bounds

SIMPLE = "g (float[n] x) => (float[n] y) { r = Relu(x) y = Identity(r) }"


def info(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2])


def weighted(**fields: object) -> onnx.ModelProto:
    """Build a model with an initializer that has these fields."""
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [info("x")], [info("y")], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def refused(folder: Path, model: onnx.ModelProto | bytes) -> str:
    path = folder / "m.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    with pytest.raises(ModelFileError) as caught:
        storage.load(path)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"raw_data": b"abc"}, "tensor 'w' has 3 bytes, but its type and dims need 8"),
        ({"raw_data": b"\0" * 80}, "tensor 'w' has 80 bytes"),
        ({"dims": [-2]}, "the dims [-2]"),
        ({"dims": [2**62, 4]}, "need 10^19"),
        ({"data_type": 999}, "element type 999"),
        ({"data_type": 0}, "element type 0"),
    ],
)
def test_a_tensor_must_match_its_declared_type_and_dims(fields: dict[str, object], reason: str, tmp_path: Path) -> None:
    assert reason in refused(tmp_path, weighted(**fields))


def test_elements_of_a_typed_field_are_counted(tmp_path: Path) -> None:
    model = weighted()
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].float_data[:] = [1, 2, 3]
    assert "has 3 elements, but its dims need 2" in refused(tmp_path, model)


def test_an_unknown_element_type_is_refused(tmp_path: Path) -> None:
    model = text.parse(SIMPLE)
    model.graph.input[0].type.tensor_type.elem_type = 999
    assert "'x' has the unknown element type 999" in refused(tmp_path, model)


def test_overlong_names_are_refused(tmp_path: Path) -> None:
    model = text.parse(SIMPLE)
    model.graph.node[0].name = "n" * 1_000_000
    message = refused(tmp_path, model)
    assert "has 1,000,000 characters" in message and len(message) < 300


def test_nodes_are_counted_with_each_call_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("b", 1)]
    functions = []
    for number in range(30):
        domain, op = ("b", f"f{number + 1}") if number < 29 else ("", "Relu")
        nodes = [helper.make_node(op, ["x"], ["t"], domain=domain), helper.make_node(op, ["t"], ["y"], domain=domain)]
        functions.append(helper.make_function("b", f"f{number}", ["x"], ["y"], nodes, opsets))
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="b")], "g", [info("x")], [info("y")])
    bomb = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions)
    assert "1,073,741,824 nodes" in refused(tmp_path, bomb)
    monkeypatch.setattr(bounds, "MOST_NODES", 1)
    assert "it has 2 nodes, but at most 1 are allowed" in refused(tmp_path, text.parse(SIMPLE))


def test_nesting_depth_is_limited(tmp_path: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        size, out = len(data), b""
        while size > 127:
            out, size = out + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + out + bytes([size]) + data

    graph = field(2, b"g")
    for _ in range(2000):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph))) + field(2, b"g")
    assert "nests deeper" in refused(tmp_path, b"\x08\x09" + field(7, graph))


def test_sizes_that_exceed_memory_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse(SIMPLE), tmp_path / "m.onnx")
    assert cli.main(["apply", "tidy", str(tmp_path / "m.onnx"), "--dims", "n=100000000000"]) == 2
    error = capsys.readouterr().err
    assert "--dims: input 'x' of 100000000000 takes more than" in error and error.count("\n") == 1


def test_terminal_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.text import Text

    _output.write(Text("a\x1b[31mb\x07\u202ec\x9b"))
    _output.say("d\x1b]0;title\x07\udcff")
    _output.write_json({"name": "e\x1b\x9b\u202e"})
    out, err = capsys.readouterr()
    assert "a\\x1b[31mb\\u202ec\\x9b" in out and err == "d\\x1b]0;title\\x07\\udcff\n"
    assert json.loads(out[out.index("{") :]) == {"format_version": 1, "name": "e\x1b\x9b\u202e"}
    assert not any(letter in out + err for letter in "\x1b\x07\x9b\u202e")


@pytest.mark.parametrize("output", ["/{stem}.out.onnx", "../{stem}.onnx", "link/{stem}.onnx"])
def test_a_recipe_writes_in_the_current_folder(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(tmp_path)
    monkeypatch.chdir(work)
    onnx.save(text.parse(SIMPLE), "m.onnx")
    Path("r.yaml").write_text(f"steps: [drop-identity]\noutput: '{output}'\n")
    assert cli.main(["apply", "r.yaml", "m.onnx"]) == 2
    assert "outside of the current folder; name the file with -o, or pass --trust" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    if not output.startswith("/"):
        assert cli.main(["apply", "r.yaml", "m.onnx", "--trust"]) == 0
        assert (tmp_path / "m.onnx").is_file()


def ended(*arguments: str, flags: tuple[str, ...] = (), **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-m", "surgery", *arguments]
    return subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_a_traceback_does_not_change_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "nowhere.onnx", "-vv"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error and error.endswith("surgery: nowhere.onnx: no such file; check the path\n")


def test_a_full_or_closed_output_is_reported() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("schema", stdout=full)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "No space left" in done.stderr
    done = ended("schema", preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "standard output is closed" in done.stderr


def test_output_is_written_in_any_encoding(tmp_path: Path) -> None:
    onnx.save(text.parse(SIMPLE.replace("Relu(x)", "Relu(x)")), tmp_path / "é.onnx")
    done = ended("inspect", str(tmp_path / "nowhere-é.onnx"), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2 and "nowhere-\\xe9.onnx: no such file" in done.stderr


def test_python_without_docstrings_is_refused() -> None:
    done = ended("passes", flags=("-OO",), stdout=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "-OO" in done.stderr
