"""Results that are made for CUDA, on CUDA: placements, float16, NaN, and the commands with the provider."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from gpu_device import DRY, PROVIDER, TARGET
from support import ROOT

import surgery
from surgery.engine.pipeline.records import Result
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.targets import shipped
from surgery.model.targets.installed_kernels import kernels

CPU = "CPUExecutionProvider"
MODELS = sorted(path.stem for path in (ROOT / "models").glob("*.onnx"))
HALF = ["bert-tiny", "llama-tiny.dy", "resnet-tiny", "vit-tiny"]


def path_of(name: str) -> Path:
    return ROOT / "models" / f"{name}.onnx"


def applied(name: str, recipe: str, output: Path | None = None) -> Result:
    result = surgery.apply(path_of(name), recipe, target=TARGET, output=output)
    assert result.failure is None and result.ok, result
    return result


def require_run_on_device(result: Result) -> None:
    """Assert that a result ran on the device, and that no more is executed, copied or left to the CPU than before."""
    found = result.deployed
    assert found is not None and not found.note, found
    assert found.executed is not None and found.original is not None, found.verdict.message
    assert found.executed.on(PROVIDER) > 0
    assert found.executed.total <= found.original.total
    assert found.executed.copies <= found.original.copies
    if not DRY:
        assert found.executed.on(CPU) <= found.original.on(CPU)


def test_the_kernels_of_the_build_are_listed_or_taken_from_the_table() -> None:
    listed = kernels(PROVIDER)
    operators = set(shipped.find(TARGET).operators)
    assert {("", "Conv"), ("", "MatMul"), ("com.microsoft", "BiasGelu")} <= operators
    assert not listed or set(listed) == operators


@pytest.mark.parametrize("name", MODELS)
def test_a_result_for_the_gpu_runs_there_and_leaves_no_more_to_the_cpu(name: str) -> None:
    result = applied(name, "default")
    assert [step.name for step in result.steps if step.status == "rolled_back"] == []
    require_run_on_device(result)


def outputs(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=[PROVIDER])
    found: list[np.ndarray] = session.run(None, feed)
    return found


def inputs(path: Path) -> dict[str, np.ndarray]:
    rng, feed = np.random.default_rng(0), {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or {"batch": 2, "sequence": 9}.get(dim.dim_param, 64) for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        is_mask, is_float = "mask" in value.name, np.issubdtype(dtype, np.floating)
        drawn = rng.normal(size=shape) if is_float else np.ones(shape) if is_mask else rng.integers(0, 9, shape)
        feed[value.name] = np.asarray(drawn, dtype)
    return feed


@pytest.mark.parametrize("name", HALF)
def test_a_float16_result_has_no_nan_and_stays_on_the_gpu(name: str, tmp_path: Path) -> None:
    result = applied(name, "fp16", tmp_path / "half.onnx")
    half = onnx.load(tmp_path / "half.onnx")
    assert any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in half.graph.initializer)
    if not DRY:
        found = result.deployed
        assert found is not None and found.executed is not None and found.original is not None
        assert found.executed.on(CPU) <= found.original.on(CPU)
    feed = inputs(path_of(name))
    for before, after in zip(outputs(path_of(name), feed), outputs(tmp_path / "half.onnx", feed), strict=True):
        assert np.isfinite(after).all()
        error = np.square(np.subtract(before, after, dtype=np.float64)).sum()
        assert 10 * np.log10(np.square(before, dtype=np.float64).sum() / error) >= 40


POOL = """<ir_version: 10, opset_import: ["" : 18]>
    g (float16[n,4,200,200] x) => (float16[n,4,1,1] y) <int64[2] axes = {2, 3}> { y = OPERATION }"""


@pytest.mark.skipif(DRY, reason="only CUDA's sums of float16 overflow")
def test_nan_and_infinity_that_only_the_gpu_computes_are_found() -> None:
    first, second = (
        text.parse(POOL.replace("OPERATION", body)) for body in ("GlobalAveragePool(x)", "ReduceMean(x, axes)")
    )
    x = np.full((1, 4, 200, 200), 100, np.float16)
    session = onnxruntime.InferenceSession(second.SerializeToString(), providers=[PROVIDER])
    if np.isfinite(session.run(None, {"x": x})[0]).all():
        pytest.skip("this ReduceMean does not overflow")
    found = surgery.verify(first, second, inputs=[{"x": x}], deploys_on=PROVIDER)
    assert found.verdict.status == "different" and "right as written, but wrong" in found.verdict.message


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main([*arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_commands_run_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = str(path_of("bert-tiny")), str(tmp_path / "out.onnx")
    code, _, said = run(capsys, "apply", "default", before, "--target", TARGET, "--provider", PROVIDER, "-o", after)
    assert code == 0, said
    code, printed, _ = run(capsys, "verify", before, after, "--target", TARGET, "--format", "json")
    assert code == 0 and json.loads(printed)["deployed"]["note"] is None
    code, printed, _ = run(capsys, "verify", before, after, "--provider", PROVIDER)
    assert code == 0
    code, printed, _ = run(capsys, "inspect", after, "--executed", "--provider", PROVIDER, "--format", "json")
    assert code == 0 and PROVIDER in printed
    measured = ("--provider", PROVIDER, "--repeats", "6", "--dims", "batch=1,sequence=16")
    code, printed, _ = run(capsys, "bench", before, after, *measured, "--format", "json")
    assert code == 0
    assert json.loads(printed)["clock"] == ("processor" if DRY else "wall")
