"""Models in the real OpenVINO: runs, messages, and results of recipes that are made for it."""

from __future__ import annotations

import importlib.util
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import surgery
from surgery.base.operators.dtypes import ONNX_TYPES
from surgery.engine import recipe as recipes
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.runtime import openvino_runs
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.runtime.openvino_runs import reason
from surgery.model.targets import shipped
from surgery.verification.inputs.spec import VerifySpec

ROOT = Path(__file__).resolve().parents[3]
needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed")


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    return text.parse(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{body}')


def run(body: str, *feeds: dict[str, Any], opset: int = 17) -> RunOutcome:
    with closing(Engine("openvino", 60, None, 0, deployed=True)) as engine:
        return engine.run(model(body, opset).SerializeToString(), feeds)


@needs_openvino
def test_outputs_have_the_names_of_the_model_and_layers_are_counted() -> None:
    x = np.arange(4, dtype=np.float32)
    found = run("g (float[n] x, float[n] unread) => (float[n] b, float[n] a) { a = Exp(x) b = Neg(x) }", {"x": x})
    assert found.title.startswith("OpenVINO 20")
    assert not isinstance(found.runs[0], str)
    np.testing.assert_allclose(found.runs[0]["a"], np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(found.runs[0]["b"], -x)
    assert found.executed is not None and found.executed.total >= 2


@needs_openvino
def test_inspect_counts_the_layers_that_openvino_executes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model("g (float[n] x) => (float[n] y) { y = Exp(x) }"), tmp_path / "exp.onnx")
    asked = ["inspect", str(tmp_path / "exp.onnx"), "--executed", "--target", "openvino", "--format", "json"]
    assert cli.main(asked) == 0
    # The type of a layer of OpenVINO, which no node of the model has.
    assert "Eltwise" in json.loads(capsys.readouterr().out)["executed"]["providers"]["CPU"]


@needs_openvino
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint16"])
def test_values_keep_their_element_type(name: str) -> None:
    x = np.asarray([[1, 0], [2, 3]]).astype(ONNX_TYPES[16] if name == "bfloat16" else np.dtype(name))
    found = run(f"g ({name}[2,2] x) => ({name}[2,2] y) {{ y = Transpose(x) }}", {"x": x})
    assert not isinstance(found.runs[0], str)
    assert found.runs[0]["y"].dtype == x.dtype
    np.testing.assert_array_equal(found.runs[0]["y"], x.T)


@needs_openvino
def test_the_reason_of_a_failure_names_the_node() -> None:
    assert run("g (float[2,2] x) => (float y) { y = Det(x) }").invalid == "OpenVINO does not convert Det-17"
    # Operands whose dims do not agree.
    found = run("g (float[2,3] x) => (float[2,2] y) { y = MatMul(x, x) }")
    assert found.invalid is not None and found.invalid.startswith("MatMul 'y': Incompatible MatMul")
    missing = run("g (float[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }", {"x": np.zeros(2, np.float32)})
    assert missing.runs == ["OpenVINO takes no such value for the input 'z'"]


def test_a_message_without_an_informative_line_is_kept() -> None:
    assert reason("Exception from a.cpp:1:\n\n") == "Exception from a.cpp:1:"
    assert reason("") == "it fails without a message"


# Right in ONNX Runtime, and not in OpenVINO: it has no determinants, and computes int64 as int32.

SQUEEZED = "g (float[1,1] x) => (float y) <int64[0] none = {}> { n = Neg(x) y = Reshape(n, none) }"
DETERMINANT = "g (float[1,1] x) => (float y) { n = Neg(x) y = Det(n) }"
PLANTED = [
    (SQUEEZED, DETERMINANT, "right as written, but it fails in OpenVINO 20"),
    (
        "g (int64[4] x) => (int64[4] y) { y = Abs(x) }",
        "g (int64[4] x) => (int64[4] y) <int64 big = {1099511627776}> { a = Abs(x) s = Mul(a, big) y = Div(s, big) }",
        "right as written, but wrong in OpenVINO 20",
    ),
]


@needs_openvino
@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_what_only_openvino_gets_wrong_is_different(number: int) -> None:
    first, second, expected = PLANTED[number]
    pair = model(first), model(second)
    assert surgery.verify(*pair).verdict.passed
    found = surgery.verify(*pair, deploys_on="openvino")
    assert found.verdict.status == "different"
    assert found.verdict.message.startswith(expected)
    assert found.deployed is not None and found.deployed.to_json()["runtime"].startswith("OpenVINO 20")


@needs_openvino
def test_what_openvino_gets_wrong_in_the_original_is_not_held_against_the_result() -> None:
    first = model(DETERMINANT)
    second = model(DETERMINANT.replace("n = Neg(x)", "m = Neg(x) n = Identity(m)"))
    found = surgery.verify(first, second, deploys_on="openvino")
    assert found.verdict.passed
    assert found.deployed is not None and found.deployed.verdict.is_unverified
    message = found.deployed.verdict.message
    assert message.startswith("the original fails in OpenVINO 20") and message.endswith("the result in the same way")
    # A result that OpenVINO runs although it does not run the original is still compared with ONNX Runtime's outputs.
    found = surgery.verify(first, model(SQUEEZED), deploys_on="openvino")
    assert found.deployed is not None and found.deployed.verdict.passed


def test_without_openvino_the_result_runs_in_onnx_runtime_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    answer = openvino_runs.run(b"", [], 0)
    monkeypatch.undo()
    run_model = Engine.run

    def run_without(self: Engine, *arguments: Any, **options: Any) -> RunOutcome:
        return self._outcome(answer) if self.name == "openvino" else run_model(self, *arguments, **options)

    monkeypatch.setattr(Engine, "run", run_without)
    found = surgery.verify(model(SQUEEZED), model(DETERMINANT), deploys_on="openvino")
    assert found.verdict.passed and found.deployed is not None
    assert found.deployed.runtime == "ONNX Runtime"
    assert found.deployed.note == "OpenVINO is not installed; pip install openvino"


@needs_openvino
@pytest.mark.parametrize(
    "name", ["mobilenet-tiny", *(pytest.param(one, marks=pytest.mark.slow) for one in ("t5-enc-tiny", "bert-tiny.dy"))]
)
def test_a_result_for_openvino_runs_there(name: str) -> None:
    result = surgery.apply(ROOT / "models" / f"{name}.onnx", "default", target="openvino")
    assert result.ok and not result.failure
    found = result.deployed
    assert found is not None and found.runtime.startswith("OpenVINO 20")
    assert found.verdict.passed, found.verdict.message
    assert found.executed is not None and found.original is not None
    assert found.executed.total <= found.original.total


@needs_openvino
def test_products_and_tables_of_few_bits_run_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = model("g (int64[n,s] i) => (float[n,s,64] y) { e = Gather(t, i) m = MatMul(e, w) y = Tanh(m) }")
    for name, shape in (("t", (100, 64)), ("w", (64, 64))):
        weight = rng.normal(0, 0.3, shape).astype(np.float32)
        one.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(one, tmp_path / "model.onnx")
    result = surgery.apply(tmp_path / "model.onnx", "int4", target="openvino")
    assert result.ok and [node.op_type for node in result.proto.graph.node][:2] == [
        "GatherBlockQuantized",
        "MatMulNBits",
    ]
    found = result.deployed
    assert found is not None and found.runtime.startswith("OpenVINO 20") and found.verdict.passed, found


@needs_openvino
def test_layers_that_only_read_constants_are_not_executed() -> None:
    """The weight is transposed, and brought into the layout of the kernel, when the model is compiled."""
    import openvino

    body = "g (float[n,8] x) => (float[n,4] y) <float[8,4] w = {%s}> { m = MatMul(x, w) y = Softmax(m) }"
    body %= ", ".join(map(str, range(32)))
    x = np.ones((2, 8), np.float32)
    compiled = openvino.Core().compile_model(
        openvino.Core().read_model(model(body).SerializeToString()),
        "CPU",
        {"PERF_COUNT": True, "INFERENCE_PRECISION_HINT": "f32"},
    )
    request = compiled.create_infer_request()
    request.infer([x])
    ends = ("Parameter", "Result")
    ran = [one.node_name for one in request.get_profiling_info() if one.node_type not in ends]
    found = run(body, {"x": x})
    assert found.executed is not None and found.executed.total == len(ran)
    assert len(compiled.get_runtime_model().get_ops()) > len(ran) + 2 + 1  # the ends, and the weight itself


@needs_openvino
@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnext-tiny", "vit-tiny", "whisper-enc-tiny", "llama-tiny.dy", "gpt2-tiny"])
def test_openvino_executes_no_more_layers_of_a_result_than_of_the_original(name: str) -> None:
    recipe = replace(recipes.load("default"), verify=VerifySpec(mode="end"))
    found = surgery.apply(ROOT / "models" / f"{name}.onnx", recipe, target="openvino").deployed
    assert found is not None and found.executed is not None and found.original is not None
    assert found.executed.total <= found.original.total
    # A rotary embedding, and an attention as a whole.
    assert {"RoPE", "Subgraph"} & set(found.original.operators) <= set(found.executed.operators)


@needs_openvino
@pytest.mark.slow
def test_the_profile_lists_only_operators_that_openvino_converts() -> None:
    from support.openvino_operators import converted

    known = converted()
    listed = {op for domain, op in shipped.find("openvino").listed if not domain}
    assert listed - {op for _, op in known} == {"SimplifiedLayerNormalization"}
    # What it converts, but computes incorrectly or not in all forms, is left out.
    assert {op for _, op in known} - listed == {
        *("Bernoulli", "DFT", "STFT", "SequenceAt", "SequenceEmpty", "SequenceInsert")
    }
