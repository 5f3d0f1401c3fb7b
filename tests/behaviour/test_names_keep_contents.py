"""A name stands for the same contents in the original and in what the recipes make of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support import ROOT

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.verification.inputs.spec import VerifySpec

pytestmark = pytest.mark.slow

NAMES = sorted(path.stem for path in (ROOT / "models").glob("*.onnx"))


def _computed(model: onnx.ModelProto) -> set[str]:
    """The values that nodes of the main graph make."""
    return {name for node in model.graph.node for name in node.output if name}


def _values(model: onnx.ModelProto, names: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    del seen.graph.output[:]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(seen.SerializeToString(), options).run(names, feed)


def _feed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feed = {}
    for port in model.graph.input:
        kind = port.type.tensor_type
        free = 64 if len(kind.shape.dim) == 4 else 9
        shape = [dim.dim_value or (2 if place == 0 else free) for place, dim in enumerate(kind.shape.dim)]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feed[port.name] = rng.normal(size=shape).astype(np.float32)
        else:
            feed[port.name] = np.ones(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feed


def _same(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether two values are close, one of them perhaps not yet broadcast to where it is read."""
    try:
        before, after = np.broadcast_arrays(before, after)
    except ValueError:
        return False
    scale = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    return bool(np.allclose(before, after, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recipe", ["default", "modern"])
def test_values_with_unchanged_names_keep_their_contents(
    name: str, recipe: str, short_models: Path, tmp_path: Path
) -> None:
    path = short_models / f"{name}.onnx"
    original = onnx.load(path)
    unverified = replace(recipes.load(recipe), verify=VerifySpec(mode="off"))
    runner.apply(path, unverified, output=tmp_path / "changed.onnx")
    changed = onnx.load(tmp_path / "changed.onnx")
    shared = sorted(_computed(original) & _computed(changed))
    feed = _feed(original)
    pairs = zip(shared, _values(original, shared, feed), _values(changed, shared, feed))
    assert [name for name, before, after in pairs if not _same(before, after)] == []
    assert len(shared) >= 5
