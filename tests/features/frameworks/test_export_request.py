"""What `surgery export` is asked for, and refuses before any code is run. PyTorch is not needed for that."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from surgery.base.errors import RecipeError
from surgery.features.frameworks import request
from surgery.interface import commands as cli


def test_inputs_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "in.yaml"
    path.write_text(
        "inputs:\n"
        "  - {name: ids, dtype: int64, dims: [batch, sequence], range: [0, 299]}\n"
        "  - {name: image, dims: [batch, 3, 8, 8]}\n"
        "dims: {batch: [4, 1], sequence: 7}\n"
        "outputs: y\n"
    )
    found = request.load(path)
    assert found.described() == [
        {"name": "ids", "dtype": "int64", "range": [0, 299], "sizes": [4, 7]},
        {"name": "image", "dtype": "float32", "range": None, "sizes": [4, 3, 8, 8]},
    ]
    assert found.axes() == {"ids": {"0": "batch", "1": "sequence"}, "image": {"0": "batch"}}
    assert (found.outputs, found.dims) == (("y",), {"batch": (4, 1), "sequence": (7,)})


def test_arrays_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3), np.float32))
    found = request.load(tmp_path / "in.npz")
    assert found.inputs[0].dims == (2, 3)
    np.testing.assert_array_equal(found.arrays["x"], np.ones((2, 3), np.float32))


def test_mistakes_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "in.yaml"
    path.write_text(
        "inputs:\n  - {dims: [batch]}\n  - {name: x, dims: 3, dtpye: int64}\n  - {name: z, dims: [a], range: [2, 1]}\n"
    )
    with pytest.raises(RecipeError) as caught:
        request.load(path)
    assert [str(one).removeprefix(f"{path}:") for one in caught.value.problems] == [
        "2:5: an input needs a 'name'",
        "3:21: 'dims' takes a list of sizes and names such as [batch, 3, 224, 224], not 3",
        "3:24: no key 'dtpye'; did you mean 'dtype'?",
        "4:33: 'range' takes the least and the greatest value, such as [0, 299], not a list",
    ]
    path.write_text("inputs: [{name: x, dims: [batch]}]\ndims: {bach: 2}\n")
    with pytest.raises(RecipeError, match="no input has the dim 'bach'; there are: batch"):
        request.load(path)


def test_code_is_run_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "net.py").write_text(f"open({str(canary)!r}, 'w').close()\ndef net(): ...\n")
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        (["net.py:net"], "to export it, the code of 'net.py' has to be run; pass --trust to allow it"),
        (["net:net"], "the code of 'net' has to be run"),
        (["net.py"], "'net.py' does not name a callable; name MODULE:CALLABLE"),
        (["none.pt2"], "none.pt2: no such file"),
        (["net.py:net", "--inputs", "none.yaml", "--trust"], "none.yaml: cannot be read"),
    ):
        assert cli.main(["export", *arguments]) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    assert not canary.exists()


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text("def net(): ...\n")
    assert cli.main(["export", f"{tmp_path / 'net.py'}:net", "--trust"]) == 2
    assert "export needs PyTorch: pip install 'onnx-surgery[torch]'" in capsys.readouterr().err
