"""Losses, scores and differences as numbers and as text."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.accuracy import worst_layer as layers
from surgery.verification.accuracy.error_distribution import _shares, add_errors
from surgery.verification.accuracy.loss_evaluation import Loss, _deviation, _failure, _guarded
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.accuracy.tensor_difference import TensorDifference
from surgery.verification.accuracy.user_metric import Score, _lock, _standard_error, evaluate, keep
from surgery.verification.accuracy.worst_layer import _common, _ratio, _values, worst_layer
from surgery.verification.comparing.spread import Spread
from surgery.verification.inputs.spec import MetricLimit, MetricSpec, VerifySpec

SNR = MetricLimit("snr", 20.0)
TOP1 = MetricLimit("top1", 0.9, "y")


def _metrics(snr: float = math.inf, top1: float = 1.0) -> Any:
    return {**SAME, "snr": snr, "top1": top1}


def test_the_use_of_limits() -> None:
    loss = Loss({"y": [_metrics(30, 0.95), _metrics(40, 0.8)], "z": [_metrics(20), _metrics(50)], "none": []})
    snr, top1 = loss.uses([SNR, TOP1])
    assert (snr.output, snr.sample, snr.value, snr.share) == ("z", 0, 20.0, 1.0)
    assert (top1.output, top1.sample, top1.value) == ("y", 1, 0.8) and top1.share == pytest.approx(2.0)
    assert loss.use([SNR, TOP1]) == max(snr.guarded, top1.guarded) > 2.0
    assert loss.worst == {**SAME, "snr": 20, "top1": 0.8}
    assert loss.worst_sets([SNR], 2) == (0, 1) and loss.worst_sets([TOP1], 1) == (1,)
    assert loss.worst_sets([MetricLimit("snr", 20.0, "gone")], 2) == ()
    assert Loss({}, "it fails").use([SNR]) == math.inf and Loss({}).use([SNR]) == 0.0
    score = Score(MetricSpec(Path("m.py"), "f", 1.0), 5.0, 2.0)
    assert Loss({"y": [_metrics()]}, score=score).use([SNR]) == 3.0


@pytest.mark.parametrize(
    ("shares", "kinds", "guarded"),
    [
        ([0.5], [], 0.5),
        ([0.5, 0.5], [], 0.5),
        # The mean of 0 and 1 is 0.5, and the deviation the root of a half; four times that is the margin.
        ([0.0, 1.0], [], 1 + 4 * math.sqrt(0.5)),
        ([0.0, 1.0], ["a", "a"], 1 + 4 * math.sqrt(0.5)),
        ([0.0, 1.0], ["a", "b"], 1.0),
        ([0.0, 1.0, 3.0], ["a", "a", "b"], 3 + 4 * math.sqrt(0.5)),
        ([0.0, 1.0, 3.0, 3.0], ["a", "a", "b", "b"], 3 + 4 * math.sqrt(0.25)),
        ([0.0, math.inf], [], math.inf),
    ],
)
def test_the_margin_for_other_inputs(shares: list[float], kinds: list[str], guarded: float) -> None:
    assert _guarded(shares, kinds) == pytest.approx(guarded)


def test_deviations() -> None:
    assert _deviation([]) == 0.0 == _deviation([[1.0], [2.0]]) and _deviation([[1.0, 3.0]]) == math.sqrt(2)
    # By the jackknife: of parts that are left out in turn.
    assert _standard_error([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0.0
    assert _standard_error([0.0, 0.0], [1.0, 3.0]) == 1.0
    assert _failure(RunOutcome(runs=[{}, "bad", "worse"])) == "bad" and _failure(RunOutcome(runs=[{}])) == ""
    assert _failure(RunOutcome(invalid="broken", runs=["bad"])) == "broken"


METRIC = MetricSpec(Path("folder/m.py"), "score", 0.1)


@pytest.mark.parametrize(
    ("score", "use", "guarded", "words"),
    [
        (Score(METRIC, 0.9, 0.9), 0.0, 0.0, "m.py:score 0.9"),
        (Score(METRIC, 0.9, 0.85, 0.01), 0.5, 0.7, "m.py:score 0.85 instead of 0.9 +- 0.01"),
        (Score(METRIC, 0.9, 0.95, 0.05), 0.0, 0.5, "m.py:score 0.95 instead of 0.9 +- 0.05"),
        (Score(METRIC, 0.9, 0.7), 2.0, 2.0, "m.py:score 0.7 instead of 0.9"),
        (
            Score(METRIC, 0.9, problem="it returns nan"),
            math.inf,
            math.inf,
            "m.py:score cannot be computed for the changed model: it returns nan",
        ),
        # Lower is better, and a share of the original's.
        (Score(MetricSpec(Path("m.py"), "f", 0.1, lower=True), 2.0, 2.05), 0.5, 0.5, "m.py:f 2.05 instead of 2"),
        (Score(MetricSpec(Path("m.py"), "f", 0.1, lower=True), 2.0, 1.5), 0.0, 0.0, "m.py:f 1.5 instead of 2"),
        (Score(MetricSpec(Path("m.py"), "f", 0.1, relative=True), -2.0, -2.1), 0.5, 0.5, "m.py:f -2.1 instead of -2"),
        (Score(MetricSpec(Path("m.py"), "f", 0.0), 2.0, 1.9), math.inf, math.inf, "m.py:f 1.9 instead of 2"),
    ],
)
def test_scores(score: Score, use: float, guarded: float, words: str) -> None:
    assert (score.use, score.guarded) == pytest.approx((use, guarded)) and str(score) == words
    shown = score.as_json()
    assert (shown["original"], shown["used"], shown["problem"]) == (score.original, score.use, score.problem or None)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return len(outputs) + sets[1]['x'][0]", {"value": 5.0}),
        ("return '1'", {"problem": "it returns a str, not a number"}),
        ("return [1.0]", {"problem": "it returns a list, not a number"}),
        ("return float('nan')", {"problem": "it returns nan"}),
        ("return -float('inf')", {"problem": "it returns -inf"}),
        ("return outputs[2]", {"problem": "line 2: IndexError: list index out of range"}),
        ("outputs[0]['y'][0] = 1", {"problem": "line 2: ValueError: assignment destination is read-only"}),
        ("sets[0]['x'][0] = 1", {"problem": "line 2: ValueError: assignment destination is read-only"}),
    ],
)
def test_a_metric_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, found: dict[str, Any]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])
    file = tmp_path / "m.py"
    file.write_text(f"def score(outputs, sets):\n    {body}\n")
    stages: list[str] = []
    monkeypatch.setattr("surgery.verification.accuracy.user_metric.stage", stages.append)
    keep([{"x": np.array([n])} for n in (1, 2, 3)])
    outputs = [{"y": np.zeros(1)}, {"y": np.ones(1)}]
    assert evaluate(str(file), "score", str(tmp_path), outputs, [0, 2]) == found
    assert stages == ["m.py:score"]


def test_a_metric_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])
    (tmp_path / "m.py").write_text("def other(): ...\n")
    found = evaluate(str(tmp_path / "m.py"), "score", str(tmp_path), [], [])
    assert found == {"problem": "no function 'score' in it; it has other"}
    nested: Any = [{"a": [np.ones(1)]}, (np.ones(1),)]
    _lock(nested)
    assert not nested[0]["a"][0].flags.writeable and nested[1][0].flags.writeable


# Inner values


def test_values_of_both_models_that_are_no_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "a = Neg(x) b = Abs(a) c = Exp(b) d = Log(c) y = Relu(d)"
    before = text.parse(f"g (float[2] x) => (float[2] y) {{ {body} }}")
    after = text.parse(f"g (float[2] x) => (float[2] y) {{ {body.replace('b', 'bb')} }}")
    assert _common(before, before) == ["a", "b", "c", "d"] and _common(before, after) == ["a", "c", "d"]
    monkeypatch.setattr(layers, "MOST_VALUES", 2)
    assert _common(before, before) == ["b", "d"] and _common(before, after) == ["c"]


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (np.float32([3, 4]), np.float32([3, 4.5]), 20.0),
        (np.float32([3, 4]), np.float16([3, 4.5]), 20.0),
        (np.float32([3, 4]), np.float32([3]), math.inf),
        (np.array([3, 4]), np.array([3, 5]), math.inf),
        ([np.ones(1)], np.ones(1), math.inf),
        (np.ones(1), None, math.inf),
    ],
)
def test_ratios_of_inner_values(before: Any, after: Any, ratio: float) -> None:
    assert _ratio(before, after) == pytest.approx(ratio)


def test_the_inner_value_with_the_lowest_ratio_is_named() -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Exp(b) }").SerializeToString()

    def remark(*outcomes: Any) -> str:
        left = [*outcomes]
        engine = SimpleNamespace(run=lambda skeleton, feeds: RunOutcome(runs=[left.pop(0)]), close=lambda: None)
        original: Any = SimpleNamespace(skeleton=model, engine="onnxruntime", engine_for=lambda name: engine)
        return worst_layer(original, model, {"x": np.ones(2), "other": 1})

    x = np.float32([3, 4])
    assert remark({"a": x, "b": x}, {"a": x + np.float32([0, 0.5]), "b": x}) == "; lowest inside at 'a' (SNR 20 dB)"
    assert remark({"a": x, "b": x}, {"a": x, "b": x}) == "" == remark({"a": x, "b": x}, "bad") == remark("bad", "bad")
    asked: list[Any] = []
    engine: Any = SimpleNamespace(run=lambda skeleton, feeds: asked.append(feeds) or RunOutcome(invalid="broken"))
    assert _values(engine, text.parse("g (float x) => (float y) { y = Neg(x) }"), {"x": 1, "z": 2}) == {}
    assert asked == [[{"x": 1}]]


def _difference(before: list[Any], after: list[Any]) -> TensorDifference:
    return TensorDifference.of("t", before, after, ["first", "second"], VerifySpec())


def test_differences_of_a_tensor() -> None:
    x = np.float32([1, 2])
    assert _difference([x, x], [x, x[:1]]).unlike == "the shapes differ"
    words = np.array(["a"], object)
    assert _difference([words], [words]) == TensorDifference("equal", equal=True)
    assert _difference([words], [words[:0].reshape(0)]).unlike == "the shapes differ"
    assert _difference([words], [np.array(["b"], object)]).unlike == "not equal, and no numbers"
    found = _difference([x, x], [x, x + np.float32([0, 1])])
    assert (found.elements, found.differing, found.beyond, found.max, found.mean) == (4, 1, 1, 1.0, 0.25)
    assert found.set == "second" and found.where is not None and found.where.index == (1,) and not found.equal
    assert found.metrics["snr"] == pytest.approx(10 * math.log10(5)) and {*found.metrics} == {"cosine", "snr"}
    same = _difference([x], [x.copy()])
    assert same.equal and same.where is None and same.metrics == {} and same.needed == 0.0
    whole = _difference([np.array([1, 5])], [np.array([1, 2])])
    assert (whole.max, whole.differing, whole.metrics) == (3.0, 1, {})


def test_a_tensor_of_a_narrower_type_is_compared_by_that_type() -> None:
    x = np.float32([1, 2])
    half = (x * np.float32(1.001)).astype(np.float16)
    narrow, wide = _difference([x], [half]), _difference([x], [half.astype(np.float32)])
    assert narrow.beyond == 0 < wide.beyond and narrow.needed < 1 < wide.needed
    inf = np.float32([np.inf, 1])
    assert _difference([inf], [inf + np.float32([0, 1])]).max == 1.0
    assert _difference([x], [np.array([1, 3])]).max == 1.0


@pytest.mark.parametrize(
    ("before", "after", "shares"),
    [
        # The root mean square of 3 and 4 is the root of 12.5.
        (np.float32([3, 4]), np.float32([3, 5]), [0, 1 / math.sqrt(12.5)]),
        (np.float32([0, 0]), np.float32([0, 1]), [0, math.inf]),
        (np.float32([np.nan, np.inf, -np.inf, 2]), np.float32([7, np.inf, np.inf, np.nan]), [0, 0, math.inf, math.inf]),
        (np.array([1, 2]), np.array([1, 3]), [0, math.inf]),
    ],
)
def test_errors_in_shares_of_the_root_mean_square(before: Any, after: Any, shares: list[float]) -> None:
    assert _shares(before, after).tolist() == pytest.approx(shares)


def test_errors_of_outputs_are_counted() -> None:
    spreads = {"y": Spread(), "s": Spread()}
    x = np.float32([3, 4])
    add_errors(spreads, {"y": x, "s": [x, x, x]}, {"y": x + 1, "s": [x[:1], x.astype(int), x]}, {"seed": 1})
    y, s = (spreads[name].errors(name, "rms") for name in "ys")
    assert (y.elements, y.equal, s.elements, s.equal) == (2, 0, 2, 2)
    assert y.worst is not None and (y.worst.index, y.worst.changed, y.worst.binding) == ((0,), 4.0, {"seed": 1})
    assert s.worst is not None and s.worst.item == (2,)
    add_errors({"y": (empty := Spread())}, {"y": x[:0]}, {"y": x[:0]}, {})
    assert empty.errors("y").elements == 0
