"""What an expectation that is not met needs: for a runtime, the steps that `inspect --target` suggests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.base.errors import SurgeryError

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Expectation, Result


def advice(found: Result, item: Expectation) -> Iterator[str]:
    """Yield what would help a model to fit the runtime that an expectation names, if that is not met."""
    if item.ok or not item.target:
        return
    if item.target != found.target:
        yield f"the recipe makes the model for {found.target}; write 'target: {item.target}' in it"
    steps = _steps(found, item.target)
    if steps:
        yield f"steps that would help: {', '.join(steps)}"


def _steps(found: Result, target: str) -> Sequence[str]:
    from surgery.features.inspection.fit import steps_toward  # only for expectations that are not met

    try:
        return steps_toward(replace(found.stored, proto=found.proto), target)
    except SurgeryError:  # the kernels of the installed runtime cannot be read: the expectation says so
        return ()
