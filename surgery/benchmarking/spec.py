"""The settings of a measurement, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Optimization = Literal["all", "extended", "basic", "off"]
Clock = Literal["processor", "wall"]


@dataclass(frozen=True)
class BenchSpec:
    """How models are measured.

    `threads`: the intra-op threads of ONNX Runtime. `clock`: whether times are those of the processor, which other
    processes disturb little, or by the clock on the wall; None for the former with one thread and the latter with
    several. `optimization`: the graph optimization level of ONNX Runtime. `level`: the
    confidence of each interval. `width`: half the width of an interval, relative to 1, at which it is narrow enough.
    `seconds`: the budget of time for timed runs and the sessions that they need; at least six rounds are measured,
    however long they take. `repeats`: the number of rounds, which takes the place of `width` and `seconds`; a round
    times each model twice. `warmup`: untimed runs of each session. `seed`: the seed of the order of runs and of the
    bootstrap. `timeout`: the limit in seconds for a session, a run, or the few rounds between two messages. `memory`:
    the limit in bytes of the process that runs the models, without their weights. `custom_op_library`: shared
    libraries with custom operators. `providers`: execution providers, none means the CPU.
    """

    threads: int = 1
    clock: Clock | None = None
    optimization: Optimization = "all"
    level: float = 0.95
    width: float = 0.01
    seconds: float = 15.0
    repeats: int | None = None
    warmup: int = 3
    seed: int = 0
    timeout: float = 300.0
    memory: int | None = None
    custom_op_library: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()

    @property
    def used_clock(self) -> Clock:
        """The clock that is used."""
        return self.clock or ("processor" if self.threads == 1 else "wall")
