"""`strip-metadata`: what it removes, wherever it is, and what it must leave."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgery
from surgery.base.errors import UsageError
from surgery.base.operators.subgraphs import nodes
from surgery.engine import recipe
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.wire.descriptions import described, description_bytes

TRACE = 'File "exported_files/secret/model.py", line 12, in forward'
EVERYWHERE = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] a> {
    [one] a = Add(x, w)
    [two] b = If(c) <then_branch = t () => (float[2] p) { [three] p = Neg(a) },
                     else_branch = e () => (float[2] q) { [four] q = Abs(a) }>
    [five] k = Constant<value = float[2] {1, 2}>()
    [six] d = Add(b, k)
    [seven] y = local.f(d)
}
<domain: "local", opset_import: ["" : 21]> f (d) => (e) { [eight] e = Relu(d) }"""


def run_pass_on(model: onnx.ModelProto, **options: Any) -> None:
    graph = Graph(storage.ir_from_proto(model), pass_name="strip-metadata")
    catalog.find("strip-metadata").function(graph, **options)


def parts(message: Any) -> list[Any]:
    """List the message and all in it, whatever they are, without what describes."""
    found = [message]
    for kind, content in message.ListFields():
        if kind.message_type is not None and kind.name != "metadata_props":
            found += [inner for item in (content if kind.is_repeated else [content]) for inner in parts(item)]
    return found


def full() -> onnx.ModelProto:
    """Return a model with each kind of description at every part that can have it."""
    model = text.parse(EVERYWHERE)
    model.producer_name, model.producer_version = "pytorch", "2.13"
    model.graph.value_info.append(helper.make_tensor_value_info("unknown", TensorProto.FLOAT, [2]))
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([1.0], np.float32), "unread"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([2], np.int64)))
    model.functions[0].value_info.append(helper.make_tensor_value_info("e", TensorProto.FLOAT, [2]))
    annotation = model.graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    for part in parts(model):
        names = part.DESCRIPTOR.fields_by_name
        if "doc_string" in names:
            part.doc_string = TRACE
        if "metadata_props" in names:
            for key in ("pkg.torch.onnx.stack_trace", "names", "surgery.pass", "layer_ann"):
                part.metadata_props.add(key=key, value="cpu" if key == "layer_ann" else TRACE)
    training = model.training_info.add()
    training.algorithm.CopyFrom(text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }").graph)
    training.algorithm.doc_string = "kept"
    return model


def stripped(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """Run the pass as a step that is verified."""
    step = {"pass": "strip-metadata", "with": options}
    result = surgery.apply(model, recipe.parse(f"steps: [{step!r}]".replace("True", "true").replace("False", "false")))
    assert [one.status for one in result.steps] == ["committed"]
    return result.proto


def keys(model: onnx.ModelProto) -> set[str]:
    return {entry.key for holder in described(model) for entry in getattr(holder, "metadata_props", ())}


def test_every_part_loses_its_descriptions_and_nothing_else() -> None:
    model = full()
    before = description_bytes(model)
    assert before.doc_strings > 25 * len(TRACE) and before.entries["names"] > 25 * len(TRACE)
    done = stripped(model, provenance=True)
    assert keys(done) == {"layer_ann"} and description_bytes(done).doc_strings == 0
    training = [*done.training_info]
    assert training == [*model.training_info] and TRACE not in str(done)
    assert [*done.graph.quantization_annotation] == [*model.graph.quantization_annotation]
    for one in (model, done):
        for holder in described(one):
            holder.ClearField("doc_string")
            if hasattr(holder, "metadata_props"):
                holder.ClearField("metadata_props")
        one.ClearField("producer_name")
        one.ClearField("producer_version")
    assert done == model


def test_surgery_keeps_what_it_recorded_unless_asked() -> None:
    assert keys(stripped(full())) == {"layer_ann", "surgery.pass"}


@pytest.mark.parametrize(("keep", "left"), [(["names"], {"names"}), ("pkg.*", {"pkg.torch.onnx.stack_trace"})])
def test_keys_to_keep(keep: Any, left: set[str]) -> None:
    assert keys(stripped(full(), keep=keep, provenance=True)) == {"layer_ann", *left}


def test_doc_strings_and_the_producer_can_stay() -> None:
    model = full()
    done = stripped(model, docs=False, producer=False)
    assert description_bytes(done).doc_strings == description_bytes(model).doc_strings
    assert (done.producer_name, done.producer_version) == ("pytorch", "2.13")


def test_names_of_nodes_go_on_request_at_any_depth() -> None:
    assert all(node.name for node in nodes(stripped(full())))
    bare = stripped(full(), node_names=True)
    assert [*nodes(bare)] and not any(node.name for node in nodes(bare))
    assert [node.output[0] for node in nodes(bare)] == [node.output[0] for node in nodes(full())]


def test_a_misspelt_key_is_refused() -> None:
    with pytest.raises(UsageError, match="no metadata has the key 'nams' that is to be kept; did you mean 'names'"):
        run_pass_on(full(), keep=["nams"])


def test_a_glob_may_match_nothing_and_a_model_without_descriptions_is_unchanged() -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    result = surgery.apply(model, recipe.parse("steps: [strip-metadata: {keep: 'names*'}]"))
    assert [step.status for step in result.steps] == ["unchanged"]


def test_a_second_run_changes_nothing() -> None:
    once = stripped(full(), node_names=True, provenance=True)
    result = surgery.apply(once, recipe.parse("steps: [strip-metadata: {node_names: true, provenance: true}]"))
    assert [step.status for step in result.steps] == ["unchanged"]


def test_a_file_gets_smaller_and_weights_stay_outside(tmp_path: Path) -> None:
    model = text.parse("g (float[2,700] x) => (float[2,700] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 700), np.float32), "w"))
    model.graph.node[0].doc_string = TRACE * 50
    model.graph.initializer[0].doc_string = TRACE
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert cli.main(["run", "strip-metadata", str(path), "-o", str(out), "--no-provenance", "-q"]) == 0
    assert (tmp_path / "out.onnx.data").stat().st_size >= 5600
    assert out.stat().st_size < path.stat().st_size - 50 * len(TRACE)
    assert TRACE.encode() not in out.read_bytes()


def test_the_bytes_are_those_that_go() -> None:
    model = text.parse(EVERYWHERE)
    model.graph.node[0].doc_string = "x" * 20
    model.graph.node[0].metadata_props.add(key="k", value="v" * 300)
    model.graph.metadata_props.add(key="k", value="v")
    before = model.ByteSize()
    found = description_bytes(model)
    assert found.total == found.doc_strings + found.entries["k"] == 22 + (1 + 2 + 3 + 303) + (2 + 1 + 3 + 3)
    model.graph.node[0].ClearField("doc_string")
    del model.graph.node[0].metadata_props[:]
    del model.graph.metadata_props[:]
    # The lengths of the node and of the graph take a byte less as well.
    assert 0 <= before - model.ByteSize() - found.total <= 4


def test_inspect_names_the_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(full(), tmp_path / "m.onnx")
    assert cli.main(["inspect", str(tmp_path / "m.onnx")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "metadata 8." in shown and "pkg.torch.onnx.stack_trace 2.3 kB" in shown and "doc strings 1.7 kB" in shown
    assert cli.main(["inspect", str(tmp_path / "m.onnx"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["metadata_bytes"]
    assert found["entries"]["names"] == description_bytes(full()).entries["names"]
    onnx.save(text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    assert cli.main(["inspect", str(tmp_path / "m.onnx")]) == 0
    assert "metadata" not in capsys.readouterr().out
