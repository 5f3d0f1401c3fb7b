"""Detection of products of 8-bit integers that ONNX Runtime computes inexactly on this CPU.

x86 CPUs without VNNI add two adjacent products of uint8 and int8 in 16 bits, where the sum saturates (the instruction
is VPMADDUBSW). Other types use other instructions, and other CPUs are not affected, so it is tested at run time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from surgery.base.workers import Worker, WorkerRaised

_ROWS, _DEPTH, _COLUMNS = 4, 64, 64
"""The dims of the tested product, large enough for the vectorized kernels."""

_TIMEOUT = 60.0


@cache
def saturates(data: str, weight: str) -> bool:
    """Return whether sums of full-range products saturate, for types such as uint8 and int8.

    False if ONNX Runtime refuses such a product. Tested once per process; raises `WorkerError` if it does not finish.
    """
    try:
        with Worker(timeout=_TIMEOUT, preload=["onnxruntime"]) as worker:
            return bool(worker.call(f"{__name__}:run_largest", data=data, weight=weight))
    except WorkerRaised:
        return False


def run_largest(data: str, weight: str) -> bool:
    """Return whether the largest product of two types is computed incorrectly; runs in a worker."""
    import numpy as np
    import onnx
    import onnxruntime

    def extreme(name: str, shape: tuple[int, int]) -> Any:
        return np.full(shape, np.iinfo(name).max, name)

    left, right = extreme(data, (_ROWS, _DEPTH)), extreme(weight, (_DEPTH, _COLUMNS))
    types = [onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for array in (left, right)]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["data", "weight"], ["product"])],
        "largest",
        [onnx.helper.make_tensor_value_info("data", types[0], left.shape)],
        [onnx.helper.make_tensor_value_info("product", onnx.TensorProto.INT32, (_ROWS, _COLUMNS))],
        [onnx.numpy_helper.from_array(right, "weight")],  # constant, so that it is packed like the weight of a layer
    )
    model = onnx.helper.make_model(graph, ir_version=7, opset_imports=[onnx.helper.make_opsetid("", 13)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"data": left})
    return not np.array_equal(found, left.astype(np.int32) @ right.astype(np.int32))
