"""What is wrong with the original already is not held against a step."""

import onnx
import pytest
from onnx import TensorProto, helper

import surgery
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import loader
from surgery.model.graph import text
from surgery.model.storage import without_alias

BODY = """g (float[n,3,4] x) => (float[n,3,4] y) {
    i = Identity(x)  t = Transpose<perm=[0,2,1]>(i)  u = Transpose<perm=[0,2,1]>(t)  r = Relu(u)  y = Identity(r) }"""


def parse(body: str, ir: int = 8, opset: int = 17) -> onnx.ModelProto:
    return text.parse(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {body}')


def declared(**shapes: list[int]) -> onnx.ModelProto:
    """Declare shapes of inner values, and of the output, which they do not have."""
    model = parse(BODY)
    for name, shape in shapes.items():
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        if name == "y":
            model.graph.output[0].CopyFrom(value)
        elif name == "x":
            model.graph.input[0].CopyFrom(value)
        else:
            model.graph.value_info.append(value)
    return model


def twice() -> onnx.ModelProto:
    model = parse(BODY)
    model.graph.output.append(model.graph.output[0])
    return model


ALL_GONE = {
    "a dim of -1 of the output": declared(y=[-1, 3, 4]),
    "a dim of -1 of the input": declared(x=[-1, 3, 4]),
    "a dim of -1 of an inner value": declared(t=[-1, 4, 3]),
    "a rank of the output": declared(y=[2, 3]),
    "a rank of an inner value that stays": declared(r=[2, 3]),
    "a rank of inner values that go": declared(t=[2, 3], u=[4], i=[7]),
    "a dim of the output": declared(y=[2, 3, 5]),
    "two outputs of one name": twice(),
}


@pytest.mark.parametrize("case", ALL_GONE)
def test_a_wrong_declaration_in_the_original_refuses_no_step(case: str) -> None:
    result = runner.apply(ALL_GONE[case], "tidy", options=RunOptions(strict=True))
    assert result.ok, [step.message for step in result.steps]
    assert [node.op_type for node in result.proto.graph.node] == ["Relu"]
    assert {step.verdict.status for step in result.steps if step.verdict is not None} == {"equal"}


SHAPED = """g (float[n,3,4] x) => (float[n,12] y) <int64[1] zero={0}, int64[1] last={-1}, int64[1] three={3}> {
    s = Shape(x)  b = Gather(s, zero)  c = Concat<axis=0>(b, three, last)
    r = Shape(c)  k = ReduceSum(r)  m = Slice(c, zero, k)  y = Reshape(x, m) }"""


def test_a_wrong_shape_revealed_by_a_step_refuses_no_step() -> None:
    # Strict shape inference does not know the shape of the Reshape before it is a constant.
    model = parse(SHAPED)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    result = runner.apply(model, "default", options=RunOptions(strict=True))
    assert result.ok, [step.message for step in result.steps]
    assert len(result.proto.graph.node) < len(model.graph.node)


def test_a_declared_shape_contradicted_by_the_change_is_a_finding() -> None:
    changed = parse("g (float[n,3,4] x) => (float[n,12] y) <int64[3] m={0, 3, 4}> { y = Reshape(x, m) }")
    right = SHAPED.replace("b, three, last", "b, last")
    pair = surgery.verify(parse(right), changed)
    assert pair.findings and not pair.ok


def test_a_wrong_shape_declared_by_a_step_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.verification.verdict.checks import Checker

    original, changed = declared(t=[2, 3]), declared(t=[2, 3], u=[5])
    checker = Checker()
    try:
        data = [model.SerializeToString(deterministic=True) for model in (original, changed)]
        before, after = (checker.check(one) for one in data)
        assert before and checker.new(data[0], before, data[0], before, frozenset) == []
        (finding,) = checker.new(data[0], before, data[1], after, frozenset)
        assert finding.startswith("shape inference: ")
    finally:
        checker.close()


def test_a_layer_norm_below_its_opset_is_kept() -> None:
    body = """g (float[n,4] x) => (float[n,4] y) <float[4] s={1,2,3,4}, float[4] b={0,1,0,1}> {
        i = Identity(x)  l = LayerNormalization<axis=-1>(i, s, b)  m = Mul(l, l)
        k = LayerNormalization<axis=-1>(m, s, b)  d = Dropout(k)  r = Relu(d)  y = Identity(r) }"""
    result = runner.apply(parse(body, 7, 12), "default", options=RunOptions(strict=True))
    assert result.ok, [step.message for step in result.steps]
    ops = [node.op_type for node in result.proto.graph.node]
    assert ops == ["LayerNormalization", "Mul", "LayerNormalization", "Relu"]


def test_missing_initializer_inputs_of_an_old_ir_version_refuse_no_step() -> None:
    body = """g (float[n,4] x) => (float[n,4] y) <float[1] one={1}, float[4] s={1,2,3,4}, float[4] z={1,1,1,1}> {
        i = Mul(x, one)  l = Add(i, s)  j = Add(l, z)  y = Identity(j) }"""
    model = parse(body, 3, 9)
    assert [value.name for value in model.graph.input] == ["x"]
    # The first of them, which the checker names, goes.
    result = runner.apply(model, "default", options=RunOptions(strict=True))
    assert result.ok, [step.message for step in result.steps]
    assert [node.op_type for node in result.proto.graph.node] == ["Add"]


SHAPES = """g (float[n,4] x) => (float[?,?] y)
<int64[1] st={1}, int64[1] en={3}, int64[1] ax={1}, int64[1] a0={0}, int64[4] pads={0,0,0,1}, bool c = {1}> {
    i = Identity(x)  s = Slice(i, st, en, ax)  u = Unsqueeze(s, a0)  q = Squeeze(u, a0)
    f = If(c) <then_branch = a () => (float[?,?] p) { p = Pad(q, pads) },
               else_branch = b () => (float[?,?] o) { o = Relu(q) }>
    y = Identity(f)
}"""


@pytest.mark.parametrize("where", ["import", "nodes", "both", "some nodes", "imported twice"])
def test_the_default_domain_has_two_names(where: str) -> None:
    model = parse(SHAPES)
    nodes = [*model.graph.node, *(node for item in model.graph.node[4].attribute for node in item.g.node)]
    if where in ("import", "both"):
        model.opset_import[0].domain = "ai.onnx"
    if where == "imported twice":
        model.opset_import.add(domain="ai.onnx", version=17)
    for node in nodes[:: 2 if where == "some nodes" else 1] if where != "import" else ():
        node.domain = "ai.onnx"
    result = runner.apply(model, "default", options=RunOptions(strict=True))
    assert result.ok, [step.message for step in result.steps]
    # None of them is taken for one that does nothing, as those are of which the opset is not known.
    assert [node.op_type for node in result.proto.graph.node] == ["Slice", "Pad"]
    assert [(item.domain, item.version) for item in result.proto.opset_import] == [("", 17)]
    onnx.checker.check_model(result.proto)


def test_two_versions_of_the_default_domain_are_left_alone() -> None:
    model = parse(SHAPES)
    model.opset_import.add(domain="ai.onnx", version=12)
    assert without_alias(model) is model
    plain = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    assert without_alias(plain) is plain


def test_a_run_with_nothing_to_do_returns_the_original_model() -> None:
    model = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.opset_import[0].domain = "ai.onnx"
    result = runner.apply(model, "tidy")
    assert result.ok and {step.status for step in result.steps} == {"unchanged"}
    assert result.proto is result.stored.proto and result.proto.opset_import[0].domain == "ai.onnx"


def test_nodes_in_the_wrong_order_are_optimized_too() -> None:
    body = """g (float[n,3,4] x) => (float[n,12] y) <int64[1] zero={0}, int64[1] one={1}, int64[1] last={-1}> {
        i = Relu(x)  s = Shape(i)  b = Slice(s, zero, one)  m = Concat<axis=0>(b, last)  y = Reshape(i, m) }"""
    model = parse(body)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    result = runner.apply(model, loader.parse("steps: [simplify-reshapes]"))
    assert result.ok, [step.message for step in result.steps]
    assert [node.op_type for node in result.proto.graph.node] == ["Relu", "Reshape"]
    onnx.checker.check_model(result.proto, full_check=True)
