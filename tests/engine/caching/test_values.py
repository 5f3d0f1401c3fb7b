"""Values of outcomes as text, and back."""

import math
from typing import Any

import numpy as np
import pytest

from surgery.engine.caching import outcome_text
from surgery.engine.pipeline.records import RefusedSite
from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.engine.pipeline.step_cache_interface import EndFacts
from surgery.model.graph.signature_mappings import Joined, Relation
from surgery.model.graph.state import Refused, Site
from surgery.verification.comparing.details import (
    Arbitration,
    Details,
    Element,
    NonFinitePlaces,
    OutputErrors,
    Status,
    Verdict,
)
from surgery.verification.verdict.validity import Validity

ELEMENT = Element("y", (), (0, 1), 1.0, complex(1, -0.0), math.inf, {"dims": {"N": 1}, "seed": None})
SITE = Site(1, "n\u2028\ud800", ("a",), (), True)
VALUES = [
    Verdict(
        Status.CLOSE,
        needed={"rtol": 1e-5, "atol": 5e-324, "factor": 0.1},
        details=Details(
            *(3, 2, 1, math.nan, ELEMENT),
            nan=NonFinitePlaces(1, ELEMENT),
            metrics={"snr": math.inf},
            accuracy={"limits": [{"value": 1.0}], "sets": 3},
            float64=Arbitration(0.5, None, ("Erf",), ""),
            outputs=(OutputErrors("y", 1, 1, 0, 0.0, None, -3, (1, 2)),),
        ),
        region=3,
    ),
    (SITE, Refused("a", "b"), RefusedSite(1, "a", "b"), Sensitivity(SITE, 0.1, {"snr": 3.0}, 1e9, None)),
    EndFacts(({"dims": {"N": 2}, "seed": 0, "list": [1, (2,)]},), Validity(("x",), "no", True)),
    {"~": 1, 3: "x", (1,): b"\x00\xff"},
    [],
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_round_trip(value: Any) -> None:
    found = outcome_text.load(outcome_text.dump(value))
    assert repr(found) == repr(value)


def test_arrays_round_trip() -> None:
    relation = Relation("input", "x", "y = Neg(x)", constants={"c": np.arange(6, dtype=np.float16).reshape(2, 3)})
    found = outcome_text.load(outcome_text.dump(relation))
    np.testing.assert_array_equal(found.constants["c"], relation.constants["c"])
    assert found.constants["c"].dtype == np.float16 and found.body == relation.body


@pytest.mark.parametrize("value", [object(), Joined(b"", {}), {1, 2}, np.array(["a"], object)])
def test_unsupported_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is not stored"):
        outcome_text.dump(value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"~":"nothing","of":[]}', b'{"~":"Site","of":[]}', b'{"~":"Status","of":"x"}']
)
def test_other_text_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        outcome_text.load(data)
