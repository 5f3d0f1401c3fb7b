"""What the skip norms rest on: kernels of ONNX Runtime against the formula, and a norm that no checker knows."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import surgery
from surgery.model.targets.shipped import find

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
RNG = np.random.default_rng(0)


def run(text: str, **feeds: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.parser.parse_model(HEAD + text)
    return list(ort.InferenceSession(model.SerializeToString(), options).run(None, feeds))


@pytest.mark.parametrize(
    ("shape", "skip"), [((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (3, 8)), ((2, 3, 8), (1, 3, 8)), ((6, 8), (6, 8))]
)
def test_skip_layer_normalization_is_the_norm_of_the_sum(shape: tuple[int, ...], skip: tuple[int, ...]) -> None:
    dims = "B,S,8" if len(shape) == 3 else "N,8"
    other = ",".join(map(str, skip))
    text = f"""g (float[{dims}] x, float[{other}] z, float[8] w, float[8] b, float[8] c)
    => (float[{dims}] y, float[{dims}] s)
    {{ y,,,s = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(x, z, w, b, c) }}"""
    x, z, w, b, c = (RNG.normal(size=dims).astype(np.float32) for dims in (shape, skip, 8, 8, 8))
    y, s = run(text, x=x, z=z, w=w, b=b, c=c)
    total = x.astype(np.float64) + z + c
    centred = total - total.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.001) * w + b
    np.testing.assert_allclose(s, total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.skipif(
    not find("ort-cpu").has("com.microsoft::BranchwiseRMSNorm"), reason="the installed runtime has no BranchwiseRMSNorm"
)
@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (2, 0, 8), (2, 1, 3, 8)])
def test_branchwise_rms_norm_with_one_branch_is_an_rms_norm(shape: tuple[int, ...]) -> None:
    dims = ",".join(map(str, shape))
    text = f"""g (float[{dims}] x, float[8] w) => (float[{dims}] y)
    {{ y = com.microsoft.BranchwiseRMSNorm<epsilon = 0.001, num_branches = 1>(x, w) }}"""
    x, w = RNG.normal(size=shape).astype(np.float32), RNG.normal(size=8).astype(np.float32)
    (y,) = run(text, x=x, w=w)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 0.001) * w
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_the_rms_norm_of_onnx_runtime_is_fused_with_its_skip(tmp_path: Path) -> None:
    """It is in the default domain, where onnx has none of that name."""
    text = """g (float[N,S,4] x, float[N,S,4] z) => (float[N,S,4] y, float[N,S,4] s) <float[4] w = {1, 2, 3, 4}>
    { s = Add(x, z)  y = SimplifiedLayerNormalization<axis = -1, epsilon = 0.001>(s, w) }"""
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text("recipe: r\ntarget: ort-cpu\nsteps: [{fuse-skip-rms-norm: {always: true}}]\n")
    result = surgery.apply(tmp_path / "m.onnx", str(tmp_path / "r.yaml"), output=tmp_path / "o.onnx")
    assert [step.status for step in result.steps] == ["committed"]
    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == ["SkipSimplifiedLayerNormalization"]
