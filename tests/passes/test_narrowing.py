"""Conversion to float16 and bfloat16 over real models: valid, near the float32 model, with no Cast too many."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from random_graphs.generate import generate
from support import ROOT, corpus, lacking
from support.breadth import sampled

sys.path.insert(0, str(ROOT / "benchmarks"))

from suite import feeds, halves

import surgery
from surgery.base.errors import WorkerError
from surgery.base.workers.fork import call_in_fork
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph.graph import Graph

MODELS = sorted((ROOT / "models").glob("*.onnx"))
GOOD = {"right", "unchanged", "skipped", "exceeds"}


def convert(
    model: onnx.ModelProto, name: str = "to-float16", skip: frozenset[int] = frozenset(), **options: Any
) -> tuple[onnx.ModelProto, Graph]:
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    declared = catalog.find(name)
    run_pass(declared, graph, declared.bind(options, Path()), skip=skip)
    return storage.resolve(storage.proto_from_ir(graph.ir, stored.weights), stored.weights), graph


def drawn(model: onnx.ModelProto) -> dict[str, Any] | None:
    """Draw inputs; None where one is no tensor of numbers."""
    if not all(value.type.HasField("tensor_type") for value in feeds.inputs(model)):
        return None
    try:
        return feeds.draw(model, feeds.BINDINGS[0], ragged=False, seed=0)
    except (TypeError, ValueError):
        return None


def brought(path: Path) -> dict[str, Any]:
    """Return the inputs that an older onnx brings with a node test."""
    files = sorted((path.parent / "test_data_set_0").glob("input_*.pb"), key=lambda file: int(file.stem[6:]))
    arrays = [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]
    return dict(zip((value.name for value in feeds.inputs(onnx.load(path))), arrays, strict=True))


def judged(model: onnx.ModelProto, feed: dict[str, Any] | None) -> dict[str, Any]:
    """Judge a conversion to float16; where an older runtime fails to optimize the result, only as it is written."""

    def judge() -> dict[str, Any]:
        return halves.judge(model, feed, "to-float16")

    if not lacking.are_old():
        return judge()
    with suppress(WorkerError):  # ONNX Runtime 1.27 also ends the process where it optimizes
        found: dict[str, Any] = call_in_fork(judge, stage="test", timeout=None, memory=None)[0]
        if not found.get("why", "").startswith("runtime (all)"):
            return found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves, "LEVELS", ("disabled",))
        try:
            return dict(call_in_fork(judge, stage="test", timeout=None, memory=None)[0])
        except WorkerError:  # a division by zero ends the process with ONNX Runtime 1.22, in float32 as well
            given = model.SerializeToString()
            with pytest.raises(WorkerError):
                call_in_fork(lambda: halves.run(given, feed, "disabled"), stage="test", timeout=None, memory=None)
            return {"verdict": "skipped"}


def needless(model: onnx.ModelProto) -> list[str]:
    """List Casts that undo another one, and those of one value to one type that stand twice."""
    made = {name: node for node in model.graph.node for name in node.output}
    kinds = {node.output[0]: node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"}
    twice = Counter((node.input[0], kinds[node.output[0]]) for node in model.graph.node if node.op_type == "Cast")
    found = [f"{name} is cast twice to {kind}" for (name, kind), count in twice.items() if count > 1]
    for name, kind in kinds.items():
        before = made.get(made[name].input[0])
        if kind == onnx.TensorProto.FLOAT16 and before is not None and kinds.get(before.output[0]) == 1:
            source = made.get(before.input[0])
            if source is not None and source.op_type != "Cast":
                found.append(f"{name} undoes {before.output[0]}")
    return found


@pytest.mark.parametrize(
    ("name", "given"), sampled(list(corpus.models()), 160), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_converted_onnx_model_is_valid_and_correct(name: str, given: bytes | Path) -> None:
    model = onnx.load(given) if isinstance(given, Path) else onnx.load_from_string(given)
    found = judged(model, drawn(model))
    if lacking.are_old() and found.get("why", "").startswith("runtime (disabled)") and isinstance(given, Path):
        # What ONNX Runtime 1.22 lacks in float16 it computes by the function of ONNX: AffineGrid, without sizes of 0.
        found = judged(model, brought(given))
    assert found["verdict"] in GOOD, found


@pytest.mark.parametrize("path", sampled(MODELS, 16), ids=lambda path: path.stem)
def test_a_bundled_model_is_correct_and_has_no_needless_cast(path: Path, short_models: Path) -> None:
    model = onnx.load(short_models / path.name)
    assert judged(model, feeds.usual(path))["verdict"] == "right"
    before, after = needless(model), needless(convert(model)[0])
    assert set(after) <= set(before)


def small() -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,4] x, bool c) => (float[2,2] y, float[4,2] z)
    <float[4,4] w = {1, 0, 0, 1, 0, 2, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1}, int64[1] zero = {0}, int64[1] two = {2},
     int64[1] one = {1}> {
        a = MatMul(x, w)
        r = Relu(a)
        b = Add(r, x)
        s = Slice(b, zero, two, one)
        y = Softmax(s)
        t = Transpose<perm = [1, 0]>(b)
        h = If (c) <
            then_branch = p () => (float[4,2] u) { u = Exp(t) },
            else_branch = q () => (float[4,2] v) { k = Sigmoid(t) v = Neg(k) }
        >
        z = Tanh(h)
    }"""
    return onnx.parser.parse_model(text)


def test_any_sites_may_be_skipped() -> None:
    model = small()
    _, whole = convert(model)
    anchors = [site.anchor for site in whole.sites]
    assert len(anchors) == 6
    feed = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), "c": np.array(True)}
    expected = halves.run(model.SerializeToString(), feed, "disabled")
    for bits in range(2 ** len(anchors)):
        skip = frozenset(number + 1 for number in range(len(anchors)) if bits >> number & 1)
        made, graph = convert(model, skip=skip)
        assert [site.anchor for site in graph.sites] == anchors
        assert {site.number for site in graph.sites if site.skipped} == skip
        assert needless(made) == []
        onnx.checker.check_model(made, full_check=True)
        given = halves.run(made.SerializeToString(), feed, "disabled")
        assert not isinstance(given, str), given
        for one, other in zip(expected, given):
            np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3)
        if len(skip) == len(anchors):
            assert [node.op_type for node in made.graph.node] == [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("name", ["to-float16", "to-bfloat16"])
def test_operators_to_keep_that_no_node_has_are_named(name: str) -> None:
    result = surgery.run(small(), name, ops_in_float32=["MatMul", "Gelu", "Tanh", "Mish"])
    [step] = result.steps
    assert step.message == "no node has the operator Gelu or Mish; 'keep' takes nodes by name, such as '*/LayerNorm/*'"
    _, graph = convert(small(), name, ops_in_float32=["MatMul", "Tanh"])
    assert graph.remarks == []


def nested() -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[2] x, float[4,2] r) => (float[2] y, float[4,2] z, float[3,2] v) <int64 n = {3}, bool go = {1}> {
        a, v = Loop (n, go, x) <
            body = p (int64 i, bool c, float[2] b) => (bool d, float[2] e, float[2] f) {
                d = Identity(c) h = Tanh(b) e = own.Twice(h) f = Exp(e)
            }
        >
        y = own.Twice(a)
        z = Scan (r) <num_scan_inputs = 1, body = q (float[2] s) => (float[2] t) { t = Sigmoid(s) }>
    }
    <domain: "own", opset_import: ["" : 17]>
    Twice (m) => (o) { k = Constant<value_floats = [1.5]>() l = Mul(m, k) o = Softsign(l) }
    """
    return onnx.parser.parse_model(text)


def test_any_sites_of_bodies_and_functions_may_be_skipped() -> None:
    model = nested()
    _, whole = convert(model)
    anchors = [site.anchor for site in whole.sites]
    assert len(anchors) == 5
    feed = {"x": np.float32([0.5, -2]), "r": np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)}
    expected = halves.run(model.SerializeToString(), feed, "disabled")
    for bits in range(2 ** len(anchors)):
        skip = frozenset(number + 1 for number in range(len(anchors)) if bits >> number & 1)
        made, graph = convert(model, skip=skip)
        assert [site.anchor for site in graph.sites] == anchors
        onnx.checker.check_model(made, full_check=True)
        given = halves.run(made.SerializeToString(), feed, "disabled")
        assert not isinstance(given, str), given
        for one, other in zip(expected, given):
            np.testing.assert_allclose(other, one, rtol=4e-3, atol=4e-3)
    assert sum(len(value.type.tensor_type.shape.dim) > 0 for value in made.graph.output) == 3


def test_bodies_and_functions_without_a_cast() -> None:
    made, _ = convert(nested())
    held = [attribute.g for node in made.graph.node for attribute in node.attribute if attribute.HasField("g")]
    assert len(held) == 2
    assert not any(node.op_type == "Cast" for body in (*held, *made.functions) for node in body.node)
    assert [function.name for function in made.functions] == ["Twice_float16"]


@pytest.mark.parametrize("seed", sampled([2, 24, 45, 75, 111, 138, 165, 187, 226], 3))
def test_a_random_graph_with_bodies_is_valid_and_correct(seed: int) -> None:
    drawn_graph = generate(seed)
    assert drawn_graph is not None
    assert any(node.op_type in ("If", "Loop", "Scan") for node in drawn_graph.model.graph.node)
    rng, sizes = np.random.default_rng(seed), dict(zip(drawn_graph.symbols, (3, 5)))
    feed = {
        name: (rng.standard_normal if entry.dtype.kind == "f" else rng.random)(
            [sizes[dim] if isinstance(dim, str) else dim for dim in entry.dims]
        ).astype(entry.dtype)
        for name, entry in drawn_graph.inputs.items()
        if not entry.overrides
    }
    found = judged(drawn_graph.model, feed)
    assert found["verdict"] == "right", found


def chain(length: int) -> onnx.ModelProto:
    ops = [helper.make_node(op, [""], [""]) for op in ("Exp", "Relu", "Tanh", "Neg")]
    nodes = [helper.make_node(ops[n % 4].op_type, [f"v{n}"], [f"v{n + 1}"], name=f"n{n}") for n in range(length)]
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_time_is_linear_in_nodes() -> None:
    def seconds(length: int) -> float:
        # A collection costs what all earlier tests of the process left in memory.
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            made, _ = convert(chain(length))
            taken = time.process_time() - start
        finally:
            gc.enable()
        assert sum(node.op_type == "Cast" for node in made.graph.node) == 2
        return taken

    seconds(10)
    short, long = seconds(500), seconds(2000)
    assert long < 9 * short


def test_a_large_weight_is_rounded_as_numpy_does() -> None:
    weight = np.random.default_rng(0).standard_normal((300, 200), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 300])],
        [helper.make_tensor_value_info("y", 1, [1, 200])],
        [numpy_helper.from_array(weight, "w")],
    )
    made, _ = convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (found,) = made.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(found), weight.astype(np.float16))


@pytest.mark.parametrize(
    "path", sampled([path for path in MODELS if "tiny.onnx" in path.name], 16), ids=lambda p: p.stem
)
def test_bfloat16_is_valid_where_onnx_runtime_has_kernels(path: Path) -> None:
    model = onnx.load(path)
    made, _ = convert(model, "to-bfloat16")
    onnx.checker.check_model(made, full_check=True)
    feed = feeds.usual(path)
    one, other = (halves.run(each.SerializeToString(), feed, "all") for each in (model, made))
    assert not isinstance(other, str), other
    for expected, given in zip(one, other):
        assert np.linalg.norm(given - expected) <= 2**-4 * np.linalg.norm(expected)


@lacking.computes_types
def test_bfloat16_for_other_hardware_matches_the_reference_evaluator() -> None:
    from onnx.reference import ReferenceEvaluator

    model = small()
    made, _ = convert(model, "to-bfloat16", runtime="any")
    onnx.checker.check_model(made, full_check=True)
    assert {tensor.data_type for tensor in made.graph.initializer} == {
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.INT64,
    }
    feed = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), "c": np.array(True)}
    for one, other in zip(*(ReferenceEvaluator(each).run(None, feed) for each in (model, made))):
        np.testing.assert_allclose(other, one, rtol=2**-6, atol=2**-6)
