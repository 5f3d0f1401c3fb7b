"""Nodes upstream of an empty output on drawn values: which are taken, and what is shown; onnx evaluates the pieces."""

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
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.fingerprint import trace
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.regions import upstream
from surgery.verification.regions.upstream import RegionTrials, UpstreamRegion

BODY = "a = Exp(x) b = Mul(a, w) c = Neg(b) y = Tanh(c)"


def _model(body: str, ports: str = "float[4] x", outputs: str = "float[4] y") -> onnx.ModelProto:
    model = text.parse(f"g ({ports}) => ({outputs}) {{ {body} }}", opset=18)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "w"))
    return model


class _Trials:
    """Trials whose pieces onnx evaluates; `ran` has the inputs and the outputs of the pieces, and the feeds."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, sizes: Mapping[str, int] | None = None, promise: Parity = Parity.CLOSE
    ) -> None:
        self.ran: list[tuple[list[str], list[str], Sequence[Mapping[str, Any]]]] = []
        self.fails = False
        monkeypatch.setattr(upstream, "observe", self._observe)
        setting = SimpleNamespace(promise=promise, open_engine=None)
        feeds = [{"x": np.full(4, value, np.float32)} for value in (50.0, 60.0)]
        runs = [Run(Binding({}, seed=number), feed, {}) for number, feed in enumerate(feeds)]
        self.inside: Any = SimpleNamespace(setting=setting, sizes=sizes or {}, runs=runs, rules=ComparisonRules)

    def _observe(self, model: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]], _: Any) -> Any:
        inputs, outputs = [port.name for port in model.graph.input], [port.name for port in model.graph.output]
        self.ran.append((inputs, outputs, feeds))
        if self.fails:
            return None
        evaluator = ReferenceEvaluator(model)
        with np.errstate(all="ignore"):
            return [dict(zip(outputs, evaluator.run(None, {name: feed[name] for name in inputs}))) for feed in feeds]

    def find(self, before: str, after: str, outputs: str = "y", agreeing: str = "", **ports: str) -> list[Any]:
        models = _model(before, **ports), _model(after, **ports)
        self.ran = []
        return RegionTrials(models, trace(*models), {*agreeing}, self.inside).find({*outputs})


def test_a_right_change_is_shown_on_drawn_values(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = _Trials(monkeypatch)
    (found,) = trials.find(BODY, BODY.replace("c = Neg(b)", "m = Neg(w) c = Mul(a, m)"))
    assert found.outputs == ("y",) and found.needed is None
    assert found.before == {1, 2, 3} and found.after == {2, 3, 4}
    recorded, mine, theirs, nudged = trials.ran
    assert recorded[1] == ["a"] and recorded[2] == [run.feed for run in trials.inside.runs]
    assert mine[0] == theirs[0] == nudged[0] == ["a"] and mine[1] == theirs[1] == ["y"]
    # Two runs, each with draws of different scales, as positive as what was recorded; the same ones for both models.
    assert len(mine[2]) == 2 * len(upstream._SCALES) and mine[2] is theirs[2]
    assert all((feed["a"] >= 0).all() for feed in mine[2])
    largest = [float(feed["a"].max()) for feed in mine[2]]
    assert largest[:4] == largest[4:] and largest[0] != largest[1] > largest[2] > largest[3]
    assert all((one["a"] != other["a"]).any() for one, other in zip(mine[2], nudged[2]))


def test_a_wrong_change_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _Trials(monkeypatch).find(BODY, BODY.replace("Neg", "Abs")) == []
    both = "a = Exp(x) b = Mul(a, w) c = Neg(b) y = Tanh(c) z = Sin(c)"
    trials = _Trials(monkeypatch)
    after = "a = Exp(x) b = Mul(a, w) c = Neg(b) y = Tanh(c) d = Abs(c) z = Sin(d)"
    (found,) = trials.find(both, after, "yz")
    assert found.outputs == ("y",)


def test_rounding_is_no_difference_unless_all_bits_were_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = "a = Exp(x) c = Div(a, w) y = Tanh(c)", "a = Exp(x) r = Reciprocal(w) d = Mul(a, r) y = Tanh(d)"
    (found,) = _Trials(monkeypatch).find(before, after)
    assert found.outputs == ("y",) and found.needed is not None and 0 < found.needed["factor"] < 1
    assert _Trials(monkeypatch, promise=Parity.EXACT).find(before, after) == []
    same = BODY.replace("c = Neg(b)", "c = Neg(b) i = Abs(c)")
    assert len(_Trials(monkeypatch, promise=Parity.EXACT).find(BODY, same)) == 1


def test_what_does_not_move_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "a = Exp(x) b = Mul(a, w) c = Sub(b, b) y = Tanh(c)"
    assert _Trials(monkeypatch).find(before, before.replace("b = Mul(a, w)", "b = Mul(w, a)")) == []


def test_inputs_alone_were_tried_already(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "a = Exp(x) y = Tanh(a)"
    trials = _Trials(monkeypatch)
    assert trials.find(before, before.replace("Exp", "Abs")) == [] and not trials.ran


def test_values_that_agree_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = _Trials(monkeypatch)
    before = "a = Exp(x) b = Mul(a, w) c = Neg(b) y = Tanh(c)"
    after = "p = Mul(x, x) b = Mul(p, w) c = Neg(b) y = Tanh(c)"
    (found,) = trials.find(before, after, agreeing="b")
    assert trials.ran[0][1] == ["b"] and found.before == {2, 3} and found.after == {2, 3}
    # An output that agrees is not given: it is what is to be shown.
    assert trials.find(before, after, agreeing="by")[0].before == {2, 3}


def test_only_floats_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = _Trials(monkeypatch)
    before = "k = Cast<to = 7>(x) y = Cast<to = 1>(k)"
    assert trials.find(before, "k = Cast<to = 7>(x) j = Neg(k) y = Cast<to = 1>(j)") == []
    assert [outputs for _, outputs, _ in trials.ran][:1] == [["k"]] and all(one[1] == ["k"] for one in trials.ran)


def test_a_run_that_fails_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = _Trials(monkeypatch)
    trials.fails = True
    assert trials.find(BODY, BODY.replace("c = Neg(b)", "m = Neg(w) c = Mul(a, m)")) == []
    assert len(trials.ran) == 2 and all(one[1] != ["y"] for one in trials.ran)


@pytest.mark.parametrize(("share", "sets"), [(1, 8), (2, 8), (3, 2), (5, 2), (7, 1)])
def test_large_values_are_drawn_less_often(monkeypatch: pytest.MonkeyPatch, share: int, sets: int) -> None:
    # Ten values are held for two runs that are recorded and drawn four times; four if they are drawn once.
    size = upstream.AFFORDABLE * share // 20
    trials = _Trials(monkeypatch, {"a": size})
    found = trials.find(BODY, BODY.replace("c = Neg(b)", "m = Neg(w) c = Mul(a, m)"))
    assert [len(one[2]) for one in trials.ran[:2]] == [min(2, sets), sets] and len(found) == 1


def test_bools_are_drawn_after_the_first_draw_and_a_value_has_the_same_draw_under_each_name() -> None:
    model = _model(BODY)
    inside: Any = SimpleNamespace()
    lineage: Any = SimpleNamespace(numbers={"a": 3, "alias": 3, "b": 4})
    trials = RegionTrials((model, model), lineage, set(), inside)
    mask, floats = np.zeros(64, bool), np.linspace(-1, 1, 64, dtype=np.float32)
    assert trials._draw("a", mask, 0) is mask
    drawn = trials._draw("a", mask, 1)
    assert 16 < drawn.sum() < 48 and (trials._draw("alias", mask, 1) == drawn).all()
    assert (trials._draw("a", floats, 0) == trials._draw("alias", floats, 0)).all()
    assert (trials._draw("a", floats, 0) != trials._draw("b", floats, 0)).any()
    assert (trials._draw("a", floats, 0) != trials._draw("a", floats, 1)).any()
    integers = np.arange(4)
    assert trials._draw("a", integers, 1) is integers
    assert UpstreamRegion(set(), set(), (), None).needed is None
