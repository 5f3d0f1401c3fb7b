"""How a measurement divides its time, and what it asks its worker for, by scripted clocks and workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.model.graph import text
from surgery.verification.benchmarking import bench, bench_worker, model_memory, paired_runs, profiling
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.bench_worker import BenchWorker
from surgery.verification.benchmarking.measurements import Memory
from surgery.verification.benchmarking.paired_runs import Pace, _Timing
from surgery.verification.benchmarking.statistics import Interval
from surgery.verification.benchmarking.subjects import Subject, subject
from surgery.verification.inputs.spec import DataSpec, InputsSpec, SampleSpec


@pytest.mark.parametrize(
    ("opening", "one", "budget", "rounds"),
    [
        # A sixtieth of the budget, as sessions are cheap.
        (0.01, 0.001, 15.0, 250),
        # Twice the time of the sessions, and no longer than a pair's share.
        (0.3, 0.01, 15.0, 45),
        (0.2, 0.01, 15.0, 40),
        # Half the time of the sessions at least.
        (1.0, 0.01, 15.0, 50),
        (0.5, 0.1, 10.0, 2),
        # As many as an interval needs, if the budget is used up after few pairs.
        (5.0, 5.0, 1.0, 5),
        (0.1, 0.1, 1.9, 2),
        (2.0, 0.75, 10.0, 5),
    ],
)
def test_rounds_between_new_sessions(opening: float, one: float, budget: float, rounds: int) -> None:
    assert Pace(opening, one).rounds(budget) == rounds


class Stepping:
    """A worker and its clock: each call takes scripted seconds."""

    def __init__(self, measuring: float = 0.25, opening: float = 0.0, times: Sequence[float] = (0.5, 0.25)) -> None:
        self.measuring, self.opening, self.times = measuring, opening, times
        self.now = 0.0
        self.paddings: list[int] = []
        self.opened: list[list[int]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.warmed: list[tuple[int, int]] = []

    def perf_counter(self) -> float:
        return self.now

    def close_sessions(self, padding: int = 0) -> None:
        self.paddings.append(padding)
        self.opened.append([])

    def open(self, number: int) -> float:
        self.opened[-1].append(number)
        self.now += self.opening
        return 10.0 + number

    def warm_up(self, number: int, runs: int) -> float:
        self.warmed.append((number, runs))
        return self.times[number]

    def measure(self, rounds: int, calls: int, seed: int, first: int = 0) -> np.ndarray:
        self.asked.append((rounds, calls, first))
        self.now += self.measuring
        return np.ones((rounds, 2, len(self.times))) * np.array(self.times)


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(worker: Stepping, sets: int = 1, decide: float | None = None, **spec: Any) -> _Timing:
        monkeypatch.setattr(paired_runs, "time", worker)
        subjects: Any = [None] * len(worker.times)
        return _Timing(subjects, worker, BenchSpec(**spec), decide, sets)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize(
    ("reasons", "ended", "pairs", "shares"),
    [
        ([None] * 4, "time", 19, [0.5, 0.65, 0.8, 1.0]),
        (["narrow"], "narrow", 10, [0.5]),
        ([None, "decided"], "decided", 13, [0.5, 0.65]),
        ([None, None, None, "narrow"], "narrow", 19, [0.5, 0.65, 0.8, 1.0]),
    ],
)
def test_intervals_are_looked_at_after_parts_of_the_time(
    monkeypatch: pytest.MonkeyPatch, timing: Any, reasons: list[Any], ended: str, pairs: int, shares: list[float]
) -> None:
    asked: list[float] = []
    spending = SimpleNamespace(level=lambda share: asked.append(share) or share)
    monkeypatch.setattr(paired_runs, "Spending", lambda level: spending)
    monkeypatch.setattr(Pace, "rounds", lambda self, budget: 1)
    # Half a second each: the last that ends within the ten seconds is the nineteenth.
    made = timing(Stepping(0.25), seconds=10.0)
    levels: list[float] = []
    made._estimate = levels.append
    made._reason = lambda: reasons.pop(0)
    assert made.run() == ended and len(made.pairs) == pairs and reasons == []
    assert asked == levels == pytest.approx(shares)


def test_there_are_five_blocks_even_if_that_takes_longer(monkeypatch: pytest.MonkeyPatch, timing: Any) -> None:
    monkeypatch.setattr(Pace, "rounds", lambda self, budget: 1)
    made = timing(Stepping(6.0), seconds=10.0)
    made._reason = lambda: None
    assert made.run() == "time" and len(made.pairs) == 5
    monkeypatch.setattr(Pace, "rounds", lambda self, budget: 5)
    made = timing(Stepping(6.0), seconds=10.0)
    made._reason = lambda: None
    assert made.run() == "time" and len(made.pairs) == 1


@pytest.mark.parametrize(
    ("repeats", "pace", "pairs", "rounds"),
    [
        (60, Pace(0.01, 0.06), 10, 3),
        (60, Pace(1.0, 0.1), 3, 10),
        (60, Pace(50.0, 0.06), 1, 30),
        (25, Pace(0.01, 1.0), 10, 2),
        (3, Pace(0.01, 1.0), 1, 2),
        (1, Pace(0.01, 1.0), 1, 1),
        (4, Pace(0.01, 1.0), 2, 1),
        (5, Pace(0.01, 1.0), 2, 2),
    ],
)
def test_a_number_of_rounds_is_divided(timing: Any, repeats: int, pace: Pace, pairs: int, rounds: int) -> None:
    worker = Stepping()
    made = timing(worker, repeats=repeats, level=0.9)
    levels: list[float] = []
    made._try, made._estimate = lambda: pace, levels.append
    assert made.run() == "repeats" and levels == [0.9]
    assert len(made.pairs) == pairs and {one for one, _, _ in worker.asked} == {rounds}


@pytest.mark.parametrize(
    ("times", "calls"), [((1e-5, 1e-4), 30), ((1e-9, 1.0), 1000), ((1e-3, 1e-4), 3), ((1.0, 2.0), 1), ((3e-4, 1.0), 1)]
)
def test_runs_shorter_than_a_slot_are_timed_in_a_row(timing: Any, times: Any, calls: int) -> None:
    worker = Stepping(opening=0.5, times=times)
    made = timing(worker, warmup=7)
    found = made._try()
    assert made.calls == calls and found.opening == 1.0 and found.round == pytest.approx(2 * calls * sum(times))
    # The trial is not counted.
    assert worker.opened == [[0, 1]] and made.openings == [[], []] and worker.warmed == [(0, 7), (1, 7)]


def test_a_pair_of_sessions(timing: Any) -> None:
    worker = Stepping(measuring=3.0, opening=0.25, times=(0.1, 0.2, 0.4))
    made = timing(worker, sets=4)
    made._rounds, made.calls = 6, 2
    made._measure_pair()
    first, second = worker.opened
    assert sorted(first) == [0, 1, 2] and second == first[::-1] and worker.asked == [(6, 2, 0), (6, 2, 2)]
    assert made._pace == Pace(0.75, 0.5) and made.openings == [[10.0, 10.0], [11.0, 11.0], [12.0, 12.0]]
    assert all(0 <= padding < 1 << 16 for padding in worker.paddings) and len({*worker.paddings}) == 2
    made._measure_pair()
    assert worker.asked[2:] == [(6, 2, 0), (6, 2, 2)] and len(made.pairs) == 2
    assert [made.median(number) for number in range(3)] == pytest.approx([0.1, 0.2, 0.4])
    made._estimate(0.95)
    assert [one.ratio for one in made.speeds] == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize(
    ("speeds", "decide", "reason"),
    [
        ([(1.0, 1.02)], None, "narrow"),
        ([(1.0, 1.03)], None, None),
        ([(1.0, 1.02), (1.0, 1.03)], None, None),
        ([(1.0, 1.03)], 1.1, "decided"),
        ([(1.0, 1.03)], 1.01, None),
        ([(1.0, 1.03), (1.2, 1.4)], 1.1, "decided"),
        ([(1.0, 1.03), (1.0, 1.4)], 1.1, None),
        ([(1.0, 1.01)], 2.0, "narrow"),
    ],
)
def test_when_a_measurement_suffices(timing: Any, speeds: Any, decide: float | None, reason: str | None) -> None:
    made = timing(Stepping(), decide=decide, width=0.0101)
    made.speeds = [Interval((low + high) / 2, low, high) for low, high in speeds]
    assert made._reason() == reason


# The worker

BODY = "g (float[n] x, float[n] w) => (float[n] y) { y = Add(x, w) }"


class Process:
    """A worker that notes its calls, and answers with what is scripted."""

    made: Any = None

    def __init__(self, **options: Any) -> None:
        self.options, self.calls, self.closed, self.pid = options, list[tuple[str, Any]](), 0, 42
        self.answers: dict[str, Any] = {}
        type(self).made = self

    def call(self, function: str, **given: Any) -> Any:
        name = function.removeprefix("surgery.model.runtime.timing:")
        self.calls.append((name, given))
        return self.answers.get(name)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(bench_worker, "Worker", Process)
    return Process


def test_what_a_worker_is_asked_for(process: Any, tmp_path: Path) -> None:
    one = subject(text.parse(BODY), "one")
    large = Subject(
        "large", text.parse(BODY.replace("float[n] w", "float[n] v").replace("w)", "v)")), tmp_path / "m", 100
    )
    spec = BenchSpec(
        memory=1000, timeout=7.0, optimization="basic", custom_op_library=(tmp_path / "a.so",), providers=("P",)
    )
    with BenchWorker([one, large], [{"x": 1, "w": 2, "other": 3}], spec) as worker:
        made = process.made
        assert made.options["memory"] == 1000 + 4 * 100 and made.options["timeout"] == 7.0 and worker.pid == 42
        name, given = made.calls[0]
        assert name == "load" and given["feeds"] == [[{"x": 1, "w": 2}], [{"x": 1}]]
        assert [sorted(model) for model in given["models"]] == [["name", "skeleton"], ["name", "path"]]
        made.answers = {"open_session": {"seconds": 1.5}, "warm_up": {"seconds": [3.0, 2.0]}, "end_profile": "p"}
        assert worker.open(1, "prefix") == 1.5 and worker.warm_up(0, 4) == 2.0 and worker.end_profile(1) == "p"
        worker.measure(5, 6, 7, 8)
        worker.close_sessions(9)
        how = {"threads": 1, "optimization": "basic", "libraries": [str(tmp_path / "a.so")], "providers": ["P"]}
        assert made.calls[1:] == [
            ("open_session", {"number": 1, "how": {**how, "profile": "prefix"}}),
            ("warm_up", {"number": 0, "runs": 4}),
            ("end_profile", {"number": 1}),
            ("measure", {"rounds": 5, "calls": 6, "clock": "wall", "seed": 7, "first": 8}),
            ("close_sessions", {"padding": 9}),
        ]
        made.answers = {"open_session": {"refused": "no kernel"}, "warm_up": {"refused": "bad shape"}}
        with pytest.raises(UsageError, match=r"^large: ONNX Runtime rejects the model: no kernel$"):
            worker.open(1)
        with pytest.raises(UsageError, match=r"^one: ONNX Runtime rejects the inputs: bad shape$"):
            worker.warm_up(0, 1)
    assert made.closed == 1


class Session(Stepping):
    """A worker of a measurement whose sessions can be profiled."""

    folder = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def open(self, number: int, profile: str = "") -> float:
        self.folder = profile
        return super().open(number) if self.opened else 0.0

    def end_profile(self, number: int) -> str:
        path = Path(f"{self.folder}.json")
        path.write_text("[]")
        return str(path)


@pytest.mark.parametrize(
    ("seconds", "times", "nodes", "rounds"),
    [
        (10.0, (0.5, 0.5), 1, 5),
        (10.0, (0.1, 0.3), 1, 12),
        (100.0, (0.1, 0.1), 1, 25),
        (1.0, (0.5, 0.5), 1, 2),
        (5.0, (0.5, 0.5), 1, 2),
        (6.0, (0.5, 0.5), 1, 3),
        # As many events as a profile holds.
        (100.0, (0.1, 0.1), 9_999, 3),
    ],
)
def test_how_many_runs_are_profiled(
    monkeypatch: pytest.MonkeyPatch, seconds: float, times: Any, nodes: int, rounds: int
) -> None:
    worker, given = Session(times=times), list[Any]()
    monkeypatch.setattr(profiling, "BenchWorker", lambda subjects, feeds, spec: given.append(feeds) or worker)
    graph = SimpleNamespace(node=[None] * nodes)
    subjects: Any = [
        SimpleNamespace(proto=SimpleNamespace(graph=graph)),
        SimpleNamespace(proto=SimpleNamespace(graph=graph)),
    ]
    assert profiling.measure_profiles(subjects, [{"x": 1}, {"x": 2}], BenchSpec(seed=3), seconds) == [(), ()]
    assert worker.asked == [(rounds, 1, 0)] and given == [[{"x": 1}]] and worker.warmed == [(0, 3), (1, 3)]


def test_executed_nodes_and_their_providers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events = [{"name": "model_run", "ts": 0, "dur": 9}]
    events += [
        {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": 1, "args": {"provider": provider}}
        for name, ts, provider in (("a", 0, "CPU"), ("b", 9, "GPU"), ("late", 10, "CPU"))
    ]
    worker = Session()
    (tmp_path / "p.json").write_text(json.dumps(events))
    monkeypatch.setattr(worker, "end_profile", lambda number: str(tmp_path / "p.json"))
    monkeypatch.setattr(profiling, "BenchWorker", lambda *_: worker)
    assert profiling.measure_executed(None, [{}], BenchSpec()) == {"a": "CPU", "b": "GPU"}  # type: ignore[arg-type]
    assert worker.asked == [(2, 1, 0)]


@pytest.mark.parametrize(
    ("opened", "ran", "found"), [(400, 300, Memory(300, 300)), (150, 500, Memory(400, 400)), (90, 80, Memory(0, 0))]
)
def test_memory_is_what_a_process_takes_in_addition(
    monkeypatch: pytest.MonkeyPatch, opened: int, ran: int, found: Memory
) -> None:
    taken = SimpleNamespace(now=100)

    class Growing(Session):
        pid = 5

        def open(self, number: int, profile: str = "") -> float:
            taken.now = opened
            return 0.0

        def warm_up(self, number: int, runs: int) -> float:
            taken.now = ran
            return 0.0

    monkeypatch.setattr(model_memory, "private_bytes", lambda pid: taken.now if pid == 5 else 0)
    monkeypatch.setattr(model_memory, "BenchWorker", lambda *_: Growing())
    assert model_memory.measure_memory(None, [], BenchSpec()) == found  # type: ignore[arg-type]


# From models to measurements


def test_memory_and_profiles_are_measured_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(paired_runs, "BenchWorker", lambda *_: Session())
    monkeypatch.setattr(paired_runs, "measure_memory", lambda one, feeds, spec: Memory(1, 2))
    monkeypatch.setattr(
        paired_runs,
        "measure_profiles",
        lambda subjects, feeds, spec, seconds: asked.append(seconds) or [("a",), ("b",)],
    )
    models = [text.parse(BODY), text.parse(BODY)]
    feed = {"x": 1, "w": 2}
    plain = paired_runs.compare(models, [feed], BenchSpec(repeats=4))
    assert [(one.memory, one.profile) for one in plain.models] == [(None, ()), (None, ())] and asked == []
    assert (plain.rounds, plain.sessions, plain.calls, plain.inputs) == (4, 4, 1, ())
    for seconds, share in ((15.0, 3.0), (2.0, 1.0)):
        spec = BenchSpec(repeats=4, seconds=seconds)
        found = paired_runs.compare(models, [feed], spec, memory=True, profile=True, inputs=[{"seed": 1}])
        assert [(one.memory, one.profile) for one in found.models] == [(Memory(1, 2), ("a",)), (Memory(1, 2), ("b",))]
        assert asked.pop() == pytest.approx(share) and found.inputs == ({"seed": 1},)
    with pytest.raises(UsageError, match="nothing to measure"):
        paired_runs.compare(models, [])


class Reference:
    """A reference run with two sets of inputs."""

    problem: str | None = None

    def __init__(self, skeleton: bytes, inputs: InputsSpec, verify: Any) -> None:
        self.runs = [
            SimpleNamespace(feed={"x": seed}, binding=SimpleNamespace(as_json=lambda seed=seed: {"seed": seed}))
            for seed in range(2)
        ]
        Reference.given = inputs, verify  # type: ignore[attr-defined]

    def prepare(self) -> None:
        pass


@pytest.mark.parametrize(("data", "sets"), [((), 1), ((DataSpec(Path("set.npz")),), 2)])
def test_all_given_sets_are_measured_and_one_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch, data: Any, sets: int
) -> None:
    monkeypatch.setattr(bench, "ReferenceRun", Reference)
    one = subject(text.parse(BODY), "one")
    spec = BenchSpec(seed=3, timeout=4.0, memory=5, providers=("P",))
    feeds, described = bench.legal_feeds(one, InputsSpec(data=data), spec)
    assert feeds == [{"x": seed} for seed in range(sets)] and described == [{"seed": seed} for seed in range(sets)]
    inputs, verify = Reference.given  # type: ignore[attr-defined]
    assert inputs.only_given is bool(data)
    assert (verify.seed, verify.timeout, verify.memory, verify.providers) == (3, 4.0, 5, ("P",))
    bench.legal_feeds(one, InputsSpec(only_given=True), spec)
    assert Reference.given[0].only_given  # type: ignore[attr-defined]
    monkeypatch.setattr(Reference, "problem", "no kernel")
    with pytest.raises(UsageError, match=r"^one: cannot be run: no kernel$"):
        bench.legal_feeds(one, InputsSpec(), spec)


def test_typical_inputs_are_the_first_that_a_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "first_sets", lambda skeleton, given, most: asked.append((given, most)) or ("first",))
    one = subject(text.parse(BODY), "one")
    own, found = (DataSpec(Path(name), found=name == "found") for name in ("own", "found"))
    evaluation, calibration = SampleSpec((DataSpec(Path("e")),)), SampleSpec((DataSpec(Path("c")),))
    none = SampleSpec()
    for data, measured, calibrated, expected in (
        ((), none, none, None),
        ((own,), evaluation, calibration, None),
        ((found, own), evaluation, calibration, None),
        ((found,), evaluation, calibration, evaluation.data),
        ((), evaluation, none, evaluation.data),
        ((), none, calibration, calibration.data),
    ):
        asked.clear()
        inputs = InputsSpec(data=data, calibration=calibrated, dims=FrozenDict(n=(2,)))
        result = bench.typical_inputs(inputs, measured, one)
        assert (result is inputs) is (expected is None)
        assert asked == ([] if expected is None else [(expected, 4)])
        assert expected is None or (result.data, result.dims) == (("first",), inputs.dims)
