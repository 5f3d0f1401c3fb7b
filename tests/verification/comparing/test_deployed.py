"""Models that are right as written, and wrong or not loaded with the default optimizations of ONNX Runtime.

Each pair is tried in ONNX Runtime first: a release without the fault that makes a case is skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support import lacking
from support.breadth import sampled

import surgery
from surgery.base.promises import Parity
from surgery.engine.pipeline import runner
from surgery.engine.recipe import PassStep, Recipe
from surgery.engine.registry.declare import graph_pass
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.runtime.executed import Executed
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict import verifier as verifying
from surgery.verification.verdict.verifier import Verifier

UNOPTIMIZED = VerifySpec(deployment="off")


def model(body: str, opset: int = 17, ir_version: int = 10) -> onnx.ModelProto:
    return text.parse(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{body}')


# ONNX Runtime moves a Transpose up through a DequantizeLinear, and then takes signed integers for unsigned ones.


def signed(opset: int, operator: str, perm: str) -> onnx.ModelProto:
    return model(
        f"""g (float[2,10,4] x) => (float[?,?,?] y) <float s = {{0.1}}, int8 z = {{0}}> {{
            q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  r = {operator}(d)
            q2 = QuantizeLinear(r, s, z)  d2 = DequantizeLinear(q2, s, z)  y = Transpose<perm=[{perm}]>(d2)
        }}""",
        opset,
    )


SIGNED = [
    (signed(13, operator, perm), signed(opset, operator, perm))
    for opset in (21, 22, 23, 24)
    for operator, perm in (
        ("Relu", "0,2,1"),
        ("Relu", "2,1,0"),
        ("Sigmoid", "0,2,1"),
        ("Abs", "1,0,2"),
        ("Neg", "2,0,1"),
    )
]

# It merges two adjacent pairs of quantization and dequantization into one, with another scale.


def twice(between: str, second: str, zero: int) -> onnx.ModelProto:
    middle = f"m = {between}(d)" if between else "m = Identity(d)"
    return model(f"""g (float[n,8] x) => (float[n,8] y)
        <float s = {{0.1}}, uint8 z = {{0}}, float s2 = {{{second}}}, uint8 z2 = {{{zero}}}> {{
            q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  {middle}
            q2 = QuantizeLinear(m, s2, z2)  y = DequantizeLinear(q2, s2, z2)
        }}""")


TWICE = [
    (twice("Abs", second, zero), twice("", second, zero))
    for second, zero in (
        ("0.05", 0),
        ("0.07", 0),
        ("0.03", 1),
        ("0.3", 0),
        ("0.21", 3),
        ("0.013", 0),
        ("0.5", 2),
        ("0.9", 1),
        ("0.011", 9),
        ("0.17", 4),
        ("0.033", 20),
    )
]

# It fuses an RMSNorm whose result nobody reads, and whose scale is an input.


def with_dead_norm(rank: str, reduced: str) -> onnx.ModelProto:
    return model(
        f"""g (float[{rank}] x, float c) => (float[{rank}] y)
        <float two = {{2}}, int64[1] axes = {{-1}}, float[1] e = {{0.000001}}> {{
            y = Mul(x, c)  p = Pow(x, two)  r = {reduced}  a = Add(e, r)  s = Sqrt(a)
            d = Div(x, s)  unread = Mul(c, d)
        }}""",
        19,
    )


DEAD = [
    (
        model("g (float[6] x, float c) => (float[6] y) { y = Mul(x, c) }", 19),
        with_dead_norm("6", "ReduceMean<keepdims=1>(p, axes)"),
    )
]

PAIRS = [*SIGNED, *TWICE, *DEAD]


def session(one: onnx.ModelProto, *, optimized: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])


def inputs(one: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes = {value.name: [dim.dim_value or 5 for dim in value.type.tensor_type.shape.dim] for value in one.graph.input}
    return {name: np.asarray(3 * rng.normal(size=shape), np.float32) for name, shape in shapes.items()}


def computes(one: onnx.ModelProto, *, optimized: bool) -> Any:
    """Return the first output of a model; None if it does not load."""
    try:
        return session(one, optimized=optimized).run(None, inputs(one))[0]
    except Exception:
        return None


@pytest.mark.parametrize("number", sampled(range(len(PAIRS)), 6))
def test_what_only_optimizations_make_wrong_is_different(number: int) -> None:
    original, changed = PAIRS[number]
    expected = computes(original, optimized=True)
    written = computes(changed, optimized=False)
    if written is None and lacking.are_old():
        pytest.skip(f"ONNX Runtime {ort.__version__} does not load this model")
    assert np.array_equal(written, expected), "the pair is not right as written"
    if np.array_equal(computes(changed, optimized=True), expected):
        pytest.skip(f"ONNX Runtime {ort.__version__} runs this model correctly")
    assert surgery.verify(original, changed, spec=UNOPTIMIZED).verdict.passed
    found = surgery.verify(original, changed)
    assert found.verdict.status == "different" and not found.ok
    assert "with the default optimizations of ONNX Runtime" in found.verdict.message


@pytest.mark.parametrize("number", sampled(range(len(PAIRS)), 6))
def test_what_the_runtime_gets_wrong_on_the_original_is_no_fault_of_a_change(number: int) -> None:
    _, wrong = PAIRS[number]
    renamed = onnx.ModelProto()
    renamed.CopyFrom(wrong)
    for node in renamed.graph.node:
        node.name = f"other/{node.output[0]}"
    found = surgery.verify(wrong, renamed)
    assert found.verdict.passed


def test_a_nan_that_only_the_deployed_model_has_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    one = model("g (float[n,8] x) => (float[n,8] y) { a = Abs(x) y = Sqrt(a) }")
    other = model("g (float[n,8] x) => (float[n,8] y) { b = Abs(x) y = Sqrt(b) }")
    run = Engine.run

    def overflowing(self: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
        found = run(self, skeleton, feeds, **how)
        if found.executed is not None and b"b" in [name.encode() for name in _values(skeleton)]:
            runs = [{name: np.full_like(value, np.nan) for name, value in one.items()} for one in found.runs]  # type: ignore[union-attr]
            return replace(found, runs=runs)
        return found

    monkeypatch.setattr(Engine, "run", overflowing)
    found = surgery.verify(one, other)
    assert found.verdict.status == "different" and "nan" in found.verdict.message.lower()


@pytest.mark.parametrize(("error", "passed", "consulted"), [(2e-5, True, False), (1e-2, False, True)])
def test_rounding_within_the_tolerance_is_not_compared_with_float64(
    monkeypatch: pytest.MonkeyPatch, error: float, passed: bool, consulted: bool
) -> None:
    one = model("g (float[n,8] x) => (float[n,8] y) { a = Abs(x) y = Sqrt(a) }")
    other = model("g (float[n,8] x) => (float[n,8] y) { b = Abs(x) y = Sqrt(b) }")
    run, asked = Engine.run, set()

    def rounding(self: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
        asked.add(self.name)
        found = run(self, skeleton, feeds, **how)
        if found.executed is not None and "b" in _values(skeleton):
            runs = [{name: value * np.float32(1 + error) for name, value in one.items()} for one in found.runs]  # type: ignore[union-attr]
            return replace(found, runs=runs)
        return found

    monkeypatch.setattr(Engine, "run", rounding)
    assert surgery.verify(one, other).verdict.passed == passed
    assert ("float64" in asked) == consulted


def test_inputs_on_which_the_deployed_original_fails_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = model("g (float[n,8] x) => (float[n,8] y) { a = Abs(x) y = Sqrt(a) }")
    same = model("g (float[n,8] x) => (float[n,8] y) { b = Abs(x) y = Sqrt(b) }")
    wrong = model("g (float[n,8] x) => (float[n,8] y) { c = Abs(x) y = Sqrt(c) }")
    run = Engine.run

    def failing_on_one_row(self: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
        found = run(self, skeleton, feeds, **how)
        if found.executed is None:
            return found
        runs = [
            "too small"
            if len(feed["x"]) == 1
            else {name: value + ("c" in _values(skeleton)) for name, value in one.items()}  # type: ignore[union-attr]
            for feed, one in zip(feeds, found.runs)
        ]
        return replace(found, runs=runs)

    monkeypatch.setattr(Engine, "run", failing_on_one_row)
    found = surgery.verify(one, same)
    assert found.verdict.passed and found.deployed is not None and found.deployed.verdict.passed
    assert "input sets, on which the original fails" in found.deployed.verdict.message
    assert "too small (n=1" in found.deployed.verdict.message
    found = surgery.verify(one, wrong)
    assert found.verdict.status == "different" and "right as written, but wrong" in found.verdict.message


def _values(skeleton: bytes) -> list[str]:
    return [name for node in onnx.load_model_from_string(skeleton).graph.node for name in node.output]


@graph_pass("deployed-drop-abs", parity=Parity.EXACT)
def drop_abs(graph: Graph) -> None:
    """Drop each Abs, whose input is not negative in the models of this test."""
    for node in graph.nodes("Abs"):
        with graph.site(node):
            graph.replace(node.outputs[0], node.required_input(0))


MIXED = """g (float[n,8] x) => (float[n,8] y, float[n,8] w)
    <float s = {0.1}, uint8 z = {0}, float s2 = {0.07}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
        r = Relu(x)  v = Abs(r)  w = Neg(v)
        m = Abs(d)  q2 = QuantizeLinear(m, s2, z)  y = DequantizeLinear(q2, s2, z)
    }"""


def _applied(on_failure: str, **verify: Any) -> surgery.Result:
    step = PassStep("deployed-drop-abs", on_failure=on_failure)  # type: ignore[arg-type]
    return runner.run(storage.opened(model(MIXED)), Recipe("r", steps=(step,), verify=VerifySpec(**verify)))


def test_only_the_guilty_site_of_a_step_is_undone() -> None:
    if np.array_equal(*(computes(TWICE[1][1], optimized=optimized) for optimized in (False, True))):
        pytest.skip(f"ONNX Runtime {ort.__version__} runs this model correctly")
    result = _applied("bisect")
    assert result.ok and [node.op_type for node in result.proto.graph.node].count("Abs") == 1
    refused = [site for step in result.steps for site in step.refused_sites]
    assert len(refused) == 1 and "right as written" in refused[0].why
    assert result.steps[0].name == "(deployed)" and result.steps[0].status == "rolled_back"
    assert result.deployed is not None and result.deployed.ok
    before = computes(model(MIXED), optimized=True)
    assert np.array_equal(computes(result.proto, optimized=True), before)


def test_without_the_deployment_run_it_is_kept() -> None:
    result = _applied("bisect", deployment="off")
    assert result.ok and "Abs" not in [node.op_type for node in result.proto.graph.node]
    assert result.deployed is None


def test_a_recipe_that_aborts_fails() -> None:
    if np.array_equal(*(computes(TWICE[1][1], optimized=optimized) for optimized in (False, True))):
        pytest.skip(f"ONNX Runtime {ort.__version__} runs this model correctly")
    result = _applied("abort")
    assert not result.ok and result.exit_code == 1
    assert result.failure is not None and "right as written" in result.failure.message


def test_an_unchanged_model_is_not_run() -> None:
    one = model("g (float[n,8] x) => (float[n,8] y) { y = Sqrt(x) }")
    step = PassStep("deployed-drop-abs")
    assert runner.run(storage.opened(one), Recipe("r", steps=(step,))).deployed is None


def test_executed_nodes_are_those_of_the_optimized_graph() -> None:
    # The default level of ONNX Runtime fuses a Conv with the BatchNormalization and the Relu after it.
    one = model("""g (float[n,1,4,4] x) => (float[n,1,4,4] y)
        <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {1}, float[1] mu = {0}, float[1] v = {1}> {
            c = Conv(x, w)  b = BatchNormalization(c, s, h, mu, v)  y = Relu(b)
        }""")
    with closing(Verifier(one.SerializeToString())) as verifier:
        found = verifier.deploy(one.SerializeToString())
        assert found.executed is not None and found.executed.total < 3
        assert "BatchNormalization" not in found.executed.operators
        assert verifier.deployment().with_original(found).original == found.executed


ROOTS = "g (float[n,8] x) => (float[n,8] y) { a = Abs(x) %s = Abs(a) y = Sqrt(%s) }"


class _Recorded:
    """The runs as deployed: the name of the thread, and the number of input sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[bytes, list[tuple[bool, int]]] = {}
        self.began = threading.Event()
        self.waits = False
        run, kill = Engine.run, Engine.kill
        killed = threading.Event()

        def recorded(engine: Engine, skeleton: bytes, feeds: Any, **how: Any) -> RunOutcome:
            if engine._deployed:
                ahead = threading.current_thread() is not threading.main_thread()
                self.of.setdefault(skeleton, []).append((ahead, len(feeds)))
                self.began.set()
                if self.waits:
                    assert killed.wait(10)
            return run(engine, skeleton, feeds, **how)

        def end(engine: Engine) -> None:
            killed.set()
            kill(engine)

        monkeypatch.setattr(Engine, "run", recorded)
        monkeypatch.setattr(Engine, "kill", end)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_nodes_of_a_small_original_are_counted_in_one_run(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = _Recorded(monkeypatch)
    original, changed = (model(ROOTS % (name, name)).SerializeToString() for name in "bc")
    with closing(Verifier(original)) as verifier:
        if ahead:
            verifier.deploy_ahead()
            assert recorded.began.wait(10)
        found = verifier.deploy(changed)
    assert found.original == found.executed and found.executed is not None
    assert recorded.of[original] == [(ahead, 1)]
    assert [was_ahead for was_ahead, _ in recorded.of[changed]] == [False]


@pytest.mark.parametrize(
    ("how", "expected"),
    [({}, True), ({"deployment": "off"}, False), ({"target": "openvino"}, False), ({"few": 0}, False)],
    ids=str,
)
def test_the_original_runs_ahead_if_it_is_small(
    how: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = _Recorded(monkeypatch)
    monkeypatch.setattr(verifying, "FEW_WEIGHTS", how.get("few", verifying.FEW_WEIGHTS) - 1)
    spec = VerifySpec(deployment=how.get("deployment", "end"))
    steps = (PassStep("deployed-drop-abs"),)
    recipe = Recipe("r", steps=steps, verify=spec, target=how.get("target", "standard"))
    one = model("g (float[n,8] x) => (float[n,8] y) { r = Relu(x) a = Abs(r) y = Sqrt(a) }")
    assert runner.run(storage.opened(one), recipe).ok
    assert any(ahead for runs in recorded.of.values() for ahead, _ in runs) == expected


def test_a_run_ahead_ends_with_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = _Recorded(monkeypatch)
    recorded.waits = True
    with closing(Verifier(model(ROOTS % ("b", "b")).SerializeToString())) as verifier:
        verifier.deploy_ahead()
        assert recorded.began.wait(10)
    assert not any(thread.name.startswith("Thread-") and thread.is_alive() for thread in threading.enumerate())


def test_executed_nodes_are_counted_by_provider() -> None:
    rows = [
        ("Conv", "CUDAExecutionProvider", 3),
        ("Shape", "CPUExecutionProvider", 2),
        ("MemcpyToHost", "CPUExecutionProvider", 1),
    ]
    found = Executed.of(rows)
    assert (found.total, found.copies, found.on("CPUExecutionProvider")) == (5, 1, 2)
    assert str(found) == "5 nodes and 1 copies between devices executed"
    expected: Mapping[str, Any] = {
        "nodes": 5,
        "copies": 1,
        "providers": {
            "CPUExecutionProvider": {"MemcpyToHost": 1, "Shape": 2},
            "CUDAExecutionProvider": {"Conv": 3},
        },
    }
    assert found.to_json() == expected


def test_a_target_whose_provider_does_not_start_is_replaced_and_named() -> None:
    one = model("g (float[n,8] x) => (float[n,8] y) { i = Identity(x) y = Sqrt(i) }")
    recipe = Recipe("r", steps=(PassStep("drop-identity"),), target="ort-cuda")
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this build of ONNX Runtime has the provider")
    found = runner.run(storage.opened(one), recipe).deployed
    assert found is not None and found.ok and found.note.startswith("no CUDAExecutionProvider")
    assert found.to_json()["note"] == found.note
    plain = runner.run(storage.opened(one), replace(recipe, target="standard")).deployed
    assert plain is not None and plain.note == "" and plain.executed == found.executed
