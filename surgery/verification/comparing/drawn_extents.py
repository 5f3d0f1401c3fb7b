"""Extents of outputs that depend on random draws, such as the length of speech whose durations are drawn.

Which extents these are is seen in runs of the original with different seeds. Only they may differ from the original's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from surgery.model.runtime.engine import Engine, EngineName
from surgery.verification.comparing.compare import Free, tensors
from surgery.verification.comparing.vacuity import Run

_RUNS, _SEEDS, _REPEATS = 2, 4, 2
"""Number of runs whose inputs are used, of seeds, and of runs with each seed."""

_SECONDS = 3.0
"""Seconds of processor time for the seeds of one run."""


class Original(Protocol):
    """A model with `random` outputs, and the engine that runs it, see `ReferenceRun`."""

    skeleton: bytes
    engine: EngineName
    random: frozenset[str]
    seed: int

    def engine_for(self, name: EngineName) -> Engine:
        """Make a separate worker."""


def drawn_extents(original: Original, runs: Sequence[Run]) -> Mapping[str, Free]:
    """Return the extents of the random outputs that vary with the draws, given the original's runs."""
    found: dict[str, list[Free]] = {}
    for run in _few(runs):
        for name, values in _drawn(original, run).items():
            if name in original.random:
                shapes = [[tensor.shape for tensor in tensors(value)] for value in (*values, run.outputs[name])]
                found.setdefault(name, []).append(_free(shapes))
    return {name: _joined(several) for name, several in found.items()}


def _few(runs: Sequence[Run]) -> Sequence[Run]:
    """Return runs with different dims, if there are any."""
    chosen = {run.binding.dim_key: run for run in reversed(runs)}
    return list(chosen.values())[-_RUNS:]


def _drawn(original: Original, run: Run) -> Mapping[str, Sequence[Any]]:
    """Return the outputs of the original for the same inputs and different seeds."""
    with closing(original.engine_for(original.engine)) as engine:
        if original.engine == "onnxruntime":
            seeds = np.random.default_rng([original.seed, len(run.feed)]).integers(1, 2**31 - 1, _SEEDS)
            return engine.draw(original.skeleton, run.feed, [int(seed) for seed in seeds], _REPEATS, _SECONDS)
        outcome = engine.run(original.skeleton, [run.feed] * _SEEDS)
    results = [one for one in outcome.runs if not isinstance(one, str)]
    return {name: [one[name] for one in results] for name in original.random if results}


def _free(shapes: Sequence[Sequence[tuple[int, ...]]]) -> Free:
    """Return the axes along which shapes vary; None if the ranks or the numbers of shapes vary.

    Each run gave a list of shapes: one for a tensor, several for a sequence.
    """
    if len({tuple(map(len, each)) for each in shapes}) > 1:
        return None
    varying = (
        axis for together in zip(*shapes) for axis, extents in enumerate(zip(*together)) if len(set(extents)) > 1
    )
    return frozenset(varying)


def _joined(several: Sequence[Free]) -> Free:
    """Join the axes that vary on different inputs."""
    known = [each for each in several if each is not None]
    return frozenset[int]().union(*known) if len(known) == len(several) else None
