"""Every command's JSON report has a schema, and is what the schema says."""

import contextlib
import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.interface import commands as cli
from surgery.interface.command_line import _configuration
from surgery.interface.report.formats import report_schemas
from surgery.interface.report.formats.report_shapes import SHAPES
from surgery.model.graph import text

W = "<float[4, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>"
MODEL = f"g (float[n, 4] x) => (float[n, 4] y) {W} {{ i = Identity(x) m = MatMul(i, w) y = Relu(m) }}"
OTHER = f"g (float[n, 4] x) => (float[n, 4] y) {W} {{ m = MatMul(x, w) y = Tanh(m) }}"
LARGE = "g (float[n, 160] x) => (float[n, 160] y) { m = MatMul(x, w) y = Relu(m) }"
RUNS = {
    "apply": ["apply tidy m.onnx", "apply tidy m.onnx -o out.onnx --report r.html"],
    "run": ["run drop-identity m.onnx"],
    "extract": ["extract m.onnx --nodes m -o e.onnx"],
    "rename": ["rename m.onnx x=image -o renamed.onnx"],
    "set-dims": ["set-dims m.onnx n=2"],
    "cut": ["cut m.onnx --outputs m"],
    "add-outputs": ["add-outputs m.onnx m"],
    "insert": ["insert m.onnx Relu --after m"],
    "remove": ["remove m.onnx --op MatMul"],
    "replace": ["replace m.onnx --op Relu --with Tanh"],
    "upgrade": ["upgrade m.onnx"],
    "downgrade": ["downgrade m.onnx 13"],
    "strip": ["strip m.onnx"],
    "merge": ["merge m.onnx other.onnx --connect y=x --prefix b/ -o both.onnx"],
    "inspect": ["inspect m.onnx", "inspect m.onnx --target rknn-like"],
    "view": ["view m.onnx -o v.html"],
    "check": ["check m.onnx none.onnx"],
    "opset": ["opset m.onnx"],
    "diff": ["diff m.onnx other.onnx", "diff m.onnx other.onnx --verify"],
    "verify": ["verify m.onnx other.onnx", "verify m.onnx m.onnx"],
    "report": ["report run.json -o page.html"],
    "bisect": ["bisect tidy m.onnx"],
    "passes": ["passes", "passes fuse-gelu"],
    "recipes": ["recipes"],
    "targets": ["targets", "targets rknn-like"],
    "split": ["split m.onnx --parts 2"],
    "export-weights": ["export-weights m.onnx -o w.npz"],
    "externalize": ["externalize m.onnx -o x.onnx"],
    "embed": ["embed m.onnx -o y.onnx"],
    "why": ["why fuse-gelu m.onnx"],
    "recipe-check": ["recipe check tidy bad.yaml"],
    "plan": ["plan tidy m.onnx"],
    "provenance": ["provenance made.onnx"],
    "lock": ["lock tidy -o l.lock"],
    "config-show": ["config show", "config show apply"],
    "completion": ["completion bash"],
    "new": ["new pass my-pass"],
    "batch": ["batch tidy m.onnx other.onnx broken.onnx --out o1"],
    "corpus": ["corpus o1 o2"],
    "cache-info": ["cache info"],
    "cache-prune": ["cache prune --all"],
    "import-weights": ["import-weights m.onnx w.safetensors -o i.onnx"],
    "test": ["test project"],
}
SLOW = {
    "bench": ["bench m.onnx other.onnx --seconds 1"],
    "doctor": ["doctor"],
    "init": ["init m.onnx --recipe tidy"],
    "sensitivity": ["sensitivity large.onnx --recipe int8-dynamic"],
    "tune": ["tune int8-dynamic large.onnx -o t.yaml"],
}
OWN_FORMAT = {"recipe-show": "a recipe", "schema": "a JSON schema", "help": "text", "open": "an address"}
ELSEWHERE = {"export"}
"""Needs PyTorch: tests/features/frameworks/test_export_pytorch.py."""


def run(command: str) -> dict:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        cli.main([*command.split(), "--format", "json"])
    return json.loads(out.getvalue())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, graph in (("m", MODEL), ("other", OTHER)):
        onnx.save(text.parse(graph), f"{name}.onnx")
    large = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {LARGE}')
    weight = np.random.default_rng(0).standard_normal((160, 160), np.float32)
    large.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(large, "large.onnx")
    Path("broken.onnx").write_text("no model")
    Path("bad.yaml").write_text("recipe: bad\nsteps: [nope]\n")
    return tmp_path


@pytest.mark.parametrize("name", [*sampled(RUNS, 3), *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_the_report_matches_the_schema(name: str, folder: Path) -> None:
    if name == "report":
        Path("run.json").write_text(json.dumps(run("apply tidy m.onnx")))
    if name == "provenance":
        run("apply tidy m.onnx -o made.onnx")
    if name == "corpus":
        run("batch tidy m.onnx other.onnx --out o1")
        run("batch tidy m.onnx --out o2")
    if name == "import-weights":
        run("export-weights m.onnx -o w.safetensors")
    if name == "test":
        Path("project").mkdir()
        run("new pass my-pass --dir project")
    checker = jsonschema.Draft202012Validator(report_schemas.schema(name))
    for command in {**RUNS, **SLOW}[name]:
        report = run(command)
        assert next(iter(report)) == "format_version"
        assert [error.message for error in checker.iter_errors(report)] == [], command
        # The schema is more than an empty one: a report without its last key that it knows is refused.
        shape = next(one for one in SHAPES[name] if {key for key in one if key[-1] != "?"} <= set(report))
        last = [key for key in shape if not key.endswith("?")][-1]
        assert not checker.is_valid({key: value for key, value in report.items() if key != last})
        assert not checker.is_valid({**report, "format_version": 2})


def test_every_command_has_a_schema_test() -> None:
    """A new command belongs into RUNS, with a shape in `surgery/interface/report/formats/report_shapes.py`."""
    known = {one.prog.removeprefix("surgery ").replace(" ", "-") for one in _configuration.leaves(cli.parser())}
    assert {*RUNS, *SLOW, *OWN_FORMAT, *ELSEWHERE} == known
    assert {*RUNS, *SLOW, *ELSEWHERE} == set(report_schemas.names())


def test_the_command_writes_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "apply"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found == report_schemas.schema("apply")
