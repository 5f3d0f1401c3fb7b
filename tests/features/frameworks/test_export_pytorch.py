"""Exports of real modules, where PyTorch is installed: what tracing froze is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from support import torch_files as t

from surgery.features.frameworks.importing import import_weights
from surgery.interface import commands as cli
from surgery.interface.report.formats import report_schemas
from surgery.model.checkpoints.checkpoints import read_checkpoint

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

NETS = """
import os
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Branch(Net):
    def forward(self, x):
        y = self.a(x)
        if y.sum() > 0:
            y = torch.relu(y)
        return self.b(y)


class Rare(Net):
    def forward(self, x):
        if x.abs().max() > 1e9:
            x = x * 3
        return self.b(self.a(x))


class Sized(Net):
    def forward(self, x):
        return self.b(self.a(x)) + (1 if x.shape[0] > 4 else 0)


class Pinned(nn.Module):
    def forward(self, x):
        return torch.relu(x + torch.ones(len(x.tolist()), 1))


def net(): return Net(), torch.randn(3, 8)
def branch(): return Branch(), torch.randn(3, 8)
def rare(): return Rare(), torch.randn(3, 8)
def sized(): return Sized(), torch.randn(3, 8)
def pinned(): return Pinned(), torch.randn(3, 8)
def crash(): os.abort()
def wrong(): raise ValueError("no weights here")
def number(): return 7
def bare(): return Net()
"""


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any], str]]:
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "in.yaml").write_text("inputs:\n  - {name: x, dims: [batch, 8]}\ndims: {batch: [3, 1, 5]}\n")

    def run(target: str, *more: str) -> tuple[int, dict[str, Any], str]:
        target = target if target.endswith(".pt2") else f"{tmp_path / 'nets.py'}:{target}"
        inputs = [] if target.endswith(".pt2") else ["--inputs", str(tmp_path / "in.yaml"), "--trust"]
        output = ["-o", str(tmp_path / "out.onnx"), "--force", "--format", "json"]
        code = cli.main(["export", target, *inputs, *output, *more])
        said = capsys.readouterr()
        report = json.loads(said.out)
        jsonschema.validate(report, report_schemas.schema("export"))
        return code, report, said.err

    return run


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("name", ["net", "bare"])
def test_a_right_export(exporter: str, name: str, export: Any, tmp_path: Path) -> None:
    code, found, _ = export(name, "--exporter", exporter)
    assert code == 0 and found["result"]["verdict"] in ("equal", "close") and found["exporter"] == exporter
    assert {one["dims"]["batch"] for one in found["result"]["bindings"] if one["dims"]} >= {1, 3, 5}
    assert [stage["stage"] for stage in found["stages"]] == [
        *("load", "export", "compare", "clean up", "compare the result"),
    ]
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_a_frozen_branch_is_found_and_named(export: Any, tmp_path: Path) -> None:
    code, found, _ = export("branch")
    assert code == 1 and found["exported"]["verdict"] == "different" and not (tmp_path / "out.onnx").exists()
    message = found["exported"]["message"]
    assert "tracing froze nets.py:20 `if y.sum() > 0:` was" in message and "data)" in message
    worst = found["exported"]["details"]["worst"]
    assert worst["output"] and worst["index"] and worst["binding"]["character"]
    assert any("nets.py:20" in warning for warning in found["warnings"])


def test_a_branch_that_no_input_turned_is_reported(export: Any) -> None:
    code, found, _ = export("rare", "--exporter", "torchscript")
    assert code == 0 and found["result"]["turned"] == []
    assert [(one["text"], one["value"]) for one in found["result"]["unturned"]] == [("if x.abs().max() > 1e9:", False)]


def test_a_branch_on_sizes_is_found(export: Any) -> None:
    code, found, _ = export("sized", "--exporter", "torchscript")
    assert code == 1 and "batch=5" in found["exported"]["message"]


def test_a_frozen_size_is_found(export: Any) -> None:
    code, found, _ = export("pinned", "--exporter", "torchscript")
    assert code == 1 and "the model rejects batch=5, which the module accepts" in found["exported"]["message"]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("crash", 3, "loading"),
        ("wrong", 2, "raised ValueError: no weights here"),
        ("number", 2, "returns int; it must return a torch.nn.Module"),
        ("nothing", 2, "has no 'nothing'; it has "),
    ],
)
def test_an_error_is_one_line(
    name: str, code: int, words: str, export: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", f"{tmp_path / 'nets.py'}:{name}", "--trust"]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_dynamo_failure_names_the_source_line(
    export: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{tmp_path / 'nets.py'}:branch"
    assert cli.main(["export", target, "--trust", "--exporter", "dynamo"]) == 2
    said = capsys.readouterr().err
    assert "nets.py:20 `if y.sum() > 0:`" in said and "try --exporter auto" in said and said.count("\n") == 1


def test_a_program(export: Any, tmp_path: Path) -> None:
    module = torch.nn.Linear(8, 4)
    free = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (torch.randn(3, 8),), dynamic_shapes=free), tmp_path / "p.pt2")
    code, found, _ = export(str(tmp_path / "p.pt2"))
    assert code == 0 and found["result"]["verdict"] in ("equal", "close")
    x = torch.randn(6, 8)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    made = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    np.testing.assert_allclose(made, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_our_reader_and_torch_agree(tmp_path: Path) -> None:
    """Files of torch.save are read as torch.load reads them, and torch reads those that the tests write."""
    from surgery.model import storage

    base = torch.randn(6, 8)
    state = {
        "a": base,
        "t": base.T,
        "part": base[1:3, ::2],
        "h": base.half(),
        "b": base.bfloat16(),
        "n": torch.tensor(7),
    }
    for new in (True, False):
        torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pt", _use_new_zipfile_serialization=new)
        found = read_checkpoint(tmp_path / "w.pt", storage.Weights())
        assert found.entries.keys() == state.keys()
        for name, tensor in state.items():
            array = found.tensor(name).numpy().astype(np.float64)
            np.testing.assert_array_equal(array, tensor.double().numpy())
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    loaded = torch.load(t.saved(tmp_path / "w.pt", {"w": array}))
    np.testing.assert_array_equal(loaded["w"].numpy(), array)


def test_imported_weights_give_the_outputs_of_the_module(export: Any, tmp_path: Path) -> None:
    assert export("net")[0] == 0
    torch.manual_seed(1)
    module = torch.nn.Sequential()
    module.add_module("a", torch.nn.Linear(8, 16))
    module.add_module("relu", torch.nn.ReLU())
    module.add_module("b", torch.nn.Linear(16, 4))
    torch.save(module.state_dict(), tmp_path / "w.pt")
    found = import_weights(tmp_path / "out.onnx", [tmp_path / "w.pt"], tmp_path / "new.onnx")
    assert found.ok
    x = torch.randn(5, 8)
    made = onnxruntime.InferenceSession(tmp_path / "new.onnx").run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(made, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
