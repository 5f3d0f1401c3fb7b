"""The lists of tree ensembles stay in their file: round trips, digests, runs, comparisons, and passes in other APIs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.breadth import sampled
from support.tree_ensembles import TREES, trees

import surgery
from surgery import Parity, graph_pass
from surgery.base.errors import ModelFileError
from surgery.engine import recipe
from surgery.engine.provenance.model_digests import identity_of
from surgery.model import storage
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.wire.stored_lists import MARK, is_stored, serialized, stored_lists, whole, with_list, with_lists
from surgery.model.wire.wire import encode_varint
from surgery.verification.inputs.feed_plan import FeedPlan
from surgery.verification.inputs.spec import InputsSpec


def _model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(*port) for port in (("x", 1, ["N", 2]), ("y", 1, ["N", 1])))
    chain = [helper.make_node("Identity", ["x"], ["a"]), *nodes, helper.make_node("Identity", ["b"], ["y"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(chain, "g", [x], [y]), opset_imports=opsets, ir_version=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(_model(trees(12345.0)), tmp_path / "forest.onnx")
    return tmp_path / "forest.onnx"


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def test_the_skeleton_is_small_and_the_saved_file_has_the_same_bytes(path: Path, tmp_path: Path) -> None:
    stored = storage.load(path)
    assert len(_bytes(stored.proto)) < 10_000 < path.stat().st_size
    assert {attribute.name for attribute in stored_lists(stored.proto)} >= {"nodes_values", "nodes_modes"}
    returned = storage.proto_from_ir(storage.ir_from_proto(stored.proto, stored.weights), stored.weights)
    assert _bytes(returned) == _bytes(stored.proto)
    for layout in ("keep", "single", "external"):
        storage.save(returned, tmp_path / f"{layout}.onnx", stored.weights, layout=layout)
        assert (tmp_path / f"{layout}.onnx").read_bytes() == path.read_bytes()


def test_the_whole_model_is_as_before(path: Path) -> None:
    original, stored = onnx.load(path), storage.load(path)
    for made in (
        storage.resolve(stored.proto, stored.weights),
        with_lists(stored.proto),
        onnx.load_model_from_string(whole(_bytes(stored.proto))),
    ):
        assert _bytes(made) == _bytes(original)


def test_passes_read_the_elements(path: Path) -> None:
    stored = storage.load(path)
    attributes = storage.ir_from_proto(stored.proto, stored.weights).graph.node(1).attributes
    assert attributes["nodes_modes"].value[:4] == ("BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ")
    assert attributes["nodes_values"].value[:4] == (12345.0, 0.0, 0.0, 12346.0)
    assert attributes["target_treeids"].value == tuple(np.repeat(np.arange(TREES), 2).tolist())


@pytest.mark.parametrize("name", ["keys_strings", "nodes_something"])
def test_a_list_that_inference_may_read_stays(name: str) -> None:
    stored = storage.from_proto(_model(helper.make_node("Op", ["a"], ["b"], **{name: list(range(99_999))})))
    assert list(stored_lists(stored.proto)) == []
    assert len(stored.proto.graph.node[1].attribute[0].ints) == 99_999


def _odd(kind: str) -> bytes:
    """Return a serialized attribute `nodes_values` in an unusual form."""
    attribute = onnx.AttributeProto(name="nodes_values", type=onnx.AttributeProto.FLOATS)
    attribute.floats.extend([0.5] * 30_000)
    data = _bytes(attribute)
    if kind == "packed":
        body = np.full(30_000, 0.5, np.float32).tobytes()
        return b"\x0a\x0cnodes_values" + b"\x3a\xc0\xa9\x07" + body + b"\xa0\x01\x06"
    if kind == "two places":
        return data + b"\x3d" + np.float32(0.5).tobytes()
    if kind == "two lists":
        return data + b"\x40\x01"
    if kind == "another type":
        attribute.type = onnx.AttributeProto.INTS
        return _bytes(attribute)
    attribute.ref_attr_name = "given"
    return _bytes(attribute)


@pytest.mark.parametrize("kind", ["packed", "two places", "two lists", "another type", "reference"])
def test_a_list_in_an_unusual_form_stays(kind: str) -> None:
    node = helper.make_node("Op", ["a"], ["b"], domain="ai.onnx.ml")
    node.attribute.append(onnx.AttributeProto.FromString(_odd(kind)))
    # protobuf writes the usual form, so the attribute is put into the bytes of the model.
    usual = _bytes(node.attribute[0])
    data = _bytes(_model(node))
    assert usual in data
    stored = storage.from_proto(_model(node))
    whole_again = storage.resolve(stored.proto, stored.weights)
    assert _bytes(whole_again) == data


def test_a_file_that_refers_to_other_files_as_lists_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Op", ["a"], ["b"])
    held = node.attribute.add(name="nodes_values", type=onnx.AttributeProto.FLOATS)
    held.t.data_type, held.t.doc_string, held.t.data_location = TensorProto.UINT8, MARK, TensorProto.EXTERNAL
    held.t.dims.append(8)
    held.t.external_data.add(key="location", value="etc/passwd")
    assert is_stored(held)
    onnx.save(_model(node), tmp_path / "m.onnx")
    with pytest.raises(ModelFileError):
        storage.load(tmp_path / "m.onnx")


def test_digests_do_not_depend_on_where_the_lists_are(path: Path) -> None:
    inside = storage.load(path, limit=1 << 40)
    assert list(stored_lists(inside.proto)) == []
    assert identity_of(storage.load(path)).whole == identity_of(inside).whole


def _run(model: Any, x: np.ndarray[Any, Any]) -> Any:
    return onnxruntime.InferenceSession(model).run(None, {"x": x})[0]


X = np.array([[0, 0], [12_350.5, 0], [1e6, 0]], np.float32)


@pytest.mark.parametrize("step", sampled(["drop-identity", "onnxsim", "onnxoptimizer", "onnxscript-optimize"], 2))
def test_results_are_those_of_the_original(path: Path, tmp_path: Path, step: str) -> None:
    result = surgery.apply(path, recipe.parse(f"steps: [{step}]"), output=tmp_path / "made.onnx")
    made = onnx.load(tmp_path / "made.onnx")
    assert [node.op_type for node in made.graph.node] == ["TreeEnsembleRegressor"]
    assert len(_bytes(result.proto)) < 20_000
    assert _run(str(tmp_path / "made.onnx"), X).tolist() == [[20_000.0], [19_994.0], [0.0]]
    assert [_bytes(one) for one in made.graph.node[0].attribute] == [
        _bytes(one) for one in onnx.load(path).graph.node[1].attribute
    ]


@graph_pass("lists-drop-proto", parity=Parity.EXACT)
def drop_proto(model: onnx.ModelProto) -> None:
    """Remove the first Identity from a message, and the last element of no list."""
    assert len(model.graph.node[1].attribute[1].ints) == 3 * TREES
    model.graph.node[1].input[0] = "x"
    del model.graph.node[0]


@graph_pass("lists-drop-ir", parity=Parity.EXACT)
def drop_ir(model: ir.Model) -> ir.Model:
    """Remove the first Identity from a copy."""
    made = model.clone()
    made.graph.node(1).replace_input_with(0, made.graph.inputs[0])
    made.graph.remove(made.graph.node(0), safe=True)
    return made


@graph_pass("lists-read-ir", parity=Parity.EXACT)
def read_ir(model: ir.Model) -> ir.Model:
    """Remove the first Identity from a copy that has read the lists."""
    return drop_ir(ir.from_proto(ir.to_proto(model)))


@graph_pass("lists-drop-gs", parity=Parity.EXACT)
def drop_gs(graph: gs.Graph) -> None:
    """Remove the first Identity."""
    assert len(graph.nodes[1].attrs["nodes_values"]) == 3 * TREES
    graph.nodes[1].inputs = graph.inputs
    graph.cleanup()


@graph_pass("lists-nothing-ir", parity=Parity.EXACT)
def nothing_ir(model: ir.Model) -> ir.Model:
    """Return a copy."""
    return model.clone()


@pytest.mark.parametrize(
    ("api", "nodes"), sampled([("drop-proto", 2), ("drop-ir", 2), ("read-ir", 2), ("drop-gs", 2), ("nothing-ir", 3)], 5)
)
def test_passes_in_other_apis_see_the_lists_and_leave_them_in_the_file(path: Path, api: str, nodes: int) -> None:
    original = onnx.load(path)
    result = surgery.apply(path, recipe.parse(f"steps: [lists-{api}]"))
    assert len(result.proto.graph.node) == nodes
    assert result.steps[0].status == ("committed" if nodes == 2 else "unchanged")
    assert len(_bytes(result.proto)) < 20_000
    whole_again = with_lists(result.proto).graph.node[nodes - 2]
    assert [_bytes(one) for one in whole_again.attribute] == [_bytes(one) for one in original.graph.node[1].attribute]


def test_inputs_are_drawn_near_thresholds_in_the_file(path: Path) -> None:
    stored = storage.load(path)
    assert 12345.0 in FeedPlan(stored.proto, InputsSpec()).domains({"x": [2, 2]})["x"].marks


def test_a_list_outside_takes_no_input_sets_away(path: Path) -> None:
    # A tree reads a path, whereas a node reads all of its weights, so that models with many weights run on fewer sets.
    assert external_bytes(storage.load(path).proto) == external_bytes(storage.load(path, limit=1 << 40).proto) == 0


def test_equal_lists_of_two_files_are_equal_and_others_are_not(path: Path, tmp_path: Path) -> None:
    for name, threshold in (("same", 12345.0), ("other", 12346.5)):
        onnx.save(_model(trees(threshold)), tmp_path / f"{name}.onnx")
    assert surgery.diff(path, tmp_path / "same.onnx").same
    found = surgery.diff(path, tmp_path / "other.onnx")
    assert not found.same
    assert "nodes_values" in str(found.nodes)
    assert surgery.verify(path, tmp_path / "same.onnx").ok
    assert not surgery.verify(path, tmp_path / "other.onnx").ok


def _encoded(numbers: list[bytes]) -> bytes:
    """Return a serialized attribute with these numbers, over and over."""
    run = b"".join(b"\x40" + number for number in numbers) * (1 << 16)
    return b"\x0a\x0dnodes_nodeids" + run + b"\xa0\x01\x07"


@pytest.mark.parametrize(
    ("numbers", "is_kept"),
    [
        ([b"\x00", b"\x81\x01"], True),
        ([b"\xff" * 9 + b"\x01", b"\x80\x80\x01"], True),
        ([b"\x81\x00", b"\x01"], False),
        ([b"\xff" * 9 + b"\x03", b"\x01"], False),
    ],
    ids=["small", "negative", "longer than needed", "more than 64 bits"],
)
def test_a_list_is_serialized_as_protobuf_does(numbers: list[bytes], is_kept: bool, tmp_path: Path) -> None:
    text = onnx.NodeProto(op_type="Op", input=["b"], output=["c"])
    text.attribute.append(helper.make_attribute("nodes_modes", ["BRANCH_LEQ", "LEAF", "t" * 9] * 9_999))
    long = onnx.NodeProto(op_type="Op", input=["c"], output=["d"])
    long.attribute.append(helper.make_attribute("nodes_modes", ["t" * 999] * 999, doc_string="text"))
    data = _bytes(onnx.GraphProto(node=[text, long]))
    odd = b"\x0a\x01a\x12\x01b\x22\x02Op" + _length(b"\x2a", _encoded(numbers))
    data += _length(b"\x0a", odd)
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08" + _length(b"\x3a", data) + b"\x42\x02\x10\x11")  # opset 17
    stored = storage.load(tmp_path / "m.onnx")
    found = list(stored_lists(stored.proto))
    assert len(found) == 3
    for attribute in found:
        assert b"".join(serialized(attribute)) == _bytes(with_list(attribute))
    assert [len(serialized(attribute)) for attribute in found] == [3, 1, 3 if is_kept else 1]


def _length(tag: bytes, data: bytes) -> bytes:
    return tag + encode_varint(len(data)) + data
