"""Values inside two models, evaluated by onnx: which are compared, and what agrees, differs or clears a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.regions import inner_values
from surgery.verification.regions.inner_values import InnerComparison, Inside

BODY = "a = Exp(x) b = Mul(a, w) c = Neg(b) y = Tanh(c)"
NAMES = {"a", "b", "c", "y"}


class _Engine:
    """An engine that is onnx's evaluator. It rejects models with an output that is called `rejects`."""

    def __init__(self, rejects: str = "") -> None:
        self.rejects, self.closed = rejects, 0

    def run(self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome:
        model = onnx.load_model_from_string(skeleton)
        names = [port.name for port in model.graph.output]
        if self.rejects in names:
            return RunOutcome(invalid="rejected")
        evaluator = ReferenceEvaluator(model)
        found = [dict(zip(names, evaluator.run(None, dict(feed)))) for feed in feeds]  # type: ignore[arg-type]
        return RunOutcome(runs=[*found], seconds=[0.0] * len(found))

    def analyse(self, *_: Any, **how: Any) -> Any:
        return {"a": (1, [2, 3]), "b": (1, [])}

    def close(self) -> None:
        self.closed += 1


def _model(body: str) -> onnx.ModelProto:
    model = text.parse(f"g (float[4] x) => (float[4] y) {{ {body} }}", opset=18)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "w"))
    return model


def _inside(
    after: str, before: str = BODY, promise: Parity = Parity.CLOSE, engine: _Engine | None = None, scale: float = 1.0
) -> Inside:
    models = _model(before), _model(after)
    engine = engine or _Engine()
    original: Any = ReferenceRun(models[0].SerializeToString(), InputsSpec(), VerifySpec())
    original.engine_for = lambda _: engine
    original._inputs = SimpleNamespace(cost=lambda binding: 0.0)
    arrays = [np.random.default_rng(seed).normal(0, scale, 4).astype(np.float32) for seed in range(4)]
    runs = [Run(Binding({}, seed=seed), {"x": array, "other": array}, {}) for seed, array in enumerate(arrays)]
    names = {name for node in models[0].graph.node for name in node.output}
    setting = InnerComparison(original, VerifySpec(), "onnxruntime", runs, {"y": "is zero"}, promise)
    return Inside(*models, names, setting)


def test_sizes_and_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _Engine()
    inside = _inside(BODY, engine=engine)
    assert inside.sizes == {"a": 24, "b": 4, "w": 16} and inside.eligible == NAMES and engine.closed == 1
    assert len(inside.runs) == 3
    for largest, eligible in ((72, NAMES), (71, NAMES - {"a"})):
        monkeypatch.setattr(inner_values, "LARGEST", largest)
        assert _inside(BODY).eligible == eligible
    drawing = "a = RandomNormalLike(x) b = Mul(a, w) c = Neg(x) y = Tanh(c)"
    assert _inside(drawing, drawing).eligible == {"c", "y"}


def test_values_that_agree_or_differ() -> None:
    inside = _inside("a = Exp(x) b = Mul(a, w) c = Abs(b) y = Tanh(c)")
    found = inside.compare(["a", "b", "c"])
    assert {name: verdict.status for name, verdict in found.items()} == {
        "a": Status.EQUAL,
        "b": Status.EQUAL,
        "c": Status.DIFFERENT,
    }
    assert "the intermediate value 'c'" in found["c"].message and "output" not in found["c"].message
    assert _inside(BODY).compare([]) == {}


def test_rounding_is_close_unless_all_bits_are_promised() -> None:
    before, after = "b = Div(x, w) y = Tanh(b)", "r = Reciprocal(w) b = Mul(x, r) y = Tanh(b)"
    assert _inside(after, before).compare(["b"])["b"].status is Status.CLOSE
    assert _inside(after, before, Parity.EXACT).compare(["b"])["b"].status is Status.DIFFERENT


def test_values_that_show_nothing_are_left_out() -> None:
    constant = "z = Sub(x, x) b = Mul(z, w) y = Tanh(x)"
    assert _inside(constant, constant).compare(["z", "b"]) == {}
    # The name refers to something else in the changed model.
    assert _inside("b = ReduceSum(x) y = Tanh(b)", "b = Exp(x) y = Tanh(b)").compare(["b"]) == {}
    tiny, other = "b = Neg(x) y = Tanh(b)", "b = Abs(x) y = Tanh(b)"
    assert _inside(other, tiny, scale=1e-40).compare(["b"]) == {}
    assert _inside(other, tiny, Parity.EXACT, scale=1e-40).compare(["b"])["b"].is_different


def test_a_value_that_varies_when_the_original_runs_again_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    after = "a = Exp(x) b = Mul(a, w) c = Abs(b) y = Tanh(c)"
    monkeypatch.setattr(inner_values, "same", lambda one, other: one[0] == other[0])
    assert [*_inside(after).compare(["b", "c"])] == ["b", "c"]
    monkeypatch.setattr(inner_values, "same", lambda one, other: False)
    assert [*_inside(after).compare(["b", "c"])] == ["b"]


def test_models_that_do_not_run_show_nothing() -> None:
    after = "a = Exp(x) b = Mul(a, w) c = Abs(b) y = Tanh(c)"
    inside = _inside(after, engine=_Engine(rejects="c"))
    assert inside.compare(["c"]) == {} and inside.heir("c", ["b"]) is None and inside.heir("b", ["c"]) is None
    assert inside.clearing(["c"], ["a"]) == set() == inside.clearing(["a"], ["c"])
    assert [*inside.compare(["b"])] == ["b"]


def test_the_original_value_that_a_name_refers_to() -> None:
    before = "a = Exp(x) b = Neg(a) c = Mul(b, w) y = Tanh(c)"
    inside = _inside("a = Exp(x) m = Mul(a, w) b = Neg(m) y = Tanh(b)", before)
    assert inside.heir("b", ["a", "c", "y"]) == "c" == inside.heir("b", ["c", "a"])
    assert inside.heir("b", ["a", "y"]) is None is inside.heir("b", [])


def test_a_value_clears_a_difference_that_it_makes_up_for() -> None:
    # The changed model negates one value, and takes that back in the next. Another one does not depend on it.
    before = "b = Exp(x) c = Neg(b) d = Sin(x) y = Tanh(c)"
    after = "n = Exp(x) b = Neg(n) c = Identity(b) d = Sin(x) y = Tanh(c)"
    inside = _inside(after, before)
    found = inside.compare(["b", "c", "d"])
    assert found["b"].is_different and found["c"].passed and found["d"].passed
    assert inside.clearing(["b"], ["c", "d"]) == {"c"}
    # Squares would not show the sign in the original either.
    squares = "b = Exp(x) c = Mul(b, b) y = Tanh(c)"
    assert _inside("n = Exp(x) b = Neg(n) c = Mul(n, n) y = Tanh(c)", squares).clearing(["b"], ["c"]) == set()
