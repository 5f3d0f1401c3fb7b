"""What the installed ONNX Runtime can do. Tests ask it here, and assume what no release lacks, or no release has.

It is asked in plain words of its own: its tables of kernels and schemas, and a plain session in another process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

_PLAIN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
import threading
threading.stack_size(1 << 20)
import numpy as np, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 4
def run():
    model = sys.stdin.buffer.read()
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feed = {}
        for item in onnx.load_model_from_string(model).graph.input:
            kind = item.type.tensor_type
            dims = [dim.dim_value or 2 for dim in kind.shape.dim]
            feed[item.name] = np.zeros(dims, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        session.run(None, feed)
    except Exception as error:
        print(error)
worker = threading.Thread(target=run)
worker.start()
worker.join()
"""


def knows(op: str, opset: int) -> bool:
    """Return whether the runtime has the schema of an operator that holds at an opset, as onnx has it."""
    from surgery.model.targets.kernels import installed

    schema = installed().schema("", op, opset)
    return schema is not None and schema.since >= onnx.defs.get_schema(op, opset).since_version


def attributes(op: str) -> frozenset[str]:
    """Return the names of the attributes that an operator of com.microsoft has."""
    from surgery.model.targets.kernels import installed

    schema = installed().schema("com.microsoft", op, 1)
    return frozenset() if schema is None else frozenset(schema.attributes)


def has_kernel(op: str, kind: str, opset: int = 21) -> bool:
    """Return whether the runtime runs an operator on elements of a type, such as "double", on the CPU."""
    from surgery.model.targets.kernels import installed

    kernels = installed().of("", op, onnx.defs.get_schema(op, opset).since_version)
    return any(f"tensor({kind})" in types for constraints in kernels for types in constraints.values())


def without_kernel(ops: tuple[str, ...], kind: str) -> str:
    """Return the first of some operators that the runtime does not run on a type; skip the test when it runs all."""
    for op in ops:
        if not has_kernel(op, kind):
            return op
    pytest.skip(f"the installed ONNX Runtime runs all of {', '.join(ops)} on {kind}")


def fate(model: onnx.ModelProto) -> str:
    """Say how a plain session ends that runs a model on zeros, with a small stack: a signal, what it raises, or ""."""
    ended = subprocess.run(
        [sys.executable, "-c", _PLAIN], input=model.SerializeToString(), capture_output=True, timeout=120, check=False
    )
    return signal.Signals(-ended.returncode).name if ended.returncode < 0 else ended.stdout.decode().strip()


@cache
def multiplies_integers() -> bool:
    """Return whether MatMulInteger is exact for rows of 24 columns; ONNX Runtime 1.22 is not on CPUs with AMX."""
    draw = np.random.default_rng(0)
    a, w = draw.integers(0, 256, (64, 32)).astype(np.uint8), draw.integers(-127, 128, (32, 24)).astype(np.int8)
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[64,32] a) => (int32[64,24] y) <int8[32,24] w = {'
        + ", ".join(map(str, w.flat))
        + "}> { y = MatMulInteger(a, w) }"
    )
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return bool(np.array_equal(session.run(None, {"a": a})[0], a.astype(np.int64) @ w.astype(np.int64)))


@cache
def multiplies_bits(bits: int) -> bool:
    """Return whether MatMulNBits runs on weights of a number of bits, with data rounded to 8 bits.

    ONNX Runtime 1.22 runs it on weights of 4 and 8 bits only.
    """
    codes = ", ".join(["0"] * (4 * bits))
    options = f"K = 32, N = 1, bits = {bits}, block_size = 32, accuracy_level = 4"
    text = (
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[1,32] x) => (float[1,1] y)'
        f"<uint8[1,1,{4 * bits}] codes = {{{codes}}}, float[1] scales = {{1}}>"
        f"{{ y = com.microsoft.MatMulNBits<{options}>(x, codes, scales) }}"
    )
    return not fate(onnx.parser.parse_model(text))


@cache
def centers_exactly() -> bool:
    """Return whether LayerNormalization is exact far from 0; ONNX Runtime 1.22 subtracts squares there."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x, float[8] s) => (float[4,8] y)'
    model = onnx.parser.parse_model(f"{text} {{ y = LayerNormalization<epsilon = 1e-5>(x, s) }}")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(100, 1, (4, 8)).astype(np.float32)
    centered = x - x.mean(-1, dtype=np.float64, keepdims=True)
    wanted = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 1e-5)
    found = session.run(None, {"x": x, "s": np.ones(8, np.float32)})[0]
    return bool(np.abs(found - wanted).max() < 1e-4)


@cache
def hides_rows() -> bool:
    """Return whether Attention makes a row 0 whose keys are all hidden by minus infinity; ONNX Runtime 1.27 gives NaN.

    Requires opset 23 of onnx.
    """
    text = (
        '<ir_version: 10, opset_import: ["": 23]> g (float[1,1,1,2] x) => (float[1,1,1,2] y)'
        "<float[1,1] mask = {-inf}> { y = Attention(x, x, x, mask) }"
    )
    return not _outputs(text, x=np.ones((1, 1, 1, 2), np.float32))[0].any()


@cache
def reduces_nothing() -> bool:
    """Return whether ReduceSum drops an axis where there is nothing to sum; ONNX Runtime 1.27 keeps it."""
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[N,2] x) => (float[N] y)'
        "<int64[1] last = {-1}> { y = ReduceSum<keepdims = 0>(x, last) }"
    )
    return _outputs(text, x=np.ones((0, 2), np.float32))[0].ndim == 1


@cache
def weights_padding() -> bool:
    """Return whether the padding of a prompt gets weights of sum 1 from GroupQueryAttention.

    ONNX Runtime 1.27 counts the keys past the end of a sequence in them, and leaves out their values.
    """
    text = (
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
        "g (float[2,2,16] x, float[2,2,16] v, int32[2] last, int32 total) => (float[2,2,16] y, float[] k, float[] w)"
        "{ y, k, w = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1>(x, x, v, , , last, total) }"
    )
    x = np.zeros((2, 2, 16), np.float32)
    y = _outputs(text, x=x, v=x + 1, last=np.int32([1, 0]), total=np.array(2, np.int32))[0]
    return bool((y == 1).all())


def _outputs(text: str, **feeds: np.ndarray[Any, Any]) -> list[Any]:
    """Run a model in this process, as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.parser.parse_model(text).SerializeToString()
    return list(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds))


_PAIR = """
import sys
import numpy as np, onnx, onnxruntime
from onnx import TensorProto
models = [onnx.ModelProto.FromString(bytes.fromhex(text)) for text in sys.stdin.read().split()]
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 4
def drawn(item, draw, scale, shift, extent):
    kind = item.type.tensor_type
    dims = [dim.dim_value or extent for dim in kind.shape.dim]
    if kind.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        array = draw.normal(shift, scale, dims)
    else:
        array = draw.integers(0, 2 if scale else 1, dims)
    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
try:
    sessions = [
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for model in models
    ]
    for seed, scale, shift, extent in ((0, 1, 0, 2), (1, 0.2, 4, 2), (2, 1, 0, 37), (3, 0, 0, 2)):
        draw = np.random.default_rng(seed)
        feed = {item.name: drawn(item, draw, scale, shift, extent) for item in models[0].graph.input}
        for a, b in zip(*(session.run(None, feed) for session in sessions)):
            if np.shape(a) != np.shape(b) or not np.allclose(a, b, rtol=2e-5, atol=1e-5, equal_nan=True):
                sys.exit(print("it computes them differently"))
except Exception as error:
    print(" ".join(str(error).split()))
"""


def difference(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """Say how plain sessions differ on two models that compute the same, or why one does not run; "" if they agree."""
    given = " ".join(model.SerializeToString().hex() for model in (before, after))
    ended = subprocess.run(
        [sys.executable, "-c", _PAIR], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    return signal.Signals(-ended.returncode).name if ended.returncode < 0 else ended.stdout.strip()


def is_killed_by(model: onnx.ModelProto) -> str:
    """Return the signal that ends a plain session of the runtime; skip the test when a model does not kill it."""
    ends = fate(model)
    if not ends.startswith("SIG"):
        pytest.skip(f"the installed ONNX Runtime outlives the model: {ends or 'it runs'}")
    return ends
