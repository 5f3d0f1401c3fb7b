"""How long the regions of one change may take."""

from __future__ import annotations

import math


class CostlyError(Exception):
    """To run a region would take longer than it may."""


class Budget:
    """Seconds, as estimated, that are left for the regions of a change."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._left = seconds

    def check(self, seconds: float) -> None:
        """Raise `CostlyError` when something would take more than what is left."""
        if seconds > self._left:
            raise CostlyError("running the region of the change takes longer than running the whole model")

    def spend(self, seconds: float) -> None:
        """Take something off what is left; `CostlyError` when that is less."""
        self.check(seconds)
        self._left -= seconds


REGION, COSTLY = "region", "costly"
"""The reasons of a verdict that leaves the decision to the whole model."""
