"""Measurements: how rounds, sessions and looks follow each other, on synthetic times; and what models are refused.

Times of real runs are not held to anything: they are a matter of benchmarks/itself.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from support import killer_models

import surgery
from surgery.base.errors import ModelFileError, UsageError, WorkerError
from surgery.base.frozen_dict import FrozenDict
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime import timing
from surgery.verification.benchmarking import paired_runs as comparing
from surgery.verification.benchmarking.bench import bench, typical_inputs
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison
from surgery.verification.benchmarking.paired_runs import Pace, compare
from surgery.verification.benchmarking.subjects import subject
from surgery.verification.inputs.spec import DataSpec, InputsSpec, SampleSpec

FEW = BenchSpec(repeats=4, warmup=1)
BODY = "g (float[n, 4] x) => (float[n, 4] y) { t = Relu(x) y = Neg(t) }"
FEED = {"x": np.ones((2, 4), np.float32)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "a.onnx", BODY)


def write(path: Path, body: str) -> Path:
    onnx.save(text.parse(body), path)
    return path


# Synthetic times


class Machine:
    """A worker whose models take known times, on a machine that has a clock of its own."""

    def __init__(
        self, seconds: Sequence[float], opening: float = 0.01, noise: float = 0.01, place: float = 0.0
    ) -> None:
        self.seconds, self.opening, self.noise, self.place = np.array(seconds), opening, noise, place
        self.now = 0.0
        self.orders: list[list[int]] = []
        self.measured: list[tuple[int, int, int]] = []
        self.seeds: list[int] = []
        self.rng = np.random.default_rng(11)

    def perf_counter(self) -> float:
        return self.now

    def __call__(self, *_: object) -> Machine:
        return self

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close_sessions(self, padding: int = 0) -> None:
        self.orders.append([])

    def open(self, number: int) -> float:
        self.orders[-1].append(number)
        self.now += self.opening
        return self.opening

    def warm_up(self, number: int, runs: int) -> float:
        self.now += runs * float(self.seconds[number])
        return float(self.seconds[number])

    def measure(self, rounds: int, calls: int, seed: int, first: int = 0) -> np.ndarray:
        self.measured.append((rounds, calls, first))
        self.seeds.append(seed)
        self.now += 2 * rounds * calls * float(self.seconds.sum())
        later = np.exp(self.place * np.argsort(self.orders[-1]))
        noise = np.exp(self.rng.normal(0, self.noise, (rounds, 2, len(self.seconds))))
        return np.asarray(self.seconds * later * noise)


def on(machine: Machine, monkeypatch: pytest.MonkeyPatch, spec: BenchSpec, feeds: int = 1, **how: Any) -> Comparison:
    monkeypatch.setattr(comparing, "BenchWorker", machine)
    monkeypatch.setattr(comparing, "time", SimpleNamespace(perf_counter=machine.perf_counter))
    models = [text.parse(BODY)] * len(machine.seconds)
    return compare(models, [FEED] * feeds, spec, **how)


def test_measuring_ends_when_the_interval_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Machine([0.02, 0.01]), monkeypatch, BenchSpec(seconds=1000))
    assert found.ended == "narrow" and found.seconds < 500
    assert found.speed.half_width <= 0.01 and not found.speed.excludes(2.0)
    assert [one.seconds for one in found.models] == pytest.approx([0.02, 0.01], rel=0.01)


def test_measuring_ends_when_the_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Machine([0.02, 0.01], noise=1.0), monkeypatch, BenchSpec(seconds=30, width=0.001))
    assert found.ended == "time" and 25 <= found.seconds <= 31
    assert not found.speed.excludes(2.0)


def test_measuring_ends_when_the_ratio_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = BenchSpec(seconds=1000, width=1e-6)
    found = on(Machine([0.02, 0.01], noise=0.2), monkeypatch, spec, decide=1.5)
    assert found.ended == "decided" and found.speed.holds(1.5) and found.seconds < 500
    found = on(Machine([0.02, 0.01], noise=0.2), monkeypatch, BenchSpec(seconds=50, width=1e-6), decide=2.0)
    assert found.ended == "time"


def test_models_that_are_too_slow_for_the_budget_are_still_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Machine([3.0, 2.0], opening=5.0), monkeypatch, BenchSpec(seconds=1.0))
    assert found.rounds == 10 and found.sessions == 2
    assert 0 < found.speed.low < 1.5 < found.speed.high < math.inf


def test_short_runs_are_timed_several_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([1e-5, 1e-4])
    found = on(machine, monkeypatch, BenchSpec(seconds=5))
    assert found.calls == 30 and {calls for _, calls, _ in machine.measured} == {30}
    assert on(Machine([0.01, 0.02]), monkeypatch, BenchSpec(seconds=5)).calls == 1


def test_each_pair_of_sessions_is_opened_in_an_order_and_in_its_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([0.01] * 3)
    on(machine, monkeypatch, BenchSpec(seconds=20))
    pairs = list(zip(machine.orders[1::2], machine.orders[2::2]))
    assert len(pairs) > 5 and all(first == second[::-1] for first, second in pairs)
    assert len({tuple(first) for first, _ in pairs}) > 2
    assert len(set(machine.seeds)) == len(machine.seeds)


def test_the_order_of_sessions_does_not_bias_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Machine([0.01, 0.01], place=0.05), monkeypatch, BenchSpec(seconds=30))
    assert not found.speed.excludes(1.0) and found.speed.half_width < 0.01


def test_each_model_is_measured_against_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Machine([0.03, 0.02, 0.06]), monkeypatch, BenchSpec(seconds=200))
    first, second, third = (one.speed for one in found.models)
    assert first is None and second is not None and third is not None
    assert (second.ratio, third.ratio) == pytest.approx((1.5, 0.5), rel=0.01)
    assert [one.ratio for one in (second, third) if one.holds(1.0)] == [second.ratio]
    assert found.slower_than(1.0) == (found.models[2],)


def test_a_fixed_number_of_rounds_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([0.02, 0.01], noise=0.5)
    found = on(machine, monkeypatch, BenchSpec(repeats=60))
    assert (found.ended, found.rounds) == ("repeats", 60) and found.sessions == 20
    # Sessions that take longer to open than all rounds are opened twice.
    found = on(Machine([0.02, 0.01], opening=50), monkeypatch, BenchSpec(repeats=60))
    assert (found.rounds, found.sessions) == (60, 2)


def test_sets_of_inputs_are_taken_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([0.01, 0.01])
    on(machine, monkeypatch, BenchSpec(repeats=20), feeds=3)
    turns = [first for _, _, first in machine.measured]
    rounds = [rounds for rounds, _, _ in machine.measured]
    assert turns == [sum(rounds[:number]) % 3 for number in range(len(rounds))]


@pytest.mark.parametrize("opening", [0.001, 0.1, 10])
def test_rounds_and_sessions_share_the_time(opening: float) -> None:
    pace = Pace(opening, 0.01)
    rounds = pace.rounds(20.0)
    assert rounds * pace.round >= min(opening / 2, 0.3) - pace.round
    assert 2 * (opening + rounds * pace.round) <= max(20 / 5, 4 * opening)


def test_the_seed_decides_all_that_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def orders(seed: int) -> list[list[int]]:
        machine = Machine([0.01] * 4)
        on(machine, monkeypatch, BenchSpec(seconds=5, seed=seed))
        return machine.orders

    assert orders(1) == orders(1) != orders(2)


# In the worker


def test_a_round_is_an_order_and_its_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, int]] = []
    fake = SimpleNamespace(models=[{}] * 3, feeds=[[{}, {}]] * 3, run=lambda number, feed: ran.append((number, feed)))
    monkeypatch.setattr(timing, "_bench", fake)
    times = timing.measure(rounds=20, calls=2, clock="wall", seed=0, first=1)
    assert times.shape == (20, 2, 3) and (times > 0).all()
    orders = []
    for number in range(20):
        part = ran[number * 12 : number * 12 + 12]
        assert {feed for _, feed in part} == {(1 + number) % 2}
        models = [model for model, _ in part]
        assert models[::2] == models[1::2] and models == models[::-1]
        orders.append(tuple(models[:6:2]))
    assert len(set(orders)) > 3


# Real runs


def test_a_model_against_itself(model: Path) -> None:
    found = bench(model, model, spec=FEW)
    first, second = found.models
    assert found.ended == "repeats" and found.rounds == 4
    assert first.name == second.name == str(model) and first.bytes == model.stat().st_size
    assert all(one.seconds > 0 and one.session_seconds > 0 and one.memory is not None for one in found.models)
    assert first.speed is None and found.speed == second.speed and found.speed.ratio > 0
    assert found.inputs[0]["character"] == "normal"
    assert surgery.bench is bench


def test_user_dims_and_input_sets_are_used(model: Path, tmp_path: Path) -> None:
    found = bench(model, inputs=InputsSpec(dims=FrozenDict(n=(7,))), spec=FEW, memory=False)
    assert found.inputs[0]["dims"] == {"n": 7} and found.models[0].memory is None
    for number in (3, 5):
        np.savez(tmp_path / f"{number}.npz", x=np.ones((number, 4), np.float32))
    given = tuple(DataSpec(tmp_path / f"{number}.npz") for number in (3, 5))
    found = bench(model, inputs=InputsSpec(data=given), spec=FEW, memory=False)
    assert [(one["character"], one["dims"]) for one in found.inputs] == [("3.npz", {"n": 3}), ("5.npz", {"n": 5})]


def test_models_in_memory(model: Path) -> None:
    weights = ", ".join(["1"] * 4096)
    body = f"<float[64, 64] w = {{{weights}}}> {{ y = MatMul(x, w) }}"
    proto = text.parse(f"g (float[n, 64] x) => (float[n, 64] y) {body}")
    stored = storage.from_proto(proto)
    assert any(storage.is_external(tensor) for tensor in stored.proto.graph.initializer)
    found = compare([proto, stored], [{"x": np.ones((2, 64), np.float32)}], FEW)
    assert [(one.path, one.memory) for one in found.models] == [(None, None)] * 2
    named = subject(stored, "the result")
    assert compare([named], [{"x": np.ones((2, 64), np.float32)}], FEW).models[0].name == "the result"


@pytest.mark.parametrize("how", [BenchSpec(repeats=4, threads=2), BenchSpec(repeats=4, optimization="off")])
def test_threads_and_optimization(model: Path, how: BenchSpec) -> None:
    found = bench(model, model, spec=how, memory=False)
    assert found.to_json()["clock"] == ("wall" if how.threads == 2 else "processor")


@pytest.mark.parametrize(
    ("how", "clock"),
    [
        (BenchSpec(), "processor"),
        (BenchSpec(providers=("CPUExecutionProvider",)), "processor"),
        # A device takes no processor time.
        (BenchSpec(providers=("CUDAExecutionProvider", "CPUExecutionProvider")), "wall"),
        (BenchSpec(providers=("CUDAExecutionProvider",), clock="processor"), "processor"),
    ],
)
def test_a_device_is_measured_by_the_clock_on_the_wall(how: BenchSpec, clock: str) -> None:
    assert how.used_clock == clock


def test_strings_and_sequences_are_fed_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path / "s.onnx", "g (string[n] x) => (string[n] y) { y = Identity(x) }")
    feeds = [{"x": np.array(["a", "b"], dtype=object)}]
    assert compare([path, path], feeds, FEW).models[1].seconds > 0
    sequence = write(tmp_path / "q.onnx", "g (seq(float[n]) x) => (int64 y) { y = SequenceLength(x) }")
    assert bench(sequence, spec=FEW, memory=False).models[0].seconds > 0


def test_an_input_that_is_left_over_is_not_fed(model: Path, tmp_path: Path) -> None:
    more = "g (float[n, 4] x, float[1] unused) => (float[n, 4] y) { t = Relu(x) y = Neg(t) }"
    assert bench(write(tmp_path / "more.onnx", more), model, spec=FEW, memory=False).speed.ratio > 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "g (float[n, 4] x, float[1] b) => (float[n, 4] y) { y = Add(x, b) }",
            "b.onnx: does not accept the inputs of the baseline: B needs an input 'b' that A does not have",
        ),
        (
            "g (float16[n, 4] x) => (float16[n, 4] y) { y = Relu(x) }",
            "b.onnx: does not accept the inputs of the baseline: input 'x' is tensor(float) in A and "
            "tensor(float16) in",
        ),
        ("g (float[n, 5] x) => (float[n, 5] y) { y = Relu(x) }", "b.onnx: ONNX Runtime rejects the inputs: "),
        ("g (float[n, 4] x) => (float[n, 4] y) { y = Rellu(x) }", "b.onnx: ONNX Runtime rejects the model: "),
    ],
)
def test_a_model_that_cannot_be_compared(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "b.onnx", body)
    with pytest.raises(UsageError) as raised:
        bench("a.onnx", "b.onnx", spec=FEW)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_a_baseline_that_cannot_run(tmp_path: Path) -> None:
    path = write(tmp_path / "b.onnx", "g (float[n, 4] x) => (float[n, 4] y) { y = Rellu(x) }")
    with pytest.raises(UsageError, match=r"b\.onnx: cannot be run: "):
        bench(path, spec=FEW)
    with pytest.raises(ModelFileError):
        bench(tmp_path / "none.onnx", spec=FEW)
    with pytest.raises(UsageError, match="nothing to measure"):
        compare([], [FEED])


def test_a_crash_is_an_error_that_names_the_model(tmp_path: Path) -> None:
    path = tmp_path / "killer.onnx"
    onnx.save(killer_models.division_of_inputs(), path)
    least = np.array([killer_models.LEAST], np.int32)
    with pytest.raises(WorkerError, match=r"a run of .*killer\.onnx crashed with SIGFPE"):
        compare([path], [{"a": least, "b": np.array([-1], np.int32)}], FEW)


def test_inputs_given_for_verification_decide_the_sizes(model: Path) -> None:
    inputs, samples = InputsSpec(data=(DataSpec(Path("set.npz")),)), SampleSpec((DataSpec(Path("samples")),))
    assert typical_inputs(inputs, samples, subject(model)) is inputs
