"""Runs that take more memory than there is, at sizes that the user gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surgery.base.errors import UsageError, first_few
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.inputs.feed_plan import Binding

_MOST_LISTED = 6

FEW = 2
"""Number of sets of inputs that are left if the outputs of all sets together take too much memory."""


def require_room(outcome: RunOutcome, bindings: Sequence[Binding], given: Mapping[str, object]) -> None:
    """Raise UsageError if runs at `given` sizes of dims took too much memory: neither model is to blame."""
    if not given or not outcome.lacks_memory:
        return
    found = {name: size for one in bindings for name, size in one.dims.items() if name in given}
    sizes = first_few((f"{name}={size}" for name, size in found.items()), _MOST_LISTED)
    raise UsageError(
        f"a run of the model with {sizes or 'these sizes'} takes too much memory",
        where="--dims",
        todo="pass smaller sizes, or raise the limit with 'verify: {memory: ...}' in the recipe",
    )
