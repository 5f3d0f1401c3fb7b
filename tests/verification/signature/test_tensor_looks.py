"""Values of tensors in two models on the same inputs, and how far they are apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import UsageError
from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.signature import tensor_looks
from surgery.verification.signature.tensor_looks import InnerValues, ModelPair, TensorLook

FIRST = """g (float[n, 3] x) => (float[n, 3] y) <float[3] b = {1, 2, 3}> {
    [add] a = Add(x, b)
    [neg] y = Neg(a)
}"""
SECOND = """g (float[n, 3] x) => (float[n, 3] y) <float[3] b = {1, 2, 3.5}> {
    [add] a = Add(x, b)
    [abs] c = Abs(a)
    [neg] y = Neg(a)
}"""


def look(name: str, first: str, second: str, *sets: object, **options: object) -> TensorLook:
    models = [text.parse(one) for one in (first, second)]
    inputs = InputsSpec(data=DataSpec.each(list(sets)), only_given=True) if sets else InputsSpec()
    weights = storage.opened(models[0]).weights
    data = [model.SerializeToString(deterministic=True) for model in models]
    return InnerValues().look(name, ModelPair(data[0], data[1], weights, inputs, VerifySpec(**options)))  # type: ignore[arg-type]


def test_the_largest_difference_is_found_where_it_is() -> None:
    rows = {"x": np.array([[0, 0, 0], [1, 1, 1]], np.float32)}
    found = look("a", FIRST, SECOND, rows)
    assert found.before is not None and found.after is not None
    assert found.before[0].tolist() == [[1, 2, 3], [2, 3, 4]] and found.after[0].tolist() == [[1, 2, 3.5], [2, 3, 4.5]]
    apart = found.difference
    assert apart is not None and not apart.equal
    assert apart.max == 0.5 and apart.mean == pytest.approx(1.0 / 6)
    assert (apart.differing, apart.beyond, apart.elements) == (2, 2, 6)
    where = apart.where
    assert where is not None and (where.index, where.original, where.changed) == ((0, 2), 3.0, 3.5)
    assert apart.metrics["snr"] == pytest.approx(10 * np.log10(43 / 0.5), rel=1e-6)


def test_equal_tensors_are_equal_to_the_bit() -> None:
    found = look("a", FIRST, FIRST.replace("Neg", "Abs"))
    assert found.difference is not None and found.difference.equal and found.difference.where is None
    assert len(found.sets) == len(found.before or ()) > 1


def test_a_tensor_that_only_one_model_has_has_no_difference() -> None:
    found = look("c", FIRST, SECOND)
    assert found.before is None and found.after is not None and found.difference is None
    found = look("c", SECOND, FIRST)
    assert found.after is None and found.before is not None
    with pytest.raises(UsageError, match="neither the original nor the changed model has a tensor 'q'"):
        look("q", FIRST, SECOND)


def test_inputs_and_constants_are_looked_at_too() -> None:
    rows = {"x": np.array([[1, 2, 3]], np.float32)}
    found = look("b", FIRST, SECOND, rows)
    assert found.difference is not None and found.difference.max == 0.5
    found = look("x", FIRST, SECOND, rows)
    assert found.before is not None and found.before[0].tolist() == [[1, 2, 3]]


def test_a_renamed_input_gets_the_same_values() -> None:
    found = look("a", FIRST, FIRST.replace("float[n, 3] x", "float[n, 3] image").replace("(x,", "(image,"))
    assert found.difference is not None and found.difference.equal


def test_a_changed_model_in_float16_is_compared_as_such() -> None:
    half = (
        FIRST.replace("float[n", "float16[n")
        .replace("Add(x, b)", "Add(x, h)")
        .replace("[add]", "h = Cast<to = 10>(b) [add]")
    )
    found = look("a", FIRST, half, {"x": np.array([[0.1, 0.2, 1000.3]], np.float32)})
    assert found.after is not None and found.after[0].dtype == np.float16
    assert found.difference is not None and 0 < found.difference.max < 1
    assert found.difference.beyond == 0  # of the tolerance of float16


def test_a_changed_model_that_takes_less_has_inputs_that_it_takes() -> None:
    found = look("a", FIRST, FIRST.replace("float[n, 3] x", "float[7, 3] x"))
    assert found.before is not None and {array.shape for array in found.before} == {(7, 3)}
    assert found.difference is not None and found.difference.equal


def test_a_model_that_does_not_run_is_one_line() -> None:
    broken = text.parse(FIRST.replace("{1, 2, 3}", "{1, 2}").replace("float[3] b", "float[2] b"))
    data = broken.SerializeToString(deterministic=True)
    pair = ModelPair(data, data, storage.opened(broken).weights, InputsSpec(), VerifySpec())
    with pytest.raises(UsageError, match="the model does not run") as caught:
        InnerValues().look("a", pair)
    assert "\n" not in str(caught.value)


def test_tensors_of_other_shapes_and_of_texts_have_no_numbers() -> None:
    found = look("a", FIRST, FIRST.replace("[add] a = Add(x, b)", "[add] a0 = Add(x, b) [t] a = Transpose(a0)"))
    assert found.difference is not None and found.difference.unlike == "the shapes differ"


def test_large_weights_of_a_file_are_read(tmp_path: Path) -> None:
    model = text.parse(FIRST.replace("<float[3] b = {1, 2, 3}>", "<float[3] b = {1, 2, 3}, float[4096] big = {0}>"))
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.arange(4096, dtype=np.float32), "big"))
    onnx.save(model, tmp_path / "m.onnx")
    stored = storage.opened(tmp_path / "m.onnx")
    data = stored.proto.SerializeToString(deterministic=True)
    pair = ModelPair(data, data, stored.weights, InputsSpec(), VerifySpec())
    found = InnerValues().look("big", pair)
    assert found.is_original and found.before is not None and found.before[0][4095] == 4095


# With runs by hand


class _Run:
    """A run of an original on two sets of inputs, which gives known values of any tensor."""

    made: list[_Run]

    def __init__(self, data: bytes, *_: Any) -> None:
        self.data, self.problem, self.engine = data, "", "an engine"
        sets: Any = (("normal", {"n": 2}, 1.0), ("zeros", {}, 2.0))
        self.runs = [
            SimpleNamespace(feed={"x": np.full(2, value)}, binding=SimpleNamespace(character=kind, dims=dims))
            for kind, dims, value in sets
        ]
        self.prepared = 0
        self.made.append(self)

    def prepare(self) -> None:
        self.prepared += 1
        self.problem = PROBLEM.get(self.data)  # type: ignore[assignment]

    def engine_for(self, engine: str) -> Any:
        return SimpleNamespace(run=lambda data, feeds: OUTCOMES.pop(0), close=lambda: None)


PROBLEM: dict[bytes, str] = {}
OUTCOMES: list[Any] = []
ONE, OTHER = np.ones(2), np.zeros(2)


def _outcome(*runs: Any, crash: Exception | None = None, failure: str | None = None) -> Any:
    made = [one if isinstance(one, str) else {"a": one} for one in runs]
    return SimpleNamespace(crash=crash, failure=failure, runs=made)


def _pair(first: str = FIRST, second: str = SECOND, **options: Any) -> ModelPair:
    models = [text.parse(one) for one in (first, second)]
    data = [model.SerializeToString(deterministic=True) for model in models]
    return ModelPair(data[0], data[1], storage.opened(models[0]).weights, InputsSpec(), VerifySpec(**options))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[_Run]:
    _Run.made = []
    OUTCOMES.clear()
    PROBLEM.clear()
    monkeypatch.setattr(tensor_looks, "ReferenceRun", _Run)
    return _Run.made


def test_an_original_runs_once(made: list[_Run]) -> None:
    looks = InnerValues()
    OUTCOMES[:] = [_outcome(ONE, ONE), _outcome(ONE, OTHER)] * 2
    for _ in range(2):
        found = looks.look("a", _pair())
        assert found.sets == ("normal (n = 2)", "zeros") and not found.is_original
    assert [one.prepared for one in made] == [1]
    OUTCOMES[:] = [_outcome(ONE, ONE)] * 3
    # Of the same model, there is only the original.
    found = looks.look("a", _pair(FIRST, FIRST))
    assert found.is_original and found.after is None and found.before is not None and len(OUTCOMES) == 2
    looks.look("a", _pair(FIRST, FIRST))
    assert [one.prepared for one in made] == [1]
    looks.look("a", _pair(FIRST, FIRST, mode="final"))
    assert [one.prepared for one in made] == [1, 1]


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([_outcome(ONE, "bad"), _outcome(ONE, ONE)], ("normal (n = 2)",)),
        ([_outcome(ONE, ONE), _outcome([ONE], ONE)], ("zeros",)),
        ([_outcome("bad", ONE), _outcome(ONE, "worse")], "there are no values: bad"),
        ([_outcome([ONE], [ONE])], "there are no values: it is a sequence or an optional value, not a tensor"),
        ([_outcome(failure="it is odd")], "the model does not run: it is odd"),
        ([_outcome(crash=OSError("it crashed"))], "it crashed"),
    ],
)
def test_sets_of_inputs_without_values(outcomes: list[Any], kept: tuple[str, ...] | str, made: list[_Run]) -> None:
    OUTCOMES[:] = outcomes if len(outcomes) > 1 else outcomes * 2
    if isinstance(kept, tuple):
        found = InnerValues().look("a", _pair())
        assert found.sets == kept and found.before is not None and len(found.before) == 1
    else:
        with pytest.raises((UsageError, OSError), match=f"^{kept}$"):
            InnerValues().look("a", _pair())


def test_an_original_that_does_not_run(made: list[_Run]) -> None:
    PROBLEM[_pair().original] = "it is odd"
    with pytest.raises(UsageError, match="the model does not run: it is odd"):
        InnerValues().look("a", _pair())


@pytest.mark.parametrize(
    ("array", "dtype", "found"),
    [
        (np.ones(2, np.float32), np.float16, "float16"),
        (np.ones(2, np.float32), None, "float32"),
        (np.array(["a"], object), np.float32, "object"),
        (np.array(["a"]), np.float32, "<U1"),
        ([np.ones(2)], np.float32, None),
    ],
)
def test_inputs_have_the_element_types_of_a_model(array: Any, dtype: Any, found: str | None) -> None:
    cast = tensor_looks._cast(array, None if dtype is None else np.dtype(dtype))
    assert cast is array if found is None else cast.dtype == found


def test_values_that_are_numbers() -> None:
    arrays = (np.float32, np.int8, np.bool_, np.uint8, ml_dtypes.bfloat16)
    for dtype in arrays:
        (one,) = tensor_looks._numbers([np.ones(2, dtype)]) or ()
        assert one.dtype == np.float64 and one.tolist() == [1, 1]
    assert tensor_looks._numbers([np.array(["a"], object)]) is tensor_looks._numbers(None) is None
    found = TensorLook("a", (ONE,), None, ("normal",), VerifySpec()).numbers
    assert found[0] is not None and found[1] is None
