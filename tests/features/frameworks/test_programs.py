"""Programs of torch.export that would run code when they are loaded are refused, and named; plain ones are not."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import torch_files as t

from surgery.base.errors import ModelFileError
from surgery.features.frameworks.programs import find_code
from surgery.interface import commands as cli

SYMBOL = "Symbol('s31', positive=True, integer=True)"


def document(**changes: Any) -> dict[str, Any]:
    """The parts of a model.json that matter, as torch 2.13 writes them for a Linear layer."""
    node = {"target": changes.get("target", "torch.ops.aten.linear.default"), "inputs": [], "metadata": {}}
    size = {"as_expr": {"expr_str": changes.get("expr", SYMBOL), "hint": {"as_int": 3}}}
    values = {"x": {"dtype": 7, "sizes": [size, {"as_int": 2}]}}
    inputs = [{"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}}]
    if changes.get("custom"):
        inputs.append({"custom_obj": {"arg": {"name": "o", "class_fqn": "Evil"}, "custom_obj_name": "o"}})
    return {
        "graph_module": {"graph": {"nodes": [node], "tensor_values": values}, "signature": {"input_specs": inputs}},
        "guards_code": changes.get("guards", ["L['y'].size()[0] == L['x'].size()[0]", "not 2 <= L['x'].size()[1] + 1"]),
    }


def program(path: Path, model: Any = None, *, pickled: bool = False, sample: bytes = b"", **members: Any) -> Path:
    inner = path.with_suffix(".inner")
    t.archive(inner, t.program(sample or t.tensor("0", [2])), {"0": bytes(8)})
    config = {"config": {"weight": {"path_name": "weight_0", "is_param": True, "use_pickle": pickled}}}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("p/models/model.json", json.dumps(model or document()))
        file.writestr("p/data/weights/weight_0", bytes(16))
        file.writestr("p/data/weights/model_weights_config.json", json.dumps(config))
        file.writestr("p/data/sample_inputs/model.pt", inner.read_bytes())
        for name in ("archive_format", "archive_version", ".data/version", "byteorder", ".data/serialization_id"):
            file.writestr(f"p/{name}", "x")
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_a_plain_program_contains_no_code(tmp_path: Path) -> None:
    assert find_code(program(tmp_path / "p.pt2")) is None
    for expr in ("2*s31 + 1", "Max(1, s31 - 3)", "FloorDiv(s0, 2)", "Symbol('u0', integer=True)*4"):
        assert find_code(program(tmp_path / "p.pt2", document(expr=expr))) is None
    for target in ("_operator.mul", "torch.ops.aten.sym_size.int", "torch.sym_max"):
        assert find_code(program(tmp_path / "p.pt2", document(target=target))) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "torch.os.system"}, "it would call torch.os.system"),
        ({"target": "torch.ops.load_library"}, "it would call torch.ops.load_library"),
        ({"target": "torch.hub.load"}, "it would call torch.hub.load"),
        ({"target": "_operator.methodcaller"}, "it would call _operator.methodcaller"),
        ({"target": "#evil:op"}, "it would call #evil:op"),
        ({"expr": "__import__('os').system('x')"}, "it would evaluate"),
        ({"expr": "open('x')"}, "it would evaluate"),
        ({"expr": "s0.__class__"}, "it would evaluate"),
        ({"guards": ["__import__('os').system('x')"]}, "it would evaluate the guard"),
        ({"guards": ["L['x'].size()[0] == open('x')"]}, "it would evaluate the guard"),
        ({"custom": True}, "objects of custom classes"),
    ],
)
def test_code_in_the_description(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = find_code(program(tmp_path / "p.pt2", document(**changes)))
    assert found is not None and words in found


def test_code_in_pickles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    canary = tmp_path / "canary"
    evil = b"cposix\nsystem\n(" + t.text(f"touch {canary}") + b"tR"
    path = program(tmp_path / "p.pt2", sample=evil)
    assert "it would call posix.system('touch" in str(find_code(path))
    assert "pickled constants" in str(find_code(program(tmp_path / "q.pt2", pickled=True)))
    assert "may hold code" in str(find_code(program(tmp_path / "r.pt2", **{"p/data/constants/custom_obj_0": "x"})))
    assert "may hold code" in str(find_code(program(tmp_path / "s.pt2", **{"p/data/aotinductor/model/a.so": "x"})))
    assert cli.main(["export", str(path), "-o", str(tmp_path / "out.onnx")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "loading it would run code" in said and "pass --trust if you trust it" in said
    assert not canary.exists() and not (tmp_path / "out.onnx").exists()


def sample(path: Path, program: bytes, name: str = "m/data.pkl") -> bytes:
    """Return a file of torch.save whose pickle has another name."""
    t.archive(path, t.program(t.tensor("0", [2])), {"0": bytes(8)})
    with zipfile.ZipFile(path) as plain:
        members = {info.filename: plain.read(info) for info in plain.infolist()}
    members[name] = program
    if name != "m/data.pkl":
        del members["m/data.pkl"]
    with zipfile.ZipFile(path, "w") as file:
        for inside, content in members.items():
            file.writestr(inside, content)
    return path.read_bytes()


def test_code_that_torch_finds_but_a_zip_reader_does_not(tmp_path: Path) -> None:
    evil = t.program(b"cposix\nsystem\n(" + t.text("touch canary") + b"tR")
    good = sample(tmp_path / "good", t.program(t.tensor("0", [2])))
    cases = {
        # torch loads every model of the archive, with its weights from a pickle named like it.
        "'p/models/weight_x.json', which": {"p/models/weight_x.json": "{}", "p/data/weights/weight_x.pt": evil},
        "'p/data/weights/weight_x.pt', which": {"p/data/weights/weight_x.pt": evil},
        "it lists a member twice": {"p/data/sample_inputs/MODEL.pt": evil},
        "members in several folders": {"q/version": "1"},
    }
    for words, members in cases.items():
        assert words in str(find_code(program(tmp_path / "p.pt2", **members)))
    plain = program(tmp_path / "p.pt2")
    plain.write_bytes(evil + plain.read_bytes())
    assert "bytes that are not part of any member" in str(find_code(plain))
    # A pickle before a zip archive is a pickle for torch.
    inputs = {
        "was not written by torch.save": evil + good,
        "'m/data.PKL', which may hold code": sample(tmp_path / "inner", evil, "m/data.PKL"),
    }
    for words, data in inputs.items():
        path = program(tmp_path / "p.pt2")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        members["p/data/sample_inputs/model.pt"] = data
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        assert words in str(find_code(path))


def test_files_that_are_not_programs(tmp_path: Path) -> None:
    (tmp_path / "p.pt2").write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="cannot be read as a program"):
        find_code(tmp_path / "p.pt2")
    with pytest.raises(ModelFileError, match="this is not a program"):
        find_code(t.saved(tmp_path / "p.pt2", {}))
