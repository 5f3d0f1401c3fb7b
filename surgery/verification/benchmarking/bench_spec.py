"""The settings of a measurement, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from surgery.model.runtime.setup import SessionSetup

Optimization = Literal["all", "extended", "basic", "off"]
Clock = Literal["processor", "wall"]


@dataclass(frozen=True)
class BenchSpec:
    """The settings of a measurement.

    `threads`: the intra-op threads of ONNX Runtime. `clock`: "processor" for processor time, which other processes
    disturb little, or "wall" for wall-clock time; None for the latter with several threads or on a device, which takes
    no processor time, and else for the former.
    `optimization`: the graph optimization level of ONNX Runtime. `level`: the confidence of each interval. `width`: the
    half width of an interval, relative to 1, at which it is narrow enough. `seconds`: the time budget for timed runs
    and their sessions; at least six rounds are measured, however long they take. `repeats`: the number of rounds, which
    replaces `width` and `seconds`; a round times each model twice. `warmup`: untimed runs of each session. `seed`: the
    seed of the order of runs and of the bootstrap. `timeout`: the limit in seconds for a session, a run, or the few
    rounds between two messages. `memory`: the limit in bytes of the process that runs the models, without their
    weights. `custom_op_library`: shared libraries with custom operators. `providers`: execution providers; empty for
    the CPU.
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
        """The effective clock."""
        computes_elsewhere = self.threads != 1 or SessionSetup(providers=self.providers).leaves_cpu
        return self.clock or ("wall" if computes_elsewhere else "processor")
