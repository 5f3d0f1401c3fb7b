"""`merge` on models with all that a model can have, on real ones, and on large ones; the case files have the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import ROOT

import surgery
from surgery.engine.pipeline.records import Result
from surgery.engine.recipe import single_step
from surgery.model import storage
from surgery.model.graph import text

MODELS = ROOT / "models"
FIRST = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1], metadata_props: ["task": "features", "author": "first"]>
g (float[batch, 3] x) => (float[batch, 3] y)
<float[3] scale = {2, 3, 4}>
{
    a = local.Scale(x, scale)
    y = Relu(a)
}
<domain: "local", opset_import: ["" : 17]>
Scale (v, s) => (w) { w = Mul(v, s) }
"""
SECOND = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1, "other" : 2], metadata_props: ["task": "head", "labels": "a,b"]>
g (float[N, 3] features, bool flag, float[3] gain, float[N, 3] x) => (float[N, 3] scores)
<float[3] gain = {1, 2, 3}, float[3] scale = {9, 8, 7}>
{
    h = local.Scale(features, gain)
    i = If (flag) <
        then_branch = then () => (float[N, 3] p) { p = Add(h, scale) },
        else_branch = other () => (float[N, 3] q) { a = local.Scale(h, scale) q = other.Half(a) }
    >
    scores = Add(i, x)
}
<domain: "local", opset_import: ["" : 17]>
Scale (v, s) => (w) { t = Mul(v, s) w = Neg(t) }
<domain: "other", opset_import: ["" : 17]>
Half (v) => (w) { h = Constant<value = float {0.5}>() w = Mul(v, h) }
"""


def saved(folder: Path, source: str, name: str) -> Path:
    proto = text.parse(source) if source.startswith("g ") else onnx.parser.parse_model(source)
    onnx.save(proto, folder / name)
    return folder / name


def merged(first: Path, second: Path, **options: Any) -> Result:
    return surgery.apply(first, single_step("merge", {"model": str(second), **options}))


def run(path: Path | bytes, feed: dict[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = path if isinstance(path, bytes) else str(path)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def test_models_with_every_feature_are_merged(tmp_path: Path) -> None:
    first, second = saved(tmp_path, FIRST, "first.onnx"), saved(tmp_path, SECOND, "second.onnx")
    result = merged(first, second, connect={"y": "features"}, prefix="head/")
    assert result.ok, result.steps[0].message
    assert result.steps[0].verdict is not None and result.steps[0].verdict.status == "equal"
    proto = result.proto
    assert [value.name for value in proto.graph.input] == ["x", "head/flag", "head/x"]
    assert [value.name for value in proto.graph.output] == ["head/scores"]
    assert {(item.domain, item.name) for item in proto.functions} == {
        ("local", "Scale"),
        ("local", "head/Scale"),
        ("other", "Half"),
    }
    assert {item.domain: item.version for item in proto.opset_import} == {"": 17, "local": 1, "other": 2}
    assert proto.ir_version == 10
    assert {item.key: item.value for item in proto.metadata_props} == {
        "task": "features",
        "author": "first",
        "labels": "a,b",
    }
    result.save(tmp_path / "both.onnx")
    x, more = np.array([[1, -2, 3]], np.float32), np.array([[5, 6, 7]], np.float32)
    for flag in (True, False):
        between = run(first, {"x": x})["y"]
        expected = run(second, {"features": between, "flag": np.array(flag), "x": more})["scores"]
        found = run(tmp_path / "both.onnx", {"x": x, "head/flag": np.array(flag), "head/x": more})
        np.testing.assert_array_equal(found["head/scores"], expected)


def test_merge_restores_a_split_model(tmp_path: Path) -> None:
    """What split has taken apart, merge puts together."""
    path = MODELS / "resnet-tiny.onnx"
    parts = surgery.split(path, tmp_path / "parts", parts=2)
    first, second = (tmp_path / "parts" / part.file for part in parts.parts)
    result = merged(first, second)
    assert result.ok, result.steps[0].message
    result.save(tmp_path / "whole.onnx")
    assert surgery.verify(path, tmp_path / "whole.onnx").verdict.status == "equal"


@pytest.mark.parametrize("layout", ["external", "single"])
def test_weights_of_both_are_saved(tmp_path: Path, layout: Any) -> None:
    """Also from files that both have external data, and into the folder of either."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        weight = onnx.numpy_helper.from_array(rng.random((32, 32), np.float32), "w")
        ports = [onnx.helper.make_tensor_value_info(port, onnx.TensorProto.FLOAT, ["n", 32]) for port in ("x", "y")]
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        stored = storage.from_proto(model)
        storage.save(stored.proto, tmp_path / f"{name}.onnx", stored.weights, layout=layout)
    result = merged(tmp_path / "a.onnx", tmp_path / "b.onnx", prefix="b/")
    assert result.ok, result.steps[0].message
    result.save(tmp_path / "both.onnx")
    x = rng.random((2, 32), np.float32)
    between = run(tmp_path / "a.onnx", {"x": x})["y"]
    expected = run(tmp_path / "b.onnx", {"x": between})["y"]
    np.testing.assert_array_equal(run(tmp_path / "both.onnx", {"x": x})["b/y"], expected)
    assert (tmp_path / "both.onnx.data").exists() == (layout == "external")


def test_connected_dims_share_a_name(tmp_path: Path) -> None:
    first = saved(tmp_path, "g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }", "a.onnx")
    second = saved(
        tmp_path,
        "g (float[N, 4] f, float[batch] e) => (float[N, 4] z, float[batch] d) { z = Abs(f) d = Neg(e) }",
        "b.onnx",
    )
    proto = merged(first, second, connect={"y": "f"}).proto
    names = {
        port.name: port.type.tensor_type.shape.dim[0].dim_param for port in (*proto.graph.input, *proto.graph.output)
    }
    assert names == {"x": "batch", "e": "batch_1", "z": "batch", "d": "batch_1"}


@pytest.mark.parametrize(
    ("contents", "words"),
    [(None, "no such file"), (b"", "empty"), (b"\x08\x08not a model", "other.onnx")],
)
def test_a_model_that_cannot_be_read(tmp_path: Path, contents: bytes | None, words: str) -> None:
    first = saved(tmp_path, "g (float[2] x) => (float[2] y) { y = Neg(x) }", "a.onnx")
    if contents is not None:
        (tmp_path / "other.onnx").write_bytes(contents)
    result = merged(first, tmp_path / "other.onnx")
    assert not result.ok and result.exit_code == 2
    assert words in result.steps[0].message and "\n" not in result.steps[0].message


def test_paths_start_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    first = saved(tmp_path, "g (float[2] x) => (float[2] y) { y = Neg(x) }", "a.onnx")
    saved(tmp_path / "recipes", "g (float[2] y) => (float[2] z) { z = Abs(y) }", "b.onnx")
    (tmp_path / "recipes" / "merge.yaml").write_text("recipe: both\nsteps:\n  - merge: {model: b.onnx}\n")
    monkeypatch.chdir(tmp_path)
    assert surgery.apply(first, "recipes/merge.yaml").ok


@pytest.mark.parametrize("rows", [20_000_000, pytest.param(150_000_000, marks=pytest.mark.slow)])
def test_large_models_are_merged_without_their_weights_in_memory(rows: int, tmp_path: Path) -> None:
    """Two of 320 MB, or of 2.4 GB, holes both: each is more than the process may take."""
    for name, (before, after) in {"a": ("x", "y"), "b": ("y", "z")}.items():
        ports = [onnx.helper.make_tensor_value_info(port, onnx.TensorProto.FLOAT, [4]) for port in (before, after)]
        weight = onnx.TensorProto(name=name, data_type=1, dims=[rows, 4], data_location=1)
        weight.external_data.add(key="location", value=f"{name}.bin")
        nodes = [
            onnx.helper.make_node("Gather", [name, f"{name}_i"], [f"{name}_row"]),
            onnx.helper.make_node("Add", [before, f"{name}_row"], [after]),
        ]
        index = onnx.numpy_helper.from_array(np.array(rows - 1), f"{name}_i")
        graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight, index])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
        with (tmp_path / f"{name}.bin").open("wb") as file:
            file.truncate(16 * rows)
    code = (
        "import sys\n"
        "import surgery\n"
        "from surgery.engine.recipe import single_step\n"
        "def anonymous():\n"
        "    lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    return int(lines['RssAnon'].split()[0])\n"
        "result = surgery.apply(sys.argv[1], single_step('merge', {'model': sys.argv[2]}))\n"
        "assert result.ok, result.steps[0].message\n"
        "assert anonymous() < 300_000, anonymous()\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.onnx", tmp_path / "b.onnx"], check=True, timeout=120)
