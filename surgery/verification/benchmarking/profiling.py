"""The time of each operator or node, from the profile that ONNX Runtime records."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.bench_worker import BenchWorker
from surgery.verification.benchmarking.measurements import OperatorTime
from surgery.verification.benchmarking.subjects import Subject

_LEAST_RUNS, _MOST_RUNS = 4, 50
_MOST_EVENTS = 200_000
"""Maximum number of events of a profile; ONNX Runtime drops those after the first million."""
_EVENTS = 3
"""Maximum number of events per node and run, over the versions of ONNX Runtime."""
_KERNEL = "_kernel_time"
_MICROSECONDS = 1e-6

Event = Mapping[str, Any]


def measure_profiles(
    subjects: Sequence[Subject], feeds: Sequence[Mapping[str, Any]], spec: BenchSpec, seconds: float
) -> list[tuple[OperatorTime, ...]]:
    """Profile models alternately on the first input set, for about `seconds` seconds."""
    with tempfile.TemporaryDirectory() as folder, BenchWorker(subjects, feeds[:1], spec) as worker:
        times = []
        for number in range(len(subjects)):
            worker.open(number, str(Path(folder) / f"{number}"))
            times.append(worker.warm_up(number, spec.warmup))
        nodes = max(len(one.proto.graph.node) for one in subjects)
        runs = min(int(seconds / sum(times)), _MOST_RUNS, _MOST_EVENTS // (_EVENTS * (nodes + 1)))
        worker.measure(max(runs, _LEAST_RUNS) // 2, 1, spec.seed)
        paths = [Path(worker.end_profile(number)) for number in range(len(subjects))]
        return [operator_times(json.loads(path.read_text(encoding="utf-8")), spec.warmup) for path in paths]


def operator_times(events: Sequence[Event], warmup: int) -> tuple[OperatorTime, ...]:
    """Return the total time of each operator, longest first: the median over the runs after the warm-up."""
    runs = list(_runs(events))[warmup:]
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(runs))
    nodes: Counter[str] = Counter()
    for number, run in enumerate(runs):
        counts: Counter[str] = Counter()
        for op, duration in _own_times(run):
            totals[op][number] += duration * _MICROSECONDS
            counts[op] += 1
        nodes |= counts
    medians = {op: float(np.median(seconds)) for op, seconds in totals.items()}
    whole = sum(medians.values()) or 1.0
    found = [OperatorTime(op, seconds, nodes[op], seconds / whole) for op, seconds in medians.items()]
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.op)))


def measure_nodes(subject: Subject, feeds: Sequence[Mapping[str, Any]], spec: BenchSpec) -> dict[str, float]:
    """Profile a model on the first input set without optimizations; return the seconds of its nodes by name.

    Nodes without a name, and those that share one, are omitted.
    """
    spec = replace(spec, optimization="off")
    names = Counter(node.name for node in subject.proto.graph.node)
    found = node_times(_profile(subject, feeds, spec), spec.warmup)
    return {name: found[name] for name, times in names.items() if name and times == 1 and name in found}


def measure_executed(subject: Subject, feeds: Sequence[Mapping[str, Any]], spec: BenchSpec) -> dict[str, str]:
    """Profile a model on the first input set; return the execution providers of the executed nodes by name."""
    return {
        event["name"].removesuffix(_KERNEL): event["args"]["provider"]
        for run in _runs(_profile(subject, feeds, spec))
        for event in run
    }


def _profile(subject: Subject, feeds: Sequence[Mapping[str, Any]], spec: BenchSpec) -> list[Event]:
    """Run a model a few times, and return the events of its profile."""
    with tempfile.TemporaryDirectory() as folder, BenchWorker([subject], feeds[:1], spec) as worker:
        worker.open(0, str(Path(folder) / "nodes"))
        worker.warm_up(0, spec.warmup)
        worker.measure(_LEAST_RUNS // 2, 1, spec.seed)
        events: list[Event] = json.loads(Path(worker.end_profile(0)).read_text(encoding="utf-8"))
    return events


def node_times(events: Sequence[Event], warmup: int) -> dict[str, float]:
    """Return the time of each node by name, with its subgraphs: the median over the runs after the warm-up."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in list(_runs(events))[warmup:]:
        own: Counter[str] = Counter()
        for event in run:
            own[event["name"].removesuffix(_KERNEL)] += event["dur"]
        for name, duration in own.items():
            times[name].append(duration * _MICROSECONDS)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def _runs(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the kernel events of each run."""
    kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
    spans = sorted((event["ts"], event["dur"]) for event in events if event.get("name") == "model_run")
    starts = np.array([event["ts"] for event in kernels])
    for begin, duration in spans:
        inside = np.flatnonzero((starts >= begin) & (starts <= begin + duration))
        yield [kernels[number] for number in inside]


def _own_times(events: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """Yield the operator and the time in microseconds of each kernel, without the kernels in its subgraphs."""
    open_: list[tuple[float, str, list[float]]] = []
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        begin, duration = float(event["ts"]), float(event["dur"])
        while open_ and open_[-1][0] <= begin:
            yield _closed(*open_.pop()[1:])
        if open_ and begin + duration <= open_[-1][0]:
            open_[-1][2].append(-duration)
        open_.append((begin + duration, event["args"]["op_name"], [duration]))
    while open_:
        yield _closed(*open_.pop()[1:])


def _closed(op: str, durations: list[float]) -> tuple[str, float]:
    return op, max(0.0, sum(durations))
