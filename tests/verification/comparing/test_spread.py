"""How errors are spread: by powers of two of the tolerance, for each output."""

from __future__ import annotations

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.comparing.spread import Spread

RULES = ComparisonRules(Parity.CLOSE, rtol=0.0, atol=1.0)


def spread_of(*shares: float) -> Spread:
    found = Spread()
    found.add(np.array(shares))
    return found


def test_powers_of_two() -> None:
    found = spread_of(0.0, 0.25, 0.49, 0.5, 0.99, 1.0, 3.9, np.inf).errors("y")
    assert (found.elements, found.equal, found.endless) == (8, 1, 1)
    assert found.first == -2 and found.counts == (2, 2, 1, 1)


@pytest.mark.parametrize(("share", "first"), [(1e-300, -41), (1e300, 23), (2.0**-41, -41), (2.0**23, 23)])
def test_the_end_bins_include_values_beyond(share: float, first: int) -> None:
    found = spread_of(share).errors("y")
    assert found.counts == (1,) and found.first == first


def test_unchanged_elements_have_no_bins() -> None:
    found = spread_of(0.0, 0.0).errors("y")
    assert (found.elements, found.equal, found.counts, found.worst) == (2, 2, (), None)


def test_each_output_has_its_own() -> None:
    total = OutputDistances(spreads={})
    a = {"same": np.ones(3, np.float32), "far": np.array([1.0, 2.0], np.float32), "whole": np.array([1, 2])}
    b = {"same": a["same"], "far": np.array([1.0, 2.5], np.float32), "whole": np.array([1, 3])}
    for _ in range(2):
        compare(a, b, RULES, total)
    outputs = {one.name: one for one in total.details().outputs}
    assert list(outputs) == ["whole", "far", "same"]  # the worst first
    assert (outputs["same"].elements, outputs["same"].equal) == (6, 6)
    assert (outputs["far"].equal, sum(outputs["far"].counts)) == (2, 2) and outputs["far"].worst is not None
    assert outputs["far"].worst.index == (1,) and 0 < outputs["far"].largest < 1
    assert (outputs["whole"].equal, outputs["whole"].endless) == (2, 2)
    assert outputs["whole"].to_json()["largest"] == "inf"


def test_spread_is_collected_only_on_request() -> None:
    total = OutputDistances()
    compare({"y": np.ones(2)}, {"y": np.ones(2) * 1.1}, RULES, total)
    assert total.details().outputs == ()
