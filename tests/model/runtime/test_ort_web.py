"""Models in the real ONNX Runtime Web: runs, messages, and results of recipes that are made for it.

Skipped unless Node.js finds onnxruntime-web: `npm install onnxruntime-web` in this clone, or with `-g`.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import surgery
from surgery.base.errors import UsageError
from surgery.model.graph import text
from surgery.model.runtime import web_runs
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.targets import shipped

ROOT = Path(__file__).resolve().parents[3]


def _is_installed() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    look = "require.resolve('onnxruntime-web')"
    paths = [Path.cwd(), Path(node).resolve().parents[1] / "lib"]
    return any(subprocess.run([node, "-e", look], cwd=path, capture_output=True).returncode == 0 for path in paths)


needs_web = pytest.mark.skipif(not _is_installed(), reason="ONNX Runtime Web is not installed for Node.js")


def model(body: str, opset: int = 17, ir_version: int = 10) -> onnx.ModelProto:
    return text.parse(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft": 1]>\n{body}')


def run(source: onnx.ModelProto, *feeds: dict[str, Any]) -> RunOutcome:
    with closing(Engine("ort-web", 60, None, 0, deployed=True)) as engine:
        return engine.run(source.SerializeToString(), feeds)


@needs_web
@pytest.mark.parametrize("name", sorted(web_runs._TYPES))
def test_values_of_each_type_arrive_and_return(name: str) -> None:
    x = np.asarray([[1, 0], [2, 3]]).astype(name)
    kind = {"float32": "float", "float64": "double"}.get(name, name)
    found = run(
        model(f"g ({kind}[2,2] x) => ({kind}[2,2] z, {kind}[2,2] y) {{ y = Transpose(x) z = Identity(x) }}"), {"x": x}
    )
    assert found.title.startswith("ONNX Runtime Web 1.")
    assert not isinstance(found.runs[0], str)
    assert found.runs[0]["y"].dtype == x.dtype
    np.testing.assert_array_equal(found.runs[0]["y"], x.T)
    np.testing.assert_array_equal(found.runs[0]["z"], x)


@needs_web
def test_texts_scalars_and_empty_arrays() -> None:
    body = "g (string[n] s, float[m] e, int64 i) => (string[n] t, float[m] f, int64 j) {"
    feed = {"s": np.array(["a", "ü"], dtype=object), "e": np.zeros(0, np.float32), "i": np.int64(2**40)}
    found = run(model(f"{body} t = Identity(s) f = Neg(e) j = Identity(i) }}"), {**feed, "i": np.asarray(feed["i"])})
    assert not isinstance(found.runs[0], str)
    assert found.runs[0]["t"].tolist() == ["a", "ü"]
    assert found.runs[0]["f"].shape == (0,) and found.runs[0]["j"].shape == () and found.runs[0]["j"] == 2**40


@needs_web
def test_the_reason_of_a_failure_is_one_short_line() -> None:
    x = np.zeros(2, np.float32)
    new = run(model("g (float[2] x) => (float[2] y) { y = Neg(x) }", ir_version=14), {"x": x})
    assert new.invalid == "Unsupported model IR version: 14, max supported IR version: 13"
    unknown = run(model("g (float[2] x) => (float[2] y) { y = com.microsoft.NoSuch(x) }"), {"x": x})
    assert unknown.invalid == "Fatal error: com.microsoft:NoSuch(-1) is not a registered function/op"
    wrong = run(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), {"x": np.zeros(3, np.float32)}, {"x": x})
    assert isinstance(wrong.runs[0], str) and "Got invalid dimensions for input: x" in wrong.runs[0]
    assert not isinstance(wrong.runs[1], str)
    narrow = run(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), {"x": None})
    assert narrow.runs == ["ONNX Runtime Web takes no such value for the input 'x'"]


# Right in the installed ONNX Runtime, and unknown to the release that ONNX Runtime Web has.

NEWER = "g (float[2] x) => (float[2] y) { y = Neg(x) }"


@needs_web
def test_what_only_onnx_runtime_web_does_not_load_is_different() -> None:
    first, second = model(NEWER), model(NEWER, ir_version=14)
    if not surgery.verify(first, second).verdict.passed:
        pytest.skip("the installed ONNX Runtime does not load this model, either")
    found = surgery.verify(first, second, deploys_on="ort-web")
    assert found.verdict.status == "different"
    assert found.verdict.message.startswith("right as written, but it fails in ONNX Runtime Web 1.")
    assert found.verdict.message.endswith("Unsupported model IR version: 14, max supported IR version: 13")


def test_without_node_the_result_is_said_not_to_have_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    answer = web_runs.run(model(NEWER).SerializeToString(), [], 0, "/")
    with closing(Engine("ort-web", 60, None, 0, deployed=True)) as engine, pytest.raises(UsageError) as raised:
        engine._outcome(answer)
    assert "ONNX Runtime Web is not installed for Node.js" in str(raised.value)
    assert "npm install onnxruntime-web" in str(raised.value.todo)


@needs_web
@pytest.mark.parametrize(
    "name", ["resnet-tiny", *(pytest.param(one, marks=pytest.mark.slow) for one in ("llama-tiny", "whisper-enc-tiny"))]
)
def test_a_result_for_ort_web_runs_there(name: str) -> None:
    result = surgery.apply(ROOT / "models" / f"{name}.onnx", "default", target="ort-web")
    assert result.ok and not result.failure
    found = result.deployed
    assert found is not None and found.runtime.startswith("ONNX Runtime Web 1.")
    assert found.verdict.passed, found.verdict.message
    operators = {f"{node.domain}::{node.op_type}" for node in result.proto.graph.node}
    assert any(name.startswith("com.microsoft") for name in operators)


def test_the_target_has_the_kernels_of_its_release() -> None:
    target = shipped.find("ort-web")
    assert ("com.microsoft", "GroupQueryAttention") in target.operators
    # New in 1.31.
    assert ("com.microsoft", "BranchwiseRMSNorm") not in target.operators
    assert target.deploys_on == "ort-web"
