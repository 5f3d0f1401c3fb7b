"""Runs of a model in float64, in a worker process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from surgery.base.operators.dtypes import ONNX_TYPES
from surgery.base.workers import stage
from surgery.model.runtime import reference_runs, sessions
from surgery.model.runtime.arena import share_arena
from surgery.model.runtime.float64_model import UnavailableError, widen
from surgery.model.targets.kernels import NO_FLOAT64, installed

_ATTEMPTS = 12
"""Maximum number of attempts; each failed attempt finds another operator without a working float64 kernel."""

_LARGE = 1 << 21
"""Number of elements of a value from which memory is allocated as for large values."""

_BLAMED = (
    re.compile(r"no kernel for (?:[\w.]+[.:])?(\w+)\(\d+\)"),
    re.compile(r"of operator \((\w+)\)"),
    re.compile(r"op_type: ?(\w+)"),
)

_BFLOAT16 = ONNX_TYPES[16]


def run(skeleton: bytes, feeds: list[dict[str, Any]], limit: int, libraries: Sequence[str] = ()) -> dict[str, Any]:
    """Run a model once for each dict of inputs, computing in float64.

    The result has the form of `sessions.run`, with the operators that ran in float32 in `narrow`.
    """
    wide = _Wide(feeds)
    problem = ""
    try:
        answer = _in_runtime(skeleton, wide, limit, libraries)
        if "runs" in answer:
            return answer
        problem = answer.get("unsupported") or answer.get("invalid") or ""
        reference_answer = _in_reference(skeleton, wide)
    except UnavailableError as error:
        return {"unsupported": str(error)}
    return reference_answer if "runs" in reference_answer else {"unsupported": problem}


class _Wide(Sequence[dict[str, Any]]):
    """Inputs in float64, each converted when it is needed: all of them take three times the memory."""

    def __init__(self, feeds: Sequence[dict[str, Any]]) -> None:
        self.feeds = feeds

    def __len__(self) -> int:
        return len(self.feeds)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        if isinstance(index, slice):
            return _Wide(self.feeds[index])
        return {name: _widened(value) for name, value in self.feeds[index].items()}


def _in_runtime(skeleton: bytes, feeds: _Wide, limit: int, libraries: Sequence[str]) -> dict[str, Any]:
    import onnx

    keep = set(NO_FLOAT64)
    answer: dict[str, Any] = {}
    for _ in range(_ATTEMPTS):
        stage("float64 preparation")
        found = widen(onnx.load_model_from_string(skeleton), installed(), frozenset(keep), _shapes(feeds.feeds))
        share_arena(ends=found.largest > _LARGE)
        answer = sessions.run(found.model.SerializeToString(), feeds, limit, libraries=libraries)
        message = answer.get("unsupported") or answer.get("invalid")
        if message is None:
            return {**answer, "narrow": sorted(found.narrow)}
        blamed = next((match.group(1) for expression in _BLAMED if (match := expression.search(message))), None)
        if blamed is None or blamed in keep:
            break
        keep.add(blamed)
    return answer


def _in_reference(skeleton: bytes, feeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    import onnx

    stage("float64 preparation")
    found = widen(onnx.load_model_from_string(skeleton), None)
    return {**reference_runs.run(found.model.SerializeToString(), feeds), "narrow": sorted(found.narrow)}


def _shapes(feeds: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that have the same one in all sets."""
    found: dict[str, set[Any]] = {}
    for name, value in (item for feed in feeds for item in feed.items()):
        found.setdefault(name, set()).add(value.shape if isinstance(value, np.ndarray) else None)
    return {name: shape for name, (shape, *others) in found.items() if shape is not None and not others}


def _widened(value: Any) -> Any:
    """Convert floats to float64, also in sequences."""
    if isinstance(value, list):
        return [_widened(item) for item in value]
    if value is not None and (value.dtype in (np.float16, np.float32) or value.dtype == _BFLOAT16):
        return value.astype(np.float64)
    return value
