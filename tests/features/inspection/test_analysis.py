"""What a model costs and what is wrong with it, held against counts by hand."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import installed

from surgery.base.errors import UsageError
from surgery.features.inspection.analysis import Analysis, analyse
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text


def look(source: str | onnx.ModelProto, opset: int = 21, **sizes: int) -> Analysis:
    model = text.parse(source, opset=opset) if isinstance(source, str) else source
    return analyse(storage.from_proto(model), sizes)


def macs(source: str | onnx.ModelProto, opset: int = 21, **sizes: int) -> int | str:
    return look(source, opset, **sizes).costs.macs.to_json()


def codes(source: str | onnx.ModelProto, opset: int = 21) -> set[str]:
    return {finding.code for finding in look(source, opset).findings}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # 2 images, 8 channels out, 5 * 5 positions, 3 channels in, 3 * 3 taps
        ("g (float[2,3,7,7] x, float[8,3,3,3] w) => (float[2,8,5,5] y) { y = Conv(x, w) }", 2 * 8 * 25 * 3 * 9),
        # in 2 groups each channel sees half of the channels
        (
            "g (float[1,4,5,5] x, float[6,2,3,3] w) => (float[1,6,3,3] y) { y = Conv<group=2>(x, w) }",
            6 * 9 * 2 * 9,
        ),
        # each of 4 * 3 * 3 elements goes to 5 channels of 2 * 2 taps
        (
            "g (float[1,4,3,3] x, float[4,5,2,2] w) => (float[1,5,4,4] y) { y = ConvTranspose(x, w) }",
            4 * 9 * 5 * 4,
        ),
        ("g (float[3,2] a, float[3,5] b) => (float[2,5] y) { y = Gemm<transA=1>(a, b) }", 2 * 3 * 5),
        ("g (float[4,2,3] a, float[3,5] b) => (float[4,2,5] y) { y = MatMul(a, b) }", 4 * 2 * 3 * 5),
        ("g (float[3] a, float[3,5] b) => (float[5] y) { y = MatMul(a, b) }", 15),
        (
            'g (float[7,2,3] a, float[7,3,4] b) => (float[7,2,4] y) { y = Einsum<equation="bij,bjk->bik">(a, b) }',
            7 * 2 * 3 * 4,
        ),
        (
            'g (float[7,2,3] a, float[3,4] b) => (float[7,2,4] y) { y = Einsum<equation="...ij,jk->...ik">(a, b) }',
            7 * 2 * 3 * 4,
        ),
        ("g (float[2,3,4,4] x) => (float[2,3,4,4] y) { r = Relu(x) y = Transpose<perm=[0,1,3,2]>(r) }", 0),
        # an LSTM of 4 gates: 6 steps, batch 2, 3 numbers in, 5 hidden ones
        (
            "g (float[6,2,3] x, float[1,20,3] w, float[1,20,5] r) => (float[6,1,2,5] y)"
            "{ y = LSTM<hidden_size=5>(x, w, r) }",
            6 * 2 * 20 * (3 + 5),
        ),
    ],
)
def test_multiply_accumulates_by_hand(source: str, expected: int) -> None:
    assert macs(source) == expected


def test_attention_has_two_products() -> None:
    source = """g (float[2,4,6,8] q, float[2,4,10,8] k, float[2,4,10,16] v) => (float[2,4,6,16] y)
    { y = Attention(q, k, v) }"""
    assert macs(source, 23) == 2 * 4 * 6 * 10 * (8 + 16)


def test_other_operations_are_counted_next_to_the_products() -> None:
    source = """g (float[2,3] x, float[3,5] w, float[5] b) => (float[2,5] y)
    { m = MatMul(x, w) a = Add(m, b) y = Softmax(a) }"""
    assert look(source).costs.flops.to_json() == 2 * 30 + 10 + 5 * 10


def test_dims_stay_symbolic_until_they_are_bound() -> None:
    source = "g (float[batch,seq,8] x, float[8,4] w) => (float[batch,seq,4] y) { y = MatMul(x, w) }"
    assert macs(source) == "32*batch*seq"
    assert macs(source, batch=2) == "64*seq"
    assert macs(source, batch=2, seq=5) == 320


def test_a_dim_without_a_name_is_called_after_its_place() -> None:
    source = "g (float[?,8] x, float[8,4] w) => (float[?,4] y) { y = MatMul(x, w) }"
    assert [item.name for item in look(source).dynamic] == ["x[0]"]
    assert analyse(storage.from_proto(text.parse(source)), {"x[0]": 3}).costs.macs.to_json() == 96


def test_a_dim_missing_from_the_model() -> None:
    with pytest.raises(UsageError, match="no dynamic dim 'btach'; did you mean 'batch'"):
        look("g (float[batch] x) => (float[batch] y) { y = Relu(x) }", btach=2)


IF = """g (bool c, float[2,3] x, float[3,5] w) => (float[2,?] y)
{ y = If(c) <then_branch = t () => (float[2,5] a) { a = MatMul(x, w) },
             else_branch = e () => (float[2,3] b) { b = Relu(x) }> }"""


def test_the_more_expensive_branch_counts() -> None:
    assert macs(IF) == 30


def loop(trips: str, more: str) -> str:
    return f"""g (int64 n, float[2,2] x, float[2,2] w) => (float[2,2] y) <int64 four = {{4}}, bool yes = {{1}}>
    {{ y = Loop({trips}, yes, x) <body = b (int64 i, bool c, float[2,2] h) => (bool d, float[2,2] k)
       {{ d = {more} k = MatMul(h, w) }}> }}"""


def test_the_body_of_a_loop_counts_once_per_iteration() -> None:
    assert macs(loop("four", "Identity(c)")) == 4 * 8
    assert look(loop("four", "Identity(c)")).costs.turns == []


@pytest.mark.parametrize("source", [loop("n", "Identity(c)"), loop("four", "Not(c)")], ids=["input", "condition"])
def test_a_loop_that_depends_on_data_counts_once_and_is_named(source: str) -> None:
    found = look(source).costs
    assert found.macs.to_json() == 8
    assert found.turns == ["Loop -> y"]


def test_functions_count_at_each_call() -> None:
    source = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[2,3] x, float[3,3] w) => (float[2,3] y) { a = local.f(x, w) y = local.f(a, w) }
    <domain: "local", opset_import: ["": 21]> f (p, q) => (r) { r = MatMul(p, q) }"""
    assert macs(onnx.parser.parse_model(source)) == 2 * 2 * 3 * 3


def test_an_unknown_operator_is_named_and_not_guessed() -> None:
    source = """<ir_version: 10, opset_import: ["": 21, "com.acme": 1]>
    g (float[2] x) => (float[2] y) { y = com.acme.Magic(x) }"""
    found = look(onnx.parser.parse_model(source))
    assert dict(found.costs.uncounted) == {"com.acme::Magic": 1}
    assert "custom-operator" in {finding.code for finding in found.findings}


def test_activations_by_hand() -> None:
    # x: 40 bytes, a: 40, b: 40. While b is made x is needed no more.
    found = look("g (float[10] x) => (float[10] y) { a = Relu(x) b = Neg(a) y = Abs(b) }").activations
    assert (found.peak.to_json(), found.total.to_json()) == (80, 160)


def test_a_value_read_late_stays_in_memory() -> None:
    found = look("g (float[10] x) => (float[10] y) { a = Relu(x) b = Neg(a) c = Abs(b) y = Add(c, x) }").activations
    assert (found.peak.to_json(), found.at) == (120, "Neg -> b")


def test_a_reshape_takes_no_memory() -> None:
    source = "g (float[10] x) => (float[2,5] y) <int64[2] s = {2,5}> { a = Relu(x) b = Reshape(a, s) y = Neg(b) }"
    assert look(source).activations.peak.to_json() == 80


def test_elements_have_the_size_of_their_type() -> None:
    source = "g (float16[10] x) => (bool[10] y) <float16[1] z = {0}> { y = Less(x, z) }"
    assert look(source).activations.peak.to_json() == 30


def weighted(first: np.ndarray, second: np.ndarray) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "a"], ["p"]), helper.make_node("Mul", ["p", "b"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512]) for name in ("x", "y")]
    held = [numpy_helper.from_array(first, "a"), numpy_helper.from_array(second, "b")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_copies_of_weights_are_found() -> None:
    row = np.arange(512, dtype=np.float32)
    found = look(weighted(row, row.copy())).weights
    assert found.duplicates == (("a", "b"),) and found.wasted == 2048
    other = row.copy()
    other[250] = -1
    assert look(weighted(row, other)).weights.duplicates == ()


def test_tied_weights_are_reported() -> None:
    model = weighted(np.ones(512, np.float32), np.zeros(512, np.float32))
    model.graph.node[1].input[1] = "a"
    found = look(model)
    assert [weight.name for weight in found.weights.tied] == ["a"]
    assert "unused-initializer" in {finding.code for finding in found.findings}


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("unused-input", "g (float[2] x, float[2] z) => (float[2] y) { y = Relu(x) }"),
        (
            "constant-output",
            "g (float[2] x) => (float[2] y, float[2] z) <float[2] c = {1,2}> { y = Relu(x) z = Neg(c) }",
        ),
        ("float64", "g (double[2] x) => (double[2] y) { y = Relu(x) }"),
        ("dropout", "g (float[2] x) => (float[2] y) { y = Dropout(x) }"),
        ("dead-node", "g (float[2] x) => (float[2] y) { y = Relu(x) z = Neg(x) }"),
        ("random", "g (float[2] x) => (float[2] y) { r = RandomNormalLike(x) y = Add(x, r) }"),
        ("nameless-node", "g (float[2] x) => (float[2] y) { y = Relu(x) }"),
        (
            "training-mode",
            "g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }",
        ),
    ],
)
def test_findings(code: str, source: str) -> None:
    assert code in codes(source)


def test_a_sound_model_has_no_findings() -> None:
    assert codes("g (float[batch,2] x) => (float[batch,2] y) { [act] y = Relu(x) }") == set()


def test_findings_of_versions_and_domains() -> None:
    source = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "com.acme": 1]>
    g (float[2] x) => (float[2] y) { [a] y = com.microsoft.Gelu(x) }"""
    assert {f.code for f in look(onnx.parser.parse_model(source)).findings} == {"contrib-operator", "unused-opset"}
    model = text.parse("g (float[2] x) => (float[2] y) { [a] y = Relu(x) }")
    model.ir_version, model.opset_import[0].version = 99, 99
    assert {"new-opset", "new-ir-version"} <= {finding.code for finding in look(model).findings}


def test_operators_without_a_kernel_are_reported_with_the_reason() -> None:
    op = installed.without_kernel(("Det", "Acosh", "Softsign"), "bfloat16")
    found = look(f"g (float[2] x) => (float[2] y) {{ [a] t = Cast<to=16>(x) [b] s = {op}(t) y = Cast<to=1>(s) }}")
    assert [(gap.op, gap.why) for gap in found.gaps or ()] == [(op, "no kernel for tensor(bfloat16)")]


def test_an_operator_with_a_function_body_needs_no_kernel() -> None:
    assert look("g (double[2] x) => (double[2] y) { y = Gelu(x) }").gaps == ()


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    return (code, *capsys.readouterr())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    source = "g (float[batch,8] x) => (float[batch,4] y) <float[8,4] w = {%s}> { d = Dropout(x) y = MatMul(d, w) }"
    onnx.save(text.parse(source % ",".join(["1"] * 32)), path)
    return path


def test_the_command_prints_all_findings(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", model)
    assert code == 0
    for word in ("MACs", "32*batch", "w: float[8, 4]", "batch: of x[0]", "runs every operator", "dropout"):
        assert word in out


def test_the_command_binds_dims(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", model, "--dims", "batch=4", "--format", "json")
    found = json.loads(out)["analysis"]
    assert code == 0 and found["costs"]["macs"] == 128 and found["sizes"] == {"batch": 4}
    assert run(capsys, "inspect", model, "--dims", "batch=4,5")[0] == 2
    code, _, err = run(capsys, "inspect", model, "--dims", "bacth=4")
    assert code == 2 and "did you mean 'batch'" in err
