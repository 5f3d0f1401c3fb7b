"""Which values of two models have other definitions, and what is recorded of values at the boundary of a region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.search import Found
from surgery.verification.regions.definitions import Definitions, differing, is_replaced, same_content
from surgery.verification.regions.region_values import Form, Point, Values, _points
from surgery.verification.regions.time_budget import TimeBudget
from surgery.verification.regions.upstream import _drawable, _entering, _redraw, _worth

BODY = "a = Neg(x) b = Add(a, w) c = Gather(w, i) y = Mul(b, c)"


def _model(body: str = BODY, opset: int = 18, ports: str = "float[2] x, int64[1] i") -> onnx.ModelProto:
    model = text.parse(f"g ({ports}) => (float[2] y) {{ {body} }}", opset=opset)
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    return model


def _definitions(model: onnx.ModelProto) -> Definitions:
    return Definitions(model.SerializeToString())


def _differing(change: Any, *, before: Any = None) -> set[str]:
    first, second = _model(), _model()
    if before is not None:
        before(first)
    change(second)
    return differing(_definitions(first), _definitions(second))


def _set(path: str, value: Any) -> Any:
    def change(model: onnx.ModelProto) -> None:
        setattr(model.graph.node[1], path, value)

    return change


def test_labels_of_nodes_do_not_matter() -> None:
    assert _differing(lambda model: None) == set()
    assert _differing(_set("name", "n")) == set() == _differing(_set("doc_string", "about"))
    assert _differing(_set("op_type", "Sub")) == {"b"} == _differing(_set("domain", "d"))


def test_values_that_only_one_model_has() -> None:
    # A new value has no definition in the other model, and one that was an input or a constant is computed now.
    assert _differing(lambda model: model.graph.node.extend(text.parse_nodes("z = Neg(y)"))) == set()
    assert _differing(lambda model: model.graph.node.extend(text.parse_nodes("w = Neg(y)"))) >= {"w"}

    def stored(model: onnx.ModelProto) -> None:
        del model.graph.node[0]
        model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "a"))

    assert _differing(stored) == {"a"} == _differing(lambda model: None, before=stored)


def test_operators_that_another_opset_defines_otherwise() -> None:
    def older(version: int) -> Any:
        def change(model: onnx.ModelProto) -> None:
            model.opset_import[0].version = version

        return change

    assert _differing(older(17)) == set()
    # Neg, Add, Mul and Gather were revised in opset 13, and arithmetic in 14.
    assert _differing(older(13)) == {"b", "y"} and _differing(older(12)) == {"a", "b", "c", "y"}


def test_functions_that_differ() -> None:
    def with_function(op: str, name: str = "Neg") -> Any:
        def change(model: onnx.ModelProto) -> None:
            function = model.functions.add(name=name, domain="")
            function.node.extend(text.parse_nodes(f"y = {op}(x)"))

        return change

    assert _differing(with_function("Abs"), before=with_function("Abs")) == set()
    assert _differing(with_function("Abs"), before=with_function("Exp")) == {"a"} == _differing(with_function("Abs"))
    assert _differing(with_function("Abs", "Unused")) == set()


@pytest.mark.parametrize(
    ("numbers", "differs"),
    [
        (np.float32([1, 2]), False),
        (np.float32([1, 3]), True),
        (np.float64([1, 2]), True),
        (np.float32([[1, 2]]), True),
    ],
)
def test_constants_that_differ(numbers: Any, differs: bool) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numbers, "w"))

    assert _differing(change) == ({"w"} if differs else set())


def test_constants_that_are_something_else_in_the_other_model() -> None:
    def overridable(model: onnx.ModelProto) -> None:
        model.graph.input.add(name="w")

    def sparse(first: float) -> Any:
        def change(model: onnx.ModelProto) -> None:
            del model.graph.initializer[:]
            model.graph.sparse_initializer.add(dims=[2]).values.CopyFrom(
                numpy_helper.from_array(np.float32([first]), "w")
            )

        return change

    assert _differing(overridable) == {"w"} == _differing(lambda model: None, before=overridable)
    assert _differing(overridable, before=overridable) == set()
    assert _differing(sparse(1), before=sparse(1)) == set()
    assert _differing(sparse(1), before=sparse(2)) == {"w"} == _differing(sparse(1))
    # Before IR version 4, an initializer that is an input is a constant.
    old = _model()
    overridable(old)
    for version, inputs in ((3, {"x", "i"}), (4, {"x", "i", "w"})):
        old.ir_version = version
        assert _definitions(old).inputs == inputs and _definitions(old).is_constant("w") is (version == 3)


def test_what_reads_a_value() -> None:
    model = _model(f"{BODY} d = Constant<value_float = 1.0>() s = Reshape(x, i) t = Add(i, i)")
    found = _definitions(model)
    assert [found.is_constant(name) for name in ("w", "d", "a", "x", "none")] == [True, True, False, False, False]
    assert found.is_gathered("w") and not found.is_gathered("i") and not found.is_gathered("a")
    assert found.read_for("b") == ["a", "w"] and found.read_for("x") == []
    # Integers by schema: the indices of a Gather, and the shape of a Reshape.
    assert [found.steers("i", number) for number in (2, 5, 6, 0)] == [True, True, False, False]


def test_stored_numbers_of_their_own() -> None:
    def replaced(first: str, second: str, differ: set[str]) -> bool:
        return is_replaced("w", _definitions(_model(first)), _definitions(_model(second)), differ)

    scaled = "b = Add(x, w) y = Neg(b)", "c = Mul(x, w) y = Neg(c)"
    assert replaced(*scaled, {"w"})
    # A value of both models that is assumed to be equal is computed from them.
    same = "b = Add(x, w) y = Neg(b)", "b = Mul(x, w) y = Neg(b)"
    assert not replaced(*same, {"w"}) and replaced(*same, {"w", "b"})
    # They are few, an output, or no constant of one model.
    assert not replaced("b = Gather(w, i) y = Neg(b)", "c = Mul(x, w) y = Neg(c)", {"w"})
    assert not replaced("b = Gather(x, i) y = Neg(b)", "w = Neg(x) y = Neg(w)", {"w"})
    outside = _model(scaled[0])
    outside.graph.output.add(name="w")
    assert not is_replaced("w", _definitions(outside), _definitions(_model(scaled[1])), {"w"})


def test_contents_that_are_stored_elsewhere(tmp_path: Any) -> None:
    (tmp_path / "w").write_bytes(np.float32([1, 2, 1, 2, 3]).tobytes())

    def outside(offset: int, **more: Any) -> TensorProto:
        tensor = TensorProto(data_type=1, dims=[2], data_location=TensorProto.EXTERNAL, **more)
        for key, value in (("location", str(tmp_path / "w")), ("offset", offset), ("length", 8)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    assert same_content(outside(0), outside(0)) and same_content(outside(0), outside(8))
    assert not same_content(outside(0), outside(12))
    other = outside(8)
    other.dims[:] = [1, 2]
    assert not same_content(outside(0), other)
    assert same_content(numpy_helper.from_array(np.ones(2), "a"), numpy_helper.from_array(np.ones(2), "b"))


# Points


def _run(kind: str = "normal", feed: Any = None, **dims: int) -> Run:
    return Run(Binding(dims, kind), feed or {}, {})


def _chosen(*runs: Run, meets: Any = (), compared: Any = ()) -> list[tuple[int, ...]]:
    found = _points(runs, Found(meets=[*meets], compared=[*compared]))
    return [tuple(point.dims.values()) for point in found]


def test_runs_at_the_same_sizes_are_one_point() -> None:
    kinds = ["normal", "edges", "wide", *["zeros"] * 9]
    (point,) = _points([_run(kind, n=2) for kind in kinds], Found())
    # Two ordinary runs, and up to eight more in which guards decide otherwise.
    assert [run.binding.character for run in point.runs] == ["normal", "edges", *["zeros"] * 8]
    assert len(point.recorded) == len(point.runs)


def test_points_are_the_first_the_largest_and_what_shows_more() -> None:
    runs = [_run(n=n, m=m) for n, m in ((2, 3), (3, 2), (4, 4), (5, 5), (6, 6), (9, 1), (1, 9), (7, 8), (1, 1))]
    assert _chosen(*runs) == [(2, 3), (3, 2), (4, 4), (5, 5), (9, 1), (1, 9)]
    # A broadcast shows where a dim is 1 and the other is not: at most one such point for each pair.
    assert _chosen(*runs[:5], runs[8], meets=[("n", ["m"])]) == [(2, 3), (3, 2), (4, 4), (5, 5), (6, 6)]
    few = [*runs[:5], _run(n=1, m=2), _run(n=1, m=3)]
    assert (
        _chosen(*few, meets=[("n", ["m"]), ("n", ["m"])])[-1] == (1, 2)
        and len(_chosen(*few, meets=[("n", ["m"])])) == 6
    )
    # And what is compared with a constant.
    assert _chosen(*runs[:5], _run(n=2, m=5), compared=[{"n": 2, "m": 5}, {"n": 8}])[-1] == (2, 5)
    sides = [_run(n=2, m=1), *(_run(n=1, m=number) for number in range(2, 9))]
    assert len(_chosen(*runs[:5], *sides, compared=[{"m": number, "n": 1} for number in range(2, 9)])) == 10


class _Engine:
    def __init__(self, declared: Any = None, outcome: Any = None) -> None:
        self.declared, self.outcome = declared or {}, outcome
        self.asked: list[Any] = []

    def analyse(self, function: Any, **arguments: Any) -> Any:
        self.asked.append((function.__name__, arguments.get("dims")))
        return self.declared if function.__name__ != "empty" else ["nothing"]

    def run(self, skeleton: bytes, feeds: Any, bare: bool = False) -> Any:
        self.asked.append(
            ([value.name for value in onnx.load_model_from_string(skeleton).graph.output], len(feeds), bare)
        )
        return self.outcome


def _values(engine: _Engine, *runs: Run, cost: float = 1.0, **original: Any) -> Values:
    inputs = SimpleNamespace(inferred=lambda binding: original.get("inferred", {}), cost=lambda binding: cost)
    usual: dict[str, Any] = {"problem": None, "weights": 0, "skeleton": b"", "inputs": inputs}
    usual |= {"trials": lambda: [*runs], "found": Found()}
    return Values(SimpleNamespace(**{**usual, **original}), engine)  # type: ignore[arg-type]


X = np.zeros((2, 3), np.float32)
FEED = {"x": X, "i": np.array([1]), "s": [X]}


def test_forms_are_those_of_inference_unless_inputs_have_other_shapes() -> None:
    engine = _Engine({"a": (1, [2, 3])})
    for inferred, expected, asked in (
        ({"x": (1, [2, 3]), "a": (1, [7])}, (7,), []),
        ({"a": (1, [7])}, (7,), []),
        ({"x": (1, [4, 3]), "a": (1, [7])}, (2, 3), [("declare", {"x": [2, 3], "i": [1]})]),
        ({}, (2, 3), [("declare", {"x": [2, 3], "i": [1]})]),
    ):
        engine.asked.clear()
        values = _values(engine, _run(feed=FEED, n=2), inferred=inferred)
        (point,) = values.points
        for _ in range(2):
            values._begin(point)
        assert not point.lacks(["a", "x", "i"]) and point.forms["a"].shape == expected and engine.asked == asked
        assert point.lacks(["s"]) and point.forms["x"] == Form(np.dtype(np.float32), (2, 3))
        assert point.shapes()["a"] == list(expected)


def test_shapes_are_inferred_if_running_takes_longer() -> None:
    before = _definitions(_model())
    engine = _Engine({"b": (1, [2])})
    values = _values(engine, _run(feed=FEED, n=2), inferred={"x": (1, [2, 3])}, cost=0.0)
    values.infer(before, ["b"], TimeBudget())
    assert not engine.asked and "b" not in values.points[0].forms
    # What cannot be run, or has many weights, is inferred in any case.
    for more in ({"problem": "it does not run"}, {"weights": (1 << 24) + 1}):
        engine = _Engine({"b": (1, [2])})
        _values(engine, _run(feed=FEED, n=2), inferred={"x": (1, [2, 3])}, cost=0.0, **more).infer(
            before, ["b"], TimeBudget()
        )
        assert len(engine.asked) == 1


def test_integers_are_recorded_and_floats_are_drawn() -> None:
    before = _definitions(_model())
    made = [{"b": np.ones(2, np.float32), "c": np.array([7])}]
    engine = _Engine(outcome=RunOutcome(runs=[*made], seconds=[1.0]))
    values = _values(engine, _run(feed=FEED, n=2), inferred={"x": (1, [2, 3])})
    (point,) = values.points
    assert values.learn(before, ["b", "c", "i"]) == {}
    assert engine.asked == [(["b", "c"], 1, True)]
    assert point.recorded == [{"c": made[0]["c"], "i": FEED["i"]}] and point.forms["b"].shape == (2,)
    # What is known is not run again.
    assert values.learn(before, ["b", "c", "i"]) == {} and len(engine.asked) == 1
    assert values.cost(before, ["c", "i"]) == 0.0


def test_values_that_stay_unknown() -> None:
    before = _definitions(_model())
    for outcome in (RunOutcome(invalid="no kernel"), RunOutcome(runs=["no kernel"], seconds=[1.0])):
        values = _values(_Engine(outcome=outcome), _run(feed=FEED, n=2), inferred={"x": (1, [2, 3])})
        assert values.learn(before, ["b"]) == {"b": "'b' cannot be computed: no kernel"}
    outcome = RunOutcome(runs=[{"b": [X]}], seconds=[1.0])
    values = _values(_Engine(outcome=outcome), _run(feed=FEED, n=2), inferred={"x": (1, [2, 3])})
    assert values.learn(before, ["b"]) == {"b": "'b' is not a tensor"}


def test_the_cost_of_recording() -> None:
    before = _definitions(_model())
    runs = [_run(feed=FEED, n=2), _run("edges", feed=FEED, n=2)]
    assert _values(_Engine(), *runs, cost=0.02).cost(before, ["b"]) == 0.04
    values = _values(_Engine(), *runs, cost=10.0, inferred={"x": (1, [2, 3])})
    for point in values.points:
        values._begin(point)
    assert 0.0 < values.cost(before, ["b"]) < 1.0
    assert values.cost(before, ["x"]) == 0.0 == values.cost(before, [])


def test_values_that_are_always_empty_are_asked_for_once() -> None:
    engine = _Engine()
    values = _values(engine, _run(feed=FEED, n=2))
    first, second = _definitions(_model()), _definitions(_model("y = Neg(x)"))
    assert [values.is_empty(first, name) for name in ("nothing", "b")] == [True, False] and len(engine.asked) == 1
    assert values.is_empty(second, "nothing") and len(engine.asked) == 2


# Values upstream


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ([0.0, 0.5, 1.0], 0.0, 1.0),
        ([0.0, 0.5, 4.0], 0.0, np.inf),
        ([-3.0, -1.0, 0.0], -np.inf, 0.0),
        ([-3.0, 2.0], -np.inf, np.inf),
        ([np.nan, np.inf], -np.inf, np.inf),
        ([np.nan, 0.5], 0.0, 1.0),
    ],
)
def test_numbers_are_redrawn_with_their_signs(value: list[float], low: float, high: float) -> None:
    found = _redraw(np.resize(np.float32(value), 400), 1.0, np.random.default_rng(0))
    assert found.dtype == np.float32 and found.shape == (400,) and low <= found.min() < found.max() <= high
    assert bool(found.min() < 0) is (low < 0) and bool(found.max() > 1) is (high > 1)
    larger = _redraw(np.resize(np.float32(value), 400), 8.0, np.random.default_rng(0))
    assert np.array_equal(larger, found * 8)


def test_values_that_are_given_from_outside() -> None:
    flow = _definitions(_model()).flow
    assert _entering(flow, ["y"], {"a", "w", "x"}) == {"a", "w"} and _entering(flow, ["y"], set()) == set()
    assert [_worth("w", value, flow) for value in (np.ones(2), np.ones(1), np.arange(2))] == [True, False, False]
    assert _worth("a", np.arange(1), flow)
    drawable = [_drawable(value) for value in (np.ones(1), np.ones(0), np.arange(2), [np.ones(1)], None)]
    assert drawable == [True, False, False, False, False]
    assert isinstance(Point({}, []), Point)
