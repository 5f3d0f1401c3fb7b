"""Regions downstream of an operator that ONNX Runtime does not know: at shapes that it might return."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.proto import extract
from surgery.model.runtime.custom_operators import custom_nodes
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.running.stand_ins import with_stand_ins
from surgery.verification.verdict.verifier import Verifier

HEAD = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'


def model(body: str, ports: str = "(float[N,4] x) => (float[N,4] y)", declared: str = "") -> onnx.ModelProto:
    return text.parse(f"{HEAD} g {ports} <{declared}> {{ {body} }}")


def verdict(before: onnx.ModelProto, after: onnx.ModelProto) -> Verdict:
    first, second = (one.SerializeToString() for one in (before, after))
    with closing(Verifier(first, None, VerifySpec())) as verifier:
        return verifier.verify(second, Parity.EXACT, before=first)


SHAPED = "f = acme.Fancy<k = 2>(x) r = Relu(f) s = Shape(r) e = Expand(one, s) n = Neg(r) y = Add(n, e)"


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        # Elementwise, downstream and upstream.
        ("f = acme.Fancy(x) y = Neg(f)", "f = acme.Fancy(x) m = Neg(f) n = Neg(m) y = Neg(n)", True),
        ("f = acme.Fancy(x) y = Neg(f)", "f = acme.Fancy(x) y = Abs(f)", False),
        # Integers that depend on the shape that it returns.
        (SHAPED, SHAPED.replace("Shape(r)", "Shape(f)"), True),
        (SHAPED, SHAPED.replace("Shape(r)", "Shape(two)"), False),
        # It is not taken to be what stands in for it.
        ("f = acme.Fancy(x) y = Neg(f)", "f = acme.Fancy(x) y = Neg(x)", False),
        ("f = acme.Fancy<k = 2>(x) y = Neg(f)", "f = acme.Fancy<k = 3>(x) y = Neg(f)", False),
        # A size that it does not return if it keeps the shape.
        ("f = acme.Fancy(x) y = MatMul(f, w)", "f = acme.Fancy(x) t = MatMul(f, w) y = Abs(t)", False),
        ("f = acme.Fancy(x) y = MatMul(f, w)", "f = acme.Fancy(x) t = Neg(f) u = Neg(t) y = MatMul(u, w)", True),
    ],
)
def test_changes_downstream_of_a_custom_operator(before: str, after: str, passes: bool) -> None:
    declared = (
        "float[1] one = {1}, float[2,3] two = {1, 2, 3, 4, 5, 6}, float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}"
    )
    found = verdict(model(before, declared=declared), model(after, declared=declared))
    assert found.passed is passes, found.message


def test_integers_upstream_are_known_where_those_downstream_are_not() -> None:
    # The stand-in has 4 columns, and the Reshape takes 3.
    ports = "(float[N,4] x, float[N,4] z) => (float[M,3] y, float[K] w)"
    ending = "f = acme.Fancy(x) a = Reshape(f, three) b = Shape(a) c = Gather(b, i0) d = Range(i0, c, i1)"
    begin = "s = Shape(z) k = Gather(s, i0) t = Range(i0, k, i1)"
    body = f"{begin} {{}} {ending} h = Cast<to = 1>(d) g = Unsqueeze(h, i1) y = Add(a, g)"
    declared = "int64[2] three = {5, 3}, int64 i0 = {0}, int64 i1 = {1}"
    before = model(body.format("u = Cast<to = 1>(t) w = Add(u, u)"), ports, declared)
    right = model(body.format("n = Add(t, t) w = Cast<to = 1>(n)"), ports, declared)
    wrong = model(body.format("n = Mul(t, t) w = Cast<to = 1>(n)"), ports, declared)
    assert verdict(before, right).passed
    assert not verdict(before, wrong).passed


def test_a_stand_in_has_the_declared_type_and_the_name_of_its_node() -> None:
    body = """["first"] f = acme.Fancy<k = 2>(x, x) ["second"] g = acme.Typed(f) ["third"] y = Neg(g)
        ["fourth"] z = acme.Source()"""
    proto = model(body, declared="int32[M,4] g")
    assert [node.name for node in custom_nodes(proto)] == ["first", "second", "fourth"]
    result = with_stand_ins(proto)
    assert [(node.name, node.op_type, [*node.input], [*node.output]) for node in result.graph.node[:3]] == [
        ("first", "Identity", ["x"], ["f"]),
        ("second", "Cast", ["f"], ["g"]),
        ("third", "Neg", ["g"], ["y"]),
    ]
    assert result.graph.node[1].attribute[0].i == onnx.TensorProto.INT32
    assert result.graph.node[3].op_type == "Source"
    assert proto.graph.node[0].op_type == "Fancy"


@pytest.mark.parametrize(
    ("reader", "shape"),
    [
        ("y = Neg(f)", [2, 9, 5, 5]),
        ("y = Conv(f, k)", [2, 3, 5, 5]),
        ("y = Conv<group = 2>(f, k)", [2, 6, 5, 5]),
        ("y = ConvTranspose(f, t)", [2, 3, 5, 5]),
        ("y = InstanceNormalization(f, v, v)", [2, 7, 5, 5]),
        ("y = MatMul(f, m)", [2, 9, 5, 5]),
        ("y = MatMul(m, f)", [2, 9, 4, 5]),
        ("y = Add(f, v)", [2, 9, 5, 7]),
        ("y = Mul(c, f)", [2, 3, 5, 5]),
        ("y = Mul(one, f)", [2, 9, 5, 5]),
        # Behind nodes that keep the shape, and all demands together.
        ("r = Relu(f) s = Cast<to = 1>(r) y = Conv(s, k)", [2, 3, 5, 5]),
        ("p = Conv(f, k) y = Add(f, v)", [2, 3, 5, 7]),
        # A Transpose moves the axes.
        ("r = Transpose(f) y = Conv(r, k)", [2, 9, 5, 5]),
    ],
)
def test_a_stand_in_has_the_extents_that_constants_demand(reader: str, shape: list[int]) -> None:
    proto = text.parse(f"""{HEAD} g (float[N,9,5,5] x) => (y) {{ f = acme.Fancy(k, x) {reader} }}""")
    weights = {"k": [6, 3, 3, 3], "t": [3, 6, 3, 3], "m": [5, 4], "v": [7], "c": [1, 3, 1, 1], "one": [1]}
    for name, dims in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(dims, np.float32), name))
    assert shapes(proto, {"x": np.ones((2, 9, 5, 5), np.float32)}, "f") == [shape]


def shapes(proto: onnx.ModelProto, feed: dict[str, np.ndarray], *names: str) -> list[list[int]]:
    """The shapes of values of a model with stand-ins, as ONNX Runtime computes them."""
    made = extract.only(with_stand_ins(proto), names)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    known = {one.name for one in session.get_inputs()}
    return [list(one.shape) for one in session.run(None, {name: one for name, one in feed.items() if name in known})]


def test_stand_ins_of_several_results_have_their_declared_shapes() -> None:
    body = "a, b, , c = acme.Nms(w, x) d = Cast<to = 1>(a) y = Add(b, b)"
    ports = "(float[N,4] x) => (float[N,100,4] y)"
    proto = model(body, ports, "float[3] w = {1, 2, 3}, int32[N,1] a, float[N,100,4] b, float[N,K] c")
    feed = {"x": np.ones((2, 4), np.float32)}
    # K is known of no input, so the third is as the input.
    assert shapes(proto, feed, "a", "b", "c", "y") == [[2, 1], [2, 100, 4], [2, 4], [2, 100, 4]]
    made = with_stand_ins(proto)
    assert {one.op_type for one in made.graph.node if "a" in one.output} == {"Cast"}


@pytest.mark.parametrize(
    ("call", "custom"),
    [
        ("Tanh(x)", False),
        ("NonMaxSuppressionPlugin(x)", True),
        ("EfficientNMS_TRT(x)", True),
        ("SimplifiedLayerNormalization(x, x)", False),
        ("com.microsoft.Gelu(x)", False),
        ("com.microsoft.PackedAttention(x)", True),
        ("ai.onnx.ml.Binarizer(x)", False),
        ("ai.onnx.ml.Nothing(x)", True),
        ("mine.plain(x)", False),
        ("mine.outer(x)", True),
    ],
)
def test_operators_that_onnx_does_not_define_or_the_cpu_has_no_kernel_for(call: str, custom: bool) -> None:
    proto = text.parse(f"""<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "com.microsoft" : 1, "ai.onnx.ml" : 3]>
        g (float[N,4] x) => (float[N,4] y) {{ y = {call} }}
        <domain: "mine", opset_import: ["" : 17]> plain (v) => (w) {{ w = Tanh(v) }}
        <domain: "mine", opset_import: ["" : 17, "mine" : 1]> outer (v) => (w) {{ w = mine.inner(v) }}
        <domain: "mine", opset_import: ["" : 17, "acme" : 1]> inner (v) => (w) {{ w = acme.Foo(v) }}""")
    assert bool([*custom_nodes(proto)]) == custom
    (made,) = (node for node in with_stand_ins(proto).graph.node if "y" in node.output)
    assert (made.op_type == "Cast") == (custom and "mine." not in call)


def test_operators_that_are_known_have_no_stand_in() -> None:
    proto = text.parse("""<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "com.microsoft" : 1]>
        g (float[N,4] x) => (float[N,4] y) { a = mine.twice(x) y = com.microsoft.Gelu(a) }
        <domain: "mine", opset_import: ["" : 17]> twice (v) => (w) { w = Add(v, v) }""")
    assert list(custom_nodes(proto)) == []
    assert with_stand_ins(proto) == proto
