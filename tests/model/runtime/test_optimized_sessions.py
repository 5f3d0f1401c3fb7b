"""Optimized sessions compute what a user's session computes, the rounding of data within kernels included."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.model.runtime.engine import Engine

ROWS, COLUMNS, BLOCK = 64, 32, 32


@pytest.mark.parametrize("level", [0, 4])
def test_matmulnbits_rounds_its_input_as_in_deployment(level: int) -> None:
    generator = np.random.default_rng(0)
    weight = generator.integers(0, 256, (COLUMNS, ROWS // BLOCK, BLOCK // 2)).astype(np.uint8)
    scales = generator.uniform(0.01, 0.1, (COLUMNS, ROWS // BLOCK)).astype(np.float32)
    sizes = {"K": ROWS, "N": COLUMNS, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", **sizes)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, ROWS))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, COLUMNS))],
            [numpy_helper.from_array(weight, "b"), numpy_helper.from_array(scales, "s")],
        ),
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )
    feed = {"x": generator.normal(size=(3, ROWS)).astype(np.float32)}
    (deployed,) = _session(model).run(None, feed)
    with closing(Engine("onnxruntime", 60, None, 0, deployed=True)) as engine:
        (found,) = engine.run(model.SerializeToString(), [feed]).runs
    assert not isinstance(found, str)
    np.testing.assert_allclose(found["y"], deployed, rtol=1e-5, atol=1e-5)


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
