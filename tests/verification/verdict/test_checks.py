"""The checker in a worker, new findings, and signatures."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
from onnx import helper

from surgery.model.proto.signature import signature
from surgery.verification.verdict.checks import check, new_findings


def _model(body: str, ir: int = 10, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]>\n{body}')


GOOD = _model("g (float[N,4] x) => (float[N,4] y) { t = Relu(x) y = Neg(t) }")


def test_a_good_model_has_no_findings():
    assert check(GOOD.SerializeToString()) == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_model("g (float[N] x) => (float[N] y) { y = Relu(gone) }"), ["checker", "gone"]),
        (_model("g (float[N] x) => (float[N] y) { y = Nothing(x) }"), ["checker", "Nothing"]),
        (_model("g (float[2] x) => (float[3] y) { y = Relu(x) }"), ["shape inference", "2", "3"]),
        (
            _model("g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = MatMul(x, z) }"),
            ["shape inference", "MatMul"],
        ),
        (_model("g (float[N] x) => (float[N] y) { y = Relu(x) }", ir=10_000), ["checker", "ir_version"]),
    ],
    ids=["unknown name", "unknown operator", "other shape", "wrong dims", "ir version"],
)
def test_findings_are_one_line_each(model, words):
    findings = check(model.SerializeToString())
    assert findings
    assert all("\n" not in finding for finding in findings)
    assert all(any(word in finding for finding in findings) for word in words), findings


def test_an_operator_that_onnx_runtime_has_in_the_standard_domain_is_no_finding():
    norm = "y = SimplifiedLayerNormalization<axis = -1, epsilon = 0.000001, stash_type = 1>(x, w)"
    model = _model(f"g (float[N,4] x, float[4] w) => (float[N,4] y) {{ {norm} }}", opset=17)
    onnxruntime.InferenceSession(model.SerializeToString())  # it loads there
    assert check(model.SerializeToString()) == []
    inner = '<ir_version: 10, opset_import: ["": 17]> g (bool c, float[4] x, float[4] w) => (float[4] r) {'
    inner += f"r = If(c) <then_branch = t () => (float[4] y) {{ {norm} }}, else_branch = e () => (float[4] z) {{"
    model = onnx.parser.parse_model(f"{inner} z = Relu(x) }}> }}")
    assert check(model.SerializeToString()) == []
    wrong = _model(f"g (float[N,4] x, float[4] w) => (float[N,4] y) {{ {norm} z = Relu(gone) }}", opset=17)
    assert any("gone" in finding for finding in check(wrong.SerializeToString()))


def test_rubbish_is_a_finding_not_a_crash():
    assert check(b"\x07rubbish")


def test_a_checker_timeout_is_a_finding():
    assert check(GOOD.SerializeToString(), timeout=0) == [
        "run_checker took more than 0 s",
        "run_inference took more than 0 s",
    ]


def test_a_finding_is_new_only_if_missing_from_the_original():
    old = ["checker: Bad node spec for node. Name: a OpType: Foo", "shape inference: dim 3 of 'x' differs"]
    assert new_findings(old, ["checker: Bad node spec for node. Name: other OpType: Foo"]) == []
    assert new_findings(old, ["shape inference: dim 4 of 'z' differs"]) == []
    assert new_findings(old, ["checker: Bad node spec for node. Name: a OpType: Bar"]) != []
    assert new_findings([], old) == old


def test_an_element_type_that_operators_do_not_take_is_one_finding():
    """Inference stops at the first of these operators: SplitToSequence, which takes bfloat16 since opset 24."""
    head = '<ir_version: 11, opset_import: ["": {}]> g (bfloat16[6] x, int64 n, int64 i) => (bfloat16[k] y) '
    old, new, halved = (
        check(onnx.parser.parse_model(text).SerializeToString())
        for text in (
            head.format(23) + "{ s = SplitToSequence(x, n) y = SequenceAt(s, i) }",
            head.format(24) + "{ s = SplitToSequence(x, n) y = SequenceAt(s, i) }",
            '<ir_version: 11, opset_import: ["": 23]> g (float8e5m2[6] x, int64 n) => (seq(float8e5m2[k]) y) '
            "{ y = SplitToSequence(x, n) }",
        )
    )
    assert "SplitToSequence" in old[0] and "SequenceAt" in new[0]
    assert new_findings(old, new) == []
    assert new_findings(old, halved) == halved != []


def test_a_model_has_the_signature_of_its_copy():
    assert signature(GOOD).differences(signature(GOOD)) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("g (float[N,4] z) => (float[N,4] y) { t = Relu(z) y = Neg(t) }", ["input 'x' is missing", "input 'z' is new"]),
        ("g (float[N,4] x) => (float[N,4] t) { t = Relu(x) }", ["output 'y' is missing", "output 't' is new"]),
        ("g (float[M,4] x) => (float[N,4] y) { y = Neg(x) }", ["tensor(float)[M, 4], not tensor(float)[N, 4]"]),
        ("g (float[3,4] x) => (float[N,4] y) { y = Neg(x) }", ["input 'x' is tensor(float)[3, 4]"]),
        ("g (float[?,4] x) => (float[N,4] y) { y = Neg(x) }", ["tensor(float)[?, 4]"]),
        ("g (double[N,4] x) => (float[N,4] y) { y = Neg(x) }", ["input 'x' is tensor(double)[N, 4]"]),
        ("g (float[N,4] x) => (float[N,4] y, float[N] y2) { y = Neg(x) y2 = Neg(x) }", ["output 'y2' is new"]),
        ("g (float[N,4] x) => (seq(float[N,4]) y) { y = SequenceConstruct(x) }", ["seq(tensor(float))[N, 4]"]),
    ],
)
def test_differences_are_named(body, words):
    found = "; ".join(signature(GOOD).differences(signature(_model(body))))
    assert all(word in found for word in words), found


def test_the_order_of_outputs_counts():
    one = _model("g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Abs(x) }")
    other = _model("g (float[N] x) => (float[N] b, float[N] a) { a = Neg(x) b = Abs(x) }")
    said = ["the outputs have another order: b, a; values are compared by name"]
    assert signature(one).differences(signature(other)) == said


def test_opsets_may_change_but_metadata_must_stay():
    changed = onnx.ModelProto()
    changed.CopyFrom(GOOD)
    changed.opset_import[0].version = 20
    assert signature(GOOD).differences(signature(changed)) == []
    helper.set_model_props(changed, {"author": "me"})
    assert signature(GOOD).differences(signature(changed)) == []
    assert signature(changed).differences(signature(GOOD)) == ["metadata 'author' is missing"]


@pytest.mark.parametrize(("ir", "names"), [(3, ["x"]), (4, ["x", "w"])])
def test_an_initializer_among_the_inputs_is_an_input_since_ir_version_4(ir, names):
    model = _model("g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }", ir=ir)
    model.graph.input.extend([] if len(model.graph.input) == 2 else [model.graph.input[0]])
    if len({value.name for value in model.graph.input}) == 1:
        model.graph.input[1].name = "w"
    assert [port.name for port in signature(model).inputs] == names
