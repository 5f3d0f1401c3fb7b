"""The results of a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.statistics import Interval

Ended = Literal["narrow", "decided", "time", "repeats"]
"""Why a measurement ended: all intervals were narrow enough or on one side of a ratio, or the budget was used up."""


@dataclass(frozen=True)
class Memory(Record):
    """The private memory in bytes that a process needs to run a model, in addition to its initial memory.

    Mapped files do not count. `peak` is the maximum over opening a session and a few runs, `run` that over the runs
    alone. The memory is sampled every millisecond.
    """

    peak: int
    run: int


@dataclass(frozen=True)
class OperatorTime(Record):
    """The time of all nodes of one operator in a run, in seconds, and the number of nodes.

    The nodes are those after the graph optimizations of ONNX Runtime; times do not include their subgraphs.
    """

    op: str
    seconds: float
    nodes: int
    share: float


@dataclass(frozen=True)
class Measured(Record, keys="name path seconds speed session_seconds bytes memory profile?"):
    """The measurements of one model.

    `seconds` is the median time of a run, `speed` the time of the baseline divided by the time of this model (None for
    the baseline itself), `session_seconds` the median time to create a session, `bytes` the size of its files.
    """

    name: str
    path: Path | None
    seconds: float
    speed: Interval | None
    session_seconds: float
    bytes: int | None = None
    memory: Memory | None = None
    profile: tuple[OperatorTime, ...] = ()


@dataclass(frozen=True)
class Comparison(
    Record,
    keys="models spec.level spec.threads clock=spec.used_clock spec.optimization spec.seed rounds"
    " calls sessions seconds:4 ended inputs",
):
    """Models measured relative to the first one.

    `rounds` is the number of rounds, each with two timings of each model, `calls` the number of consecutive runs per
    timing, and `sessions` the number of sessions opened for each model. `inputs` describes the input sets, with `dims`,
    `character` and `seed`. In JSON, `clock` is "processor" or "wall", and `ended` "narrow", "decided", "time" or
    "repeats".
    """

    models: tuple[Measured, ...]
    spec: BenchSpec
    rounds: int
    calls: int
    sessions: int
    seconds: float
    ended: Ended
    inputs: tuple[Mapping[str, Any], ...] = field(default=())

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        first, *others = self.models
        ratios = ", ".join(f"{Path(one.name).name!r} {one.speed.ratio:.3f}" for one in others if one.speed is not None)
        times = f": times as fast as it: {ratios}" if ratios else ""
        return f"<Comparison with {Path(first.name).name!r} ({1000 * first.seconds:.3g} ms){times}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        head = "Model", "Milliseconds", "Speed", f"{100 * self.spec.level:g} % interval", "Peak memory in MB"
        return view("listed")(repr(self)[1:-1], "info", (), head, [_row(one) for one in self.models], "models")

    @property
    def baseline(self) -> Measured:
        """The first model."""
        return self.models[0]

    @property
    def others(self) -> tuple[Measured, ...]:
        """The models measured relative to the first one."""
        return self.models[1:]

    @property
    def speed(self) -> Interval:
        """The speed of the second model relative to the first, if there are exactly two."""
        (only,) = self.others
        assert only.speed is not None
        return only.speed

    def slower_than(self, ratio: float) -> tuple[Measured, ...]:
        """Return the models without evidence of at least `ratio` times the speed of the baseline."""
        return tuple(one for one in self.others if one.speed is None or not one.speed.holds(ratio))


def _row(model: Measured) -> tuple[str, ...]:
    """Return a model as a row of text: name, time, speed with its interval, memory."""
    speed, memory = model.speed, model.memory
    return (
        model.name,
        f"{1000 * model.seconds:.4g}",
        f"{speed.ratio:.3f}" if speed is not None else "",
        f"{speed.low:.3f} to {speed.high:.3f}" if speed is not None else "",
        f"{memory.peak / 1e6:.1f}" if memory is not None else "",
    )
