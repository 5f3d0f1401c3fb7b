"""Computing constants: results, gaps of the runtime, crashes and bombs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from surgery import Graph, Value
from surgery.base.operators.dtypes import dtype_of
from surgery.model import storage
from surgery.model.analysis import evaluate
from surgery.model.analysis.evaluate import FAILS, NO_TENSOR, TOO_LARGE, TOO_MUCH_MEMORY, UNSUPPORTED, Computed
from surgery.model.graph import text


def values_of(model: onnx.ModelProto) -> dict[str, Value]:
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights))
    return {value.name: value for node in graph.nodes() for value in node.outputs}


def compute(source: str, *names: str, **options: int) -> list[Computed]:
    values = values_of(text.parse(source))
    return evaluate.compute([values[name] for name in names], **options)


def contents(results: list[Computed]) -> list[object]:
    return [result.reason or result.tensor.numpy().tolist() for result in results if result.tensor or result.reason]


def test_values_are_computed_together() -> None:
    source = """
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int64[2] i = {4, 6}>
        { a = Add(w, w) b = Mul(a, w) c = Cast<to = 6>(i) y = Add(x, b) }
    """
    assert contents(compute(source, "b", "c", "a", "b")) == [[2, 8], [4, 6], [2, 4], [2, 8]]


def test_constants_are_returned() -> None:
    source = "g (float[2] x) => (float[2] y) { a = Constant<value_floats = [1.0, 2.0]>() y = Add(x, a) }"
    assert contents(compute(source, "a")) == [[1, 2]]


def test_given_values_replace_their_producers() -> None:
    values = values_of(text.parse("g (float[n] x) => (int64[1] y) { s = Shape(x) y = Neg(s) }"))
    results = evaluate.compute([values["y"]], given={values["s"]: np.array([7])})
    assert contents(results) == [[-7]]


def test_text_is_computed() -> None:
    source = """
        g (string[1] x) => (string[1] y) <string[1] a = {"one "}, string[1] b = {"two"}>
        { c = StringConcat(a, b) y = StringConcat(x, c) }
    """
    (result,) = compute(source, "c")
    assert result.tensor is not None
    assert result.tensor.dtype.name == "STRING"
    assert result.tensor.numpy().tolist() == [b"one two"]


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4])
def test_types_that_numpy_does_not_have(kind: int) -> None:
    values = values_of(text.parse(f"g () => () <float[3] w = {{1, -2, 0}}> {{ a = Cast<to = {kind}>(w) }}"))
    (result,) = evaluate.compute([values["a"]])
    if onnx.helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) != dtype_of(TensorProto.BFLOAT16):
        # ONNX Runtime gives such outputs to Python only in newer releases, and the evaluator computes integers.
        assert result.tensor is None or result.tensor.dtype == kind
        pytest.skip(f"onnx {onnx.__version__} does not have these types")
    assert result.tensor is not None
    assert result.tensor.dtype == kind
    assert result.tensor.numpy().astype(np.float32).tolist() == [1, -2, 0]


def test_a_failing_value_does_not_affect_the_others() -> None:
    source = """
        g (float[1] x) => (float[1] y) <int64[2] i = {4, 6}, int64[2] z = {2, 0}, float[2] w = {1, 2}, int64 far = {9}>
        {
            a = Neg(w) b = Div(i, z) c = Gather(w, far) d = Exp(a) e = Abs(b) h = Add(i, i)
            s = SequenceConstruct(w) y = Neg(x)
        }
    """
    results = compute(source, "a", "b", "c", "d", "e", "h", "s")
    assert results[0].tensor is not None
    assert results[3].tensor is not None
    assert contents(results[5:6]) == [[8, 12]]
    assert [results[index].tensor for index in (1, 2, 4, 6)] == [None] * 4
    assert results[2].reason == FAILS
    assert results[6].reason == NO_TENSOR


def test_the_reference_evaluator_runs_operators_the_runtime_lacks() -> None:
    node = helper.make_node("BitwiseNot", ["w"], ["a"])
    weight = helper.make_tensor("w", TensorProto.INT64, [2], [0, 5])
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [2])
    graph = helper.make_graph([node, helper.make_node("Identity", ["a"], ["y"])], "g", [], [output], [weight])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    assert contents(evaluate.compute([values_of(model)["a"]])) == [[-1, -6]]


def test_an_unsupported_value_has_a_reason() -> None:
    values = values_of(
        text.parse(
            """
            <ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
            g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = acme.Foo(w) b = Neg(w) y = Add(x, b) }
            """
        )
    )
    results = evaluate.compute([values["a"], values["b"]])
    assert contents(results) == [UNSUPPORTED, [-1, -2]]


def test_bombs_are_not_run() -> None:
    source = """
        g (float[1] x) => (float[1] y) <int64[2] big = {1000000, 1000000}>
        { a = ConstantOfShape(big) b = ReduceSum<keepdims = 0>(a) y = Neg(x) }
    """
    assert contents(compute(source, "a", "b", max_bytes=1 << 20)) == [TOO_LARGE, TOO_MUCH_MEMORY]


def test_a_size_known_only_at_run_time_hits_the_memory_limit() -> None:
    source = """
        g (float[1] x) => (float[1] y) <float zero = {0}, float many = {1e12}, float one = {1}>
        { n = Sqrt(many) t = Mul(n, n) a = Range(zero, t, one) b = Neg(one) y = Neg(x) }
    """
    results = compute(source, "a", "b", memory=512 << 20)
    assert contents(results) == [TOO_MUCH_MEMORY, -1]


def test_nodes_of_functions_have_their_own_opset() -> None:
    source = """
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { m = Neg(w) y = local.f(x) }
        <domain: "local", opset_import: ["" : 11]>
        f (x) => (y) { c = Constant<value = float[1,2] {3, 4}>() s = Squeeze<axes = [0]>(c) y = Add(x, s) }
    """
    assert contents(compute(source, "m", "s")) == [[-1, -2], [3, 4]]


def test_weights_are_not_copied() -> None:
    weight = np.arange(4096, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["a"]), helper.make_node("ReduceMin", ["a"], ["y"], keepdims=0)],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    assert contents(evaluate.compute([values_of(model)["y"]])) == [-4095.0]
