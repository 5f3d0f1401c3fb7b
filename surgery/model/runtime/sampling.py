"""Many runs of a model with random operators and many seeds; in a worker process.

ONNX Runtime seeds its generators when it creates a session. Runs within one session are not always independent: its
Dropout starts from a seed that increases slightly from run to run, so that the first draws hardly change.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from surgery.base.workers import stage
from surgery.model.runtime.sessions import Value, make_session, prepared, run_once, session_options


def draw(
    skeleton: bytes,
    feed: dict[str, Value],
    seeds: list[int],
    repeats: int,
    seconds: float,
    libraries: Sequence[str],
    providers: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a model on the same inputs, in one session per seed, and several times in each session.

    Returns the results of each output, in the order of the seeds: one array if all have the same dtype and shape, or
    else a list. After `seconds` of processor time, no further seeds are run. Raises the exceptions of the runtime.
    """
    import onnxruntime

    stage("preparation")
    onnxruntime.set_default_logger_severity(4)
    (copy, _), options = prepared(skeleton), session_options(libraries)
    options.intra_op_num_threads = 1
    results: dict[str, list[Any]] = {}
    begin = time.process_time()
    for seed in seeds:
        if time.process_time() - begin > seconds:
            break
        stage("run")
        onnxruntime.set_seed(seed)
        session = make_session(copy, options, providers)
        for _ in range(repeats):
            for name, value in run_once(session, feed).items():
                results.setdefault(name, []).append(value)
    return {name: _together(values) for name, values in results.items()}


def _together(values: list[Value]) -> Any:
    """Stack arrays of the same dtype and shape into one, which is sent much faster."""
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind != "O"]
    alike = len(arrays) == len(values) and len({(array.dtype, array.shape) for array in arrays}) == 1
    return np.stack(arrays) if alike else values
