"""Measure models relative to the first one.

The models alternate in one process. The time of a run also depends on the previous run, the load of the machine, and
the memory location of its session. Each of these effects is either shared by the compared models, or resampled until it
averages out; see `statistics`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery.base.errors import UsageError
from surgery.base.operators.dtypes import Array
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.bench_worker import BenchWorker
from surgery.verification.benchmarking.measurements import Comparison, Ended, Measured, OperatorTime
from surgery.verification.benchmarking.model_memory import measure_memory
from surgery.verification.benchmarking.profiling import measure_profiles
from surgery.verification.benchmarking.statistics import FEWEST, Interval, Spending, blocks_of, estimate
from surgery.verification.benchmarking.subjects import Subject, require_same_inputs, subject

_SLOT = 3e-4
"""Minimum duration of a timing, in seconds: shorter runs are timed several in a row."""
_MOST_CALLS = 1000
_PARTS = 60
"""The time budget divided by the time of the rounds per session, if sessions are cheap to open."""
_LOOKS = 8
"""The number of parts of the budget after each of which the measurement is evaluated."""
_FIRST_LOOK = 10
"""Minimum number of pairs of sessions before the first evaluation."""
_WANTED_PAIRS = 10
"""Number of pairs of sessions that share the time budget, unless sessions are too expensive to open."""
_MOST_PAIRS = 10
"""Maximum number of pairs of sessions for a given number of rounds."""
_PADDING = 1 << 16
_PROFILE_SHARE = 0.2


def compare(
    models: Sequence[Any],
    feeds: Sequence[Mapping[str, Any]],
    spec: BenchSpec | None = None,
    *,
    decide: float | None = None,
    memory: bool = False,
    profile: bool = False,
    inputs: Sequence[Mapping[str, Any]] = (),
) -> Comparison:
    """Measure models (paths, ModelProto, stored models or subjects) on input sets; the first one is the baseline.

    `feeds` are dicts of arrays by input name; inputs that a model does not have are ignored. With `decide`, the
    measurement ends as soon as each interval lies on one side of that ratio; the confidence of the intervals is still
    valid. `memory` and `profile` measure these too. `inputs` describes the origin of the feeds for the report. Raises
    UsageError for a model that does not run on the inputs, WorkerError if a process dies.
    """
    spec = spec or BenchSpec()
    subjects = [subject(model) for model in models]
    if not subjects or not feeds:
        raise UsageError("nothing to measure: a model and a set of inputs are needed")
    require_same_inputs(subjects)
    begin = time.perf_counter()
    with BenchWorker(subjects, feeds, spec) as worker:
        timing = _Timing(subjects, worker, spec, decide, len(feeds))
        ended = timing.run()
    seconds = time.perf_counter() - begin
    memories = [measure_memory(one, feeds, spec) if memory else None for one in subjects]
    profiles: list[tuple[OperatorTime, ...]] = [()] * len(subjects)
    if profile:
        profiles = measure_profiles(subjects, feeds, spec, max(1.0, _PROFILE_SHARE * spec.seconds))
    speeds = [None, *timing.speeds]
    measured = tuple(
        Measured(
            one.name,
            one.path,
            timing.median(number),
            speeds[number],
            float(np.median(timing.openings[number])),
            one.size,
            memories[number],
            profiles[number],
        )
        for number, one in enumerate(subjects)
    )
    rounds = sum(len(opening) for pair in timing.pairs for opening in pair)
    return Comparison(measured, spec, rounds, timing.calls, 2 * len(timing.pairs), seconds, ended, tuple(inputs))


@dataclass(frozen=True)
class Pace:
    """The time to open and warm up all sessions, and the time of a round, in seconds."""

    opening: float
    round: float

    def rounds(self, budget: float) -> int:
        """Return the number of rounds to measure before new sessions are opened.

        The rounds take at least twice as long as the sessions, unless that leaves too few sessions; and their number is
        large enough to compute an interval when the budget is used up.
        """
        most = max(2 * self.opening, budget / _PARTS)
        timed = min(most, max(budget / (2 * _WANTED_PAIRS) - self.opening, self.opening / 2))
        rounds = max(1, int(timed / self.round))
        pairs = max(1, int(budget / (2 * (self.opening + rounds * self.round))))
        return max(rounds, math.ceil(FEWEST / pairs))


@dataclass
class _Timing:
    """The timed runs. `pairs` has, for each pair of sessions, the times in seconds by round, half and model."""

    subjects: Sequence[Subject]
    worker: BenchWorker
    spec: BenchSpec
    decide: float | None
    sets: int
    calls: int = 1
    pairs: list[tuple[Array, Array]] = field(default_factory=list)
    openings: list[list[float]] = field(default_factory=list)
    speeds: list[Interval] = field(default_factory=list)
    _rounds: int = 1
    _turn: int = 0
    _pace: Pace = Pace(1.0, 1.0)

    def __post_init__(self) -> None:
        self.openings = [[] for _ in self.subjects]
        self._rng = np.random.default_rng(self.spec.seed)

    def median(self, number: int) -> float:
        """Return the median time of a run, in seconds."""
        return float(np.median(np.concatenate([times[..., number].ravel() for pair in self.pairs for times in pair])))

    def run(self) -> Ended:
        """Measure until the intervals are sufficient or the budget is used up."""
        return self._run_repeats(self.spec.repeats) if self.spec.repeats is not None else self._run_seconds()

    def _run_repeats(self, repeats: int) -> Ended:
        """Measure a number of rounds, with as many pairs of sessions as take no longer than the rounds."""
        pace = self._try()
        affordable = int(repeats * pace.round / (2 * pace.opening))
        count = max(1, min(_MOST_PAIRS, affordable, repeats // 2))
        self._rounds = max(1, math.ceil(repeats / (2 * count)))
        for _ in range(count):
            self._measure_pair()
        self._estimate(self.spec.level)
        return "repeats"

    def _run_seconds(self) -> Ended:
        begin = time.perf_counter()
        budget, looked, spending = self.spec.seconds, 0.0, Spending(self.spec.level)
        self._pace = self._try()
        while True:
            before = time.perf_counter()
            self._rounds = self._pace.rounds(budget)
            self._measure_pair()
            now = time.perf_counter()
            share = (now - begin + (now - before)) / budget
            if share >= 1.0 and self._blocks() >= FEWEST:
                self._estimate(spending.level(1.0))
                return self._reason() or "time"
            share = (now - begin) / budget
            if len(self.pairs) >= _FIRST_LOOK and share - looked >= 1 / _LOOKS:
                looked = share
                self._estimate(spending.level(share))
                reason = self._reason()
                if reason is not None:
                    return reason

    def _blocks(self) -> int:
        return len(blocks_of([(pair[0][:, 0, 0], pair[1][:, 0, 0]) for pair in self.pairs]))

    def _reason(self) -> Ended | None:
        """Return why the measurement is sufficient; None if it is not."""
        if all(speed.half_width <= self.spec.width for speed in self.speeds):
            return "narrow"
        if self.decide is not None and all(speed.excludes(self.decide) for speed in self.speeds):
            return "decided"
        return None

    def _estimate(self, level: float) -> None:
        self.speeds = []
        for number in range(1, len(self.subjects)):
            ratios = [(_logarithms(pair[0], number), _logarithms(pair[1], number)) for pair in self.pairs]
            self.speeds.append(estimate(blocks_of(ratios), level, self.spec.seed))

    def _try(self) -> Pace:
        """Open all sessions once, to determine how many runs in a row are long enough to be timed."""
        begin = time.perf_counter()
        times = self._open(list(range(len(self.subjects))), record=False)
        opening = time.perf_counter() - begin
        self.calls = max(1, min(_MOST_CALLS, math.ceil(_SLOT / max(min(times), 1e-7))))
        return Pace(opening, 2 * self.calls * sum(times))

    def _measure_pair(self) -> None:
        """Measure with sessions opened in a random order, then with new sessions opened in the reverse order.

        The session opened last has been up to two percent slower than an equal one opened before it.
        """
        order = self._rng.permutation(len(self.subjects)).tolist()
        pair = []
        for numbers in (order, order[::-1]):
            begin = time.perf_counter()
            self._open(numbers)
            opened = time.perf_counter()
            seed = int(self._rng.integers(1 << 31))
            pair.append(self.worker.measure(self._rounds, self.calls, seed, self._turn % self.sets))
            self._turn += self._rounds
            self._pace = Pace(opened - begin, (time.perf_counter() - opened) / self._rounds)
        self.pairs.append((pair[0], pair[1]))

    def _open(self, numbers: Sequence[int], record: bool = True) -> list[float]:
        """Open a session of each model in this order; return the time of a run of each model in seconds."""
        self.worker.close_sessions(int(self._rng.integers(_PADDING)))
        for number in numbers:
            seconds = self.worker.open(number)
            if record:
                self.openings[number].append(seconds)
        times = {number: self.worker.warm_up(number, self.spec.warmup) for number in numbers}
        return [times[number] for number in sorted(times)]


def _logarithms(times: Array, number: int) -> Array:
    """Return the logarithm of the speed of a model relative to the first one, for each half of each round.

    The halves are not averaged, because a disturbance would then affect both.
    """
    return np.asarray(np.log(times[..., 0]) - np.log(times[..., number])).ravel()
