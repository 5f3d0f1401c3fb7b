"""Values inside models recorded and cut out; which nodes of two models are not the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.base.errors import UsageError, WorkerError
from surgery.model.proto.extract import cut
from surgery.verification.comparing.fingerprint import trace
from surgery.verification.regions.definitions import Definitions, differing
from surgery.verification.regions.recorded_values import record

IR = '<ir_version: 10, opset_import: ["": 21]>'
X = "(float[N,4] x) => (float[N,4] y)"


def _proto(body: str, header: str = IR) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header}\n{body}")


def _scalar(name: str, value: float) -> str:
    return f"{name} = Constant<value=float {{{value}}}>()"


# Definitions


@pytest.mark.parametrize(("versions", "expected"), [((2, 4), {"y"}), ((2, 3), set())])
def test_an_operator_of_another_domain_has_the_version_that_its_domain_imports(
    versions: tuple[int, int], expected: set[str]
) -> None:
    encoder = 'ai.onnx.ml.LabelEncoder<keys_strings = ["a"], values_int64s = [1]>(x)'
    body = f"g (string[N] x) => (int64[N] y) {{ y = {encoder} }}"
    sides = [_proto(body, f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": {version}]>') for version in versions]
    assert differing(*(Definitions(side.SerializeToString()) for side in sides)) == expected


# Recording and cutting

FEED = {"x": np.array([[1, -2, 3, -4]], dtype=np.float32)}
CHAIN = f"""g {X} <float[4] w = {{1, 2, 3, 4}}, float[4] u = {{9, 9, 9, 9}}>
    {{ a = Neg(x) b = Add(a, w) c = Abs(b) y = Sub(c, u) }}"""


def test_interior_values_are_recorded():
    values = record(_proto(CHAIN).SerializeToString(), FEED, ["c", "a", "w", "x", "y"])
    assert list(values) == ["c", "a", "w", "x", "y"]
    np.testing.assert_array_equal(values["a"], -FEED["x"])
    np.testing.assert_array_equal(values["c"], np.abs(np.array([1, 2, 3, 4]) - FEED["x"]))
    np.testing.assert_array_equal(values["y"], values["c"] - 9)
    np.testing.assert_array_equal(values["w"], np.array([1, 2, 3, 4], dtype=np.float32))


def test_values_of_any_kind_are_recorded():
    body = """g (float[N] x) => (int64[1] y)
        { s = SequenceConstruct(x, x) h = Cast<to=16>(x) o = Optional(x) b = IsNaN(x) y = Shape(x) }"""
    values = record(_proto(body).SerializeToString(), {"x": np.ones(3, np.float32)}, ["s", "h", "o", "b", "y"])
    assert [v.shape for v in values["s"]] == [(3,), (3,)]
    assert values["h"].dtype.name == "bfloat16"
    assert values["o"].shape == (3,)
    assert values["b"].dtype == bool
    assert values["y"].tolist() == [3]


def test_a_value_that_cannot_be_recorded_is_an_error():
    data = _proto(CHAIN).SerializeToString()
    with pytest.raises(UsageError, match="no value 'nothing'"):
        record(data, FEED, ["nothing"])
    with pytest.raises(WorkerError, match="cannot be recorded"):
        record(data, {"x": np.ones((2, 3), np.float32)}, ["a"])
    with pytest.raises(WorkerError) as caught:
        record(data, {"x": np.ones((1 << 20, 4), np.float32)}, ["a", "b", "c"], memory=256 << 20)
    assert caught.value.signal == "out of memory"


def test_a_cut_gives_the_values_of_the_whole_model():
    model = _proto(CHAIN)
    values = record(model.SerializeToString(), FEED, ["a", "c"])
    part = cut(model, {"a": values["a"]}, {"c": values["c"]})
    onnx.checker.check_model(part, full_check=True)
    assert [node.op_type for node in part.graph.node] == ["Add", "Abs"]
    assert [tensor.name for tensor in part.graph.initializer] == ["w"]
    assert [value.name for value in part.graph.input] == ["a"]
    assert (part.ir_version, list(part.opset_import)) == (model.ir_version, list(model.opset_import))
    again = record(part.SerializeToString(), {"a": values["a"]}, ["c"])
    np.testing.assert_array_equal(again["c"], values["c"])


def test_a_cut_keeps_the_inputs_that_are_still_read():
    part = cut(_proto("g (float[N] x, float[N] z) => (float[N] y) { a = Neg(x) b = Add(a, z) y = Abs(b) }"), {}, ["b"])
    assert [value.name for value in part.graph.input] == ["x", "z"]
    assert [node.op_type for node in part.graph.node] == ["Neg", "Add"]
    declared = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N"])
    part = cut(
        _proto("g (float[N] x, float[N] z) => (float[N] y) { a = Neg(x) y = Add(a, z) }"), {"a": declared}, ["y"]
    )
    assert [value.name for value in part.graph.input] == ["a", "z"]
    onnx.checker.check_model(part, full_check=True)


def test_a_constant_can_become_an_input_of_a_cut():
    part = cut(_proto(CHAIN), {"a": FEED["x"], "w": np.ones(4, np.float32)}, ["c"])
    assert [value.name for value in part.graph.input] == ["a", "w"]
    assert not part.graph.initializer
    found = record(part.SerializeToString(), {"a": FEED["x"], "w": np.zeros(4, np.float32)}, ["c"])
    np.testing.assert_array_equal(found["c"], np.abs(FEED["x"]))


def test_values_captured_by_a_subgraph_are_inputs_of_a_cut():
    model = _proto(
        """g (float[N] x, bool b) => (float[N] y) {
            k = Neg(x) n = Abs(k) m = Exp(k)
            y = If(b) <then_branch = t () => (float[N] u) { v = Relu(n) u = Add(v, k) },
                       else_branch = e () => (float[N] w) { w = Identity(x) }>
        }"""
    )
    feed = {"x": np.array([1, -2], np.float32), "b": np.array(True)}
    values = record(model.SerializeToString(), feed, ["k", "n", "y"])
    part = cut(model, {name: values[name] for name in ("k", "n")}, ["y"])
    assert [node.op_type for node in part.graph.node] == ["If"]
    assert sorted(value.name for value in part.graph.input) == ["b", "k", "n", "x"]
    again = record(part.SerializeToString(), feed | {"k": values["k"], "n": values["n"]}, ["y"])
    np.testing.assert_array_equal(again["y"], values["y"])


def test_a_cut_includes_only_called_functions():
    model = _proto(
        """g (float[N] x) => (float[N] y) { a = d.outer(x) y = d.other(a) }
        <domain: "d", opset_import: ["": 21, "d": 1]> outer (i) => (o) { h = d.inner(i) o = Neg(h) }
        <domain: "d", opset_import: ["": 21]> inner (i) => (o) { o = Abs(i) }
        <domain: "d", opset_import: ["": 21]> other (i) => (o) { o = Exp(i) }""",
        '<ir_version: 10, opset_import: ["": 21, "d": 1]>',
    )
    part = cut(model, {}, ["a"])
    assert [function.name for function in part.functions] == ["outer", "inner"]
    x = np.array([-3, 2], np.float32)
    np.testing.assert_array_equal(record(part.SerializeToString(), {"x": x}, ["a"])["a"], -np.abs(x))


def test_sequences_and_strings_are_declared():
    model = _proto(
        """g (float[N] x, string[N] t) => (float[M] y, string[N] u)
        { s = SequenceConstruct(x, x) y = ConcatFromSequence<axis=0>(s) u = Identity(t) }"""
    )
    pair, text = [np.ones(2, np.float32)] * 2, np.array(["a"], dtype=object)
    part = cut(model, {"s": pair, "t": text}, ["y", "u"])
    assert part.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT
    assert part.graph.input[1].type.tensor_type.elem_type == TensorProto.STRING
    found = record(part.SerializeToString(), {"s": pair, "t": text}, ["y", "u"])
    assert found["y"].tolist() == [1] * 4
    assert found["u"].tolist() == ["a"]


def test_a_cut_of_an_unknown_value_is_refused():
    with pytest.raises(UsageError, match="'q'"):
        cut(_proto(CHAIN), {}, ["q"])
    with pytest.raises(UsageError, match="'p'"):
        cut(_proto(CHAIN), {"p": FEED["x"]}, ["y"])


def test_weights_stay_in_their_files(tmp_path):
    weights = np.arange(64, dtype=np.float32)
    path = tmp_path / "weights.bin"
    path.write_bytes(weights.tobytes())
    model = _proto("g (float[64] x) => (float[64] y) { a = Mul(x, w) y = Neg(a) }")
    model.graph.initializer.append(_outside(weights, path))
    part = cut(model, {}, ["a"])
    assert part.graph.initializer[0] == model.graph.initializer[0]
    assert not part.graph.initializer[0].raw_data
    found = record(part.SerializeToString(), {"x": weights}, ["a"])
    np.testing.assert_array_equal(found["a"], weights * weights)


def _outside(array: np.ndarray, path, offset: int = 0) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(array, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": str(path)[1:], "offset": str(offset), "length": str(array.nbytes)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


# What is changed


def _ops(nodes, numbers) -> list[str]:
    return [nodes[number].op_type for number in sorted(numbers)]


TWO = "(float[N,4] x) => (float[N,4] y, float[N,4] z)"
SIDE = "(float[N,4] x, float[N,4] w) => (float[N,4] y)"
LINEAGES = {
    "an Identity computes nothing": (X, "t = Identity(x) y = Relu(t)", "y = Relu(x)", [], []),
    "names do not matter": (X, "a = Neg(x) y = Abs(a)", "b = Neg(x) y = Abs(b)", [], []),
    "two equal nodes are one": (X, "a = Neg(x) b = Neg(x) y = Add(a, b)", "a = Neg(x) y = Add(a, a)", [], []),
    "order does not matter": (X, "a = Neg(x) b = Abs(x) y = Add(a, b)", "b = Abs(x) a = Neg(x) y = Add(a, b)", [], []),
    "equal constants": (X, f"{_scalar('c', 2)} y = Mul(x, c)", f"{_scalar('d', 2)} y = Mul(x, d)", [], []),
    "zeros of two signs": (
        X,
        f"{_scalar('c', 0.0)} y = Add(x, c)",
        f"{_scalar('c', -0.0)} y = Add(x, c)",
        ["Add"],
        ["Add"],
    ),
    "another operator": (X, "a = Neg(x) y = Abs(a)", "a = Relu(x) y = Abs(a)", ["Relu"], ["Neg"]),
    "another attribute": (X, "y = Softmax<axis=0>(x)", "y = Softmax<axis=1>(x)", ["Softmax"], ["Softmax"]),
    "other operands": (SIDE, "y = Sub(x, w)", "y = Sub(w, x)", ["Sub"], ["Sub"]),
    "a new name reaches to the next old one": (
        X,
        "a = Neg(x) b = Abs(a) y = Exp(b)",
        "c = Relu(x) b = Abs(c) y = Exp(b)",
        ["Relu", "Abs"],
        ["Neg", "Abs"],
    ),
    "a removed node": (X, "a = Neg(x) b = Relu(a) y = Exp(b)", "a = Neg(x) y = Exp(a)", ["Exp"], ["Relu", "Exp"]),
    "dead nodes do not count": (X, "a = Neg(x) d = Exp(x) y = Abs(a)", "a = Neg(x) y = Abs(a)", [], []),
    "swapped outputs": (TWO, "y = Neg(x) z = Abs(x)", "z = Neg(x) y = Abs(x)", ["Neg", "Abs"], ["Neg", "Abs"]),
    "an output of another value": (
        TWO,
        "a = Neg(x) y = Identity(a) z = Abs(x)",
        "a = Neg(x) y = Identity(x) z = Abs(a)",
        ["Identity", "Abs"],
        ["Identity", "Abs"],
    ),
    "random nodes are not merged": (
        X,
        "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b)",
        "a = RandomNormalLike(x) y = Add(a, a)",
        ["Add"],
        ["RandomNormalLike", "Add"],
    ),
}


@pytest.mark.parametrize("name", LINEAGES)
def test_changed_nodes_are_found_by_structure(name):
    io, before, after, changed, removed = LINEAGES[name]
    lineage = trace(_proto(f"g {io} {{ {before} }}"), _proto(f"g {io} {{ {after} }}"))
    assert _ops(lineage.after.nodes, lineage.changed) == changed
    assert _ops(lineage.before.nodes, lineage.removed) == removed
    assert "x" in lineage.same
    assert not {name for number in lineage.changed for name in lineage.after.makes(number)} & lineage.same


def _branches(then: str, inner: str = "u") -> str:
    return (
        f"g (float[N] x, bool b) => (float[N] y) {{ k = Neg(x) y = If(b) <then_branch = t () => (float[N] {inner}) "
        f"{{ {inner} = {then}(k) }}, else_branch = e () => (float[N] v) {{ v = Abs(x) }}> }}"
    )


def test_subgraphs_are_compared_by_structure():
    same = trace(_proto(_branches("Relu")), _proto(_branches("Relu", "other")))
    assert (same.changed, same.removed) == (set(), set())
    other = trace(_proto(_branches("Relu")), _proto(_branches("Exp")))
    assert _ops(other.after.nodes, other.changed) == ["If"]
    loop = (
        "g (float[4] x) => (float[4] y) {{ n = Constant<value_int=3>() t = Constant<value=bool {{1}}>() "
        "y = Loop(n, t, x) <body = l (int64 i, bool c, float[4] {0}) => (bool d, float[4] {1}) "
        "{{ d = Identity(c) {1} = {2}({0}) }}> }}"
    )
    same = trace(_proto(loop.format("p", "q", "Sin")), _proto(loop.format("r", "s", "Sin")))
    assert (same.changed, same.removed) == (set(), set())
    other = trace(_proto(loop.format("p", "q", "Sin")), _proto(loop.format("p", "q", "Cos")))
    assert _ops(other.after.nodes, other.changed) == ["Loop"]


def _calling(body: str) -> onnx.ModelProto:
    return _proto(
        f"""g (float[N] x) => (float[N] y) {{ a = d.outer(x) y = Neg(a) }}
        <domain: "d", opset_import: ["": 21, "d": 1]> outer (i) => (o) {{ o = d.inner(i) }}
        <domain: "d", opset_import: ["": 21]> inner (i) => (o) {{ o = {body}(i) }}""",
        '<ir_version: 10, opset_import: ["": 21, "d": 1]>',
    )


def test_a_call_changes_with_its_function():
    assert not trace(_calling("Abs"), _calling("Abs")).changed
    lineage = trace(_calling("Abs"), _calling("Exp"))
    assert _ops(lineage.after.nodes, lineage.changed) == ["outer"]


def test_an_operator_of_a_newer_version_is_changed():
    body = "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Abs(a) y = Softmax<axis=1>(b) }"
    old, new = (_proto(body, f'<ir_version: 7, opset_import: ["": {version}]>') for version in (12, 13))
    lineage = trace(old, new)
    assert _ops(lineage.after.nodes, lineage.changed) == ["Relu", "Abs", "Softmax"]
    lineage = trace(new, _proto(body, '<ir_version: 7, opset_import: ["": 15]>'))
    assert _ops(lineage.after.nodes, lineage.changed) == ["Relu"]


def test_weights_are_distinguished_by_content(tmp_path):
    weights = np.arange(64, dtype=np.float32)
    (tmp_path / "a.bin").write_bytes(weights.tobytes())
    (tmp_path / "b.bin").write_bytes(b"\0" * 16 + weights.tobytes())
    (tmp_path / "c.bin").write_bytes(weights[::-1].tobytes())

    def model(path, offset: int = 0) -> onnx.ModelProto:
        proto = _proto("g (float[64] x) => (float[64] y) { a = Mul(x, w) y = Neg(a) }")
        proto.graph.initializer.append(_outside(weights, path, offset))
        return proto

    one = model(tmp_path / "a.bin")
    assert not trace(one, model(tmp_path / "b.bin", 16)).changed
    for other in (model(tmp_path / "b.bin"), model(tmp_path / "c.bin"), model(tmp_path / "gone.bin")):
        lineage = trace(one, other)
        assert _ops(lineage.after.nodes, lineage.changed) == ["Mul"]
