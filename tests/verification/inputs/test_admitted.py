"""The extents that demands admit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.verification.inputs.admissible import EXTENTS, MOST, admissible, listed
from surgery.verification.inputs.demands import Demand


def test_long_extents_are_considered_in_steps() -> None:
    assert EXTENTS[:MOST].tolist() == [*range(1, 4097)] and EXTENTS[MOST] == 4097
    short, long = EXTENTS[EXTENTS < 1 << 16], EXTENTS[EXTENTS >= 1 << 16]
    assert np.diff(short).max() == 8 and np.diff(long).max() == 80 and long[0] == 1 << 16
    assert 2**20 - 80 <= EXTENTS[-1] < 2**20 and len(EXTENTS) < 25_000
    # Whole seconds of common sampling rates.
    assert {16000, 22050, 24000, 32000, 44100, 48000, 480000} <= {*EXTENTS.tolist()}


@pytest.mark.parametrize(
    ("demands", "admitted"),
    [
        ([Demand("Mod(N, 4)", 0)], {"N": [4, 8, 12]}),
        ([Demand("N", 5, least=True)], {"N": [5, 6, 7]}),
        ([Demand("N", 7)], {"N": [7]}),
        # An operand may be broadcast, but not two extents of the same dim.
        ([Demand("N", 7, broadcast=True)], {"N": [1, 7]}),
        ([Demand(7, "N", broadcast=True)], {"N": [1, 7]}),
        ([Demand("2*N", "N + 7", broadcast=True)], {"N": [7]}),
        ([Demand("N", 1, broadcast=True)], {}),
        # A contradiction is ignored, and so are demands on two dims, and what cannot be evaluated.
        ([Demand("N", 7), Demand("N", 8)], {"N": [7]}),
        ([Demand("Mod(N, 4)", 0), Demand("Mod(N, 6)", 0)], {"N": [12, 24, 36]}),
        ([Demand("N", "M")], {}),
        ([Demand("sqrt(N)", 2), Demand(3, "sqrt(N)"), Demand("N", 7)], {"N": [7]}),
        ([Demand(3, 4)], {}),
        ([Demand("N", 1, least=True)], {}),
        ([Demand("alias", 9)], {"M": [3]}),
        # Beyond the usual extents.
        ([Demand("N", 5000, least=True)], {"N": [5001, 5009, 5017]}),
    ],
)
def test_extents_that_demands_admit(demands: list[Demand], admitted: dict[str, Any]) -> None:
    found = admissible(["N", "M"], demands, {"alias": "3 * M"})
    assert {name: listed(holds)[:3] for name, holds in found.items()} == admitted
