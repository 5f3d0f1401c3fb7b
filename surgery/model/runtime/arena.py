"""The arena from which all sessions of a worker process allocate, and the release of its memory."""

from __future__ import annotations

import resource
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from surgery.base.workers import after_call

if TYPE_CHECKING:
    import onnxruntime

_ARENA = {
    "arena_extend_strategy": 0,  # regions of doubled sizes
    "max_dead_bytes_per_chunk": 1 << 20,
}
"""Settings of the arena. Untouched pages take no memory, and a large region has room for several smaller buffers."""

_FIRST, _LARGEST_FIRST = 1 << 20, 1 << 30
"""Number of bytes of the first region, which is never released; the second, for a worker that ends after its runs."""

_is_shared = False


def share_arena(*, ends: bool = False) -> None:
    """Make the sessions of this process allocate from one arena, and release its free memory after each call.

    Without an arena, freed buffers leave holes in the heap: the C library before 2.38 does not reuse the space of an
    aligned buffer for another one of the same size. A ViT-base that needs 60 MiB took up to 300 MiB, at random. In an
    arena that grows by the requested sizes, or that gives the whole of a freed buffer to a smaller one, as the default
    arena of a session does, the buffers of many sizes of a convolutional net in float64 took 500 MiB in place of 370.
    If all fit into one region, they took 270. It is not released, and wastes 30 MiB if values are small: only a worker
    for large values that `ends` after the next runs has one.
    """
    global _is_shared
    if _is_shared:
        return
    _is_shared = True
    import onnxruntime

    first = _FIRST
    if ends:
        most, _ = resource.getrlimit(resource.RLIMIT_DATA)
        first = _LARGEST_FIRST if most == resource.RLIM_INFINITY else max(_FIRST, min(_LARGEST_FIRST, most // 4))
    onnxruntime.create_and_register_allocator(
        onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        ),
        onnxruntime.OrtArenaCfg({**_ARENA, "initial_chunk_size_bytes": first}),
    )
    after_call(_shrink)


@cache
def shrinking() -> onnxruntime.RunOptions:
    """Return the options of a run after which the arena releases free memory, for the other workers.

    A region that was allocated at once is released at once, and is kept while it contains an output of a run.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


@cache
def _nothing() -> onnxruntime.InferenceSession:
    """Return a session that computes nothing."""
    import onnx.helper
    import onnx.parser
    import onnxruntime

    graph = onnx.parser.parse_graph("nothing () => (bool y) { y = Constant<value = bool {1}>() }")
    opsets = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, ir_version=7, opset_imports=opsets)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _shrink() -> None:
    """Release the regions of the arena that contained outputs, which only a run can do."""
    with suppress(Exception):
        _nothing().run(None, {}, shrinking())
