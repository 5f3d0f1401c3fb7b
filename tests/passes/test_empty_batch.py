"""Models of the zoo that take an empty batch take it after the default recipe as well."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support.breadth import sampled

import surgery


def shapes(model: onnx.ModelProto, dims: dict[str, int]) -> list[tuple[int, ...]]:
    """Run a model on ones of these sizes; return the shapes of its outputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    feeds = {}
    for port in model.graph.input:
        sizes = [dim.dim_value or dims[dim.dim_param] for dim in port.type.tensor_type.shape.dim]
        feeds[port.name] = np.ones(sizes, onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [output.shape for output in session.run(None, feeds)]


@pytest.mark.parametrize("name", sampled(["gpt2-tiny", "bert-tiny", "llama-tiny.dy"], 3))
def test_an_empty_batch_is_taken_as_before(tmp_path: Path, short_models: Path, name: str) -> None:
    model = onnx.load(short_models / f"{name}.onnx")
    surgery.apply(short_models / f"{name}.onnx", "default", output=tmp_path / "made.onnx")
    made = onnx.load(tmp_path / "made.onnx")
    wanted = shapes(model, {"batch": 3, "sequence": 7})
    assert shapes(made, {"batch": 3, "sequence": 7}) == wanted
    dims = {"batch": 0, "sequence": 5}
    try:
        wanted = shapes(model, dims)
    except Exception as error:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} runs no empty batch of the original: {error}")
    assert shapes(made, dims) == wanted
