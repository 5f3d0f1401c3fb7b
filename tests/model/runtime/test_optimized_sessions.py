"""Optimized sessions compute what a user's session computes, the rounding of data within kernels included."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

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


GROWING = """<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (float y) { a = Concat<axis = 0>(x, x) b = Concat<axis = 0>(a, a) c = Concat<axis = 0>(b, b)
d = Concat<axis = 0>(c, c) y = ReduceSum<keepdims = 0>(d) }"""


def test_a_deployed_run_holds_only_the_buffers_in_use() -> None:
    """The last two take 96 MiB. An arena would hold those before, too: 120 MiB."""
    model = onnx.parser.parse_model(GROWING)
    feed = {"x": np.ones(1 << 20, np.float32)}
    with closing(Engine("onnxruntime", 60, None, 0, deployed=True)) as engine:
        engine.run(model.SerializeToString(), [{"x": np.ones(1, np.float32)}])
        before = peak(engine)
        (found,) = engine.run(model.SerializeToString(), [feed]).runs
        assert not isinstance(found, str) and found["y"] == 16 << 20
        taken = peak(engine) - before
    assert 96 << 20 <= taken <= 112 << 20


def peak(engine: Engine) -> int:
    """Return the largest resident memory of a worker so far, in bytes."""
    status = Path(f"/proc/{engine._worker.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
