"""Square matrices: how a model reads them decides whether they are transposed, also through other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from support import torch_files as t

from surgery.features.frameworks.import_plan import Layout
from surgery.features.frameworks.importing import Imported, import_weights
from surgery.features.frameworks.mapping import NameMapping, TensorSource
from surgery.features.frameworks.target_tensors import targets

SIZE = 4
SQUARE = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
OTHER = np.arange(SIZE * 6, dtype=np.float32).reshape(6, SIZE)
"""As torch.nn.Linear has it; the model has it transposed."""

ROWS = {
    "directly": "t = MatMul(x, w)",
    "a Cast": "c = Cast<to=1>(w)\n t = MatMul(x, c)",
    "an Identity and directly": "c = Identity(w)\n s = MatMul(x, w)\n t = MatMul(s, c)",
    "fake quantization": "q = QuantizeLinear(w, one)\n d = DequantizeLinear(q, one)\n t = MatMul(x, d)",
    "a scale": "c = Mul(w, one)\n t = MatMul(x, c)",
    "a Transpose for Gemm": "c = Transpose<perm=[1,0]>(w)\n t = Gemm<transB=1>(x, c)",
    "a Shape, too": "d = Shape(w)\n t = MatMul(x, w)",
}
AS_THEY_ARE = {
    "Gemm with transB": "t = Gemm<transB=1>(x, w)",
    "a Transpose that was not folded": "c = Transpose(w)\n t = MatMul(x, c)",
    "weight normalization": "n = ReduceL2(w)\n d = Div(w, n)\n c = Transpose<perm=[1,0]>(d)\n t = MatMul(x, c)",
    "a table": "t = Gather(w, ids)",
    "a table that is the output layer, too": "e = Gather(w, ids)\n c = Transpose(w)\n t = MatMul(e, c)",
    "a position for each row": "t = Add(x, w)",
    "the left side": "t = MatMul(w, x)",
}
UNCLEAR = {
    "MatMul and Gemm with transB": "s = MatMul(x, w)\n t = Gemm<transB=1>(s, w)",
    "MatMul and Gather": "e = Gather(w, ids)\n t = MatMul(e, w)",
    "a Reshape": "c = Reshape(w, dims)\n t = MatMul(x, c)",
    "an operator that is not known": "t = com.acme.Linear(x, w)",
    "Einsum": 't = Einsum<equation="ab,bc->ac">(x, w)',
    "the result of a branch": "t = If<then_branch = a () => (u) { u = Identity(w) },"
    " else_branch = b () => (n) { n = MatMul(x, w) }>(yes)",
}


def model(reading: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21, "com.acme": 1]>
        g (float[{SIZE},{SIZE}] x, int64[{SIZE}] ids, bool yes) => (float[{SIZE},6] y)
        <float one = {{1}}, int64[2] dims = {{{SIZE}, {SIZE}}}> {{
            {reading}
            y = MatMul(t, v)
        }}
    """)
    tensors = {"w": np.zeros((SIZE, SIZE), np.float32), "v": np.zeros((SIZE, 6), np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return proto


def imported(
    tmp_path: Path, reading: str, layout: Layout = "auto", transpose: bool | None = None, name: str = "w.npz"
) -> Imported:
    if name.endswith(".npz"):
        np.savez(tmp_path / name, w=SQUARE, v=OTHER)
    else:
        t.saved(tmp_path / name, {"w": SQUARE, "v": OTHER})
    mapping = None if transpose is None else NameMapping({"w": TensorSource(("w",), transpose=transpose)})
    return import_weights(model(reading), [tmp_path / name], mapping=mapping, layout=layout)


def held(found: Imported) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(next(one for one in found.model.proto.graph.initializer if one.name == "w"))


@pytest.mark.parametrize("reading", ROWS.values(), ids=ROWS)
def test_a_square_matrix_is_transposed_as_the_others(tmp_path: Path, reading: str) -> None:
    found = imported(tmp_path, reading)
    assert found.ok
    np.testing.assert_array_equal(held(found), SQUARE.T)
    np.testing.assert_array_equal(held(imported(tmp_path, reading, "torch")), SQUARE.T)
    np.testing.assert_array_equal(held(imported(tmp_path, reading, "onnx")), SQUARE)


@pytest.mark.parametrize("reading", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_a_matrix_that_is_read_as_pytorch_has_it_stays(tmp_path: Path, reading: str) -> None:
    layouts: tuple[Layout, ...] = ("auto", "torch", "onnx")
    for layout in layouts:
        found = imported(tmp_path, reading, layout, name="w.pt")
        assert found.ok, found.plan.misfits
        np.testing.assert_array_equal(held(found), SQUARE)


@pytest.mark.parametrize("reading", UNCLEAR.values(), ids=UNCLEAR)
def test_a_matrix_without_a_known_input_axis_is_a_misfit(tmp_path: Path, reading: str) -> None:
    layouts: tuple[Layout, ...] = ("auto", "torch")
    for layout in layouts:
        found = imported(tmp_path, reading, layout, name="w.pt")
        (misfit,) = found.plan.misfits
        assert (misfit.kind, misfit.name) == ("layout", "w") and not found.ok
        assert "add 'transpose: true' or 'transpose: false' to its entry in the mapping" in misfit.message
    np.testing.assert_array_equal(held(imported(tmp_path, reading, "onnx")), SQUARE)
    for transpose, expected in ((True, SQUARE.T), (False, SQUARE)):
        np.testing.assert_array_equal(held(imported(tmp_path, reading, transpose=transpose)), expected)


def test_nodes_in_between_are_not_consumers() -> None:
    found = targets(model("c = Identity(w)\n d = Identity(c)\n e = Add(d, c)\n t = MatMul(x, e)"))["w"]
    assert [(one.op_type, one.reads) for one in found.consumers] == [("MatMul", "rows")]
