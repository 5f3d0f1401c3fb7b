"""The time limit for the regions of one change."""

from __future__ import annotations

import math


class CostlyError(Exception):
    """Running a region would take longer than allowed."""


class TimeBudget:
    """The estimated seconds that are left for the regions of a change."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._left = seconds

    def check(self, seconds: float) -> None:
        """Raise `CostlyError` if `seconds` exceeds the remaining budget."""
        if seconds > self._left:
            raise CostlyError("running the region of the change takes longer than running the whole model")

    def spend(self, seconds: float) -> None:
        """Deduct `seconds` from the remaining budget; raise `CostlyError` if it is smaller."""
        self.check(seconds)
        self._left -= seconds


REGION, COSTLY = "region", "costly"
"""The reasons of a verdict that leaves the decision to a comparison of the whole models."""
