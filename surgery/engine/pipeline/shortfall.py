"""What a run did not reach, although its result is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surgery.base.errors import PassError, first_few

_MOST_NAMES = 3


@dataclass(frozen=True)
class Shortfall:
    """A purpose of a run that is not met, in words.

    `exit_code` is 0 if that is held against nobody, such as nothing to gain, and 3 if surgery failed.
    """

    words: str
    exit_code: int

    @property
    def is_met(self) -> bool:
        """Whether the purpose is met as far as it can be."""
        return not self.exit_code


def of_broken(steps: Sequence[str], foreign: Sequence[bool]) -> Shortfall:
    """Return the shortfall of a run without these steps, which broke; `foreign` says whether a user's pass did."""
    named = first_few((f"'{name}'" for name in steps), _MOST_NAMES)
    verb = "was" if len(steps) == 1 else "were"
    return Shortfall(f"{named} broke and {verb} undone, see above", 1 if all(foreign) else PassError.exit_code)
