"""`surgery.view`: the same page as the command, of any kind of model, as a value that can be saved."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import pytest

import surgery
from surgery.interface import commands as cli

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n] x) => (float[n] z) { [one] a = Relu (x) [two] b = Identity (a) [three] z = Neg (b) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def drawing(page: str) -> dict[str, Any]:
    found = re.search(r'id="drawing"[^>]*>\s*([A-Za-z0-9+/=\s]+)<', page)
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS))
    return data


def test_it_is_what_the_command_writes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = model.with_name("command.html")
    assert cli.main(["view", str(model), "--costs", "--dims", "n=4", "-o", str(written)]) == 0
    capsys.readouterr()
    view = surgery.view(model, costs=True, dims={"n": 4})
    assert view.html == written.read_text(encoding="utf-8")
    assert 'id="costs"' in view.html and "n=4" in view.html
    assert repr(view) == "<ModelView of 'small.onnx': 3 nodes, 0 groups>"


def test_models_in_memory_are_drawn(model: Path) -> None:
    proto = onnx.load(model)
    for one in (proto, onnx_ir.from_proto(proto)):
        view = surgery.view(one)
        assert view.title == drawing(view.html)["title"] == "a model in memory" and view.nodes == 3
        assert repr(view) == "<ModelView of a model in memory: 3 nodes, 0 groups>"
    assert surgery.view(surgery.load(model)) == surgery.view(str(model))


def test_it_is_saved_unless_the_file_exists(model: Path) -> None:
    view, page = surgery.view(model), model.with_name("page.html")
    assert view.save(page) == page and page.read_text(encoding="utf-8") == view.html
    page.write_text("mine")
    with pytest.raises(surgery.OutputError, match="the file exists"):
        view.save(page)
    with pytest.raises(surgery.OutputError, match="does not exist"):
        view.save(model.with_name("missing") / "page.html")
    assert page.read_text() == "mine" and len(list(model.parent.iterdir())) == 2
    assert view.save(str(page), force=True) == page and page.read_text(encoding="utf-8") == view.html
    with pytest.raises(dataclasses.FrozenInstanceError):
        view.html = ""  # type: ignore[misc]


def test_nodes_of_a_model_in_memory_are_timed(model: Path) -> None:
    view = surgery.view(surgery.load(model), profile=True, dims={"n": 65536})
    assert sum("seconds" in (details or ()) for details in drawing(view.html)["details"]) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"n": 4}}, "dims are for costs and profile; ask for one of them"),
        ({"costs": True, "dims": {"m": 4}}, "the model has no dim 'm'; its dynamic dims are n"),
    ],
)
def test_dims_that_say_nothing_are_refused(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(surgery.UsageError, match=message):
        surgery.view(model, **options)
