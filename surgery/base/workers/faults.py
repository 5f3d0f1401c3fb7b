"""Exceptions of an analysis that is optional: the run goes on without it, and the exception is named in a warning.

Otherwise, a mistake of surgery would look like a property of the model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from surgery.base.errors import SurgeryError, WorkerError
from surgery.base.workers import WorkerRaised

_LOG: Final = logging.getLogger("surgery.faults")
_OF_ONNX: Final = frozenset({"InferenceError", "ValidationError"})
"""The exceptions of onnx for invalid models."""

_seen: dict[str, None] = {}


def found(what: str, error: WorkerError) -> None:
    """Remember and log that an analysis raised an exception, unless it says that the model is invalid or too large.

    That it ran out of time or memory, or crashed in native code, is not one.
    """
    if not isinstance(error, WorkerRaised) or error.signal or error.type_name in _OF_ONNX or error.type_name in _own():
        return
    message = " ".join(error.message.split())
    line = f"{what} failed and was skipped: {error.type_name}{f': {message}' if message else ''}"
    _seen[line] = None
    _LOG.warning("%s", line)


def seen() -> list[str]:
    """List the faults of this process, each once."""
    return list(_seen)


def _own() -> set[str]:
    """Return the names of surgery's own errors, which are about the model or what was asked for."""

    def descendants(of: type[SurgeryError]) -> Iterator[str]:
        yield of.__name__
        for child in of.__subclasses__():
            yield from descendants(child)

    return set(descendants(SurgeryError))
