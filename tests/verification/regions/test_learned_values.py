"""How what is unknown of values inside a model is inferred, or recorded from runs, and what that may take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.search import Found
from surgery.verification.regions import region_values
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_values import Values
from surgery.verification.regions.time_budget import CostlyError, TimeBudget

BODY = "a = Neg(x) c = own.f(a) d = Shape(c) y = Abs(d)"
BEFORE = Definitions(
    text.parse(f"g (float[N] x, int64[1] i) => (float[N] y) {{ {BODY} }}", opset=18).SerializeToString()
)
NODES = 4


class Inference:
    """An engine that knows the forms of some values, and runs as is scripted; `follow` is surgery's inference."""

    def __init__(self, declared: Any = None, followed: Any = None, outcomes: Any = ()) -> None:
        self.declared, self.followed, self.outcomes = declared or {}, followed, [*outcomes]
        self.asked: list[Any] = []

    def analyse(self, function: Any, skeleton: bytes, dims: Any) -> Any:
        self.asked.append(("onnx", skeleton))
        return self.declared

    def follow(self, skeleton: bytes, choices: Any) -> Any:
        self.asked.append(("surgery", skeleton))
        if self.followed is None:
            raise ValueError("no shapes")
        return [self.followed] * len(choices)

    def run(self, skeleton: bytes, feeds: Any, bare: bool = False) -> Any:
        model = onnx.load_model_from_string(skeleton)
        names = [port.name for port in model.graph.output]
        self.asked.append((names, [sorted(feed) for feed in feeds], sorted({n.op_type for n in model.graph.node})))
        return self.outcomes.pop(0)


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Values]:
    def make(engine: Inference, sizes: tuple[int, ...] = (2,), cost: float = 1e9, **more: Any) -> Values:
        monkeypatch.setattr(region_values, "follow", engine.follow)
        feeds = [{"x": np.zeros(size, np.float32), "i": np.array([size])} for size in sizes]
        runs = [Run(Binding({"N": size}), feed, {}) for size, feed in zip(sizes, feeds)]
        inputs = SimpleNamespace(inferred=lambda binding: {"x": (1, [binding.dims["N"]])}, cost=lambda binding: 1.0)
        usual = {"problem": None, "weights": 0, "skeleton": b"", "inputs": inputs}
        original: Any = SimpleNamespace(**{**usual, "trials": lambda: runs, "found": Found(), **more})
        made = Values(original, engine)  # type: ignore[arg-type]
        made.cost = lambda before, names: cost  # type: ignore[method-assign]
        return made

    return make


def spent(budget: TimeBudget, given: float) -> float:
    return given - budget._left


BY_ONNX, BY_SURGERY = NODES * region_values._INFERRED_BY_ONNX, NODES * region_values._INFERRED


@pytest.mark.parametrize(
    ("names", "sizes", "cost", "asked", "seconds"),
    [
        ("x", (2,), 1e9, [], 0.0),
        ("xa", (2,), 1e9, ["onnx"], BY_ONNX),
        ("xa", (2, 3, 4), 1e9, ["onnx"] * 3, 3 * BY_ONNX),
        ("ac", (2,), 1e9, ["onnx", "surgery"], BY_ONNX + BY_SURGERY),
        ("ac", (2, 3), 1e9, ["onnx", "onnx", "surgery"], 2 * BY_ONNX + BY_SURGERY),
        # Running takes less time.
        ("ac", (2,), BY_ONNX / 2, [], 0.0),
        ("ac", (2,), BY_ONNX, ["onnx"], BY_ONNX),
        ("ac", (2,), (BY_ONNX + BY_SURGERY) / 2, ["onnx"], BY_ONNX),
        ("ac", (2, 3), BY_ONNX, [], 0.0),
        ("ac", (2,), BY_SURGERY, ["onnx", "surgery"], BY_ONNX + BY_SURGERY),
    ],
)
def test_shapes_are_inferred_by_onnx_first(
    values: Any, names: str, sizes: Any, cost: float, asked: list[str], seconds: float
) -> None:
    engine = Inference({"a": (1, [2])}, {"c": (1, [7])})
    made, budget = values(engine, sizes, cost), TimeBudget(100.0)
    made.infer(BEFORE, [*names], budget)
    assert [who for who, _ in engine.asked] == asked and spent(budget, 100.0) == pytest.approx(seconds)
    assert all(("a" in point.forms) is ("onnx" in asked) for point in made.points)
    assert all(("c" in point.forms) is ("surgery" in asked) for point in made.points)


def test_inference_has_to_fit_into_the_budget(values: Any) -> None:
    for left, asked in ((BY_ONNX * 0.9, 0), (BY_ONNX * 1.1, 1)):
        engine = Inference({"a": (1, [2])}, {"c": (1, [7])})
        with pytest.raises(CostlyError):
            values(engine).infer(BEFORE, ["c"], TimeBudget(left))
        assert len(engine.asked) == asked


def test_what_inference_of_surgery_does_not_find_is_not_asked_for_again(values: Any) -> None:
    engine = Inference({"a": (1, [2])}, {"a": (1, [9]), "d": (7, [1])})
    made = values(engine)
    for _ in range(2):
        made.infer(BEFORE, ["c"], TimeBudget())
    assert [who for who, _ in engine.asked] == ["onnx", "surgery"]
    # What onnx has found stands.
    (point,) = made.points
    assert not point.lacks(["a", "d"]) and point.forms["a"].shape == (2,) and point.forms["d"].shape == (1,)
    engine = Inference({"a": (1, [2])})
    made = values(engine)
    made.infer(BEFORE, ["c"], TimeBudget())
    assert [who for who, _ in engine.asked] == ["onnx", "surgery"] and "c" not in made.points[0].forms


@pytest.mark.parametrize(
    ("problem", "operators"), [(None, {"Neg", "f", "Shape", "Abs"}), ("none", {"Neg", "Identity", "Shape", "Abs"})]
)
def test_custom_operators_that_keep_the_original_from_running_are_replaced(
    values: Any, problem: str | None, operators: set[str]
) -> None:
    engine = Inference({"a": (1, [2])}, {"c": (1, [7])})
    values(engine, problem=problem).infer(BEFORE, ["c"], TimeBudget())
    assert [who for who, _ in engine.asked] == ["onnx", "surgery"]
    for _, skeleton in engine.asked:
        assert {node.op_type for node in onnx.load_model_from_string(skeleton).graph.node} == operators


# Recorded values

SHAPE = np.array([2])


def ran(**found: Any) -> RunOutcome:
    return RunOutcome([found], seconds=[1.0])


def test_only_the_nodes_that_produce_a_value_run_on_what_they_read(values: Any) -> None:
    engine = Inference(outcomes=[RunOutcome([{"a": SHAPE}, {"a": SHAPE}], seconds=[1.0, 1.0])])
    made = values(engine, (2, 3))
    assert made.learn(BEFORE, ["a", "i"]) == {}
    assert engine.asked == [(["a"], [["x"], ["x"]], ["Neg"])]
    assert [point.recorded[0]["i"].tolist() for point in made.points] == [[2], [3]]
    assert made.learn(BEFORE, ["i"]) == {} and len(engine.asked) == 1


@pytest.mark.parametrize("failing", [RunOutcome(invalid="no kernel"), RunOutcome(["no kernel"], seconds=[1.0])])
def test_shapes_are_inferred_of_values_that_do_not_run(values: Any, failing: RunOutcome) -> None:
    # A float needs no run once its form is known.
    engine = Inference({"c": (1, [7])}, {}, [failing])
    assert values(engine).learn(BEFORE, ["c"]) == {}
    engine = Inference({}, {"c": (1, [7])}, [failing])
    assert values(engine).learn(BEFORE, ["c"]) == {} and [one[0] for one in engine.asked[1:]] == ["onnx", "surgery"]
    # The rest runs again by itself.
    engine = Inference({"c": (1, [7])}, {}, [failing, ran(d=SHAPE)])
    made = values(engine)
    assert made.learn(BEFORE, ["c", "d"]) == {} and engine.asked[-1][0] == ["d"]
    assert made.points[0].recorded == [{"d": SHAPE}]
    engine = Inference({"c": (1, [7])}, {}, [failing, failing])
    assert values(engine).learn(BEFORE, ["c", "d"]) == {"d": "'d' cannot be computed: no kernel"}
    engine = Inference({}, {}, [failing])
    assert values(engine).learn(BEFORE, ["c"]) == {"c": "'c' cannot be computed: no kernel"}


def test_what_does_not_depend_on_custom_operators_is_recorded_by_itself(values: Any) -> None:
    engine = Inference({}, {}, [RunOutcome(invalid="no kernel"), ran(a=SHAPE)])
    made = values(engine, problem="custom")
    found = made.learn(BEFORE, ["a", "d", "i"])
    assert found == {"d": "'d' cannot be computed: no kernel"}
    assert [one for one in engine.asked if len(one) == 3] == [
        (["a", "d"], [["x"]], ["Identity", "Neg", "Shape"]),
        (["a"], [["x"]], ["Neg"]),
    ]
    assert made.points[0].recorded[0]["a"] is SHAPE and made.points[0].recorded[0]["i"].tolist() == [2]
    # Without such operators, nothing is known of any.
    plain = Definitions(text.parse("g (float[N] x) => (float[N] y) { a = Neg(x) y = Abs(a) }").SerializeToString())
    engine = Inference({}, {}, [RunOutcome(invalid="no kernel")])
    assert values(engine, problem="custom").learn(plain, ["a", "y"]) == {
        name: f"'{name}' cannot be computed: no kernel" for name in "ay"
    }
