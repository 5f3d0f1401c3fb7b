"""Values that are fitted to an input, and messages about those that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.verification.inputs.given_values import (
    MisfitError,
    _check_elements,
    _named,
    _short,
    fit,
    fit_all,
    natural,
    read_proto,
    read_value,
    sets_in,
    shape_of,
    split,
    unknown_input,
)
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import TensorSpec

INT4, BF16 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.bfloat16)
TEXT = np.dtype(object)
FLOAT = np.dtype(np.float32)


def _port(
    dtype: Any = FLOAT, dims: Any = ("n",), kind: str = "tensor", inner: str = "tensor", **more: Any
) -> InputPort:
    return InputPort("x", kind, None if dtype is None else np.dtype(dtype), tuple(dims), inner, **more)


@pytest.mark.parametrize(
    ("value", "port", "dtype", "expected"),
    [
        (np.array([-8, 7]), _port(INT4), INT4, [-8, 7]),
        (np.array([], np.int64), _port(INT4), INT4, []),
        (np.array([0.5], np.float64), _port(BF16), BF16, [0.5]),
        (np.array([16384], np.uint16).view("V2"), _port(BF16), BF16, [2.0]),
        (np.array([b"a", "é".encode()]), _port(TEXT), TEXT, ["a", "é"]),
        (np.array(["a"], object), _port(TEXT), TEXT, ["a"]),
        (np.array([3], ">i8"), _port(np.int64), np.dtype("int64"), [3]),
        (np.zeros((2, 2), np.float32), _port(ranked=False), FLOAT, [[0, 0], [0, 0]]),
        (np.zeros((1, 2), np.float32), _port(dims=("n", 2)), FLOAT, [[0, 0]]),
    ],
)
def test_a_value_gets_the_type_of_the_input(value: Any, port: InputPort, dtype: Any, expected: list[Any]) -> None:
    found = fit(value, port)
    assert found.dtype == dtype and found.dtype.isnative and found.tolist() == expected


@pytest.mark.parametrize(
    ("value", "port", "words"),
    [
        (np.array([-9, 0]), _port(INT4), "'x' is int64, the model takes int4; convert it with .astype('int4')"),
        (np.array([0, 8]), _port(INT4), "'x' is int64, the model takes int4; convert it with .astype('int4')"),
        (np.array([0.5]), _port(INT4), "'x' is float64, the model takes int4; convert it with .astype('int4')"),
        (np.array([1]), _port(BF16), "'x' is int64, the model takes bfloat16; convert it with .astype('bfloat16')"),
        (np.zeros(1, "V4"), _port(BF16), "'x' is void32, the model takes bfloat16"),
        (np.array([1]), _port(TEXT), "'x' is int64, the model takes text"),
        (
            np.array(["a", 1], dtype=object),
            _port(TEXT),
            "'x' is an array with elements of type 'int', the model takes text",
        ),
        (np.array(["1"]), _port(), "'x' is text, the model takes float32"),
        (np.array([b"1"]), _port(), "'x' is text, the model takes float32"),
        ([np.zeros(1)], _port(), "'x' is a list, the model takes one tensor"),
        (np.zeros(1), _port(kind="sequence"), "'x' is one tensor, the model takes a sequence"),
        (np.zeros(1), _port(kind="optional", inner="sequence"), "'x' is one tensor, the model takes a sequence"),
        (np.zeros(1), _port(None), "'x' has an unsupported type in the model"),
        (
            np.zeros((1, 2), np.float32),
            _port(dims=("x[0]", "n", 3)),
            "'x' has rank 2, not 3: its shape is [1, 2], the model takes [?, n, 3]",
        ),
        (np.zeros((4, 2), np.float32), _port(dims=("n", 3)), "'x' has shape [4, 2], the model takes [n, 3]"),
    ],
)
def test_a_value_that_does_not_fit(value: Any, port: InputPort, words: str) -> None:
    with pytest.raises(MisfitError) as caught:
        fit(value, port)
    assert str(caught.value) == words


def test_sequences_and_optionals() -> None:
    items = [np.zeros(2, np.float32), np.ones(3, np.float32)]
    for port in (_port(kind="sequence"), _port(kind="optional", inner="sequence")):
        assert [len(one) for one in fit(items, port)] == [2, 3]
        assert fit((), port) == []
    assert fit(None, _port(kind="optional")) is None
    assert fit(items[0], _port(kind="optional")).tolist() == [0, 0]
    assert shape_of(items) == (2,) and shape_of([]) is None and shape_of(None) is None


def test_all_inputs_are_given_unless_they_may_be_missing() -> None:
    ports = [InputPort(name, kind, FLOAT, (1,)) for name, kind in (("a", "tensor"), ("b", "optional"), ("c", "tensor"))]
    default = InputPort("w", "tensor", FLOAT, (1,))
    one = np.ones(1, np.float32)
    assert fit_all({"a": one, "c": one}, ports, [default]) == {"a": one, "b": None, "c": one}
    assert [*fit_all({"c": one, "w": one, "a": one, "b": one}, ports, [default])] == ["a", "b", "c", "w"]
    assert fit_all({"a": one}, ports, complete=False) == {"a": one}
    with pytest.raises(MisfitError, match=r"^no value is given for input 'a', 'c'; the model takes a, b, c$"):
        fit_all({"b": one}, ports)
    with pytest.raises(MisfitError, match=r"^the model has no input 'w'; its inputs are a, b, c$"):
        fit_all({"w": one}, ports)
    assert str(unknown_input("x", [])) == "the model has no input 'x'; its inputs are none"


def test_other_arrays_are_labels_unless_they_are_misspelt() -> None:
    ports = [InputPort("image", "tensor", FLOAT, (1,)), InputPort("bounds", "optional", FLOAT, (1,))]
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    one = np.ones(1, np.float32)
    found = split({"image": one, "y": one, "label": one}, ports, (), graph, labelled=True)
    assert ([*found.inputs], [*found.outputs], [*found.others]) == (["image", "bounds"], ["y"], ["label"])
    with pytest.raises(MisfitError, match="no input 'bound'; did you mean 'bounds'"):
        split({"image": one, "bound": one}, ports, (), graph, labelled=True)
    # It is like an input that is given, too.
    assert [*split({"image": one, "images": one}, ports, (), graph, labelled=True).others] == ["images"]
    with pytest.raises(MisfitError, match="no input 'label'"):
        split({"image": one, "label": one}, ports, (), graph)


def test_a_value_is_read_by_its_name_or_as_the_only_one(tmp_path: Path) -> None:
    one, two = np.ones(1, np.float32), np.full(1, 2, np.float32)
    np.savez(tmp_path / "both.npz", other=one, x=two)
    np.savez(tmp_path / "one.npz", other=one)
    np.savez(tmp_path / "two.npz", a=one, b=two)
    np.savez(tmp_path / "none.npz")
    np.save(tmp_path / "x.npy", two)
    found = [read_value(tmp_path / name, _port()).tolist() for name in ("both.npz", "one.npz", "x.npy")]
    assert found == [[2], [1], [2]]
    for name, words in (("two.npz", "it has no array 'x'; it has a, b"), ("none.npz", "no array 'x'; it has none")):
        with pytest.raises(MisfitError, match=words):
            read_value(tmp_path / name, _port())


@pytest.mark.parametrize(
    ("dtype", "spec", "words"),
    [
        (np.int8, TensorSpec(values=(-128, 127)), ""),
        (np.int8, TensorSpec(range=(-129, 0)), "'x' is int8 in the model, which cannot hold -129"),
        (np.int8, TensorSpec(values=(128,)), "'x' is int8 in the model, which cannot hold 128"),
        (np.int8, TensorSpec(values=(2.0,)), ""),
        (np.float32, TensorSpec(range=(-0.5, 1e30)), ""),
        (np.float32, TensorSpec(), ""),
        (object, TensorSpec(values=("a",)), ""),
        (object, TensorSpec(values=("a", 2)), "'x' is text in the model, which 2 is not"),
        (None, TensorSpec(values=("a", 2)), ""),
    ],
)
def test_hints_that_a_type_can_hold(dtype: Any, spec: TensorSpec, words: str) -> None:
    if not words:
        _check_elements(spec, _port(dtype))
        return
    with pytest.raises(MisfitError) as caught:
        _check_elements(spec, _port(dtype))
    assert str(caught.value) == words


def _write(path: Path, **arrays: Any) -> dict[int, Path]:
    path.mkdir()
    files = {}
    for index, (name, array) in enumerate(arrays.items()):
        files[index] = path / f"input_{index}.pb"
        files[index].write_bytes(numpy_helper.from_array(array, name.strip("_")).SerializeToString())
    return files


def test_files_are_named_by_what_they_hold_if_that_is_clear(tmp_path: Path) -> None:
    one, two = np.ones(1), np.full(1, 2.0)
    known = [("a", "tensor"), ("b", "tensor")]

    def named(files: dict[int, Path], known: list[tuple[str, str]]) -> dict[str, float]:
        return {name: value.item() for name, value in _named(files, known[:2], known).items()}

    assert named(_write(tmp_path / "swapped", b=one, a=two), known) == {"b": 1, "a": 2}
    assert named(_write(tmp_path / "unknown", b=one, c=two), known) == {"a": 1, "b": 2}
    assert named(_write(tmp_path / "twice", b=one, b_=two), known) == {"a": 1, "b": 2}
    # With inputs of several kinds, the position says how a file is to be read.
    mixed = [*known, ("s", "sequence")]
    assert named(_write(tmp_path / "mixed", b=one, a=two), mixed) == {"a": 1, "b": 2}


def test_a_protobuf_is_read_as_the_kind_of_the_input(tmp_path: Path) -> None:
    path = tmp_path / "input_0.pb"
    with pytest.raises(MisfitError, match=r"^input_0\.pb is for a map, which cannot be fed or compared$"):
        read_proto(path, "map")
    with pytest.raises(MisfitError, match=r"^input_0\.pb cannot be read as a SequenceProto: no such file$"):
        read_proto(path, "sequence")
    nested = onnx.SequenceProto(name="s", elem_type=onnx.SequenceProto.SEQUENCE)
    nested.sequence_values.append(numpy_helper.from_list([np.ones(1)], "inner"))
    path.write_bytes(nested.SerializeToString())
    assert read_proto(path, "sequence") == ("s", [[np.ones(1)]])
    optional = numpy_helper.from_optional([np.ones(1)], "o", onnx.OptionalProto.SEQUENCE)
    path.write_bytes(optional.SerializeToString())
    assert read_proto(path, "optional") == ("o", [np.ones(1)])
    path.write_bytes(onnx.OptionalProto(name="o", elem_type=onnx.OptionalProto.SEQUENCE).SerializeToString())
    assert read_proto(path, "optional") == ("o", None)


def test_long_messages_are_cut_and_empty_ones_name_the_error() -> None:
    assert _short(ValueError("a\n  b")) == "a b"
    assert _short(KeyError()) == "KeyError"
    assert _short(ValueError("x" * 200)) == "x" * 200
    assert _short(ValueError("x" * 201)) == "x" * 200 + "…"


def test_sets_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MisfitError, match=r"^no such file or folder$"):
        sets_in(tmp_path / "none")
    for name in ("set_10", "set_9", "outputs", "empty", "folder.npz"):
        (tmp_path / name).mkdir()
    for name in ("set_10/input_0.pb", "set_9/input_0.pb", "outputs/output_0.pb", "empty/input_1.pb", "7.npz", "8.npy"):
        (tmp_path / name).touch()
    assert [path.name for path in sets_in(tmp_path)] == ["7.npz", "outputs", "set_9", "set_10"]
    assert sets_in(tmp_path / "set_9") == [tmp_path / "set_9"] and sets_in(tmp_path / "8.npy") == [tmp_path / "8.npy"]
    assert natural(Path("a10b")) == [(0, "a"), (10, ""), (0, "b")]
