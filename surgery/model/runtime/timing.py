"""Timed runs in ONNX Runtime. These functions run in a worker process, which keeps sessions between calls.

Unlike the sessions of a verification, the sessions are those of a deployment: optimized, with packed weights.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import Array
from surgery.base.workers import stage
from surgery.model.runtime.sessions import LibraryError, boxed, make_session, unsupported
from surgery.model.runtime.setup import ProviderError

if TYPE_CHECKING:
    import onnxruntime

_LEVELS = {"all": "ORT_ENABLE_ALL", "extended": "ORT_ENABLE_EXTENDED", "basic": "ORT_ENABLE_BASIC"}
_NONE = "ORT_DISABLE_ALL"


class _Bench:
    """The models, their inputs and their open sessions."""

    def __init__(self) -> None:
        self.models: Sequence[Mapping[str, Any]] = []
        self.feeds: list[list[Any]] = []
        self.boxes = False
        self.sessions: dict[int, onnxruntime.InferenceSession] = {}
        self.outputs: dict[int, list[str]] = {}
        self.padding: list[bytearray] = []

    def run(self, number: int, feed: int) -> object:
        """Run a model once; the outputs are not converted to arrays."""
        session, given = self.sessions[number], self.feeds[number][feed]
        if self.boxes:
            return session.run_with_ort_values(self.outputs[number], given)
        return session.run(None, given)


_bench = _Bench()


def load(models: list[dict[str, Any]], feeds: list[list[dict[str, Any]]]) -> None:
    """Set the models, each with a `name` and a `path` or a `skeleton`, and the input sets of each."""
    global _bench
    _bench = _Bench()
    _bench.models = models
    boxes = [[boxed(feed) for feed in sets] for sets in feeds]
    # Sequences, optionals and strings are passed unconverted, for all models or for none.
    _bench.boxes = all(feed is not None for sets in boxes for feed in sets)
    _bench.feeds = boxes if _bench.boxes else feeds


def close_sessions(padding: int = 0) -> None:
    """Close all sessions, and allocate `padding` bytes, so that the next sessions get another memory location."""
    _bench.sessions.clear()
    gc.collect()
    _bench.padding = [bytearray(padding)] if padding else []


def open_session(number: int, how: dict[str, Any]) -> dict[str, Any]:
    """Open the session of a model; return `{"seconds": time}`, or `{"refused": why}` if ONNX Runtime refuses it."""
    model = _bench.models[number]
    stage(f"the session of {model['name']}")
    try:
        options = _options(how, "skeleton" in model)
        begin = time.perf_counter()
        session = _open(model, options, how["providers"])
    except LibraryError as error:
        return {"refused": f"{error.args[0]} is not a library of custom operators: {error.args[1]}"}
    except ProviderError as error:
        return {"refused": f"no {error.args[0]}: {error.args[1]}"}
    except MemoryError:
        raise
    except Exception as error:
        return {"refused": unsupported(str(error)) or str(error)}
    seconds = time.perf_counter() - begin
    _bench.sessions[number] = session
    _bench.outputs[number] = [output.name for output in session.get_outputs()]
    return {"seconds": seconds}


def _options(how: Mapping[str, Any], is_skeleton: bool) -> onnxruntime.SessionOptions:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = how["threads"]
    name = _LEVELS.get(how["optimization"], _NONE)
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
    # The threads of one session must not spin while another one is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if is_skeleton:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    if how.get("profile"):
        options.enable_profiling = True
        options.profile_file_prefix = how["profile"]
    for library in how["libraries"]:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise LibraryError(library, str(error)) from error
    return options


def _open(
    model: Mapping[str, Any], options: onnxruntime.SessionOptions, providers: Sequence[str]
) -> onnxruntime.InferenceSession:
    source = model["path"] if "path" in model else bytes(model["skeleton"])
    return make_session(source, options, providers)


def warm_up(number: int, runs: int) -> dict[str, Any]:
    """Run a model on each input set, `runs` times or more; return `{"seconds": times}` or `{"refused": why}`."""
    stage(f"a run of {_bench.models[number]['name']}")
    sets = len(_bench.feeds[number])
    seconds = []
    try:
        for turn in range(max(runs, sets)):
            begin = time.perf_counter()
            _bench.run(number, turn % sets)
            seconds.append(time.perf_counter() - begin)
    except MemoryError:
        raise
    except Exception as error:
        return {"refused": str(error) or type(error).__name__}
    return {"seconds": seconds}


def measure(rounds: int, calls: int, clock: str, seed: int, first: int = 0) -> Array:
    """Time rounds, and return the seconds of a run by round, half of the round, and model.

    In a round, each model runs `calls` times in a row on one input set, then again in the reverse order. The order is
    drawn for each round, so effects of the position and of the previous model average out. Rounds use the input sets in
    turn, beginning with set number `first`. The `clock` is "processor" or "wall".
    """
    stage("timed runs")
    count = len(_bench.models)
    # The time of the thread: under a limit of processor time, that of the process advances in whole ticks.
    now = time.thread_time_ns if clock == "processor" else time.perf_counter_ns
    rng = np.random.default_rng(seed)
    found = np.empty((rounds, 2, count))
    gc.disable()
    try:
        for number in range(rounds):
            order = rng.permutation(count).tolist()
            for half, models in enumerate((order, order[::-1])):
                for model in models:
                    found[number, half, model] = _time(now, model, (first + number) % len(_bench.feeds[model]), calls)
    finally:
        gc.enable()
    return found


def _time(now: Callable[[], int], model: int, feed: int, calls: int) -> float:
    begin = now()
    for _ in range(calls):
        _bench.run(model, feed)
    return max(now() - begin, 1) / calls * 1e-9


def end_profile(number: int) -> str:
    """End the profile of a session, and return the path of its file."""
    path: str = _bench.sessions[number].end_profiling()
    return path
