"""The worker process in which models run; its errors name the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from surgery.base.errors import UsageError
from surgery.base.operators.dtypes import Array
from surgery.base.workers import Worker, default_memory
from surgery.model.runtime.engine import shorten_native
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.subjects import Subject, fed

_TIMING = "surgery.model.runtime.timing"
_COPIES = 4
"""Copies of the weights that creating a session may need: as read, as parsed, as a tensor and packed."""


class BenchWorker:
    """A worker with the models and their inputs. Close it, or use it as a context manager."""

    def __init__(self, subjects: Sequence[Subject], feeds: Sequence[Mapping[str, Any]], spec: BenchSpec) -> None:
        self._subjects = subjects
        self._spec = spec
        memory = spec.memory if spec.memory is not None else default_memory()
        limit = memory + _COPIES * sum(one.weights for one in subjects)
        self._worker = Worker(timeout=spec.timeout, memory=limit, preload=(_TIMING,))
        each = [[fed(one, dict(feed)) for feed in feeds] for one in subjects]
        self._call("load", models=[one.message() for one in subjects], feeds=each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.close()

    @property
    def pid(self) -> int:
        """The process ID."""
        assert self._worker.pid is not None
        return self._worker.pid

    def open(self, number: int, profile: str | None = None) -> float:
        """Open a session; return the time in seconds. With `profile`, runs are recorded in files with this prefix."""
        how = {
            "threads": self._spec.threads,
            "optimization": self._spec.optimization,
            "libraries": [str(path.absolute()) for path in self._spec.custom_op_library],
            "providers": list(self._spec.providers),
            "profile": profile,
        }
        return float(self._allowed(number, "open_session", "the model", how=how)["seconds"])

    def warm_up(self, number: int, runs: int) -> float:
        """Run a model a few times, on each input set at least once; return the time of the fastest run in seconds."""
        return float(min(self._allowed(number, "warm_up", "the inputs", runs=runs)["seconds"]))

    def measure(self, rounds: int, calls: int, seed: int, first: int = 0) -> Array:
        """Time rounds, see `timing.measure`."""
        how = {"rounds": rounds, "calls": calls, "clock": self._spec.used_clock}
        found: Array = self._call("measure", **how, seed=seed, first=first)
        return found

    def close_sessions(self, padding: int = 0) -> None:
        """Close all sessions, and shift the memory location of the next ones."""
        self._call("close_sessions", padding=padding)

    def end_profile(self, number: int) -> str:
        """End a profile; return the path of its file."""
        return str(self._call("end_profile", number=number))

    def _allowed(self, number: int, function: str, what: str, **arguments: object) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._call(function, number=number, **arguments)
        if "refused" in found:
            reason = shorten_native(str(found["refused"]))
            raise UsageError(f"ONNX Runtime rejects {what}: {reason}", where=self._subjects[number].name)
        return found

    def _call(self, function: str, **arguments: object) -> Any:
        return self._worker.call(f"{_TIMING}:{function}", **arguments)
