"""Splitting: the pieces run by ONNX Runtime itself, what crosses, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import ROOT
from support.breadth import sampled

import surgery
from surgery.base.errors import OutputError, UsageError
from surgery.features.splitting import cutting, piece_writing, sequence
from surgery.features.splitting.split import Split, split
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.storage import summary

CHAIN = """g (float[batch, 2] x) => (float[batch, 2] y)
<float[2, 2] w = {1, 2, 3, 4}, float[2] b = {5, -6}>
{
    a = MatMul(x, w)
    s = Add(a, b)
    r = Relu(s)
    t = MatMul(r, w)
    y = Add(t, x)
}"""

CONTROL = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[3] x, bool c) => (float[3] y, float[3] again)
<float[3] scale = {2, 3, 4}, int64 trips = {3}, float[3] offset = {1, 0, -1}>
{
    a = local.Twice(x)
    m = Mul(a, scale)
    i = If (c) <
        then_branch = then () => (float[3] p) { p = Add(m, offset) },
        else_branch = other () => (float[3] q) { h = local.Twice(m) q = Sub(h, offset) }
    >
    go = Constant<value = bool {1}>()
    y = Loop (trips, go, i) <
        body = body (int64 k, bool before, float[3] v) => (bool after, float[3] w) {
            after = Identity(before)
            u = Mul(v, scale)
            w = Sub(u, a)
        }
    >
    again = Neg(m)
}
<domain: "local", opset_import: ["" : 21]>
Twice (v) => (w) { w = Add(v, v) }
"""

DEFAULTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, float[2] gain) => (float[2] y)
<float[2] gain = {2, 3}>
{
    a = Mul(x, gain)
    b = Relu(a)
    y = Mul(b, gain)
}
"""


def model(source: str) -> onnx.ModelProto:
    return text.parse(source) if source.startswith("g ") else onnx.parser.parse_model(source)


def stored(folder: Path, source: str, name: str = "m.onnx") -> Path:
    onnx.save(model(source), folder / name)
    return folder / name


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(folder: Path, plan: dict[str, Any], feed: dict[str, Any]) -> dict[str, Any]:
    """Do what the plan says, and nothing else."""
    known = dict(feed)
    for piece in plan["pieces"]:
        names = [*piece["inputs"], *(name for name in piece["defaults"] if name in known)]
        outputs = session(folder / piece["file"]).run(piece["outputs"], {name: known[name] for name in names})
        known.update(zip(piece["outputs"], outputs, strict=True))
    return {name: known[name] for name in plan["outputs"]}


def check(path: Path, folder: Path, found: Split, feed: dict[str, Any]) -> None:
    assert found.ok and found.verdict.status == "equal"
    plan = json.loads((folder / f"{path.stem}.pieces.json").read_text())
    assert plan == found.plan()
    whole = session(path)
    expected = whole.run(plan["outputs"], feed)
    for value, made in zip(expected, run(folder, plan, feed).values(), strict=True):
        np.testing.assert_array_equal(value, made)


def test_the_pieces_run_in_sequence(tmp_path: Path) -> None:
    path = stored(tmp_path, CHAIN)
    found = surgery.split(path, tmp_path / "out", at=["s", "r"])
    check(path, tmp_path / "out", found, {"x": np.array([[1, -2], [0.5, 3], [4, 4]], np.float32)})
    assert [part.inputs for part in found.parts] == [{"x": 0}, {"s": 1}, {"x": 0, "r": 2}]
    assert [part.outputs for part in found.parts] == [("s",), ("r",), ("y",)]
    names = [[t.name for t in onnx.load(tmp_path / "out" / part.file).graph.initializer] for part in found.parts]
    assert names == [["w", "b"], [], ["w"]], "each piece has what it reads"
    assert onnx.load(tmp_path / "out" / "m.2.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize("taken", sampled([True, False], 2))
@pytest.mark.parametrize("at", [["m"], ["a", "i"], ["a", "m", "i"], [["i", "again"]]])
def test_subgraphs_functions_and_captured_values(tmp_path: Path, at: list[Any], taken: bool) -> None:
    path = stored(tmp_path, CONTROL)
    found = split(path, tmp_path / "out", at=at)
    check(path, tmp_path / "out", found, {"x": np.array([1, -2, 3], np.float32), "c": np.array(taken)})
    for proto in found.protos:
        called = {node.op_type for node in summary.nodes(proto) if node.domain == "local"}
        assert {function.name for function in proto.functions} == called


def test_values_captured_by_a_loop_cross_the_cut(tmp_path: Path) -> None:
    found = split(model(CONTROL), at=["i"])
    assert found.parts[1].inputs == {"a": 1, "m": 1, "i": 1}
    assert "go" not in found.parts[1].inputs, "a constant is in the piece that reads it"


@pytest.mark.parametrize("given", [{}, {"gain": np.array([-1, 4], np.float32)}])
def test_an_overridable_initializer_is_kept_in_every_piece(tmp_path: Path, given: dict[str, Any]) -> None:
    path = stored(tmp_path, DEFAULTS)
    found = split(path, tmp_path / "out", at=["b"])
    assert [part.defaults for part in found.parts] == [("gain",), ("gain",)]
    check(path, tmp_path / "out", found, {"x": np.array([3, -5], np.float32), **given})


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("g (float[2] x) => (float[2] x, float[2] y) { a = Neg(x) y = Relu(a) }", {"x", "a"}),
        ("g (float[2] x) => (float[2] c, float[2] y) <float[2] c = {1, 2}> { a = Neg(x) y = Relu(a) }", {"a"}),
        ("g (float[2] x) => (float[2] a, float[2] y) { a = Neg(x) y = Relu(a) }", {"a"}),
        ("g (float[4] x) => (float[2] y) { a, b = Split<axis = 0, num_outputs = 2>(x) y = Add(a, b) }", {"a", "b"}),
    ],
)
def test_outputs_of_every_kind(source: str, inputs: set[str]) -> None:
    found = split(model(source), at=["a"])
    assert found.ok and set(found.parts[1].inputs) == inputs
    assert {name for part in found.parts for name in part.outputs} >= set(found.outputs)


def test_dead_nodes_are_in_no_piece() -> None:
    source = "g (float[2] x) => (float[2] y) { a = Neg(x) dead = Abs(a) y = Relu(a) }"
    assert [part.nodes for part in split(model(source), at=["a"]).parts] == [1, 1]


def test_a_sequence_crosses_the_cut() -> None:
    source = """g (float[4] x) => (float[] y) { s = SplitToSequence<axis = 0>(x) z = Constant<value = int64 {1}>()
        y = SequenceAt(s, z) }"""
    found = split(model(source), at=["s"])
    assert found.ok and found.parts[1].inputs == {"s": 1}


@pytest.mark.parametrize("name", sampled(["gpt2-tiny", "resnet-tiny", "bert-tiny"], 3))
def test_parts_are_balanced_with_few_crossing_tensors(name: str) -> None:
    path = ROOT / "models" / f"{name}.onnx"
    found = split(path, parts=3)
    assert found.ok and len(found.parts) == 3
    weights = [part.weights for part in found.parts]
    assert max(weights) < 2 * min(weights)
    crossing = [sum(1 for maker in part.inputs.values() if maker) for part in found.parts[1:]]
    assert max(crossing) <= (1 if name == "resnet-tiny" else 4)


def test_parts_by_nodes() -> None:
    source = "g (float[2] x) => (float[2] y) { " + " ".join(f"v{i + 1} = Neg(v{i})" for i in range(8)) + " }"
    chain = source.replace("v0", "x").replace("v8", "y")
    assert [part.nodes for part in split(model(chain), parts=4).parts] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at": ["rr"]}, ("'rr'", "did you mean 'r'")),
        ({"at": ["no*"]}, ("'no*'",)),
        ({"at": ["x"]}, ("'x' is an input",)),
        ({"at": ["w"]}, ("'w' is a constant",)),
        ({"at": ["y"]}, ("do not divide",)),
        ({}, ("tensors", "number of parts")),
        ({"at": ["r"], "parts": 2}, ("pass one of them",)),
        ({"parts": 1}, ("2 or more",)),
        ({"parts": 9}, ("9 parts", "4 places")),
    ],
)
def test_a_cut_that_cannot_be_made(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        split(model(CHAIN), **options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_tensor_inside_a_subgraph_is_not_a_cut_point() -> None:
    with pytest.raises(UsageError, match="no node of the main graph produces a tensor 'h'"):
        split(model(CONTROL), at=["h"])


def test_a_type_that_is_not_known() -> None:
    source = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
        g (float[2] x) => (float[2] y) { a = com.acme.Foo(x) b = com.acme.Bar(a) y = Relu(b) }"""
    with pytest.raises(UsageError, match=r"'a'.*its type is unknown"):
        split(model(source), at=["a"])


CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
g (float[n,2] x) => (float[n,2] y) { a = Neg(x) b = com.acme.Thing(a) c = Abs(b) y = Relu(c) }"""


def test_pieces_of_a_model_that_cannot_run_are_compared_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(CUSTOM), path)
    found = split(path, tmp_path / "out", at=["a"])
    assert found.ok and found.verdict.status == "equal" and len(found.files) == 3
    put_together = sequence.together

    def wrongly(model: onnx.ModelProto, parts: Any) -> onnx.ModelProto:
        made = put_together(model, parts)
        next(node for node in made.graph.node if node.op_type == "Abs").op_type = "Neg"
        return made

    monkeypatch.setattr(sequence, "together", wrongly)
    found = split(path, at=["a"])
    assert not found.ok and found.verdict.status == "unverified"


def test_wrong_pieces_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path, CHAIN)
    fill = cutting._Assembly._fill

    def spoil(self: Any, graph: onnx.GraphProto, *rest: Any) -> None:
        fill(self, graph, *rest)
        for node in graph.node:
            if node.op_type == "Relu":
                node.op_type = "Neg"

    monkeypatch.setattr(cutting._Assembly, "_fill", spoil)
    found = split(path, tmp_path / "out", at=["s"])
    assert not found.ok and found.verdict.status == "different" and not found.files
    assert not (tmp_path / "out").exists()


def test_a_wrongly_declared_dim_is_found(tmp_path: Path) -> None:
    proto = model(CHAIN)
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [7, 2]))
    found = split(proto, at=["r"])
    assert found.ok or "piece 2" in found.verdict.message


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    path = stored(tmp_path, CHAIN)
    split(path, tmp_path, at=["r"])
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(OutputError, match="exists"):
        split(path, tmp_path, at=["s"])
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    found = split(path, tmp_path, at=["s"], force=True)
    check(path, tmp_path, found, {"x": np.ones((1, 2), np.float32)})


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    stored(tmp_path, CHAIN, "m.onnx")
    path = stored(tmp_path, CHAIN, "m.1.onnx")
    path.rename(tmp_path / "inner.onnx")
    path = tmp_path / "m.onnx"
    (tmp_path / "m.1.onnx").symlink_to(path)
    with pytest.raises(OutputError, match="the input is stored in this file"):
        split(path, tmp_path, at=["s"], force=True)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = stored(tmp_path, CHAIN)
    for folder, word in ((tmp_path / "no" / "such", "does not exist"), (path, "not a folder")):
        with pytest.raises(OutputError, match=word):
            split(path, folder, at=["s"])


@pytest.mark.parametrize("exists", [True, False])
def test_an_interruption_leaves_no_partial_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    path, folder = stored(tmp_path, CHAIN), tmp_path / "out"
    if exists:
        split(path, folder, at=["r"])
    before = sorted(file.name for file in folder.iterdir()) if exists else []
    saved, save = [], storage.save

    def interrupted(*arguments: Any, **options: Any) -> list[Path]:
        if saved:
            raise KeyboardInterrupt
        saved.append(1)
        return save(*arguments, **options)

    monkeypatch.setattr(piece_writing.storage, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split(path, folder, at=["s"], force=True)
    assert sorted(file.name for file in folder.iterdir()) == before if exists else not folder.exists()
    assert not [file for file in tmp_path.rglob("*") if file.name.endswith(".tmp")]


def test_external_weights_stay_external(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(rng.random((32, 32), np.float32), f"w{i}") for i in range(3)]
    names = ["x", "h0", "h1", "y"]
    nodes = [onnx.helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(3)]
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 32]) for name in ("x", "y")]
    whole = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], weights),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(whole, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    found = split(tmp_path / "m.onnx", tmp_path / "out", parts=3)
    assert [(tmp_path / "out" / f"m.{n}.onnx.data").stat().st_size for n in (1, 2, 3)] == [4096] * 3
    check(tmp_path / "m.onnx", tmp_path / "out", found, {"x": rng.random((2, 32), np.float32)})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, CHAIN)
    assert cli.main(["split", str(path), "--at", "s", "r", "-o", str(tmp_path / "out"), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and len(answer["files"]) == 4 and answer["verdict"]["verdict"] == "equal"
    assert cli.main(["split", str(path), "--parts", "2"]) == 0
    captured = capsys.readouterr()
    assert "in sequence: equal" in captured.out and "no file written" in captured.err
    assert cli.main(["split", str(path), "--at", "zz"]) == 2
    assert cli.main(["split", str(tmp_path / "none.onnx"), "--parts", "2"]) == 2


def test_each_piece_runs_in_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined again, the pieces are the model itself: only a run in sequence shows what becomes of them apart."""
    run = Engine.run

    def spoiling(self: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
        found = run(self, skeleton, feeds, **how)
        operators = {node.op_type for node in onnx.load_model_from_string(skeleton).graph.node}
        if operators == {"Relu"}:
            runs = [{name: value + 1 for name, value in made.items()} for made in found.runs if isinstance(made, dict)]
            return replace(found, runs=runs)
        return found

    source = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x) b = Sigmoid(a) y = Exp(b) }"
    assert split(model(source), at=["a"]).ok
    monkeypatch.setattr(Engine, "run", spoiling)
    found = split(model(source), at=["a"])
    assert not found.ok and found.verdict.status == "different"
