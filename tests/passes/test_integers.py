"""Affine quantization of arrays, next to what ONNX Runtime's QuantizeLinear and DequantizeLinear compute."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import quantized
from surgery.passes.precision import _integers
from surgery.passes.precision._integers import affine, fit, integer_type

from surgery import Refusal

RANDOM = np.random.default_rng(3)
WEIGHT = (RANDOM.standard_normal((37, 21)) * np.linspace(0.01, 4, 21)).astype(np.float32)
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16}


def by_runtime(array: np.ndarray, found: _integers.Affine, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantize an array, and dequantize the result, with the operators themselves."""
    name = found.kind.name
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    outputs = [
        helper.make_tensor_value_info("q", TYPES[name], array.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, array.shape),
    ]
    parameters = [numpy_helper.from_array(found.scales.astype(np.float32), "s")]
    parameters.append(numpy_helper.from_array(found.zero_points(), "z"))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, array.shape)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, parameters)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    first, second = quantized.run(model, {"x": array}, optimized=False)
    return first, second


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("axes", [(), (0,), (1,)])
@pytest.mark.parametrize("name", TYPES)
def test_quantized_integers_match_the_onnx_operators(
    name: str, axes: tuple[int, ...], symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_integers, "BLOCK", 100)  # several blocks of rows
    found = fit(WEIGHT, integer_type(name), axes, symmetric=symmetric)
    integers, numbers = by_runtime(WEIGHT, found, axes[0] if axes else 0)
    ours = found.quantize(WEIGHT)
    assert ours.dtype == integers.dtype
    # In float32 a quotient may fall on the other side of a half; that is rare, and one step.
    assert np.abs(ours.astype(int) - integers).max() <= 1
    assert (ours != integers).mean() < 0.01
    np.testing.assert_allclose(found.dequantize(integers, np.dtype(np.float32)), numbers, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["int8", "uint8", "int4", "uint4", "int2"])
@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
def test_errors_are_half_a_step_at_most(name: str, axes: tuple[int, ...]) -> None:
    found = fit(WEIGHT, integer_type(name), axes)
    back = found.dequantize(found.quantize(WEIGHT), np.dtype(np.float64))
    # A zero point is rounded, too, which may clip half a step at one end.
    assert (np.abs(back - WEIGHT) <= found.scale * (1 + 1e-6)).all()


def test_halves_are_rounded_to_even() -> None:
    found = affine(-127.0, 127.0, integer_type("int8"), symmetric=True)
    array = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 130.0], np.float32)
    assert found.quantize(array).tolist() == [0, 2, 2, 0, -2, 126, 127]


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("axes", [(), (1,)])
def test_a_search_never_makes_the_squared_error_larger(name: str, axes: tuple[int, ...]) -> None:
    array = WEIGHT.copy()
    array[0] *= 8  # an outlier in each column
    whole, searched = (fit(array, integer_type(name), axes, symmetric=True, search=search) for search in (False, True))
    errors = [
        np.square(one.dequantize(one.quantize(array), np.dtype(np.float64)) - array).sum() for one in (whole, searched)
    ]
    assert errors[1] <= errors[0]
    assert name != "int4" or errors[1] < 0.95 * errors[0]
    np.testing.assert_allclose(searched.squared_error(array).sum(), errors[1], rtol=1e-6)


def test_a_range_of_zeros_has_the_scale_1_and_zero_is_always_exact() -> None:
    array = np.zeros((4, 3), np.float32)
    array[:, 1], array[:, 2] = [1, 2, 3, 4], [-5, -6, -7, -8]
    found = fit(array, integer_type("uint8"), (1,))
    assert found.scales[0] == 1
    zeros = found.dequantize(found.zero_point.astype(np.uint8), np.dtype(np.float32))
    assert not zeros.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused(bad: float) -> None:
    array = WEIGHT.copy()
    array[5, 5] = bad
    with pytest.raises(Refusal, match="the weight is not finite"):
        fit(array, integer_type("int8"), (1,))


def test_reduced_ranges_and_small_types() -> None:
    assert [integer_type(name).reduced(7).high for name in ("int8", "uint8")] == [63, 127]
    assert integer_type("int4").dtype == ml_dtypes.int4
    found = fit(WEIGHT, integer_type("int8").reduced(7), (1,), symmetric=True)
    integers = found.quantize(WEIGHT)
    assert integers.max() == 63
    assert integers.min() >= -63


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1, 1)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    found = fit(np.full(shape, 2.0, np.float32), integer_type("int8"), symmetric=True)
    assert found.quantize(np.full(shape, 2.0, np.float32)).shape == shape
    assert numpy_helper.from_array(found.scales).dims == []


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 24), (1,)),
        ((64, 24), (0,)),
        ((64, 24), ()),
        ((3, 40, 8), (0, 2)),
        ((8, 6, 3, 3), (0,)),
        ((6, 1, 5), (0,)),
        ((9,), ()),
        ((1, 1), (1,)),
        ((3, 1 << 17), (0,)),
    ],
)
def test_no_two_neighbours_saturate_together(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Products with uint8 are added in pairs: of a weight of one sign, both neighbours may be large."""
    array = np.abs(np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    kind = replace(integer_type("int8"), pairs=True)
    for signed in (array, -array, array * np.where(np.arange(array.size).reshape(shape) % 3, 1, -1).astype(np.float32)):
        found = fit(signed, kind, axes, symmetric=True)
        made = found.quantize(signed).astype(np.int64)
        others = [axis for axis in range(len(shape)) if axis not in axes]
        for order in (others, [*others[1:], others[0]]):
            rows = np.transpose(made, (*axes, *order)).reshape(-1, int(np.prod([shape[axis] for axis in others])))
            for some in (np.maximum(rows, 0), np.minimum(rows, 0)):
                assert np.abs(some[:, 1:] + some[:, :-1]).max(initial=0) <= 128
        plain = fit(signed, integer_type("int8"), axes, symmetric=True)
        assert ((plain.scale <= found.scale) & (found.scale <= 2.02 * plain.scale)).all()


def test_a_weight_next_to_small_weights_keeps_all_bits() -> None:
    array = np.array([[0.01, 1.0, -1.0, 0.005]], np.float32)
    kind = replace(integer_type("int8"), pairs=True)
    assert fit(array, kind, (0,), symmetric=True).quantize(array).tolist() == [[1, 126, -126, 1]]


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_products_of_weights_without_saturating_pairs_are_exact(rows: int) -> None:
    """On any CPU, with the data that saturates most."""
    rng = np.random.default_rng(rows)
    kind = replace(integer_type("int8"), pairs=True)
    for depth, columns in ((2, 1), (7, 5), (64, 64), (129, 33)):
        array = rng.standard_normal((depth, columns)).astype(np.float32) + np.float32(1.0)
        weight = fit(array, kind, (1,), symmetric=True).quantize(array)
        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, depth])],
            [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, columns])],
            [numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 13)])
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for x in (np.full((rows, depth), 255, np.uint8), rng.integers(0, 2, (rows, depth), np.uint8) * np.uint8(255)):
            assert np.array_equal(session.run(None, {"x": x})[0], x.astype(np.int32) @ weight.astype(np.int32))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_an_empty_weight_has_no_neighbours(shape: tuple[int, ...]) -> None:
    assert not _integers.largest_pairs(np.zeros(shape, np.float32), (0,)).any()
