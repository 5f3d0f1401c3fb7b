"""Edits by hand: what they make, what they refuse, and that nothing is left of one that fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import surgery
from surgery import EditedGraph, UsageError
from surgery.base.errors import ExpectationError, OutputError
from surgery.model.graph import text

MLP = """mlp (float[N, 4] x) => (float[N, 4] y, float[N, 2] z)
    <int64[1] starts = {0}, int64[1] ends = {2}, int64[1] axes = {1},
    float[4, 4] w = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4}, float[4] b = {1, 2, 3, 4}> {
        [first] a = MatMul(x, w)
        [bias] c = Add(a, b)
        [act] d = Relu(c)
        [copy] e = Identity(d)
        y = Sigmoid(e)
        [pick] z = Slice(d, starts, ends, axes)
    }"""
BRANCHES = """g (float[n] x, bool go) => (float[n] y) {
        z = Exp(x)
        y = If(go) <then_branch = yes () => (float[n] a) { t = Neg(z) a = Relu(t) },
                    else_branch = no () => (float[n] b) { b = Abs(z) }>
    }"""
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def model() -> onnx.ModelProto:
    return text.parse(MLP, opset=17)


def ran(proto: onnx.ModelProto, **feeds: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Run a model; return its outputs by name."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return dict(zip((output.name for output in proto.graph.output), session.run(None, feeds)))


def ops(proto: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in proto.graph.node)


def made(g: EditedGraph) -> onnx.ModelProto:
    assert g.result is not None
    return g.result.proto


def verdicts(g: EditedGraph) -> list[str]:
    assert g.result is not None
    return [step.verdict.status.value for step in g.result.steps if step.verdict is not None]


def test_edits_that_keep_the_results_are_compared_and_written(model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "in.onnx")
    before = (tmp_path / "in.onnx").read_bytes()
    with surgery.edit(tmp_path / "in.onnx", output=tmp_path / "out.onnx") as g:
        assert g.result is None
        g.rename({"x": "pixels", "N": "batch"})
        g.remove("copy")
        g.add_output("c", "logits")
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert verdicts(g) == ["equal"]
    assert [port.name for port in (*written.graph.input, *written.graph.output)] == ["pixels", "y", "z", "logits"]
    assert written.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    np.testing.assert_array_equal(ran(written, pixels=X)["y"], ran(model, x=X)["y"])
    assert (tmp_path / "in.onnx").read_bytes() == before


def test_intended_edits_compute_what_was_asked(model: onnx.ModelProto) -> None:
    with surgery.edit(model, intended=True) as g:
        g.insert_after("c", "Clip", 0, 6)
        g.insert_before("first", "Mul", 0.5)
        g.set_weight("b", np.array([0, 0, 1, 1]))
        g.replace_op("act", "LeakyRelu", alpha=0.25)
        g.set_attribute("act", alpha=0.5)
    found = ran(made(g), x=X)
    c = np.clip(0.5 * X * [1, 2, 3, 4] + [0, 0, 1, 1], 0, 6)
    np.testing.assert_allclose(found["y"], 1 / (1 + np.exp(-c)), rtol=1e-6)
    np.testing.assert_allclose(found["z"], c[:, :2], rtol=1e-6)
    assert verdicts(g) == ["intended"]
    (alpha,) = next(node.attribute for node in made(g).graph.node if node.name == "act")
    assert alpha.f == 0.5


def test_a_block_of_intended_edits_is_the_reference_of_those_after_it(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as g:
        g.remove("copy")
        with g.intended():
            g.replace_op("act", "Tanh")
        g.rename({"y": "scores"})
    assert verdicts(g) == ["equal", "intended", "equal"]
    np.testing.assert_allclose(ran(made(g), x=X)["z"], np.tanh(X * [1, 2, 3, 4] + [1, 2, 3, 4])[:, :2], rtol=1e-6)


def test_an_edit_that_differs_is_not_written(model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "in.onnx")
    with (
        pytest.raises(ExpectationError, match=r"output .* instead of .*; if that is intended, edit within 'with g\.in"),
        surgery.edit(tmp_path / "in.onnx", output=tmp_path / "out.onnx") as g,
    ):
        g.replace_op("act", "Tanh")
    assert g.result is not None and not g.result.ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx"]


def test_an_intended_edit_that_is_not_accepted_is_not_called_unintended(model: onnx.ModelProto) -> None:
    with pytest.raises(ExpectationError, match="not finite") as error, surgery.edit(model, intended=True) as g:
        g.insert_after("y", "Mul", float("nan"))
    assert "if that is intended" not in str(error.value)


def test_a_wrong_block_fails_even_among_intended_ones(model: onnx.ModelProto) -> None:
    with pytest.raises(ExpectationError), surgery.edit(model) as g:
        with g.intended():
            g.replace_op("act", "Tanh")
        g.remove("bias")


def test_edits_after_intended_ones_that_failed_are_compared(model: onnx.ModelProto) -> None:
    with pytest.raises(ExpectationError), surgery.edit(model) as g:
        with pytest.raises(UsageError), g.intended():
            g.replace_op("act", "Tanh")
            g.add("Neg", "c")
            g.remove("nothing")
        g.remove("bias")
    assert g.result is not None and g.result.failure is not None
    assert g.result.failure.verdict is not None and g.result.failure.verdict.is_different


def test_an_exception_leaves_everything_as_it_was(model: onnx.ModelProto, tmp_path: Path) -> None:
    before = model.SerializeToString()
    with pytest.raises(ZeroDivisionError), surgery.edit(model, output=tmp_path / "out.onnx") as g:
        g.remove("copy")
        _ = 1 / 0
    assert model.SerializeToString() == before and g.result is None
    assert not list(tmp_path.iterdir())


def test_an_edit_that_fails_halfway_is_taken_back(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as g:
        with pytest.raises(UsageError, match="shape"):
            g.remove(["copy", "pick"])  # the second one changes the shape
        assert g.node("copy").op == "Identity"
        g.add_output("c")
    assert ops(made(g)) == ops(model) and verdicts(g) == ["equal"]


def test_new_nodes_have_the_types_of_their_operators(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as g:
        flat = g.add("Reshape", "d", [-1, 2, 2])
        total = g.add("ReduceSum", g.add("Mul", flat, 2), [1, 2], keepdims=0, name="total")
        g.add_output(total, "sums")
        parts = g.add_many("Split", "d", np.array([1, 3]), outputs=2, axis=1)
        g.add_output(parts[1], "rest")
        half = g.add("Cast", "d", to=10)
        g.add_output(g.add("Add", half, 1), "halves")
        _, scale, _ = g.add_many("DynamicQuantizeLinear", "d", outputs=3)
        g.add_output(g.add("Mul", scale, 255), "largest")
    found = ran(made(g), x=X)
    d = np.maximum(X * [1, 2, 3, 4] + [1, 2, 3, 4], 0).astype(np.float32)
    np.testing.assert_allclose(found["sums"], 2 * d.sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(found["rest"], d[:, 1:])
    assert found["halves"].dtype == np.float16
    np.testing.assert_allclose(found["largest"], d.max(), rtol=1e-6)
    node = next(node for node in made(g).graph.node if node.name == "total")
    assert {entry.key: entry.value for entry in node.metadata_props}["surgery.pass"] == "edit"


def test_inputs_and_outputs(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as g:
        g.remove_output("z")
        g.set_dims({"x": ["batch", None], "N": "batch"})
        g.set_dtype({"y": "float16", "x": "float64"})
        with g.intended():
            scale = g.add_input("scale", "float32", [1])
            g.insert_after("c", "Mul", scale)
    found = ran(made(g), x=X.astype(np.float64), scale=np.array([2], np.float32))
    assert list(found) == ["y"] and found["y"].dtype == np.float16
    with surgery.edit(made(g)) as again:
        again.remove_input("scale", np.array([2.0]))
    assert [port.name for port in made(again).graph.input] == ["x"]
    np.testing.assert_array_equal(ran(made(again), x=X.astype(np.float64))["y"], found["y"])


def test_connections(model: onnx.ModelProto) -> None:
    with surgery.edit(model, intended=True) as g:
        g.set_input(g.select({"op": "Sigmoid"}), 0, "c")
        g.replace("a", g.add("Sub", "x", g.constant(np.ones(4, np.float32), "ones")))
    assert ops(made(g)) == ["Add", "Relu", "Sigmoid", "Slice", "Sub"]
    weights = {tensor.name for tensor in made(g).graph.initializer}
    assert "ones" in weights and "w" not in weights
    np.testing.assert_allclose(ran(made(g), x=X)["y"], 1 / (1 + np.exp(-(X - 1 + [1, 2, 3, 4]))), rtol=1e-6)


def test_any_pass_runs_in_a_body(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as g:
        g.run("fuse-matmul-add")
        g.run("drop-identity")
    assert "Gemm" in ops(made(g)) and "Identity" not in ops(made(g)) and verdicts(g)[0] in ("equal", "close")


def test_edits_as_passes_make_them(model: onnx.ModelProto) -> None:
    """A site of the body has the rules of a site of a pass."""
    with surgery.edit(model) as g:
        for node in g.nodes("Identity"):
            with g.site(node) as new:
                new.replace(node.outputs[0], node.required_input(0))
    assert ops(made(g)) == ops(made_by_pass(model))


def made_by_pass(model: onnx.ModelProto) -> onnx.ModelProto:
    return surgery.run(model, "drop-identity").proto


SUBGRAPH_EDITS: dict[str, tuple[Callable[[EditedGraph], object], str, str]] = {
    "after": (lambda g: g.insert_after(g.node({"op": "Abs"}), "Sqrt"), "zeros", "roots"),
    "replace": (lambda g: g.replace(result(g), g.add("Sqrt", result(g))), "zeros", "roots"),
    "before": (lambda g: g.insert_before({"op": "Relu"}, "Add", 7.5), "rest", "powers"),
    "remove": (lambda g: g.remove({"op": "Neg"}), "powers", "powers"),
}
POWERS = np.exp(X[0])
WANTED = {"zeros": np.zeros(4), "powers": POWERS, "roots": np.sqrt(POWERS), "rest": np.maximum(7.5 - POWERS, 0)}


def result(g: EditedGraph) -> surgery.Value:
    return g.node({"op": "Abs"}).outputs[0]


@pytest.mark.parametrize("what", SUBGRAPH_EDITS)
def test_subgraphs(what: str) -> None:
    edit, yes, no = SUBGRAPH_EDITS[what]
    with surgery.edit(text.parse(BRANCHES, opset=17), intended=True) as g:
        edit(g)
    for go, wanted in ((True, yes), (False, no)):
        np.testing.assert_allclose(ran(made(g), x=X[0], go=np.array(go))["y"], WANTED[wanted], rtol=1e-6)


MISTAKES: dict[str, tuple[Callable[[EditedGraph], object], str]] = {
    "no node": (lambda g: g.remove("cop"), "no node has the name 'cop'; did you mean 'copy'?"),
    "no operator": (lambda g: g.remove({"op": "Rellu"}), "no node has the operator 'Rellu'; did you mean 'Relu'?"),
    "key": (lambda g: g.remove({"ops": "Relu"}), "a selector has no key 'ops'; did you mean 'op'?"),
    "several": (
        lambda g: g.node("*"),
        "6 nodes match: 'first', 'bias', 'act', ...; name one, or list them by g.select",
    ),
    "no tensor": (lambda g: g.add_output("bb"), "there is no tensor 'bb'"),
    "a node": (lambda g: g.replace(g.node("act"), "c"), "Node(act) is not a tensor; name a tensor, or pass one of"),
    "a tensor": (lambda g: g.remove(g.tensor("c")), "'c' is a tensor, not a node; its node is `.producer`"),
    "operator": (lambda g: g.add("Clipp", "c"), "the new Clipp: ONNX has no operator 'Clipp'; did you mean 'Clip'?"),
    "inputs": (lambda g: g.add("Relu", "c", 1), "the new Relu: Relu takes 1 input, not 2"),
    "attribute": (
        lambda g: g.add("Elu", "c", alfa=1),
        "the new Elu: Elu has no attribute 'alfa'; did you mean 'alpha'?",
    ),
    "number": (lambda g: g.add("Add", "c", "x y"), "there is no tensor 'x y'"),
    "type": (lambda g: g.add("Reshape", "c", [0.5]), "input 1 of the new Reshape: int64 cannot hold 0.5"),
    "unread": (lambda g: g.add("Relu", "c"), "nothing reads what was added: Relu; connect them by replace, set_input"),
    "too early": (
        lambda g: (g.add("Relu", "c"), g.run("drop-identity")),
        "'drop-identity' cannot see what was only added; connect the new nodes first",
    ),
    "input": (lambda g: g.set_input("act", 3, "c"), "'act' has 1 inputs, counted from 0, and no input 3"),
    "cycle": (lambda g: g.set_input("bias", 0, "d"), "the edits made a cycle: bias, act, bias"),
    "element type": (lambda g: g.set_dtype({"x": "float23"}), "there is no element type 'float23'; did you mean"),
    "name": (lambda g: g.rename({"xx": "y"}), "the model has no tensor, node or dim 'xx'"),
    "taken": (lambda g: g.rename({"x": "y"}), "the tensor 'x' cannot be renamed to 'y', which exists already"),
    "size": (lambda g: g.set_dims({"M": 1}), "there is no dim 'M'"),
    "weight": (lambda g: g.set_weight("b", np.zeros(3)), "'b' has the dims [4], and the elements [3]"),
    "no weight": (lambda g: g.set_weight("c", 0), "'c' is not an initializer or Constant"),
    "pass": (lambda g: g.run("fuse-matmul-ad"), "no pass 'fuse-matmul-ad'; did you mean 'fuse-matmul-add'?"),
    "option": (lambda g: g.run("cut", inputs="c", outs="y"), "pass 'cut' has no option 'outs'"),
    "array option": (
        lambda g: g.run("cut", ouputs=np.ones(2)),
        "pass 'cut' has no option 'ouputs'; did you mean 'outp",
    ),
    "lossy": (lambda g: g.run("to-float16"), "'to-float16' loses accuracy within a budget"),
    "outputs": (lambda g: g.remove_output("y", "z"), "no output would be left"),
    "nothing": (lambda g: g.remove([]), "an empty list selects no node; name one"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_one_line(what: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    edit, message = MISTAKES[what]
    with pytest.raises(UsageError) as raised, surgery.edit(model, output=tmp_path / "out.onnx") as g:
        edit(g)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_objects_of_another_graph_and_of_the_past_are_refused(model: onnx.ModelProto) -> None:
    with surgery.edit(model) as other:
        node = other.node("act")
    with surgery.edit(model) as g:
        with pytest.raises(UsageError, match="the node 'act' belongs to another graph"):
            g.remove(node)
        with pytest.raises(UsageError, match="the tensor 'd' belongs to another graph"):
            g.replace("c", node.outputs[0])
        gone = g.node("copy")
        value = gone.outputs[0]
        g.remove(gone)
        with pytest.raises(UsageError, match="the node 'copy' is no longer in the graph"):
            g.set_attribute(gone, alpha=1.0)
        with pytest.raises(UsageError, match="is no longer in the graph"):
            g.replace("c", value)


def test_edits_are_made_within_the_block_only(model: onnx.ModelProto) -> None:
    g = surgery.edit(model)
    assert repr(g) == "<EditedGraph of a model: 6 nodes>" and "Operator" in g._repr_html_()
    for state in ("has not begun", "has ended"):
        for edit in (lambda: g.remove("copy"), lambda: g.rename({"x": "X"}), lambda: g.add("Relu", "c")):
            with pytest.raises(UsageError, match=f"the edit {state}; edit within 'with surgery"):
                edit()
        if g.result is None:
            with g:
                g.remove("copy")
    assert repr(g) == "<EditedGraph of a model: 5 nodes, ok>" and "bit-identical" in g._repr_html_()
    with pytest.raises(UsageError, match="this edit has begun already"):
        g.__enter__()


def test_a_file_is_not_replaced_unless_asked(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(OutputError, match="exists"):
        surgery.edit(path, output=path)
    with surgery.edit(path, output=path, force=True) as g:
        g.remove("copy")
    assert "Identity" not in ops(onnx.load(path))


def test_inputs_and_a_target_are_those_of_the_user(model: onnx.ModelProto) -> None:
    with surgery.edit(model, inputs={"x": X}, target="ort-cpu") as g:
        g.remove("copy")
    assert g.result is not None and g.result.target == "ort-cpu"
    assert any(binding["character"] == "inputs 1" for binding in g.result.bindings)


def test_an_unchanged_model_is_written_as_it_is(model: onnx.ModelProto, tmp_path: Path) -> None:
    with surgery.edit(model, output=tmp_path / "out.onnx") as g:
        pass
    assert g.result is not None and g.result.ok and not g.result.steps
    assert ops(onnx.load(tmp_path / "out.onnx")) == ops(model)
