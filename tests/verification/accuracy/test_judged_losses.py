"""What a measured loss says about the budget, and what is measured, without any run of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import UsageError, WorkerError
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.accuracy import loss_evaluation, user_metric
from surgery.verification.accuracy.loss_evaluation import Evaluation, Loss
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.accuracy.samples import Samples
from surgery.verification.accuracy.user_metric import Score, UserMetric
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given import GivenBinding
from surgery.verification.inputs.spec import AccuracySpec, MetricLimit, MetricSpec

SNR, TOP1 = MetricLimit("snr", 20.0), MetricLimit("top1", 0.9)
METRIC = MetricSpec(Path("m.py"), "f", 0.1)
ONES = {"y": np.ones(2, np.float32), "z": np.ones(2, np.float32)}


class Runtime:
    """An engine that returns what is scripted, and notes what it is asked."""

    def __init__(self, *outcomes: RunOutcome, deployed: bool = False) -> None:
        self.outcomes, self.deployed, self.closed, self.asked = [*outcomes], deployed, 0, [list[Any]()]

    def run(self, candidate: bytes, feeds: Sequence[Any]) -> RunOutcome:
        self.asked.append([*feeds])
        return self.outcomes.pop(0)

    def close(self) -> None:
        self.closed += 1


def evaluation(
    limits: Sequence[MetricLimit] = (SNR,),
    metric: MetricSpec | None = None,
    *,
    synthetic: bool = True,
    sets: int = 2,
    calibrated: bool = False,
    vacuous: Mapping[str, str] | None = None,
    runtime: Runtime | None = None,
    **original: Any,
) -> Evaluation:
    engine = runtime or Runtime()
    known = {
        "random": frozenset(),
        "nondeterministic": frozenset(),
        "engine": "onnxruntime",
        "problem": None,
        "prepare": lambda: None,
        "skeleton": text.parse("g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Abs(x) }"),
        "runs": [SimpleNamespace(feed="own")],
        "bounds": (1.0, None),
        "engine_for": lambda name, deployed=False: engine,
    }
    made = Evaluation(SimpleNamespace(**{**known, **original}), AccuracySpec(tuple(limits), metric=metric))  # type: ignore[arg-type]
    made._calibrated = calibrated
    bindings: list[Binding] = [
        Binding({"N": 2}, seed=7 + one) if synthetic else GivenBinding(character=f"{one}.npz") for one in range(sets)
    ]
    ran = Samples([{"x": one} for one in range(sets)], bindings, synthetic), [ONES] * sets
    made.__dict__.update(_ran=ran, _vacuous=vacuous or {})
    return made


def loss(*snr: float, top1: float = 1.0, name: str = "y", **more: Any) -> Loss:
    return Loss({name: [{**SAME, "snr": one, "top1": top1} for one in snr]}, **more)


NO_LOSS = "cosine 1, SNR 30 dB, largest error 0 of the range, top-1 agreement 100.0%"
OTHERS = "; other inputs are not covered: give yours with --evaluation"


@pytest.mark.parametrize(
    ("setting", "found", "status", "message"),
    [
        ({}, Loss({}, "it crashed"), "different", "the changed model fails: it crashed"),
        (
            {},
            loss(30.0, 30.0),
            "lossy",
            f"{NO_LOSS}, worst in output 'y' (N=2, normal data, seed 7); budget snr >= 20 dB; "
            f"measured on 2 synthetic sets of inputs{OTHERS}",
        ),
        (
            {"synthetic": False, "sets": 1, "calibrated": True},
            loss(30.0),
            "lossy",
            f"{NO_LOSS}, worst in output 'y' (0.npz); budget snr >= 20 dB; measured on 1 set of inputs, those of the "
            "calibration",
        ),
        (
            {"limits": (), "metric": METRIC, "synthetic": False},
            loss(30.0, 30.0, score=Score(METRIC, 0.9, 0.9)),
            "lossy",
            f"{NO_LOSS}; m.py:f 0.9; budget m.py:f drops by at most 0.1; measured on 2 sets of inputs",
        ),
        (
            {"synthetic": False},
            loss(20.0, 20.0),
            "lossy",
            f"{NO_LOSS.replace('30', '20')}, worst in output 'y' (0.npz); budget snr >= 20 dB; "
            "measured on 2 sets of inputs",
        ),
        (
            {"synthetic": False},
            loss(30.0, 10.0),
            "different",
            "output 'y' has SNR 10 dB (1.npz), budget snr >= 20 dB; measured on 2 sets of inputs",
        ),
        (
            {"synthetic": False},
            loss(20.1, 30.0),
            "different",
            "output 'y' has SNR 20.1 dB (0.npz), budget snr >= 20 dB; other inputs may exceed the budget; "
            "measured on 2 sets of inputs",
        ),
        (
            {"limits": (SNR, TOP1), "synthetic": False},
            loss(10.0, top1=0.5),
            "different",
            "output 'y' has SNR 10 dB (0.npz), budget snr >= 20 dB; output 'y' has top-1 agreement 50.0% (0.npz), "
            "budget top1 >= 90 %; measured on 2 sets of inputs",
        ),
        (
            {"metric": METRIC, "synthetic": False},
            loss(30.0, score=Score(METRIC, 0.9, 0.7)),
            "different",
            "m.py:f 0.7 instead of 0.9, budget m.py:f drops by at most 0.1; measured on 2 sets of inputs",
        ),
        (
            {"metric": METRIC, "synthetic": False},
            loss(30.0, score=Score(METRIC, 0.9, 0.82, 0.02)),
            "different",
            "m.py:f 0.82 instead of 0.9 +- 0.02, budget m.py:f drops by at most 0.1; other inputs may exceed the "
            "budget; measured on 2 sets of inputs",
        ),
        (
            {"vacuous": {"y": "is constant"}},
            loss(30.0),
            "unverified",
            "nothing is proven: 'y' is constant; measure on your own data (--evaluation)",
        ),
        (
            {"vacuous": {"y": "is constant"}, "metric": METRIC, "synthetic": False, "limits": ()},
            loss(30.0, score=Score(METRIC, 0.9, 0.9)),
            "lossy",
            f"{NO_LOSS}; m.py:f 0.9; budget m.py:f drops by at most 0.1; measured on 2 sets of inputs",
        ),
        (
            {},
            Loss({}),
            "unverified",
            "nothing is proven: all outputs of the original are random; measure on your own data (--evaluation)",
        ),
    ],
)
def test_the_verdict_on_a_loss(setting: Any, found: Loss, status: str, message: str) -> None:
    verdict = evaluation(**setting).verdict(found)
    assert (verdict.status, verdict.message) == (status, message)
    assert verdict.reason == ("vacuous" if status == "unverified" else None)


@pytest.mark.parametrize(
    ("limits", "names", "shows"),
    [
        ((SNR,), "yz", True),
        ((SNR,), "y", False),
        ((MetricLimit("snr", 20.0, "y"),), "yz", False),
        ((MetricLimit("snr", 20.0, "z"),), "yz", True),
        ((MetricLimit("snr", 20.0, "y"), SNR), "yz", True),
    ],
)
def test_an_output_with_a_limit_shows_something(limits: Sequence[MetricLimit], names: str, shows: bool) -> None:
    made = evaluation(limits, vacuous={"y": "is constant"})
    assert (made._nothing_shown(Loss({name: [SAME] for name in names})) == "") is shows


def test_the_account_of_a_budget() -> None:
    made = evaluation(synthetic=False, calibrated=True, metric=METRIC)
    details = made.verdict(loss(30.0, 40.0, top1=0.75, score=Score(METRIC, 0.9, 0.9))).details
    assert details is not None
    found = {**details.accuracy}
    (limit,) = found.pop("limits")
    assert (limit["limit"], limit["output"], limit["value"], limit["used"]) == ("snr >= 20 dB", "y", 30.0, 0.1)
    assert limit["guarded"] > 0.1 and limit["inputs"]["character"] == "0.npz"
    assert found.pop("metric")["original"] == 0.9 and (found.pop("sets"), found.pop("synthetic")) == (2, False)
    assert found == {
        "summary": "SNR 30 dB of 20 needed, m.py:f 0.9, m.py:f drops by at most 0.1, top-1 agreement 75.0%, "
        "on the calibration data only"
    }


@pytest.mark.parametrize(
    ("setting", "found", "summary"),
    [
        ({}, loss(30.0), "SNR 30 dB of 20 needed, on synthetic inputs only"),
        ({"calibrated": True}, loss(30.0), "SNR 30 dB of 20 needed, on synthetic inputs only"),
        ({"synthetic": False}, loss(30.0), "SNR 30 dB of 20 needed"),
        ({"synthetic": False, "limits": (TOP1,)}, loss(30.0, top1=0.95), "top-1 agreement 95.0% of 90 needed"),
    ],
)
def test_the_head_of_a_report(setting: Any, found: Loss, summary: str) -> None:
    details = evaluation(**setting).verdict(found).details
    assert details is not None and details.accuracy["summary"] == summary and details.accuracy["metric"] is None


def test_the_budget_in_words() -> None:
    assert evaluation((), None).budget == ["snr >= 20 dB"] and evaluation((), METRIC).limits == ()
    assert evaluation((TOP1,), METRIC).budget == ["top1 >= 90 %", "m.py:f drops by at most 0.1"]


def changed(*offsets: float) -> RunOutcome:
    return RunOutcome([{name: one + np.float32(offset) for name, one in ONES.items()} for offset in offsets])


def test_outputs_are_measured_on_each_set() -> None:
    runtime = Runtime(changed(0.0, 0.1))
    found = evaluation(runtime=runtime, random=frozenset("z")).measure(b"m")
    assert [one["snr"] for one in found.outputs["y"]] == pytest.approx([math.inf, 20.0], abs=1e-3)
    assert [*found.outputs] == ["y"] and found.kinds == ("normal", "normal") and found.errors == ()
    assert runtime.asked[1:] == [[{"x": 0}, {"x": 1}]]


def test_a_part_of_the_sets_is_measured() -> None:
    runtime = Runtime(changed(0.1), changed(0.0, 0.0))
    made = evaluation(runtime=runtime, synthetic=False)
    found = made.measure(b"m", sets=(1,), spread=True)
    assert runtime.asked[1:] == [[{"x": 1}]] and [len(one) for one in found.outputs.values()] == [1, 1]
    assert [one.name for one in found.errors] == ["y", "z"] and found.kinds == ("given",)
    worst = found.errors[0].worst
    assert worst is not None and worst.binding["character"] == "1.npz"


@pytest.mark.parametrize(
    ("outcome", "failure", "unsupported"),
    [
        (RunOutcome(unsupported="no kernel"), "no kernel", True),
        (RunOutcome(invalid="broken"), "broken", False),
        (RunOutcome([{}, "it fails"]), "it fails", False),
    ],
)
def test_a_changed_model_that_does_not_run(outcome: RunOutcome, failure: str, unsupported: bool) -> None:
    found = evaluation(runtime=Runtime(outcome)).measure(b"m")
    assert (found.outputs, found.failure, found.unsupported) == ({}, failure, unsupported)
    verdict = evaluation(runtime=Runtime(outcome)).judge(b"m")
    if unsupported:
        assert (verdict.status, verdict.reason, verdict.message) == ("unverified", "not-run", failure)
    else:
        assert verdict.status == "different"
        assert verdict.message == f"the changed model fails where the original runs: {failure}"


def test_a_judged_model_also_runs_on_the_inputs_of_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(loss_evaluation, "worst_layer", lambda *given: asked.append(given[2]) or "; in a layer")
    runtime = Runtime(changed(0.01, 0.001), RunOutcome([{}]))
    verdict = evaluation(runtime=runtime).judge(b"")
    assert verdict.status == "lossy" and verdict.message.endswith("--evaluation; in a layer") and asked == [{"x": 0}]
    assert runtime.asked[-1] == ["own"]
    verdict = evaluation(runtime=Runtime(changed(0.0, 0.0), RunOutcome(["too long"]))).judge(b"")
    assert verdict.message == "the changed model fails where the original runs: too long"
    verdict = evaluation(runtime=Runtime(changed(9.0, 9.0), RunOutcome([{}]))).judge(b"")
    assert verdict.status == "different" and len(asked) == 1
    verdict = evaluation(problem="no kernel").judge(b"")
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert verdict.message == "accuracy is measured on the whole model, which cannot be run: no kernel"


def test_a_large_deployed_model_runs_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_evaluation, "packs_weights", lambda candidate: candidate == b"large")
    pieces: list[RunOutcome | None] = [changed(0.0, 0.0), None]
    monkeypatch.setattr(loss_evaluation, "run_in_pieces", lambda *_: pieces.pop(0))
    runtime = Runtime(*(changed(0.1, 0.1) for _ in range(3)))
    made = evaluation(runtime=runtime)
    assert made.measure(b"large", optimized=True).worst == SAME
    for candidate, optimized in ((b"large", True), (b"large", False), (b"small", True)):
        assert made.measure(candidate, optimized=optimized).worst != SAME
    assert pieces == [] and len(runtime.asked) == 4


def test_each_kind_of_engine_is_made_once_and_closed() -> None:
    made: list[Runtime] = []

    def engine_for(name: str, deployed: bool) -> Runtime:
        made.append(Runtime(*(changed(0.0, 0.0) for _ in range(2)), deployed=deployed))
        return made[-1]

    evaluated = evaluation(engine_for=engine_for)
    for optimized in (True, False, True, False):
        evaluated.measure(b"", optimized=optimized)
    assert [one.deployed for one in made] == [True, False]
    evaluated.close()
    evaluated.close()
    assert [one.closed for one in made] == [1, 1]


@pytest.mark.parametrize(
    ("outcome", "synthetic", "kept"),
    [
        (RunOutcome([ONES, ONES]), True, [0, 1]),
        (RunOutcome(["no", ONES]), True, [1]),
        (RunOutcome(["no", ONES]), False, "no"),
        (RunOutcome(["no", "never"]), True, "no"),
        (RunOutcome(invalid="broken"), True, "broken"),
    ],
)
def test_drawn_sets_that_the_original_rejects(
    monkeypatch: pytest.MonkeyPatch, outcome: RunOutcome, synthetic: bool, kept: Any
) -> None:
    drawn = Samples([{"x": 0}, {"x": 1}], [Binding(), Binding()], synthetic)
    monkeypatch.setattr(loss_evaluation, "samples", lambda reference, spec, seed: drawn if seed == 20_000 else None)
    runtime = Runtime(outcome)
    made = evaluation(runtime=runtime)
    del made.__dict__["_ran"]
    if isinstance(kept, str):
        with pytest.raises(UsageError, match=f"the original does not run on the evaluation inputs: {kept}"):
            _ = made.samples
    else:
        assert [feed["x"] for feed in made.samples.feeds] == kept and made._expected == [ONES] * len(kept)
    assert runtime.closed == 1


def test_a_limit_is_on_an_output_that_does_not_vary() -> None:
    for limits, where, message in (
        ([MetricLimit("snr", 1.0, "a")], {}, "the budget names 'a', which is not an output; the outputs are y, z"),
        ([MetricLimit("snr", 1.0, "z")], {"random": frozenset("z")}, "the budget names 'z', which is random"),
        ([MetricLimit("snr", 1.0, "z")], {"nondeterministic": frozenset("z")}, "the budget names 'z', which is random"),
    ):
        with pytest.raises(UsageError, match=message):
            evaluation(limits, **where)._check_limits(["y", "z"])
    evaluation([MetricLimit("snr", 1.0, "y")], random=frozenset("z"))._check_limits(["y", "z"])


# A metric of the user's


class Caller:
    """A worker in which the metric is the sum of `y` over the outputs, or what is scripted."""

    pid = 1

    def __init__(self, **options: Any) -> None:
        self.options, self.kept, self.calls, self.closed = options, list[Any](), list[list[int]](), 0
        self.answers: list[Any] = []

    def call(self, target: str, /, **given: Any) -> Any:
        if target.endswith(":keep"):
            self.kept.append(given["sets"])
            return None
        self.calls.append(given["numbers"])
        answer = self.answers.pop(0) if self.answers else {"value": sum(float(one["y"]) for one in given["outputs"])}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> type[Caller]:
    made = type("Made", (Caller,), {})
    monkeypatch.setattr(user_metric, "Worker", made)
    return made


def outputs(*values: float) -> list[dict[str, float]]:
    return [{"y": value} for value in values]


def test_a_metric_is_measured_without_each_part_of_the_sets(caller: type[Caller]) -> None:
    metric = UserMetric(MetricSpec(Path("m.py"), "f", 9.0), outputs(1, 2, 3), outputs(1, 2, 3), 1.0, 5)
    worker: Any = metric._worker
    assert worker.options == {"timeout": 1.0, "memory": 5} and worker.kept == [outputs(1, 2, 3)]
    assert worker.calls == [[0, 1, 2], [1, 2], [0, 2], [0, 1], [0, 1, 2]]
    found = metric.score(outputs(1, 2, 0))
    assert (found.original, found.changed) == (6.0, 3.0)
    # Without a part the differences are -3, -3 and 0: a variance of 2, times 2.
    assert found.deviation == pytest.approx(2.0)
    caller.pid = 2
    assert metric.score(outputs(1, 2, 3)).deviation == 0.0 and len(worker.kept) == 2
    count = len(worker.calls)
    assert metric.score(outputs(-9, 2, 3)).deviation == 0.0 and len(worker.calls) == count + 1
    metric.close()
    assert worker.closed == 1


@pytest.mark.parametrize(("count", "parts"), [(1, 0), (2, 2), (8, 8), (11, 8)])
def test_there_are_eight_parts_at_most(caller: type[Caller], count: int, parts: int) -> None:
    metric = UserMetric(METRIC, outputs(*range(count)), outputs(*range(count)), 1.0, None)
    calls: list[list[int]] = metric._worker.calls[1:-1]  # type: ignore[attr-defined]
    assert len(calls) == parts
    left = [sorted({*range(count)} - {*one}) for one in calls]
    assert sorted(number for one in left for number in one) == ([*range(count)] if parts else [])


@pytest.mark.parametrize("bad", [{"problem": "too few"}, WorkerError("m.py:f hangs", stage="m.py:f")])
def test_a_metric_that_fails_for_a_part_has_no_margin(caller: type[Caller], bad: Any) -> None:
    metric = UserMetric(METRIC, outputs(1, 2), outputs(1, 2), 1.0, None)
    metric._worker.answers = [{"value": 3.05}, bad]  # type: ignore[attr-defined]
    found = metric.score(outputs(1, 2))
    assert (found.changed, found.deviation, found.problem) == (3.05, 0.0, "")


def test_a_metric_that_hangs_is_not_called_again(caller: type[Caller]) -> None:
    metric = UserMetric(METRIC, outputs(1, 2), outputs(1, 2), 1.0, None)
    worker: Any = metric._worker
    worker.answers = [{"problem": "it returns nan"}]
    assert metric.score(outputs(1, 2)).problem == "it returns nan"
    worker.answers = [WorkerError("m.py:f took more than 1 s", stage="m.py:f")]
    count = len(worker.calls)
    for _ in range(2):
        assert metric.score(outputs(1, 2)).problem == "took more than 1 s"
    assert len(worker.calls) == count + 1


def test_a_metric_that_changes_its_mind_is_refused(caller: type[Caller], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    values = iter([1.0, 2.5])
    monkeypatch.setattr(
        caller, "call", lambda self, _, /, **given: {"value": next(values)} if "numbers" in given else None
    )
    monkeypatch.setattr(caller, "close", lambda self: closed.append(1))
    with pytest.raises(UsageError, match=r"it returns 1 and then 2\.5 for the same outputs; draw from") as error:
        UserMetric(METRIC, outputs(1), outputs(1), 1.0, None)
    assert error.value.where == "m.py:f" and closed == [1]
