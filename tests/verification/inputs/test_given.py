"""Inputs that the user gives: read, fitted, preferred to what is drawn, and held against the outputs next to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.given_sets import BODY, arrays, expected, model, write_set
from support.lacking import computes_types

from surgery.base.errors import RecipeError, SurgeryError, UsageError
from surgery.model.graph import text
from surgery.verification.inputs.given import with_found_sets
from surgery.verification.inputs.spec import DataSpec, InputsSpec, Place, TensorSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier


def _given(*paths: Path | DataSpec, only: bool = True, **more: Any) -> InputsSpec:
    data = tuple(path if isinstance(path, DataSpec) else DataSpec(path) for path in paths)
    return InputsSpec(data=data, only_given=only, **more)


def _prepared(proto: onnx.ModelProto, inputs: InputsSpec) -> Verifier:
    verifier = Verifier(proto.SerializeToString(), inputs)
    verifier.original.prepare()
    return verifier


def _typed(*types: str) -> onnx.ModelProto:
    """A model that hands its inputs on; each type as in ONNX text."""
    ins = ", ".join(f"{kind} x{n}" for n, kind in enumerate(types))
    outs = ", ".join(f"{kind} y{n}" for n, kind in enumerate(types))
    return text.parse(f"g ({ins}) => ({outs}) {{ {' '.join(f'y{n} = Identity(x{n})' for n in range(len(types)))} }}")


# Where sets come from


def test_a_set_of_arrays_is_fed_and_binds_the_dims(tmp_path: Path) -> None:
    np.savez(tmp_path / "calibration.npz", **arrays(3))
    verifier = _prepared(model(), _given(tmp_path / "calibration.npz"))
    assert verifier.original.bindings == [{"dims": {"batch": 3}, "character": "calibration.npz", "seed": None}]
    (run,) = verifier.original.runs
    assert {name: array.tolist() for name, array in run.feed.items()} == {
        name: array.tolist() for name, array in arrays(3).items()
    }


def test_given_sets_precede_drawn_sets(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(3))
    characters = [
        item["character"] for item in _prepared(model(), _given(tmp_path / "a.npz", only=False)).original.bindings
    ]
    assert characters[0] == "a.npz"
    assert {"normal", "edges"} <= set(characters[1:])


def test_a_folder_of_sets_is_read_in_order(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        write_set(tmp_path / f"test_data_set_{number}", arrays(number + 1))
    np.savez(tmp_path / "more.npz", **arrays(7))
    (tmp_path / "notes.txt").write_text("nothing")
    bindings = _prepared(model(), _given(tmp_path)).original.bindings
    assert [(item["character"], item["dims"]["batch"]) for item in bindings] == [
        ("more.npz", 7),
        ("test_data_set_0", 1),
        ("test_data_set_2", 3),
        ("test_data_set_10", 11),
    ]


def test_sets_of_the_same_name_are_distinguished(tmp_path: Path) -> None:
    for folder in "ab":
        write_set(tmp_path / folder / "test_data_set_0", arrays())
    bindings = _prepared(model(), _given(tmp_path / "a", tmp_path / "b")).original.bindings
    assert [item["character"] for item in bindings] == ["a/test_data_set_0", "b/test_data_set_0"]


def test_a_test_set_next_to_the_model_is_found(tmp_path: Path) -> None:
    given = arrays()
    write_set(tmp_path / "test_data_set_0", given, expected(given))
    spec = with_found_sets(InputsSpec(), tmp_path / "model.onnx")
    bindings = _prepared(model(), spec).original.bindings
    assert bindings[0] == {
        "dims": {"batch": 3},
        "character": "test_data_set_0",
        "seed": None,
        "expected_outputs": "reproduced",
    }
    assert len(bindings) > 5
    assert with_found_sets(InputsSpec(), None) == InputsSpec()


def test_a_requested_set_that_is_also_found_is_used_once(tmp_path: Path) -> None:
    write_set(tmp_path / "test_data_set_0", arrays())
    for asked in (tmp_path, tmp_path / "test_data_set_0"):
        spec = with_found_sets(_given(asked), tmp_path / "model.onnx")
        assert [item.found for item in spec.data] == [False]


def test_a_found_set_that_does_not_fit_is_a_remark(tmp_path: Path) -> None:
    write_set(tmp_path / "test_data_set_0", {"x": np.zeros(3, np.float32), "i": np.arange(3)})
    verifier = _prepared(model(), with_found_sets(InputsSpec(), tmp_path / "model.onnx"))
    left = [item for item in verifier.original.bindings if item["character"] == "test_data_set_0"]
    assert len(left) == 1 and "rank 1, not 2" in left[0]["refused"]
    assert verifier.verify(model("t = Relu(x) y = Neg(t) j = Identity(i)").SerializeToString()).status == "equal"


def test_arrays_in_memory_are_a_set(tmp_path: Path) -> None:
    verifier = _prepared(model(), _given(DataSpec(Path("inputs 1"), arrays(2))))
    assert [item["character"] for item in verifier.original.bindings] == ["inputs 1"]


# How a set names its values


def test_protobufs_are_matched_by_name_or_else_by_position(tmp_path: Path) -> None:
    given = arrays()
    swapped = write_set(tmp_path / "swapped", {"i": given["i"], "x": given["x"]})
    nameless = write_set(tmp_path / "nameless", {"_x": given["x"], "_i": given["i"]})
    strange = write_set(tmp_path / "strange", {"foo": given["x"], "i": given["i"]})
    for folder in (swapped, nameless, strange):
        (run,) = _prepared(model(), _given(folder)).original.runs
        assert run.feed["x"].dtype == np.float32 and run.feed["i"].tolist() == [0, 1, 2]


def test_weights_that_are_listed_as_inputs_need_no_file(tmp_path: Path) -> None:
    proto = text.parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    proto.graph.input.insert(0, helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    value = np.array([5, 6], np.float32)
    only_x = write_set(tmp_path / "one", {"x": value})
    both = write_set(tmp_path / "both", {"_w": value * 0, "_x": value})
    for folder in (only_x, both):
        (run,) = _prepared(proto, _given(folder)).original.runs
        assert run.feed["x"].tolist() == [5, 6]


def test_a_set_may_give_an_input_with_a_default(tmp_path: Path) -> None:
    proto = text.parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { t = Identity(x) y = Add(t, w) }")
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    value = np.array([5, 6], np.float32)
    np.savez(tmp_path / "0.npz", x=value)
    np.savez(tmp_path / "1.npz", x=value, w=value)
    write_set(tmp_path / "2", {"w": value, "x": value})
    verifier = _prepared(proto, _given(tmp_path / "0.npz", tmp_path / "1.npz", tmp_path / "2", only=False))
    assert [run.outputs["y"].tolist() for run in verifier.original.runs[:3]] == [[6, 8], [10, 12], [10, 12]]
    changed = text.parse("g (float[2] x) => (float[2] y) <float[2] v = {1, 2}> { y = Add(x, v) }")
    changed.graph.input.append(proto.graph.input[1])
    changed.graph.initializer.append(numpy_helper.from_array(value, "w"))
    assert verifier.verify(changed.SerializeToString()).status == "different"
    hints = InputsSpec(tensors={"w": TensorSpec(range=(0, 1))})
    assert Verifier(proto.SerializeToString(), hints).verify(changed.SerializeToString()).status == "different"


def test_sequences_and_optionals_are_read(tmp_path: Path) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    kinds = [helper.make_sequence_type_proto(tensor), helper.make_optional_type_proto(tensor)]
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("SequenceLength", ["s"], ["n"]), helper.make_node("OptionalHasElement", ["o"], ["h"])],
            "g",
            [helper.make_value_info(name, kind) for name, kind in zip("so", kinds)],
            [
                helper.make_tensor_value_info("n", TensorProto.INT64, []),
                helper.make_tensor_value_info("h", TensorProto.BOOL, []),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    folder = write_set(tmp_path / "set", {"s": [np.zeros(2, np.float32)] * 3})
    for value, has in ((np.ones(2, np.float32), True), (None, False)):
        optional = numpy_helper.from_optional(value, "o", onnx.OptionalProto.TENSOR)
        (folder / "input_1.pb").write_bytes(optional.SerializeToString())
        (run,) = _prepared(proto, _given(folder)).original.runs
        assert run.outputs["n"] == 3 and bool(run.outputs["h"]) is has


# Types


@computes_types
def test_types_numpy_lacks_are_read_from_bytes_or_a_wider_type(tmp_path: Path) -> None:
    proto = _typed("bfloat16[n]", "int4[n]", "string[n]", "bool[n]")
    exact = {
        "x0": np.array([0.5, -2], ml_dtypes.bfloat16),
        "x1": np.array([-8, 7], ml_dtypes.int4),
        "x2": np.array(["a", "été"]),
        "x3": np.array([True, False]),
    }
    np.savez(tmp_path / "bytes.npz", **exact)
    wide = {**exact, "x0": np.array([0.5, -2], np.float32), "x1": np.array([-8, 7])}
    np.savez(tmp_path / "wide.npz", **wide)
    for name in ("bytes.npz", "wide.npz"):
        (run,) = _prepared(proto, _given(tmp_path / name)).original.runs
        assert run.feed["x0"].astype(float).tolist() == [0.5, -2]
        assert run.feed["x1"].astype(int).tolist() == [-8, 7]
        assert run.feed["x2"].tolist() == ["a", "été"]


def test_the_order_of_bytes_does_not_matter(tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", x=arrays()["x"].astype(">f4"), i=np.asfortranarray(arrays()["i"]))
    (run,) = _prepared(model(), _given(tmp_path / "big.npz")).original.runs
    assert run.feed["x"].tolist() == arrays()["x"].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((3, 4))}, "'x' is float64, the model takes float32; convert it with .astype('float32')"),
        ({"x": np.zeros((3, 4), np.float16)}, "'x' is float16, the model takes float32"),
        ({"i": np.zeros(3, np.float32)}, "'i' is float32, the model takes int64"),
        ({"i": np.array(["a", "b", "c"])}, "'i' is text, the model takes int64"),
        ({"x": np.zeros((3, 5), np.float32)}, "'x' has shape [3, 5], the model takes [batch, 4]"),
        ({"x": np.zeros(4, np.float32)}, "'x' has rank 1, not 2: its shape is [4], the model takes [batch, 4]"),
        ({"i": None}, "no value is given for input 'i'; the model takes x, i"),
        ({"ii": np.zeros(3)}, "the model has no input 'ii'; did you mean 'i'?"),
        ({"other": np.zeros(3)}, "the model has no input 'other'; its inputs are i, x"),
        ({"x": np.array([{}])}, "cannot be read: it contains no numpy arrays, or Python objects"),
    ],
)
def test_misfits_are_reported_in_one_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "given.npz"
    np.savez(path, **{name: array for name, array in {**arrays(), **change}.items() if array is not None})
    with pytest.raises(UsageError) as caught:
        Verifier(model().SerializeToString(), _given(path))
    assert str(caught.value).startswith(f"{path}: {words}")
    assert "\n" not in str(caught.value)
    place = Place("r.yaml", 4, 7)
    with pytest.raises(RecipeError) as caught_in_recipe:
        Verifier(model().SerializeToString(), _given(DataSpec(path, place=place)))
    assert str(caught_in_recipe.value).startswith(f"r.yaml:4:7: {path}: {words}")


@pytest.mark.parametrize(("numbers", "given"), [(np.arange(3), "int64"), (np.ones(3, np.float32), "float32")])
def test_numbers_are_not_taken_for_text(tmp_path: Path, numbers: np.ndarray[Any, Any], given: str) -> None:
    np.savez(tmp_path / "numbers.npz", x0=numbers)
    with pytest.raises(UsageError, match=f"'x0' is {given}, the model takes text"):
        Verifier(_typed("string[n]").SerializeToString(), _given(tmp_path / "numbers.npz"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npz", None, "no such file or folder"),
        ("a.npz", b"hello", "cannot be read: it contains no numpy arrays"),
        ("a.npz", b"PK\x03\x04cut", "cannot be read: "),
        ("a.txt", b"hello", "a '.txt' file is not an input set"),
        ("a.npy", b"", "a .npy holds one array, the model takes x, i; give a .npz"),
        ("folder", {}, "no inputs in this folder"),
        ("folder", {"input_0.pb": b"\xff\xff"}, "input_0.pb cannot be read as a TensorProto"),
        ("folder", {"input_0.pb": b""}, "input_0.pb cannot be read as a TensorProto"),
        ("folder", {"output_0.pb": b""}, "no value is given for input 'x', 'i'; the model takes x, i"),
    ],
)
def test_files_that_are_not_sets_are_reported_in_one_line(tmp_path: Path, name: str, content: Any, words: str) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        path.mkdir()
        for part, data in content.items():
            (path / part).write_bytes(data)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        Verifier(model().SerializeToString(), _given(path))
    assert str(caught.value).startswith(f"{path}: {words}") and "\n" not in str(caught.value)


def test_an_unexpected_file_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", {**arrays(), "k": np.zeros(1)})
    with pytest.raises(UsageError, match=r"input_2\.pb is unexpected; the model takes x, i"):
        Verifier(model().SerializeToString(), _given(folder))


def test_a_protobuf_cannot_reference_other_files(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", arrays())
    (tmp_path / "secret").write_bytes(bytes(48))
    proto = TensorProto(name="x", data_type=TensorProto.FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value=str(tmp_path / "secret"))
    (folder / "input_0.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match="its data is in another file"):
        Verifier(model().SerializeToString(), _given(folder))


# Expected outputs


@pytest.mark.parametrize("form", ["npz", "folder"])
def test_given_outputs_are_compared_with_the_original(tmp_path: Path, form: str) -> None:
    given = arrays()
    right, wrong = expected(given), {**expected(given), "y": -given["x"]}
    for name, outputs in (("right", right), ("wrong", wrong)):
        if form == "npz":
            np.savez(tmp_path / f"{name}.npz", **given, **outputs)
        else:
            write_set(tmp_path / name, given, outputs)
    verifier = _prepared(model(), _given(tmp_path))
    outcomes = {item["character"].partition(".")[0]: item["expected_outputs"] for item in verifier.original.bindings}
    assert outcomes["right"] == "reproduced"
    assert outcomes["wrong"].startswith("output 'y'[0, 0]: -0 instead of 3")
    # A remark, and not the fault of a change that is right.
    assert verifier.verify(model("t = Relu(x) y = Neg(t) j = Identity(i)").SerializeToString()).status == "equal"


def test_a_given_set_reveals_a_difference_drawn_data_misses(tmp_path: Path) -> None:
    """Only the exact value of 12345 tells these two models apart."""
    same = "c = Constant<value = float {12345}>() e = Equal(x, c) f = Cast<to = 1>(e) j = Identity(i) "
    before, after = model(f"{same} y = Mul(x, f)"), model(f"{same} z = Sub(f, f) y = Mul(x, z)")
    np.savez(tmp_path / "a.npz", x=np.full((1, 4), 12345, np.float32), i=np.arange(1))
    assert _prepared(before, _given(tmp_path / "a.npz")).verify(after.SerializeToString()).status == "different"


def test_a_requested_set_that_the_original_refuses_is_an_error(tmp_path: Path) -> None:
    proto = text.parse("g (float[2] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    np.savez(tmp_path / "far.npz", x=np.zeros(2, np.float32), i=np.array([9]))
    verifier = Verifier(proto.SerializeToString(), _given(tmp_path / "far.npz"))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"far\.npz: the original rejects these inputs: .*out of data bounds"):
            verifier.original.prepare()
    found = DataSpec(tmp_path / "far.npz", found=True)
    verifier = _prepared(proto, InputsSpec(data=(found,)))
    assert "out of data bounds" in next(b for b in verifier.original.bindings if b["character"] == "far.npz")["refused"]
    assert any("refused" not in binding for binding in verifier.original.bindings)


def test_the_reference_evaluator_uses_given_sets_too(tmp_path: Path) -> None:
    proto = _typed("float8e4m3fn[n]")
    np.savez(tmp_path / "a.npz", x0=np.array([1, -2], ml_dtypes.float8_e4m3fn))
    verifier = _prepared(proto, _given(tmp_path / "a.npz"))
    assert verifier.original.runs[0].outputs["y0"].astype(float).tolist() == [1, -2]


# Single inputs, and nothing but what is given


def test_a_single_input_is_read_from_a_protobuf(tmp_path: Path) -> None:
    write_set(tmp_path / "set", arrays(5))
    spec = InputsSpec(tensors={"x": TensorSpec(file=tmp_path / "set" / "input_0.pb")})
    verifier = _prepared(model(), spec)
    assert {item["dims"]["batch"] for item in verifier.original.bindings} == {5}
    assert all(run.feed["x"].tolist() == arrays(5)["x"].tolist() for run in verifier.original.runs)


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("xx", TensorSpec(values=(1,)), "the model has no input 'xx'; did you mean 'x'?"),
        ("x", TensorSpec(values=("a",)), "'x' is float32 in the model, which 'a' is not"),
        ("i", TensorSpec(values=(1, 0.5)), "'i' is int64 in the model, which cannot hold 0.5"),
        ("i", TensorSpec(range=(0, 2.0**64)), "'i' is int64 in the model, which cannot hold 1.84467e+19"),
        ("s", TensorSpec(values=(1,)), "'s' is text in the model, which 1 is not"),
    ],
)
def test_hints_that_an_input_cannot_hold_are_refused(name: str, spec: TensorSpec, words: str) -> None:
    proto = text.parse("g (float[1] x, int64[1] i, string[1] s) => (float[1] y) { y = Identity(x) }")
    with pytest.raises(UsageError) as caught:
        Verifier(proto.SerializeToString(), InputsSpec(tensors={name: spec}))
    assert str(caught.value) == f"inputs: {words}"


def test_only_given_needs_an_input_set() -> None:
    with pytest.raises(UsageError, match="only_given: no input set is given"):
        Verifier(model().SerializeToString(), InputsSpec(only_given=True))
    tensors = {"x": TensorSpec(range=(0, 1)), "i": TensorSpec(values=(0,))}
    assert len(_prepared(model(), InputsSpec(tensors=tensors, only_given=True)).original.runs) > 1


def test_only_given_with_unusable_sets_is_unverified(tmp_path: Path) -> None:
    proto = text.parse("g (float[2] x, int64[1] i) => (float[1] y) { t = Identity(x) y = Gather(t, i) }")
    np.savez(tmp_path / "far.npz", x=np.zeros(2, np.float32), i=np.array([9]))
    spec = _given(DataSpec(tmp_path / "far.npz", found=True))
    verdict = Verifier(proto.SerializeToString(), spec, VerifySpec()).verify(
        text.parse("g (float[2] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }").SerializeToString()
    )
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert "none of the given input sets fits the model" in verdict.message


def test_dims_of_a_given_set_are_reused_for_drawn_sets(tmp_path: Path) -> None:
    """No point that is tried by itself has 61 * 67 elements."""
    body = "g (float[a, b] x) => (float[61, 67] y) <int64[2] s = {61, 67}> { t = Relu(x) y = Reshape(t, s) }"
    proto = text.parse(body.replace("Relu(x)", "Identity(x)"))
    np.savez(tmp_path / "a.npz", x=np.ones((67, 61), np.float32))
    verifier = _prepared(proto, _given(tmp_path / "a.npz", only=False))
    drawn = [item for item in verifier.original.bindings if item["seed"] is not None and "refused" not in item]
    assert drawn
    assert verifier.verify(text.parse(body).SerializeToString()).status == "different"


def test_errors_are_raised_on_every_call(tmp_path: Path) -> None:
    proto = text.parse("g (float[2] x, int64[1] i) => (float[1] y) { t = Identity(x) y = Gather(t, i) }")
    np.savez(tmp_path / "far.npz", x=np.zeros(2, np.float32), i=np.array([9]))
    verifier = Verifier(proto.SerializeToString(), _given(tmp_path / "far.npz"))
    for _ in range(2):
        with pytest.raises(SurgeryError):
            verifier.verify(model(BODY).SerializeToString())
