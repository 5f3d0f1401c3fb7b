"""What case files cannot show of the passes that rename, set and replace: files, annotations, weights, real models."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import ROOT
from support.breadth import sampled

import surgery
from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.features import testing
from surgery.interface.commands import main
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.storage.ir_tensors import StoredTensor

MODELS = ROOT / "models"
SCALE = "g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> { t = Mul(x, w) y = Relu(t) }"


def graph_of(model: str | Path | onnx.ModelProto) -> Graph:
    if isinstance(model, str):
        model = text.parse(model)
    stored = storage.load(model) if isinstance(model, Path) else storage.from_proto(model)
    return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)


def run(graph: Graph, name: str, /, **options: Any) -> Graph:
    declared = catalog.find(name)
    run_pass.apply(declared, graph, declared.bind(options))
    return graph


def whole(graph: Graph) -> onnx.ModelProto:
    assert graph.weights is not None
    return storage.resolve(storage.proto_from_ir(graph.ir, graph.weights))


def write(path: Path, source: str) -> Path:
    onnx.save(text.parse(source), path)
    return path


# rename


def test_annotations_for_quantization_follow_a_new_name() -> None:
    model = text.parse(SCALE)
    entries = [helper.make_tensor_value_info("s", TensorProto.FLOAT, [])]
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "s"))
    annotation = model.graph.quantization_annotation.add(tensor_name="t")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=entries[0].name)
    renamed = whole(run(graph_of(model), "rename", tensors={"t": "inner", "s": "scale"}))
    (found,) = renamed.graph.quantization_annotation
    assert found.tensor_name == "inner"
    assert [entry.value for entry in found.quant_parameter_tensor_names] == ["scale"]


def test_declarations_and_weights_stay_in_their_order() -> None:
    model = text.parse(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}, float[2] b, float[2] a>"
        "{ a = Mul(x, w) b = Mul(a, v) y = Relu(b) }"
    )
    renamed = whole(run(graph_of(model), "rename", tensors={"w": "v", "v": "w", "b": "c"})).graph
    assert [value.name for value in renamed.initializer] == ["v", "w"]
    assert [value.name for value in renamed.value_info] == ["c", "a"]
    assert [list(node.input) for node in renamed.node] == [["x", "v"], ["a", "w"], ["c"]]


def test_a_node_keeps_its_old_name_as_its_lineage() -> None:
    model = text.parse('g (float[2] x) => (float[2] y) { ["/a/Relu"] y = Relu(x) }')
    node = run(graph_of(model), "rename", nodes={"/a/*": "b/*"}).nodes()[0]
    assert node.name == "b/Relu"
    assert node.lineage is not None
    assert (node.lineage.passes, node.lineage.origins) == (("rename",), ("/a/Relu",))


def test_a_renamed_model_is_compared_under_both_names(tmp_path: Path, short_models: Path) -> None:
    swap = "{inputs: {input_ids: attention_mask, attention_mask: input_ids}, outputs: {'*': 'out/*'}, dims: {batch: n}}"
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"recipe: r\nsteps:\n  - rename: {swap}\n  - rename: {{nodes: {{'/*': 'bert/*'}}}}\n")
    result = surgery.apply(short_models / "bert-tiny.ts.onnx", recipe)
    assert result.ok
    assert [step.verdict.status for step in result.steps if step.verdict] == ["equal", "equal"]


# set-metadata


@pytest.mark.parametrize(
    ("name", "content"),
    [("l.txt", "cat\ndog\n"), ("l.json", '["cat", "dog"]'), ("m.json", '{"1": "dog", "0": "cat"}')],
)
def test_labels_are_read_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    model = run(graph_of(SCALE), "set-metadata", labels_file=str(tmp_path / name), labels_of="y").ir
    assert model.metadata_props == {"labels": '["cat", "dog"]'}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.json", b'{"0": "cat", "2": "dog"}', "neither a list of labels nor a mapping"),
        ("l.json", b'["cat", 1]', "neither a list of labels nor a mapping"),
        ("l.json", b"[", "the labels cannot be read"),
        ("l.txt", b"\xff\xfe", "the labels cannot be read"),
        ("l.txt", b"", "neither a list of labels nor a mapping"),
        ("none.txt", None, "the labels cannot be read: No such file"),
    ],
)
def test_files_that_are_not_labels_are_errors(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(surgery.UsageError, match=message):
        run(graph_of(SCALE), "set-metadata", labels_file=str(tmp_path / name))


def test_ports_are_described() -> None:
    found = whole(run(graph_of(SCALE), "set-metadata", describe={"x": "pixels", "y": "scores"})).graph
    assert (found.input[0].doc_string, found.output[0].doc_string) == ("pixels", "scores")


# set-initializer


def test_elements_are_read_from_files(tmp_path: Path) -> None:
    elements = np.array([5, 6], np.float32)
    np.save(tmp_path / "w.npy", elements)
    np.savez(tmp_path / "w.npz", w=elements, other=elements + 1)
    for options in ({"file": "w.npy"}, {"file": "w.npz"}, {"file": "w.npz", "entry": "other"}):
        options["file"] = str(tmp_path / options["file"])
        made = whole(run(graph_of(SCALE), "set-initializer", name="w", **options))
        wanted = elements + ("entry" in options)
        assert np.array_equal(numpy_helper.to_array(made.graph.initializer[0]), wanted)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f4"])
def test_a_large_file_in_the_onnx_layout_is_memory_mapped(tmp_path: Path, order: Any, kind: str) -> None:
    elements = np.asarray(np.random.default_rng(0).normal(size=(64, 32)), dtype=kind, order=order)
    np.save(tmp_path / "w.npy", elements)
    model = text.parse("g (float[N,64] x) => (float[N,32] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((64, 32), np.float32), "w"))
    graph = run(graph_of(model), "set-initializer", name="w", file=str(tmp_path / "w.npy"))
    tensor = graph.ir.graph.initializers["w"].const_value
    assert isinstance(tensor, StoredTensor)
    assert (Path("/", tensor.reference.location) == tmp_path / "w.npy") == (order == "C" and kind == "<f4")
    assert np.array_equal(numpy_helper.to_array(whole(graph).graph.initializer[0]), elements)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "there is no tensor 'w' in it; it has a, b; name one by 'entry'"),
        ("c", "there is no tensor 'c' in it"),
        ("a", r"'w' has the dims \[2\], and the elements \[3\]; 'allow: \[dims\]' lets them differ"),
        ("b", r"'w' has the dtype float, and the elements double; 'allow: \[dtype\]' lets them differ"),
    ],
)
def test_elements_that_do_not_fit_are_errors(tmp_path: Path, entry: str | None, message: str) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(3, np.float32), b=np.zeros(2))
    with pytest.raises(surgery.UsageError, match=message):
        run(graph_of(SCALE), "set-initializer", name="w", file=str(tmp_path / "w.npz"), entry=entry)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is not an array"), (b"\x93NUMPY\x01\x00\x02\x00{}", "is not an array"), (None, "cut short|it has 4 bytes")],
)
def test_npy_files_that_are_damaged_are_errors(tmp_path: Path, content: bytes | None, message: str) -> None:
    np.save(tmp_path / "w.npy", np.zeros(2, np.float32))
    data = (tmp_path / "w.npy").read_bytes()
    (tmp_path / "w.npy").write_bytes(data[:-4] if content is None else content)
    with pytest.raises(surgery.base.errors.ModelFileError, match=message):
        run(graph_of(SCALE), "set-initializer", name="w", file=str(tmp_path / "w.npy"))


# replace-subgraph


def test_a_model_file_replaces_nodes(tmp_path: Path) -> None:
    file = write(tmp_path / "part.onnx", "p (float[B,2] x) => (float[B,2] t) <float[2] w = {3, 4}> { t = Mul(x, w) }")
    graph = run(graph_of(SCALE), "replace-subgraph", nodes={"op": "Mul"}, file=str(file))
    wanted = "g (float[N,2] x) => (float[N,2] y) <float[2] w = {3, 4}> { t = Mul(x, w) y = Relu(t) }"
    assert not text.structural_diff(graph_of(wanted).ir, graph_of(whole(graph)).ir)


def test_weights_stay_in_the_replacement_file(tmp_path: Path) -> None:
    part = text.parse("p (float[B,64] a) => (float[B,64] b) { b = MatMul(a, k) }")
    part.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "k"))
    onnx.save(part, tmp_path / "part.onnx")
    model = "g (float[N,64] x) => (float[N,64] y) { t = Relu(x) y = Neg(t) }"
    graph = run(graph_of(model), "replace-subgraph", nodes={"op": "Relu"}, file=str(tmp_path / "part.onnx"))
    (weight,) = graph.ir.graph.initializers.values()
    assert isinstance(weight.const_value, StoredTensor)
    assert Path("/", weight.const_value.reference.location) == tmp_path / "part.onnx"
    assert [node.op for node in graph.nodes()] == ["MatMul", "Neg"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            "p (double[B,2] x) => (double[B,2] t) { t = Relu(x) }",
            r"'x' is float\[N,2\], and the input 'x' of part.onnx",
        ),
        ("p (float[B,3] x) => (float[B,3] t) { t = Relu(x) }", r"'x' is float\[N,2\], and the input 'x' of part.onnx"),
        ("p (float[B,2] x) => (int64[B,2] t) { t = Cast<to = 7>(x) }", "and 't', which it replaces, float"),
        ("p (float[B,2] a, float[B,2] b) => (float[B,2] t) { t = Add(a, b) }", "do not match what the nodes read"),
        ("p (float[B,2] x) => (float[B,2] a, float[B,2] b) { a = Relu(x) b = Neg(x) }", "do not match what is read"),
        (
            '<ir_version: 8, opset_import: ["": 15]> p (float[B,2] x) => (float[B,2] t) { t = Relu(x) }',
            "imports ai.onnx 21, and part.onnx 15",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(tmp_path: Path, part: str, message: str) -> None:
    file = write(tmp_path / "part.onnx", part)
    with pytest.raises(surgery.UsageError, match=message):
        run(graph_of(SCALE), "replace-subgraph", nodes={"op": "Mul"}, file=str(file))


def test_a_file_is_named_from_the_recipe(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", SCALE)
    write(tmp_path / "part.onnx", "p (float[B,2] x) => (float[B,2] t) { t = Neg(x) }")
    (tmp_path / "r.yaml").write_text(
        "recipe: r\nsteps:\n  - replace-subgraph: {nodes: {op: Mul}, file: part.onnx}\n  - replace-subgraph:\n"
        "      rule: {match: y = Relu(x), emit: y = Abs(x)}\n"
    )
    result = surgery.apply(tmp_path / "m.onnx", tmp_path / "r.yaml")
    assert result.ok
    assert [step.verdict.status for step in result.steps if step.verdict] == ["intended", "intended"]
    assert result.output.ops == {"Neg": 1, "Abs": 1}


# What the user says that is kept


@pytest.mark.parametrize(("keeps", "code"), [("nothing", 0), ("exact", 1)])
def test_an_edit_is_verified_against_the_keeps_option(
    tmp_path: Path, keeps: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "m.onnx", SCALE)
    options = ["--set", "nodes={op: Relu}", "--set", "op=Abs", "--set", f"keeps={keeps}"]
    assert main(["run", "replace-op", str(model), *options, "-o", str(tmp_path / "out.onnx")]) == code
    assert (tmp_path / "out.onnx").exists() == (code == 0)
    assert ("different" in capsys.readouterr().out) == (code == 1)


def test_an_impossible_edit_is_a_usage_error(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", SCALE)
    assert main(["run", "rename", str(model), "--set", "inputs={z: a}"]) == 2


# outline


@pytest.mark.parametrize(
    "name", sampled(["bert-tiny.ts", "gpt2-tiny", "resnet-tiny", "llama-tiny", "mobilenet-tiny"], 3)
)
def test_inlining_undoes_outlining(name: str) -> None:
    graph = graph_of(MODELS / f"{name}.onnx")
    before, nodes = text.canonical(graph.ir), len(graph.ir.graph)
    run(graph, "outline")
    assert graph.sites and len(graph.ir.graph) < 0.7 * nodes
    run(graph, "inline-functions")
    run(graph, "drop-unused-opsets")
    assert text.canonical(graph.ir) == before


def test_blocks_by_name_are_outlined_in_a_real_model(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\nsteps:\n  - outline: {blocks: /model/encoder/layer.*, name: BertLayer}\n")
    result = surgery.apply(MODELS / "bert-tiny.ts.onnx", recipe)
    assert result.ok and result.output.ops["local::BertLayer"] == 11
    assert result.steps[0].verdict is not None and result.steps[0].verdict.status == "equal"


# What case files say of edits


@pytest.mark.parametrize(
    ("head", "after", "finding"),
    [
        ("# error: there is no input 'z'\n# options: {inputs: {z: a}}", "", ""),
        ("# error: something else\n# options: {inputs: {z: a}}", "", "the error is different: there is no input 'z'"),
        ("# error: there is no input 'z'\n# options: {inputs: {x: a}}", "", "no error, but the case expects"),
        ("# options: {outputs: {'*': 'o*'}}", "oy", "a second run changes the model again"),
        ("# options: {outputs: {'*': 'o*'}}\n# repeats: once more", "oy", ""),
    ],
)
def test_cases_report_wrong_errors_and_non_idempotent_edits(
    tmp_path: Path, head: str, after: str, finding: str
) -> None:
    path = tmp_path / "rename" / "case.onnxtxt"
    path.parent.mkdir()
    graph = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    path.write_text("\n".join([head, graph, *(["# after", graph.replace("y", after)] if after else [])]))
    found = [str(item) for item in testing.findings(testing.read_case(path))]
    assert len(found) == bool(finding) and all(finding in item for item in found)
