"""Runs of a model in ONNX Runtime, from a serialized skeleton. The functions here run in a worker process.

Optimizations are off: they change the last bits, and some are wrong. Weights stay file pages: ONNX Runtime maps the
ranges that the skeleton refers to, and without prepacking it does not copy them.

A run as deployed has the options of a session that its user creates without any, since each of them may decide which
kernels compute and in which order. On CUDA, for example, only sums that need not be deterministic overflow in float16.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import ONNX_TYPES, Array, is_float, pack_nibbles, spread, type_of_name
from surgery.base.operators.message_tensors import in_memory
from surgery.base.workers import stage
from surgery.base.workers.process_memory import return_free
from surgery.model.runtime.arena import share_arena, shrinking
from surgery.model.runtime.executed import begin_profile, executed
from surgery.model.runtime.fresh_draws import draws, with_draws_for_each
from surgery.model.runtime.ordering import defer, settle_casts
from surgery.model.runtime.rounding import hold
from surgery.model.runtime.setup import ProviderError, packs_weights, provider_arguments, require_known, require_started
from surgery.model.runtime.versions import stamped_down
from surgery.model.wire.stored_lists import has_lists, whole

if TYPE_CHECKING:
    import onnxruntime

Value = Array | list[Any] | None
"""A tensor, a sequence, or an empty optional."""

_UNSUPPORTED = (
    (re.compile(r"Could not find an implementation for ([\w.:]+)\((\d+)\)"), "ONNX Runtime has no kernel for {0}({1})"),
    (re.compile(r"Failed to find kernel for ([\w.:]+)\((\d+)\)"), "ONNX Runtime has no kernel for {0}({1})"),
    (
        re.compile(r"([\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
        "{0} is a custom operator that is in no --custom-op-library or verify.custom_op_library",
    ),
    (re.compile(r"No Op registered for (\w+) with domain_version of (\d+)"), "ONNX Runtime does not know {0}({1})"),
    (re.compile(r"MLDataType for: (\S+) is not currently registered"), "ONNX Runtime does not support {0}"),
    (re.compile(r"Opset (\d+) is under development"), "ONNX Runtime does not know opset {0}"),
    (re.compile(r"Unsupported model IR version: (\d+)"), "ONNX Runtime does not know IR version {0}"),
    (re.compile(r"(?i)no opset import for domain '?([\w.]*)'?"), "domain {0} is not imported"),
)

_cached: tuple[bytes, onnxruntime.InferenceSession] | None = None
_spent: onnxruntime.InferenceSession | None = None
"""A session that will not be used again. Destroying it takes a tenth of the time of its creation, and most workers end
after the call anyway."""


class LibraryError(Exception):
    """A library of custom operators cannot be loaded: its path, and the message of the runtime."""


def run(
    skeleton: bytes,
    feeds: Sequence[dict[str, Value]],
    limit: int,
    keep: bool = False,
    libraries: Sequence[str] = (),
    providers: Sequence[str] = (),
    late: bool = True,
    profile: str | None = None,
    like: Sequence[dict[str, Value] | str] | None = None,
    room: int | None = None,
    bare: bool = False,
) -> dict[str, Any]:
    """Run a model once for each dict of inputs.

    Returns `{"runs": [...], "seconds": [...]}`, with a dict of outputs by name for each run, or a string with the error
    message of the runtime, and the processor time of the run. Or returns `{"unsupported": reason}` if the runtime does
    not support the model, `{"invalid": reason}` if it considers the model invalid, `{"library": path, "reason": text}`
    for a library of custom operators that cannot be loaded, or `{"provider": name, "reason": text}` for an unusable
    execution provider.

    With `keep`, the session is kept for the next call; for `late`, see `prepared`. With `profile`, a folder, the
    model runs as deployed, and "executed" lists the nodes of the first run, see `executed`. Outputs with the same bytes
    as in the runs of another model, `like`, are dropped, and only listed by name in "same"; with `bare`, zeros are in
    the place of the elements of floats. With `room`, no more runs are made once the outputs take more than so many
    bytes: "runs" may be shorter than `feeds`. Raises MemoryError if the outputs of all runs take more than `limit`
    bytes in total.

    A model with seeded random operators draws the numbers of a new session in each run, so that these do not depend on
    the runs before.
    """
    import time

    global _cached, _spent
    how = libraries, providers, late, profile
    counts = draws(skeleton)
    session, feeds, anew = _drawing(skeleton, feeds, how) if counts else (None, feeds, False)
    keep = keep and not counts
    session = session or _session(skeleton, keep, *how)
    if isinstance(session, dict):
        return session
    _cached = (skeleton, session) if keep else None
    _spent = None if late or has_lists(skeleton) else session  # with `late`, it holds many weights
    if _exotic_outputs(session) and any(not _is_numeric(value) for feed in feeds for value in feed.values()):
        return {"unsupported": "ONNX Runtime does not return such element types for string or sequence inputs"}
    results: list[dict[str, Value] | str] = []
    seconds: list[float] = []
    found: dict[str, Any] = {"runs": results, "seconds": seconds}
    for number, feed in enumerate(feeds, 1):
        if anew and number > 1:
            session = _open(skeleton, *how)
        stage("run")
        begin = time.process_time()
        may_be_last = number == len(feeds) or room is not None
        ran = _tried(session, feed, shrinking() if may_be_last and profile is None else None)
        results.append(_bare(ran) if bare else ran)
        if like is not None:
            found.setdefault("same", []).append(_take_same(like[number - 1], results[-1]))
        if _size(results) > limit:
            raise MemoryError(f"the outputs take more than {limit >> 20} MiB")
        seconds.append(time.process_time() - begin)
        if profile is not None and number == 1:
            found["executed"] = executed(session)
        if room is not None and _size(results) > room:
            break
    if has_lists(skeleton):
        del session
        return_free()
    return found


def _bare(run: dict[str, Value] | str) -> dict[str, Value] | str:
    """Return the outputs of a run with one zero, repeated, in the place of the elements of each float."""
    if isinstance(run, str):
        return run
    return {
        name: np.broadcast_to(np.zeros((), value.dtype), value.shape)
        if isinstance(value, np.ndarray) and is_float(value.dtype)
        else value
        for name, value in run.items()
    }


def _tried(
    session: onnxruntime.InferenceSession, feed: dict[str, Value], options: onnxruntime.RunOptions | None
) -> dict[str, Value] | str:
    """Run once; return the message of the runtime if that fails."""
    try:
        return run_once(session, feed, options)
    except MemoryError:
        raise
    except Exception as error:
        return str(error) or type(error).__name__


def _session(
    skeleton: bytes, keep: bool, libraries: Sequence[str], providers: Sequence[str], late: bool, profile: str | None
) -> onnxruntime.InferenceSession | dict[str, Any]:
    """Return the session of a model, or the answer of `run` if there can be none."""
    global _cached, _spent
    # A run that will be compared needs a fresh session, because a seeded random operator depends on earlier runs.
    if keep and _cached is not None and _cached[0] == skeleton:
        return _cached[1]
    _cached = _spent = None
    try:
        return _open(skeleton, libraries, providers, late, profile)
    except LibraryError as error:
        return dict(zip(("library", "reason"), error.args))
    except ProviderError as error:
        return dict(zip(("provider", "reason"), error.args))
    except Exception as error:
        return _refusal(str(error))


def _drawing(
    skeleton: bytes, feeds: Sequence[dict[str, Value]], how: tuple[Sequence[str], Sequence[str], bool, str | None]
) -> tuple[onnxruntime.InferenceSession | None, Sequence[dict[str, Value]], bool]:
    """Return a session in which a model with seeded random operators draws as in new ones, and the inputs for it.

    None with these inputs, and whether each run needs a new session, if there is none.
    """
    found = with_draws_for_each(skeleton, feeds) if how[-1] is None and len(feeds) > 1 else None
    session = None if found is None else _session(found[0], False, *how)
    if found is None or isinstance(session, dict):
        return None, feeds, True
    return session, found[1], False


def run_each(
    skeletons: Sequence[bytes], feeds: Sequence[dict[str, Value]], room: int | None = None, **how: Any
) -> list[dict[str, Any]]:
    """Run models one after another on the same inputs, see `run`; `room` is for the outputs of the first model.

    Outputs with the same bytes as those of the first model are only listed by name in "same".
    """
    first = run(skeletons[0], feeds, **how, room=room)
    known = first.get("runs")
    taken = feeds if known is None else feeds[: len(known)]
    return [first, *(run(skeleton, taken, **how, like=known) for skeleton in skeletons[1:])]


_AT_ONCE = 1 << 20
"""Number of bytes of two outputs that are compared at a time."""


def _take_same(mine: dict[str, Value] | str, theirs: dict[str, Value] | str) -> list[str]:
    """Remove the outputs from a run that have the same bytes as in another run; return their names."""
    if isinstance(mine, str) or isinstance(theirs, str):
        return []
    found = [name for name, value in theirs.items() if _same_bytes(value, mine.get(name))]
    for name in found:
        del theirs[name]
    return found


def _same_bytes(one: Value, other: Value | None) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.kind in "OUS":
        return False
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    first, second = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    # A comparison takes a byte for each byte that it compares.
    places = (slice(begin, begin + _AT_ONCE) for begin in range(0, first.size, _AT_ONCE))
    return all(np.array_equal(first[place], second[place]) for place in places)


def _size(value: Any) -> int:
    """Return the total size of all arrays in a result in bytes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(_size(item) for item in items)


def unsupported(message: str) -> str | None:
    """Return a short text for a native message about an unsupported feature; None for other messages."""
    for expression, text in _UNSUPPORTED:
        found = expression.search(message)
        if found is not None:
            return text.format(*found.groups())
    return None


def _refusal(message: str) -> dict[str, Any]:
    gap = unsupported(message)
    return {"invalid": message} if gap is None else {"unsupported": gap}


_MANY_NODES = 500
"""Number of nodes from which buffers are not reused. Each buffer is still freed after its last use."""


def _options() -> onnxruntime.SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False
    options.use_deterministic_compute = True
    # The default order computes all nodes that depend only on weights (such as a Transpose of each) first, and keeps
    # their results: 250 MiB more for a BERT-base.
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.intra_op_num_threads = min(4, os.cpu_count() or 1)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    options.add_session_config_entry("session.disable_prepacking", "1")
    # Spinning idle threads would take processor time from the other workers.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _open(
    skeleton: bytes, libraries: Sequence[str], providers: Sequence[str], late: bool, profile: str | None = None
) -> onnxruntime.InferenceSession:
    """Create a session; if the model is newer than the runtime, lower its versions if that changes nothing."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    if profile is not None:
        options = _with_libraries(_deployed_options(skeleton, profile), libraries)
        stage("session")
        return make_session(skeleton, options, providers, full_precision=False)
    options = session_options(libraries)
    stage("preparation")
    skeleton, nodes = prepared(skeleton, late=late)
    # The search for a reusable buffer compares all free ones: quadratic in the number of nodes for unknown dims.
    options.enable_mem_reuse = nodes < _MANY_NODES
    stage("session")
    try:
        return make_session(skeleton, options, providers)
    except Exception as error:
        older = None if isinstance(error, ProviderError) else stamped_down(skeleton, str(error))
        if older is None:
            raise
    return make_session(older, options, providers)


def _deployed_options(skeleton: bytes, profile: str) -> onnxruntime.SessionOptions:
    """Return the default options, but for the place of weights, messages, a profile, and what changes no result.

    Without prepacking, weights are not copied, and threads that do not spin leave the processor to other workers. An
    arena grows by doubling: two images of a convolutional net took 328 MiB with it and 241 MiB without.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    if not packs_weights(skeleton):
        options.add_session_config_entry("session.disable_prepacking", "1")
    begin_profile(options, profile)
    return options


def make_session(
    source: str | bytes,
    options: onnxruntime.SessionOptions,
    providers: Sequence[str] = (),
    *,
    full_precision: bool = True,
) -> onnxruntime.InferenceSession:
    """Create a session for a file or a model with these execution providers and the CPU. Raises `ProviderError`."""
    import onnxruntime

    require_known(providers)
    given = provider_arguments(providers, full_precision=full_precision)
    loaded = whole(source) if isinstance(source, bytes) else source
    session = onnxruntime.InferenceSession(loaded, options, providers=given)
    if loaded is not source:
        # Half of what a session of a tree ensemble takes was only needed to load it.
        return_free()
    require_started(providers, session)
    return session


def session_options(libraries: Sequence[str]) -> onnxruntime.SessionOptions:
    """Return the options of a session, with custom operators loaded. Raises `LibraryError`."""
    return _with_libraries(_options(), libraries)


def _with_libraries(options: onnxruntime.SessionOptions, libraries: Sequence[str]) -> onnxruntime.SessionOptions:
    for library in libraries:
        stage(f"loading {library.rpartition('/')[2]}")
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise LibraryError(library, str(error)) from error
    return options


def prepared(skeleton: bytes, *, late: bool = True) -> tuple[bytes, int]:
    """Return the copy of a model that is run, with the same computation and actual rounding, and its number of nodes.

    With `late`, nodes that depend only on weights are moved to their first readers, which matters for many weights.
    Nodes in subgraphs are not counted.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    with suppress(Exception):
        # Shape inference may fail on a model that still runs.
        model = hold(model)
        if b"CastLike" in skeleton:
            settle_casts(model)
    if late:
        defer(model.graph)
    return model.SerializeToString(), len(model.graph.node)


def run_once(
    session: onnxruntime.InferenceSession, feed: dict[str, Value], options: onnxruntime.RunOptions | None = None
) -> dict[str, Value]:
    """Run once; element types that NumPy lacks are passed as raw bytes."""
    given = {name: _to_runtime(value) for name, value in feed.items()}
    exotic = _exotic_outputs(session)
    plain = [output.name for output in session.get_outputs() if output.name not in exotic]
    results: dict[str, Value] = {}
    if plain or not exotic:
        found = zip(plain, session.run(plain, given, options))
        results.update((name, _owned(value) if name in feed else value) for name, value in found)
    if exotic:
        boxed = {name: _boxed(value) for name, value in given.items()}
        values = session.run_with_ort_values(exotic, boxed, options)
        results.update((name, _from_runtime(value)) for name, value in zip(exotic, values))
    return {output.name: spread(results[output.name], output.type) for output in session.get_outputs()}


def _owned(value: Value) -> Value:
    """Copy an output that is an input of the model, too.

    ONNX Runtime 1.22 returns the memory that it was given, and does not keep it for whoever reads the output.
    """
    if isinstance(value, list):
        return [_owned(item) for item in value]
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.owndata else value


def _exotic_outputs(session: onnxruntime.InferenceSession) -> list[str]:
    """Return the names of outputs with an element type that NumPy lacks."""
    found = ((output.name, re.fullmatch(r"tensor\((\w+)\)", output.type)) for output in session.get_outputs())
    return [name for name, tensor in found if tensor is not None and type_of_name(tensor.group(1)) in ONNX_TYPES]


def _is_numeric(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O"


def _to_runtime(value: Value) -> Any:
    """Convert a value to the form that the runtime takes."""
    import onnxruntime

    if isinstance(value, list):
        return [_to_runtime(item) for item in value]
    if value is None or value.dtype.kind == "O":
        return value
    found = next((number for number, dtype in ONNX_TYPES.items() if dtype == value.dtype), None)
    if found is None:
        return value
    boxed = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(value.shape), found)
    data = pack_nibbles(value).tobytes()
    ctypes.memmove(boxed.data_ptr(), data, len(data))
    return boxed


def boxed(feed: Mapping[str, Value]) -> dict[str, Any] | None:
    """Return inputs in runtime memory, so that a run copies nothing; None if one is not a numeric tensor."""
    if not all(_is_numeric(value) for value in feed.values()):
        return None
    return {name: _boxed(_to_runtime(value)) for name, value in feed.items()}


def _boxed(value: Any) -> Any:
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(value) if isinstance(value, np.ndarray) else value


def _from_runtime(value: Any) -> Array:
    """Read a tensor with an element type that NumPy lacks from the memory of the runtime."""
    return in_memory(value.data_ptr(), value.element_type(), tuple(value.shape()))
