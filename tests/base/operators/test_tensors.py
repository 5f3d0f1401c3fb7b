"""The elements of stored tensors, whatever the installed onnx reads itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.base.operators.dtypes import ONNX_TYPES, dtype_of, type_of
from surgery.base.operators.message_tensors import from_array, to_array
from surgery.base.operators.use import Index, TypedIndex
from surgery.model import storage
from surgery.model.runtime.float64_model import to_double
from surgery.verification.inputs.given_values import read_proto

# Written by hand from the definitions of the formats: the number of the type, its bits, and what they stand for.
ELEMENTS = [
    (16, b"\x80\x3f\x00\xc0\x80\x7f", [1, -2, np.inf]),
    (17, b"\x38\xc0\x7e", [1, -2, 448]),
    (18, b"\x40\xc8\x7f", [1, -2, 240]),
    (19, b"\x3c\xc0\x7c", [1, -2, np.inf]),
    (20, b"\x40\xc4\x7f", [1, -2, 57344]),
    (21, b"\xf1\x07", [1, 15, 7]),
    (22, b"\xf1\x08", [1, -1, -8]),
    (23, b"\xf2\x01", [1, -6, 0.5]),
    (24, b"\x7f\x80\x7e", [1, 2, 0.5]),
    (25, b"\x39", [1, 2, 3]),
    (26, b"\x39", [1, -2, -1]),
]


def _raw(number: int, raw: bytes) -> onnx.TensorProto:
    return onnx.TensorProto(name="t", data_type=number, dims=[3], raw_data=raw)


def test_each_type_that_numpy_lacks_has_a_row() -> None:
    assert [number for number, _, _ in ELEMENTS] == [*ONNX_TYPES]


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_elements_are_read_as_their_type(number: int, raw: bytes, wanted: list[float]) -> None:
    found = to_array(_raw(number, raw))
    assert found.dtype == dtype_of(number)
    assert found.astype(np.float64).tolist() == wanted


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_elements_in_a_list_of_integers_are_read_as_their_type(number: int, raw: bytes, wanted: list[float]) -> None:
    items = np.frombuffer(raw, np.uint16 if number == 16 else np.uint8)
    tensor = onnx.TensorProto(data_type=number, dims=[3], int32_data=items.tolist())
    assert to_array(tensor).astype(np.float64).tolist() == wanted


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_elements_are_written_as_their_type(number: int, raw: bytes, wanted: list[float]) -> None:
    made = from_array(np.array(wanted).astype(ONNX_TYPES[number]), "t")
    assert made == _raw(number, raw)


@pytest.mark.parametrize("number", [number for number in range(1, 27) if number != 8])
def test_a_dtype_has_the_number_of_its_type(number: int) -> None:
    dtype = dtype_of(number)
    assert dtype is not None and type_of(dtype) == number


def test_texts_have_the_number_of_strings() -> None:
    assert {type_of(np.array(["a"], kind).dtype) for kind in ("U1", "S1", object)} == {onnx.TensorProto.STRING}


@pytest.mark.parametrize("dims", [[], [0], [0, 3], [2, 3]])
@pytest.mark.parametrize("number", [1, 16, 22])
def test_scalars_and_empty_tensors_keep_their_dims(number: int, dims: list[int]) -> None:
    array = np.ones(dims, dtype_of(number))
    back = to_array(from_array(array))
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    assert np.array_equal(back, array)


@pytest.mark.parametrize("dims", [[2], [4], [3, 2]])
def test_bytes_that_do_not_fit_the_dims_are_no_tensor(dims: list[int]) -> None:
    tensor = onnx.TensorProto(name="t", data_type=16, dims=dims, raw_data=bytes(6))
    with pytest.raises(ValueError, match="'t' has 6 bytes; its type and dims require"):
        to_array(tensor)


def test_data_in_another_file_is_not_read() -> None:
    tensor = onnx.TensorProto(name="t", data_type=16, dims=[3])
    tensor.external_data.add(key="location", value="weights")
    with pytest.raises(ValueError, match="in another file"):
        to_array(tensor)


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_the_reference_in_float64_has_the_numbers(number: int, raw: bytes, wanted: list[float]) -> None:
    assert onnx.numpy_helper.to_array(to_double(_raw(number, raw))).tolist() == wanted


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_facts_about_operators_see_the_numbers(number: int, raw: bytes, wanted: list[float]) -> None:
    model = onnx.ModelProto(graph=onnx.GraphProto(initializer=[_raw(number, raw)]))
    found = TypedIndex(Index(model), {}).constant("t")
    assert found is not None and found.astype(np.float64).tolist() == wanted


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_files_of_inputs_hold_the_numbers(number: int, raw: bytes, wanted: list[float], tmp_path: Path) -> None:
    tensor = _raw(number, raw)
    sequence = onnx.SequenceProto(name="t", elem_type=onnx.SequenceProto.TENSOR, tensor_values=[tensor, tensor])
    optional = onnx.OptionalProto(name="t", elem_type=onnx.OptionalProto.TENSOR, tensor_value=tensor)
    for kind, proto in (("tensor", tensor), ("sequence", sequence), ("optional", optional)):
        path = tmp_path / f"{kind}.pb"
        path.write_bytes(proto.SerializeToString())
        _, found = read_proto(path, kind)
        for array in found if kind == "sequence" else [found]:
            assert array.astype(np.float64).tolist() == wanted


@pytest.mark.parametrize(("number", "raw", "wanted"), ELEMENTS)
def test_equal_elements_have_equal_bytes(number: int, raw: bytes, wanted: list[float]) -> None:
    items = np.frombuffer(raw, np.uint16 if number == 16 else np.uint8).tolist()
    first, second = (
        onnx.TensorProto(data_type=number, dims=[3], int32_data=numbers) for numbers in (items, [*items[:-1], 0])
    )
    assert storage.bytes_of(first) != storage.bytes_of(second)


def test_surplus_items_of_packed_elements_are_ignored_as_onnx_does() -> None:
    tensor = onnx.TensorProto(name="q", data_type=onnx.TensorProto.INT4, dims=[4, 2])
    tensor.int32_data.extend([1, 2, 3, 4, 5, -6, -8, 7])
    assert to_array(tensor).tolist() == [[1, 0], [2, 0], [3, 0], [4, 0]]
