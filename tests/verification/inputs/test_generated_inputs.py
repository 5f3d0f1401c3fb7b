"""What functions of a user's file return, and what is made of it, with a worker that is scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import RecipeError, UsageError, WorkerError
from surgery.verification.inputs import generator as module
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.generator import Generator, _bits, _items, _packed, _sets, collect, generate, sets_of
from surgery.verification.inputs.given_values import MisfitError
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import GeneratorSpec, InputsSpec, Place, TensorSpec, VerifySpec

FLOAT = np.dtype(np.float32)


def port(name: str, *dims: Any) -> InputPort:
    return InputPort(name, "tensor", FLOAT, dims)


X, Z = port("x", "N", 2), port("z", "N", 3)


class Caller:
    """A worker whose answers are scripted, the last for all later calls."""

    answers: list[Any] = []  # noqa: RUF012
    made: Any = None

    def __init__(self, **limits: Any) -> None:
        self.limits, self.calls, self.closed = limits, list[tuple[str, dict[str, Any]]](), 0
        type(self).made = self

    def call(self, function: str, /, **given: Any) -> Any:
        self.calls.append((function, given))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> type[Caller]:
    monkeypatch.setattr(module, "Worker", Caller)
    return Caller


def arrays(**found: Any) -> dict[str, Any]:
    return {"arrays": found}


PLACE = Place("r.yaml", 3, 9)


def made(place: Place | None = PLACE, **inputs: Any) -> Generator:
    gone = inputs.pop("gone", frozenset())
    spec = InputsSpec(generator=GeneratorSpec(Path("gen.py"), "make", place, gone), **inputs)
    found = Generator.of(spec, [X, Z], [], VerifySpec(timeout=7.0, memory=9))
    assert found is not None
    return found


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_a_function_is_called_twice_at_first(caller: type[Caller]) -> None:
    caller.answers = [arrays(x=ones(4, 2), z=ones(4, 3))]
    generator = made()
    feed = generator.make({"N": 4}, 5)
    assert sorted(feed) == ["x", "z"] and generator.complete and caller.made.limits == {"timeout": 7.0, "memory": 9}
    (function, given), again = caller.made.calls
    assert function.endswith(":generate") and again[1] == given
    assert (given["file"], given["function"]) == (str(Path("gen.py").absolute()), "make")
    assert (given["dims"], given["seed"], given["folder"]) == ({"N": 4}, 5, str(Path.cwd()))
    generator.make({"N": 4}, 6)
    assert len(caller.made.calls) == 3
    generator.close()
    assert caller.made.closed == 1 and generator.title == "gen.py:make"


def test_inputs_that_are_left_out(caller: type[Caller]) -> None:
    caller.answers = [arrays(x=ones(4, 2), old=ones(1))]
    generator = made(gone=frozenset({"old"}))
    assert sorted(generator.make({"N": 4}, 5)) == ["x"] and not generator.complete
    bindings = [Binding({"N": 4}), Binding({"N": 4})]
    assert [(one.seed, one.character) for one in generator.number(bindings, 7)] == [(7, "normal"), (8, "normal")]
    generator.complete = True
    assert [(one.seed, one.character) for one in generator.number(bindings, 7)] == [(7, "generator"), (8, "generator")]
    with pytest.raises(RecipeError, match="it returns no 'z'; only_given asks for all inputs"):
        made(only_given=True, gone=frozenset({"old"})).make({"N": 4}, 5)
    settings = {"z": TensorSpec(range=(0, 1))}
    assert sorted(made(only_given=True, tensors=settings, gone=frozenset({"old"})).make({"N": 4}, 5)) == ["x"]
    assert Generator.of(InputsSpec(), [X], [], VerifySpec()) is None


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([arrays(x=ones(4, 2)), arrays(x=ones(4, 2) * 2)], "it returns different arrays when called again with"),
        ([arrays(x=ones(5, 2))], "it returns 'x' of shape [5, 2] for dims {'N': 4}; take the sizes from dims, or fix "
                                 "them: inputs: {dims: {N: 5}}"),
        ([arrays(y=ones(1))], "the model has no input 'y'"),
        ([{"problem": "line 3: KeyError", "ran": True}], "line 3: KeyError; called with dims {'N': 4}"),
        ([{"problem": "no function", "ran": False}], "no function"),
        ([WorkerError("gen.py:make took more than 7 s", stage="gen.py:make")], "took more than 7 s"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_at_its_place(caller: type[Caller], answers: list[Any], words: str) -> None:
    caller.answers = [*answers]
    with pytest.raises(RecipeError) as error:
        made().make({"N": 4}, 5)
    assert str(error.value).startswith(f"r.yaml:3:9: gen.py:make: {words}")
    caller.answers = [*answers]
    with pytest.raises(UsageError) as plain:
        made(None).make({"N": 4}, 5)
    assert plain.value.where == "gen.py:make" and plain.value.what.startswith(words)


def test_sizes_of_dims_that_are_not_asked_for_are_free(caller: type[Caller]) -> None:
    caller.answers = [arrays(x=ones(9, 2))]
    assert made().make({}, 5)["x"].shape == (9, 2)


def test_arrays_are_the_same_if_their_bits_are() -> None:
    nan = np.array([np.nan, -0.0], np.float32)
    assert _bits({"a": nan, "b": [nan]}) == _bits({"b": [nan.copy()], "a": nan.copy()})
    base = _bits({"a": ones(2)})
    for other in (ones(1, 2), ones(2).astype(np.float64), ones(2) * 2, [ones(2)], None):
        assert _bits({"a": other}) != base
    texts = np.array(["a", "b"], object)
    assert _bits({"a": texts}) == _bits({"a": texts.copy()}) != _bits({"a": texts[::-1]})
    assert _bits({"a": ones(2), "b": None}) != base


# In the worker


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "it returns a list, not a dict of arrays by input name"),
        (None, "it returns a NoneType, not a dict of arrays by input name"),
        ({1: 2}, "it returns a dict, not a dict of arrays by input name"),
        ({"a": 1, 2: 3}, "it returns a dict, not a dict of arrays by input name"),
        ({"a": object()}, "its value for 'a' is not an array of numbers or text"),
        ({"a": np.array(["x", 1], object)}, "its value for 'a' is not an array of numbers or text"),
        ({"a": np.array(["2020-01-01"], "M8[D]")}, "its value for 'a' is not an array of numbers or text"),
        ({"a": [ones(1), object()]}, "its value for 'a' is not an array of numbers or text"),
    ],
)
def test_what_is_no_set(value: Any, problem: str) -> None:
    assert _packed(value) == {"problem": problem, "ran": True}


def test_values_of_a_set_are_arrays_lists_and_nothing() -> None:
    found = _packed({"a": 1.5, "b": [1, None], "c": (), "d": None, "e": np.array(["x", "y"], object), "f": "t"})[
        "arrays"
    ]
    assert found["a"] == np.asarray(1.5) and isinstance(found["a"], np.ndarray)
    assert isinstance(found["b"], list) and found["b"][0] == 1 and found["b"][1] is None and found["c"] == []
    assert found["d"] is None and found["e"].tolist() == ["x", "y"] and found["f"].shape == ()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])
    return tmp_path / "gen.py"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return {'x': dims['N'] + seed}", {"arrays": {"x": 7}}),
        ("return dims['M']", {"problem": "line 2: KeyError: 'M'", "ran": True}),
        ("return 3", {"problem": "it returns a int, not a dict of arrays by input name", "ran": True}),
        ("raise SystemExit", {"problem": "line 2: SystemExit", "ran": True}),
    ],
)
def test_a_function_is_called_with_dims_and_a_seed(file: Path, body: str, found: Any) -> None:
    file.write_text(f"def make(dims, seed):\n    {body}\n")
    assert generate(str(file), "make", str(file.parent), {"N": 4}, 3) == found
    missing = generate(str(file), "other", str(file.parent), {}, 0)
    assert missing == {"problem": "no function 'other' in it; it has make", "ran": False}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return [{'x': 1}, {'x': 2}]", {"sets": [{"x": 1}, {"x": 2}]}),
        ("return {'x': 1}", {"sets": [{"x": 1}]}),
        ("yield {'x': 1}", {"sets": [{"x": 1}]}),
        ("return []", {"problem": "it returns no sets"}),
        ("return [{'x': 1}, 5]", {"problem": "set 2: it is a int, not a dict of arrays by input name"}),
        ("return 5", {"problem": "TypeError: 'int' object is not iterable"}),
        ("return ({'x': n} for n in range(3))", {"sets": [{"x": 0}, {"x": 1}, {"x": 2}]}),
        ("return ({'x': n} for n in range(4))", {"problem": "it returns more than 3 sets"}),
        ("1 / 0", {"problem": "line 2: ZeroDivisionError: division by zero"}),
    ],
)
def test_sets_are_collected(file: Path, monkeypatch: pytest.MonkeyPatch, body: str, found: Any) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    file.write_text(f"def make():\n    {body}\n")
    assert collect(str(file), "make", str(file.parent)) == found
    assert collect(str(file), "other", str(file.parent)) == {"problem": "no function 'other' in it; it has make"}


def test_a_calibration_data_reader_is_read_to_its_end() -> None:
    class Reader:
        left: list[Any] = [{"x": 2}, {"x": 1}]  # noqa: RUF012

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    assert [*_items(Reader())] == [{"x": 1}, {"x": 2}] and [*_items({"x": 1})] == [{"x": 1}]
    assert [*_items([{"x": 1}])] == [{"x": 1}]


def test_the_sets_of_an_unchanged_file_are_made_once(file: Path, caller: type[Caller]) -> None:
    _sets.cache_clear()
    with pytest.raises(MisfitError, match="no such file"):
        sets_of(Path("gen.py"), "make")
    file.write_text("1")
    caller.answers = [{"sets": [{"x": 1}]}]
    assert sets_of(Path("gen.py"), "make") == ({"x": 1},)
    first = caller.made
    assert first.limits == {"timeout": 600.0} and first.closed == 1
    assert first.calls[0][1] == {"file": str(file), "function": "make", "folder": str(file.parent)}
    assert sets_of(Path("gen.py"), "make") == ({"x": 1},) and caller.made is first
    for answer, words in (
        ({"problem": "it is empty"}, "it is empty"),
        (WorkerError("it hangs", stage="s"), "it hangs"),
    ):
        caller.answers = [answer]
        with pytest.raises(MisfitError, match=words):
            sets_of(Path("gen.py"), f"make_{words[-3:]}")
        assert caller.made is not first and caller.made.closed == 1
    _sets.cache_clear()
