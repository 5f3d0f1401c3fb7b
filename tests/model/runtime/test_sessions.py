"""The copy that is run: the same computation, rounded as it says, in little memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.base.promises import Parity
from surgery.base.workers import Worker
from surgery.model.runtime import engine as engine_module
from surgery.model.runtime import sessions
from surgery.model.runtime.engine import Engine, shorten_native
from surgery.model.runtime.ordering import defer, settle_casts
from surgery.model.runtime.rounding import hold
from surgery.model.shapes.declarations import declare, declare_by_names
from surgery.verification.regions.value_shapes import follow
from surgery.verification.verdict.verifier import Verifier


def _parse(body: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\n{body}')


def _ops(graph: onnx.GraphProto) -> list[str]:
    return [node.op_type for node in graph.node]


def _run(
    model: onnx.ModelProto | bytes, feed: dict[str, np.ndarray], engine: str = "onnxruntime"
) -> engine_module.RunOutcome:
    one = Engine(engine, 60, None, 0)
    try:
        return one.run(model if isinstance(model, bytes) else model.SerializeToString(), [feed])
    finally:
        one.close()


def test_nodes_that_depend_only_on_weights_are_deferred():
    model = _parse(
        """g (float[2,2] x) => (float[2,2] y, float[2,2] u) <float[2,2] v = {1,2,3,4}, float[2,2] w = {1,2,3,4}> {
            a = Transpose(v) b = Transpose(w) u = Neg(b) p = Relu(x) q = MatMul(p, a) y = MatMul(q, b)
        }"""
    )
    defer(model.graph)
    assert [node.output[0] for node in model.graph.node] == ["p", "a", "q", "b", "y", "u"]
    onnx.checker.check_model(model)


def test_values_captured_by_a_branch_are_computed_before_it():
    model = _parse(
        """g (bool c) => (float[2] y) <float[2] w = {1,2}> {
            a = Neg(w)
            y = If(c) <then_branch = t () => (float[2] s) { s = Identity(a) },
                       else_branch = e () => (float[2] r) { r = Abs(a) }>
        }"""
    )
    defer(model.graph)
    assert _ops(model.graph) == ["Neg", "If"]


@pytest.mark.parametrize("cycle", ["a = Neg(b) b = Neg(a) y = Add(x, b)", "a = Neg(a) y = Add(x, a)", "y = Neg(y)"])
def test_a_cycle_is_left_to_the_runtime_to_refuse(cycle):
    model = _parse(f"g (float[2] x) => (float[2] y) {{ {cycle} }}")
    outcome = _run(model, {"x": np.zeros(2, np.float32)})
    assert outcome.failure


def test_castlike_is_replaced_by_cast():
    model = _parse(
        """g (float[N] x, float16[N] h) => (float16[N] y, int64[N] z, float[N] q) <int64 one = {1}> {
            y = CastLike(x, h) z = CastLike(x, one) s = Shape(x) t = CastLike(s, x) q = Add(x, t)
        }"""
    )
    settle_casts(model)
    assert _ops(model.graph) == ["Cast", "Cast", "Shape", "Cast", "Add"]
    assert [node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"] == [10, 7, 1]
    onnx.checker.check_model(model, full_check=True)


def test_an_identity_does_not_change_rounding_of_16_bit_floats():
    """Without it, ONNX Runtime goes on in float32: 300 * 300 * 0.001 is 90 then, and infinite by the definition."""
    body = """g (float16[N] x, float16[3,N] w) => (float16[N] y, float16[3,N] z) {
        y, z = Scan(x, w) <num_scan_inputs = 1, body = b (float16[N] v, float16[N] item) => (float16[N] i, float16[N] o)
            { BODY o = Mul(i, item) }> }"""
    with_identity, without, wrong = (
        _parse(body.replace("BODY", nodes)).SerializeToString()
        for nodes in ("a = Mul(v, v) i = Identity(a)", "i = Mul(v, v)", "a = Abs(v) i = Mul(a, v)")
    )
    feed = {"x": np.array([300, 3.3], np.float16), "w": np.full((3, 2), 0.001, np.float16)}
    runs = [sessions.run(model, [feed], 1 << 20)["runs"][0] for model in (with_identity, without)]
    assert np.isinf(runs[0]["z"][0, 0])
    assert all(runs[0][name].tobytes() == runs[1][name].tobytes() for name in "yz")
    verifier = Verifier(with_identity)
    try:
        assert verifier.verify(without, Parity.EXACT).status == "equal"
        assert verifier.verify(wrong, Parity.EXACT).status == "different"
    finally:
        verifier.close()


def test_only_16_bit_results_get_a_barrier():
    model = _parse(
        """g (float[N] x, bool c) => (float16[N] y) {
            a = Neg(x) h = Cast<to=10>(a) k = Tanh(h)
            y = If(c) <then_branch = t () => (float16[N] s) { s = Sin(k) },
                       else_branch = e () => (float16[N] r) { r = Cos(k) }>
        }"""
    )
    held = hold(model)
    assert _ops(held.graph) == ["Neg", "Cast", "Identity", "Identity", "Tanh", "Identity", "Identity",
                                "If", "Identity", "Identity"]  # fmt: skip
    branch = held.graph.node[7].attribute[0].g
    assert _ops(branch) == ["Sin", "Identity", "Identity"]
    onnx.checker.check_model(held, full_check=True)
    plain = _parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    assert hold(plain) is plain


def test_float16_is_rounded_after_each_operator():
    model = _parse("g (float[N] x) => (float[N] y) { h = Cast<to=10>(x) a = Exp(h) b = Exp(a) y = Cast<to=1>(b) }")
    x = np.linspace(-1, 1, 100).astype(np.float32)
    once = np.exp(x.astype(np.float16).astype(np.float32)).astype(np.float16)
    twice = np.exp(once.astype(np.float32)).astype(np.float16).astype(np.float32)
    found = _run(model, {"x": x}).runs[0]["y"]
    assert np.mean(found == twice) > 0.97, "the two exponential functions may differ by a last bit here and there"


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_both_engines_give_results_by_name(engine):
    model = _parse("g (float[N] x) => (float[N] b, seq(float[N]) a) { b = Neg(x) a = SequenceConstruct(x, b) }")
    outcome = _run(model, {"x": np.array([1, 2], np.float32)}, engine)
    assert outcome.failure is None
    run = outcome.runs[0]
    assert run["b"].tolist() == [-1, -2]
    assert [item.tolist() for item in run["a"]] == [[1, 2], [-1, -2]]
    assert len(outcome.seconds) == 1


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_a_refused_input_does_not_stop_the_next_run(engine):
    model = _parse("g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }").SerializeToString()
    one = Engine(engine, 60, None, 0)
    feeds = [{"x": np.zeros(2, np.float32), "i": np.array([index])} for index in (7, 1)]
    outcome = one.run(model, feeds)
    one.close()
    assert isinstance(outcome.runs[0], str)
    assert "\n" not in outcome.runs[0]
    assert outcome.runs[1]["y"].tolist() == [0]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("g (float[N] x) => (float[N] y) { y = acme.Secret(x) }", "unsupported"),
        ("g (complex64[N] x) => (complex64[N] y) { y = Identity(x) }", "unsupported"),
        ("g (float[N] x) => (float[N] y) { y = Relu(gone) }", "invalid"),
        ("g (float[N] x) => (int64[N] y) { y = Relu(x) }", "invalid"),
    ],
)
def test_a_missing_kernel_is_distinguished_from_an_invalid_model(body, kind):
    model = _parse(body)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    outcome = _run(model, {"x": np.zeros(2, np.float32)})
    assert getattr(outcome, kind)
    assert outcome.crash is None


def _run_each(models: list[onnx.ModelProto], feeds: list[dict[str, np.ndarray]]) -> list[engine_module.RunOutcome]:
    one = Engine("onnxruntime", 60, None, 0)
    try:
        return one.run_each([model.SerializeToString() for model in models], feeds)
    finally:
        one.close()


def test_models_run_together_match_separate_runs():
    first = _parse("agraph (float[n] x) => (float[n] y, float[n] z) { y = Relu(x) z = Neg(x) }")
    second = _parse("agraph (float[n] x) => (float[n] y, float[n] z) { y = Relu(x) z = Abs(x) }")
    feeds = [{"x": np.array([1, 2, -3], np.float32)}, {"x": np.array([np.nan, -0.0], np.float32)}]
    outcomes = _run_each([first, second], feeds)
    for model, outcome in zip((first, second), outcomes):
        for feed, outputs in zip(feeds, outcome.runs):
            alone = _run(model, feed).runs[0]
            assert set(outputs) == {"y", "z"}
            assert all(outputs[name].tobytes() == alone[name].tobytes() for name in alone)


def test_runs_end_with_the_one_that_fills_the_room():
    models = [_parse(f"agraph (float[n] x) => (float[n] y) {{ y = {op}(x) }}") for op in ("Relu", "Abs")]
    feeds = [{"x": np.full(extent, -1, np.float32)} for extent in (1, 2, 30, 4)]
    one = Engine("onnxruntime", 60, None, 0)
    try:
        outcomes = one.run_each([model.SerializeToString() for model in models], feeds, room=100)
    finally:
        one.close()
    assert [[run["y"].size for run in outcome.runs] for outcome in outcomes] == [[1, 2, 30]] * 2


def test_bare_outputs_have_the_form_of_floats_and_the_elements_of_others():
    model = _parse("agraph (float[n,3] x) => (float[n,3] y, int64[k] z) { y = Neg(x) z = Shape(x) }")
    one = Engine("onnxruntime", 60, None, 0)
    try:
        (found,) = one.run(model.SerializeToString(), [{"x": np.ones((500, 3), np.float32)}], bare=True).runs
    finally:
        one.close()
    assert (found["y"].dtype, found["y"].shape, found["y"].strides) == (np.float32, (500, 3), (0, 0))
    assert found["z"].tolist() == [500, 3]


def test_an_output_that_is_an_input_has_memory_of_its_own():
    items = [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])]
    x, n = (helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (("x", 1, [2]), ("n", 7, [])))
    graph = helper.make_graph([helper.make_node("SequenceLength", ["s"], ["n"])], "g", [x, *items], [x, *items, n])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = sessions.make_session(model.SerializeToString(), sessions.session_options(()))
    feed = {"x": np.ones(2, np.float32), "s": [np.ones(2, np.float32)]}
    found = sessions.run_once(session, feed)
    feed["x"][:] = feed["s"][0][:] = 7
    assert [found["x"].tolist(), found["s"][0].tolist(), found["n"].tolist()] == [[1, 1], [1, 1], 1]


def test_zeros_of_different_sign_are_distinguished():
    models = [_parse(f"agraph (float[n] x) => (float[n] y) {{ y = {op}(x) }}") for op in ("Relu", "Neg")]
    outcomes = _run_each(models, [{"x": np.zeros(2, np.float32)}])
    assert [np.signbit(outcome.runs[0]["y"]).tolist() for outcome in outcomes] == [[False, False], [True, True]]


def test_a_refused_input_of_one_model_does_not_affect_the_other():
    first = _parse("agraph (float[n] x, int64[1] s) => (float[k] y) { y = Reshape(x, s) }")
    second = _parse("agraph (float[n] x, int64[1] s) => (float[n] y) { y = Relu(x) }")
    feeds = [{"x": np.ones(3, np.float32), "s": np.array([size])} for size in (2, 3)]
    refused, taken = _run_each([first, second], feeds)
    assert [isinstance(run, str) for run in refused.runs] == [True, False]
    assert [run["y"].tolist() for run in taken.runs] == [[1, 1, 1], [1, 1, 1]]


def test_an_unsupported_model_does_not_affect_the_other():
    known = _parse("agraph (float[n] x) => (float[n] y) { y = Relu(x) }")
    unknown = _parse("agraph (float[n] x) => (float[n] y) { y = Unheard(x) }")
    for models in ([known, unknown], [unknown, known]):
        outcomes = _run_each(models, [{"x": np.ones(2, np.float32)}])
        assert [outcome.failure is None for outcome in outcomes] == [model is known for model in models]


def test_native_messages_are_shortened():
    text = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running Gather node. " \
           "Name:'' Status Message: indices element out of data bounds, idx=8\nstack"  # fmt: skip
    assert shorten_native(text) == "indices element out of data bounds, idx=8"
    assert shorten_native("[ONNXRuntimeError] : 1 : FAIL : Type Error: no") == "Type Error: no"
    operands = ",".join(f'"value_with_a_long_name_{i}": tensor(float)' for i in range(12))
    node = f'In Node, ("a/b", Foo, "com.microsoft", -1) : ({operands},) -> ("y": tensor(float),"z",) , '
    native = "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. "
    assert shorten_native(f"{native}{node}Error it has 12 inputs") == "com.microsoft::Foo 'a/b': it has 12 inputs"
    assert shorten_native("plain") == "plain"
    native = (
        "Status Message: /src/core/arena.cc:360 void* ort::Arena::Get(size_t, bool, ort::Stream*) Failed to allocate "
    )
    assert shorten_native(native + "memory for 8 bytes") == "out of memory: Failed to allocate memory for 8 bytes"
    assert shorten_native("Status Message: std::bad_alloc") == "out of memory: std::bad_alloc"


def test_values_that_take_too_much_memory_are_reported_in_a_few_words():
    model = _parse("g (int64[1] n, float[1] x) => (float y) { e = Expand(x, n) y = ReduceSum<keepdims=0>(e) }")
    one = Engine("onnxruntime", 60, 1 << 30, 0)
    (told,) = one.run(model.SerializeToString(), [{"n": np.array([1 << 29]), "x": np.zeros(1, np.float32)}]).runs
    one.close()
    assert isinstance(told, str)
    assert told.startswith("out of memory: ") and "onnxruntime" not in told and "2147483648" in told


def test_shapes_are_inferred_for_numbers_only():
    model = _parse("g (float[N,S] x) => (float[A,B] y) { t = Transpose(x) s = Shape(t) r = Reshape(x, s) y = Neg(r) }")
    found = declare(model.SerializeToString(), {"x": [2, 3]})
    assert found["t"] == (1, [3, 2])
    assert found["y"] == (1, [3, 2])
    assert "x" not in declare(model.SerializeToString(), {})


def test_shapes_are_inferred_for_given_dim_names():
    model = _parse(
        "g (float[N,S] x) => (float[A,B] y) { t = Transpose(x) c = Concat<axis=0>(t, t) m = MatMul(t, x) y = Neg(c) }"
    )
    found = declare_by_names(model.SerializeToString(), {"x": ["n", 3]})
    assert found["t"] == (1, [3, "n"]) and found["m"] == (1, [3, 3]) and found["c"] == (1, [6, "n"])
    assert "c" not in declare_by_names(model.SerializeToString(), {"x": [3, "n"]})  # twice n


@pytest.mark.parametrize("choices", [[(2, 3), (1, 4), (5, 3)], [(2, 2), (3, 3)], [(0, 3), (2, 3)], [(4, 1)]], ids=str)
def test_shapes_for_several_dim_choices_match_each_choice(choices):
    model = _parse(
        """agraph (float[b, s, 8] x) => (float[p, q, r] y) {
            shape = Shape(x)
            zero = Constant<value = int64[1] {0}>()
            batch = Gather(shape, zero)
            rest = Constant<value = int64[2] {-1, 4}>()
            target = Concat<axis = 0>(batch, rest)
            split = Reshape(x, target)
            doubled = Concat<axis = 1>(split, split)
            y = Transpose<perm = [1, 0, 2]>(doubled)
        }"""
    )
    bound = [{"x": [batch, length, 8]} for batch, length in choices]
    skeleton = model.SerializeToString()
    found = follow(skeleton, bound)
    assert found == [follow(skeleton, [one])[0] for one in bound]
    for (batch, length), forms in zip(choices, found):
        if batch and length:
            assert forms["y"] == (TensorProto.FLOAT, [4 * length, batch, 4])


def test_weights_take_no_memory(tmp_path):
    """Sixteen weights of 16 MiB, every other one transposed when it is used, all transpositions first in the file."""
    count, width = 16, 2048
    weights = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32) / 45
    path = tmp_path / "weights.bin"
    with path.open("wb") as file:
        for _ in range(count):
            file.write(weights.tobytes())
    lines = [f"t{i} = Transpose(w{i})" for i in range(0, count, 2)]
    lines += [f"x{i + 1} = MatMul(x{i}, {'wt'[i % 2 == 0]}{i})" for i in range(count)]
    model = _parse(f"g (float[N,{width}] x0) => (float[N,{width}] x{count}) {{ {' '.join(lines)} }}")
    for index in range(count):
        tensor = TensorProto(name=f"w{index}", dims=[width, width], data_type=1, data_location=TensorProto.EXTERNAL)
        entries = {"location": str(path)[1:], "offset": index * weights.nbytes, "length": weights.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    one = Engine("onnxruntime", 60, None, count * weights.nbytes)
    one.run(
        _parse("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString(), [{"x": np.zeros(2, np.float32)}]
    )
    before = _private(one._worker)
    with _peak(one._worker) as peak:
        outcome = one.run(model.SerializeToString(), [{"x0": np.ones((3, width), np.float32)}] * 2)
    one.close()
    assert outcome.failure is None
    assert not isinstance(outcome.runs[0], str)
    assert peak[0] - before < 40 << 20, (
        f"{(peak[0] - before) >> 20} MiB for {count * weights.nbytes >> 20} MiB of weights"
    )


def test_memory_is_released_after_the_runs():
    model = _parse(
        "g (int64[1] n, float[1] x) => (float y) { e = Expand(x, n) s = Exp(e) y = ReduceSum<keepdims=0>(s) }"
    )
    feed = {"n": np.array([16 << 20]), "x": np.zeros(1, np.float32)}
    one = Engine("onnxruntime", 60, None, 0)
    try:
        one.run(model.SerializeToString(), [{**feed, "n": np.array([1])}], keep=True)
        before = _private(one._worker)
        outcome = one.run(model.SerializeToString(), [feed] * 2, keep=True)
        assert [run["y"] for run in outcome.runs] == [16 << 20] * 2
        # Memory is given back once the answer has been sent.
        one.run(model.SerializeToString(), [{**feed, "n": np.array([1])}], keep=True)
        held = _private(one._worker) - before
        assert held < 16 << 20, f"{held >> 20} MiB"
    finally:
        one.close()


def test_outputs_are_released_once_they_were_sent():
    model = _parse("g (int64[1] n, float[1] x) => (float[M] y) { e = Expand(x, n) y = Exp(e) }")
    one = Engine("onnxruntime", 60, None, 0)
    try:
        small, large = ({"n": np.array([size]), "x": np.zeros(1, np.float32)} for size in (1, 10 << 20))
        one.run(model.SerializeToString(), [small])
        before = _private(one._worker)
        assert one.run(model.SerializeToString(), [large]).runs[0]["y"].sum() == 10 << 20
        one.run(model.SerializeToString(), [small])
        held = _private(one._worker) - before
        assert held < 16 << 20, f"{held >> 20} MiB"
    finally:
        one.close()


def test_freed_buffers_make_room_for_larger_ones():
    """Two buffers at a time, each pair a little larger than the last: 64 MiB in the end."""
    sizes = [(12 + 4 * number) << 18 for number in range(6)]
    lines = [f"e{n} = Expand(x, n{n}) s{n} = Exp(e{n}) y{n} = ReduceSum<keepdims=0>(s{n})" for n in range(len(sizes))]
    ports = "".join(f", int64[1] n{n}" for n in range(len(sizes)))
    # Each is made when the last one is freed.
    lines = [line.replace("Expand(x,", f"Expand(x{n},") for n, line in enumerate(lines)]
    steps = [f"x{n + 1} = Mul(y{n}, zero)" for n in range(len(sizes) - 1)]
    body = " ".join(part for n, line in enumerate(lines) for part in (line, *steps[n : n + 1]))
    model = _parse(f"g (float x0, float zero{ports}) => (float y{len(sizes) - 1}) {{ {body} }}")
    feed = {"x0": np.zeros((), np.float32), "zero": np.zeros((), np.float32)}
    feed |= {f"n{n}": np.array([size]) for n, size in enumerate(sizes)}
    one = Engine("onnxruntime", 60, None, 0)
    try:
        one.run(model.SerializeToString(), [feed | {name: np.array([1]) for name in feed if name[0] == "n"}])
        before = _private(one._worker)
        with _peak(one._worker) as peak:
            outcome = one.run(model.SerializeToString(), [feed])
        assert outcome.runs[0][f"y{len(sizes) - 1}"] == sizes[-1]
        assert peak[0] - before < 120 << 20, f"{(peak[0] - before) >> 20} MiB"
    finally:
        one.close()


@contextmanager
def _peak(worker: Worker) -> Iterator[list[int]]:
    """Watch the private memory of a worker."""
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            peak[0] = max(peak[0], _private(worker))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _private(worker: Worker) -> int:
    """Bytes of private memory of a worker."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def test_weights_are_read_from_their_files(tmp_path):
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    path = tmp_path / "weights.bin"
    path.write_bytes(b"\0" * 4096 + weights.tobytes())

    def model(extra: str) -> bytes:
        proto = _parse(f"g (float[N,64] x) => (float[N,64] y) {{ {extra} }}")
        tensor = numpy_helper.from_array(weights, "w")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": str(path)[1:], "offset": "4096", "length": str(weights.nbytes)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        proto.graph.initializer.append(tensor)
        return proto.SerializeToString()

    verifier = Verifier(model("y = MatMul(x, w)"))
    assert verifier.verify(model("t = Identity(w) y = MatMul(x, t)"), Parity.EXACT).status == "equal"
    assert verifier.verify(model("t = Transpose(w) y = MatMul(x, t)"), Parity.EXACT).status == "different"
    assert verifier.original.weights == weights.nbytes
    run = verifier.original.runs[0]
    np.testing.assert_allclose(run.outputs["y"], run.feed["x"] @ weights, rtol=1e-4, atol=1e-4)
