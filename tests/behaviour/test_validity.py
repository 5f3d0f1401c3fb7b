"""Whether a model is valid as it was given: said first, asked for alone, and never passed over."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support import installed
from support.breadth import sampled

from surgery.engine.pipeline import runner
from surgery.engine.recipe import parse
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.proto.repair import faults, repaired
from surgery.verification.inputs.spec import VerifySpec

RIGHT = "g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    right = text.parse(RIGHT)
    stale = text.parse(RIGHT)
    stale.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.FLOAT, [2, 3]))
    types = text.parse("g (float[n] x, int64[n] k) => (float[n] y) { i = Relu(x) y = Add(x, k) }")
    types.graph.node[1].name = "adder"
    custom = text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) y = com.acme.Foo(i) }")
    custom.opset_import.add(domain="com.acme", version=1)
    for name, model in {"right": right, "stale": stale, "types": types, "custom": custom}.items():
        onnx.save(model, f"{name}.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main([*arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_check_reports_the_problem_of_each_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surgery(capsys, "check", "right.onnx") == (0, "right.onnx: valid\n", "")
    code, out, _ = surgery(capsys, "check", "right.onnx", "types.onnx", "custom.onnx", "stale.onnx")
    lines = out.splitlines()
    assert code == 1 and len(lines) == 4 and lines[0] == "right.onnx: valid"
    assert lines[1].startswith("types.onnx: invalid: ") and lines[1].count("adder") >= 1
    assert "shape inference: " in lines[1] and "ONNX Runtime rejects it: " in lines[1]
    assert lines[2] == (
        "custom.onnx: cannot be run here: com.acme:Foo is a custom operator "
        "that is in no --custom-op-library or verify.custom_op_library"
    )
    assert "shape inference: " in lines[3]


def test_check_of_a_file_that_is_not_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "check", "types.onnx", "text.onnx", "no.onnx", "right.onnx")
    lines = out.splitlines()
    assert code == 2 and err == "" and len(lines) == 4
    assert lines[1].startswith("text.onnx: ") and lines[2].startswith("no.onnx: no such file")
    assert lines[3] == "right.onnx: valid"
    code, out, _ = surgery(capsys, "check", "types.onnx", "no.onnx", "right.onnx", "--format", "json")
    found = json.loads(out)["models"]
    assert code == 2 and [one["valid"] for one in found] == [False, False, True]
    assert found[0]["findings"] and found[0]["runtime"] and found[0]["problem"] is None
    assert "no such file" in found[1]["problem"] and found[2]["runtime"] is None


@pytest.mark.parametrize("command", sampled([["apply", "tidy"], ["inspect"]], 2))
def test_the_first_line_reports_an_invalid_model(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for name, words in {
        "types": "invalid: ",
        "stale": "invalid: ",
        "custom": "cannot be run here: ",
    }.items():
        _, out, _ = surgery(capsys, *command, f"{name}.onnx")
        assert out.startswith("the input model: ") and words in out.splitlines()[0]
    _, out, _ = surgery(capsys, *command, "right.onnx")
    assert "the input model" not in out.splitlines()[0]
    _, out, _ = surgery(capsys, *command, "types.onnx", "--format", "json")
    data = json.loads(out)
    assert (data.get("validity") or data["original"])["valid"] is False


def test_an_unrunnable_model_passes_only_if_unverified_is_accepted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = text.parse("g (float[n] x, int64[n] k) => (float[n] y) { y = Add(x, k) }")
    onnx.save(nothing, "nothing.onnx")
    for name in ("types", "nothing"):
        code, out, _ = surgery(capsys, "apply", "tidy", f"{name}.onnx", "-o", "out.onnx")
        assert code == 1 and "nothing can be verified: " in out and "--unverified accept" in out
        assert not Path("out.onnx").exists()
        code, out, _ = surgery(capsys, "apply", "tidy", f"{name}.onnx", "-o", "out.onnx", "--unverified", "accept")
        assert code == 0 and "ok: " in out and Path("out.onnx").exists()
        Path("out.onnx").unlink()
    result = runner.apply("types.onnx", "tidy")
    assert not result.ok and result.exit_code == 1 and result.unverifiable and result.failure is None
    # A removal that leaves the same operators on the same values needs no run.
    code, out, _ = surgery(capsys, "apply", "tidy", "custom.onnx", "-o", "out.onnx")
    assert code == 0 and "com.acme:Foo is a custom operator" in out and Path("out.onnx").exists()
    # What the checker finds is said, and ONNX Runtime runs the model all the same.
    assert runner.apply("stale.onnx", "tidy").ok


def test_a_plugin_that_the_runtime_knows_by_name_makes_no_model_invalid(folder: Path) -> None:
    model = text.parse("g (float[n,4] x) => (float[n,4] y) { i = Identity(x) t = Tanh(i) y = EfficientNMS_TRT(t, t) }")
    model.graph.node[2].name = "nms"
    found = runner.apply(model, parse("steps: [drop-identity]"))
    assert found.ok and found.validity is not None and found.validity.gap and not found.validity.findings
    assert "EfficientNMS_TRT 'nms'" in found.validity.refusal
    model.graph.node[1].op_type, model.graph.node[1].name = "Reshape", "wrong"
    found = runner.apply(model, parse("steps: [drop-identity]"))
    assert not found.ok and found.validity is not None and not found.validity.gap


def test_a_model_only_the_reference_evaluator_runs_is_runnable(folder: Path) -> None:
    model = text.parse("g (bfloat16[n] x) => (bfloat16[n] y) { i = Identity(x) y = Erf(i) }")
    found = runner.apply(model, parse("steps: [drop-dead]"))
    assert found.ok is not bool(found.unverifiable)
    off = runner.apply(model, parse('verify: {mode: "off"}\nsteps: [drop-identity]'))
    assert off.ok and off.validity is None and VerifySpec().mode == "each"


@pytest.mark.parametrize("recipe", ["tidy", "default"])
def test_a_model_with_an_unknown_operator_that_no_step_changes_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { i = com.acme.Foo(x) y = Relu(i) }")
    model.opset_import.add(domain="com.acme", version=1)
    onnx.save(model, "kept.onnx")
    code, out, _ = surgery(capsys, "apply", recipe, "kept.onnx", "-o", "out.onnx")
    assert code == 0 and out.startswith("the input model: cannot be run here: ") and "ok: nothing to change" in out
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Foo", "Relu"]
    # A change that cannot be verified is another matter: the one who asked for it learns what is missing.
    Path("steps.yaml").write_text("on_failure: rollback\nverify: {compare: whole}\nsteps: [drop-identity]\n")
    code, out, _ = surgery(capsys, "apply", "steps.yaml", "custom.onnx", "-o", "none.onnx")
    assert code == 1 and "nothing can be verified: " in out and not Path("none.onnx").exists()


# The checker and strict shape inference accept each of these; no input runs.
NEVER = {
    "bias of a convolution": (
        "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {1,2,3,4}, float[3] b = {1,2,3}>"
        " { y = Conv(x, w, b) }"
    ),
    "groups": (
        "g (float[1,4,1,1] x) => (float[1,2,1,1] y) <float[2,4,1,1] w = {1,2,3,4,5,6,7,8}>"
        " { y = Conv<group = 2>(x, w) }"
    ),
    "bias of Gemm": (
        "g (float[2,2] x) => (float[2,4] y) <float[2,4] w = {1,2,3,4,5,6,7,8}, float[3] b = {1,2,3}>"
        " { y = Gemm(x, w, b) }"
    ),
    "scale of LayerNormalization": (
        "g (float[2,4] x) => (float[2,4] y) <float[3] s = {1,2,3}> { y = LayerNormalization(x, s) }"
    ),
    "slope of PRelu": "g (float[1,3,2,2] x) => (float[1,3,2,2] y) <float[2,1,1] s = {1,2}> { y = PRelu(x, s) }",
    "index out of range": "g (float[4,3] x) => (float[2,3] y) <int64[2] i = {1,9}> { y = Gather(x, i) }",
    "another count": "g (float[2,3] x) => (float[p,q] y) <int64[2] s = {2,4}> { y = Reshape(x, s) }",
    "weights of a recurrence": (
        "g (float[2,1,1] x) => (float[2,1,1,1] y) <float[1,4,1] w = {1,2,3,4}, float[1,3,1] r = {1,2,3}>"
        " { y = LSTM<hidden_size = 1>(x, w, r) }"
    ),
    "scale of DequantizeLinear": (
        "g (float[2,2] x) => (float[2,3] y) <int8[2,3] w = {1,2,3,4,5,6}, float[2] s = {1,2}>"
        " { d = DequantizeLinear<axis = 1>(w, s) y = MatMul(x, d) }"
    ),
    "kernel of a pool": "g (float[1,1,4,4] x) => (float[1,1,p,q] y) { y = MaxPool<kernel_shape = [9,9]>(x) }",
}


@pytest.mark.parametrize("name", sampled(NEVER, 6))
def test_a_model_that_can_never_run_is_not_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = text.parse(NEVER[name])
    model.graph.node[-1].name = "wrong_one"
    onnx.save(model, "m.onnx")
    if not installed.fate(model):
        pytest.skip("the installed ONNX Runtime runs the model")
    assert surgery(capsys, "check", "m.onnx", "--no-run") == (0, "m.onnx: valid\n", "")
    code, out, _ = surgery(capsys, "check", "m.onnx")
    assert code == 1 and out.startswith("m.onnx: invalid: it fails on every input that was tried: ")
    if name != "scale of DequantizeLinear":  # there, another node fails
        assert "'wrong_one'" in out
    code, out, _ = surgery(capsys, "apply", "tidy", "m.onnx")
    assert out.startswith("the input model: invalid: ") and "ok: " not in out
    assert "nothing to change, but no input was found on which the model runs" in out
    _, out, _ = surgery(capsys, "check", "m.onnx", "--format", "json")
    assert json.loads(out)["models"][0]["failure"]
    assert "no input was found on which it runs" in runner.apply("m.onnx", "tidy")._repr_html_()


def test_sizes_that_nobody_gave_may_be_why_a_model_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    body = (
        "g (float[a] x) => (float[1] y, float[a] z) <int64[1] k = {5003}, float[2] w = {1,2}>"
        " { n = Shape(x) j = Sub(n, k) y = Gather(w, j) z = Relu(x) }"
    )
    onnx.save(text.parse(body), "m.onnx")
    code, out, _ = surgery(capsys, "check", "m.onnx")
    assert code == 1
    assert out.startswith("m.onnx: not known to run: no legal input found: give the sizes of a with --dims, ")
    assert surgery(capsys, "check", "m.onnx", "--dims", "a=5004") == (0, "m.onnx: valid\n", "")
    code, out, _ = surgery(capsys, "check", "m.onnx", "--dims", "a=5009")
    assert code == 1 and out.startswith("m.onnx: invalid: it fails on every input that was tried: ")
    np.savez("five.npz", x=np.zeros(5004, np.float32))
    assert surgery(capsys, "check", "m.onnx", "--inputs", "five.npz")[0] == 0


def test_weights_that_are_inputs_are_named_with_the_step_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        "g (float[1,2,2,2] x, float[2,2,1,1] w, float[2] s) => (float[1,2,2,2] y)"
        " <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {2,3}, float[2] o = {0,0}, float[2] v = {1,1}>"
        " { c = Conv(x, w) y = BatchNormalization(c, s, o, o, v) }"
    )
    onnx.save(text.parse(source), "m.onnx")
    words = "2 initializers are also listed as inputs, which callers may override"
    code, out, _ = surgery(capsys, "check", "m.onnx")
    assert code == 0 and out.startswith(f"m.onnx: valid; {words}") and "initializers-from-inputs" in out
    for command in (["apply", "default"], ["inspect"], ["inspect", "-q"]):
        _, out, _ = surgery(capsys, *command, "m.onnx")
        first = " ".join(out.split())[:400]
        assert first.startswith(f"the input model: {words}") and "--freeze-weights" in first
    _, out, _ = surgery(capsys, "check", "m.onnx", "--format", "json")
    assert json.loads(out)["models"][0]["overridable"] == 2
    code, out, err = surgery(capsys, "apply", "default", "m.onnx", "--freeze-weights", "-o", "out.onnx")
    assert (code, "also listed as inputs" in out) == (0, False), out + err
    made = onnx.load("out.onnx").graph
    assert [node.op_type for node in made.node] == ["Conv"] and [port.name for port in made.input] == ["x"]
    # Before IR version 4, every weight had to be listed, and none can be overridden.
    old = text.parse(source)
    old.ir_version = 3
    old.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("o", "v"))
    onnx.save(old, "old.onnx")
    assert "also listed" not in surgery(capsys, "check", "old.onnx")[1]


def test_a_model_with_sparse_weights_is_valid_and_optimized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = text.parse(
        "g (float[2,3] x) => (float[2,2] y) { i = Identity(x) r = MatMul(i, w) a = Relu(r) y = Identity(a) }"
    )
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    indices = helper.make_tensor("", TensorProto.INT64, [3], [0, 3, 5])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 2]))
    onnx.save(model, "m.onnx")
    assert surgery(capsys, "check", "m.onnx") == (0, "m.onnx: valid\n", "")
    code, out, _ = surgery(capsys, "apply", "default", "m.onnx", "-o", "out.onnx")
    assert code == 0 and "refused" not in out
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["MatMul", "Relu"]
    code, _, _ = surgery(capsys, "extract", "m.onnx", "-o", "part.onnx", "--inputs", "i", "--outputs", "r")
    assert code == 0 and len(onnx.load("part.onnx").graph.sparse_initializer) == 1
    code, _, _ = surgery(capsys, "export-weights", "m.onnx", "-o", "w.npz")
    assert code == 0 and np.load("w.npz")["w"].tolist() == [[1, 0], [0, 2], [0, 3]]
    # A wrong use of the tensor is still found.
    wrong = onnx.load("m.onnx")
    wrong.graph.sparse_initializer[0].dims[:] = [4, 2]
    onnx.save(wrong, "wrong.onnx")
    assert surgery(capsys, "check", "wrong.onnx")[0] == 1


@pytest.mark.parametrize("fault", ["names", "order"])
def test_names_and_order_are_repaired_in_functions(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = text.parse(
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.f(x) }'
        ' <domain: "local", opset_import: ["" : 17]> f (v) => (w) { u = Exp(v) w = Neg(u) }'
    )
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.functions[0].node]
    for node in nodes if fault == "names" else ():
        node.name = "same"
    del model.functions[0].node[:]
    model.functions[0].node.extend(nodes if fault == "names" else nodes[::-1])
    onnx.save(model, "m.onnx")
    words = "1 node name is used twice, such as 'same'" if fault == "names" else "nodes come before what they read"
    code, out, _ = surgery(capsys, "apply", "tidy", "m.onnx", "-o", "out.onnx")
    assert code == 0 and out.startswith(f"the input model: {words}; repaired")
    made = onnx.load("out.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.functions[0].node] == ["Exp", "Neg"]
    session = onnxruntime.InferenceSession(made.SerializeToString())
    data = np.array([0.5, -1.0], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": data})[0], -np.exp(data), rtol=1e-6)
    assert surgery(capsys, "check", "out.onnx") == (0, "out.onnx: valid\n", "")


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Transpose<perm = [0, -1, -2]>(x) }",
        "{ y = If(c) <then_branch = t () => (float[b,n,m] u) { u = Transpose<perm = [0, -1, -2]>(x) },"
        " else_branch = e () => (float[b,n,m] v) { v = Transpose<perm = [0, 2, 1]>(x) }> }",
        '{ y = local.f(x) } <domain: "local", opset_import: ["" : 17]> f (v) => (w)'
        " { w = Transpose<perm = [0, -1, -2]>(v) }",
    ],
    ids=["graph", "branch", "function"],
)
def test_negative_axes_of_a_transpose_are_repaired(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch's TorchScript exporter writes the axes of a permute as they are given; ONNX Runtime rejects the model."""
    monkeypatch.chdir(tmp_path)
    head = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[b,m,n] x, bool c) => (float[b,n,m] y) '
    onnx.save(text.parse(head + body), "m.onnx")
    assert "1 Transpose has negative axes: 'surgery apply tidy" in surgery(capsys, "check", "m.onnx")[1]
    code, out, _ = surgery(capsys, "apply", "tidy", "m.onnx", "-o", "out.onnx")
    assert code == 0 and out.startswith("the input model: 1 Transpose has negative axes; repaired")
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    session = onnxruntime.InferenceSession("out.onnx")
    for flag in (True, False):
        fed = {one.name: {"x": x, "c": np.array(flag)}[one.name] for one in session.get_inputs()}
        assert np.array_equal(session.run(None, fed)[0], x.transpose(0, 2, 1))


@pytest.mark.parametrize("perm", [[0, -2, 1], [0, -4, 1]])
def test_axes_of_a_transpose_that_are_no_permutation_are_not_repaired(perm: list[int]) -> None:
    model = text.parse(f"g (float[b,m,n] x) => (float[b,n,m] y) {{ y = Transpose<perm = {perm}>(x) }}")
    assert not faults(model) and repaired(model) == model


@pytest.mark.parametrize("fault", ["names", "order", "order in a branch"])
def test_names_and_order_of_nodes_are_repaired(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = text.parse(
        "g (bool c, float[2] x) => (float[2] y) { t = Relu(x) u = Exp(t)"
        " y = If<then_branch = t () => (float[2] a) { i = Abs(u) a = Exp(i) },"
        " else_branch = e () => (float[2] b) { b = Exp(u) }>(c) }"
    )
    graph = model.graph
    if fault == "names":
        for node in graph.node:
            node.name = "same"
    else:
        scope = graph if fault == "order" else next(a.g for a in graph.node[-1].attribute if a.name == "then_branch")
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(scope.node)]
        del scope.node[:]
        scope.node.extend(nodes)
    onnx.save(model, "m.onnx")
    words = "1 node name is used twice, such as 'same'" if fault == "names" else "nodes come before what they read"
    code, out, _ = surgery(capsys, "check", "m.onnx")
    assert code == 1 and out.startswith(f"m.onnx: invalid: {words}: 'surgery apply tidy MODEL -o OUT' repairs that; ")
    code, out, _ = surgery(capsys, "apply", "tidy", "m.onnx", "-o", "out.onnx")
    assert code == 0 and out.startswith(f"the input model: {words}; repaired")
    assert "ok: no step changed anything; nodes of the input model were repaired, see above" in out
    assert surgery(capsys, "check", "out.onnx") == (0, "out.onnx: valid\n", "")
    made = onnx.load("out.onnx").graph
    assert sorted(node.op_type for node in made.node) == ["Exp", "If", "Relu"]
    if fault == "names":
        assert [node.name for node in made.node] == ["same", "same_2", "same_3"]
    code, out, _ = surgery(capsys, "apply", "default", "m.onnx", "-o", "out.onnx", "--force")
    assert code == 0 and out.startswith(f"the input model: {words}; repaired")


def test_a_cycle_is_not_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = text.parse("g (float[2] x) => (float[2] y) { t = Add(x, x) y = Add(t, x) }")
    model.graph.node[0].input[1] = "y"
    onnx.save(model, "m.onnx")
    assert surgery(capsys, "check", "m.onnx")[0] == 1
    assert surgery(capsys, "apply", "tidy", "m.onnx", "-o", "out.onnx")[0] != 0
