"""What the record of a step says in a statement of provenance, and which element types are narrow."""

from __future__ import annotations

import onnx
import pytest

from surgery.engine.pipeline.purpose import _NARROW_TYPES
from surgery.engine.pipeline.records import RefusedSite, StepRecord, last_loss
from surgery.verification.comparing.details import Status, Verdict

REFUSED = (RefusedSite(1, "a", "why"), RefusedSite(2, "b", "why"))
LOSSY, CLOSE = Verdict(Status.LOSSY), Verdict(Status.CLOSE)


@pytest.mark.parametrize(
    ("record", "stated"),
    [
        (StepRecord("a", "committed", 3, 2, sites=1, verdict=CLOSE), {"sites": 1, "verdict": "close"}),
        (StepRecord("a", "unchanged", 3, 3), {"sites": 0, "status": "unchanged"}),
        (
            StepRecord("a", "committed", 3, 2, sites=4, seconds=2.0, refused_sites=REFUSED, cached=True),
            {"sites": 4, "refused_sites": 2},
        ),
        (
            StepRecord("a", "rolled_back", 3, 3, refused_sites=REFUSED[:1]),
            {"sites": 0, "status": "rolled_back", "refused_sites": 1},
        ),
    ],
)
def test_a_statement_has_what_every_run_has(record: StepRecord, stated: dict[str, object]) -> None:
    assert record.stated() == {"pass": "a", **stated}


@pytest.mark.parametrize(("code", "broke"), [(3, True), (1, False), (0, False)])
def test_a_step_broke_if_it_was_rolled_back_for_an_error(code: int, broke: bool) -> None:
    assert StepRecord("a", "rolled_back", 3, 3, exit_code=code).broke is broke
    assert not StepRecord("a", "failed", 3, 3, exit_code=code).broke


def test_the_last_committed_loss_counts() -> None:
    first, last = Verdict(Status.LOSSY, message="first"), Verdict(Status.LOSSY, message="last")
    steps = [
        StepRecord("a", "committed", 3, 3, verdict=first),
        StepRecord("b", "committed", 3, 3, verdict=last),
        StepRecord("c", "rolled_back", 3, 3, verdict=LOSSY),
        StepRecord("d", "committed", 3, 3, verdict=CLOSE),
        StepRecord("e", "committed", 3, 3),
    ]
    assert last_loss(steps) is last and last_loss(steps[:1]) is first and last_loss(steps[2:]) is None


def test_narrow_types_have_at_most_sixteen_bits() -> None:
    wide = {
        "UNDEFINED",
        "FLOAT",
        "INT32",
        "INT64",
        "STRING",
        "BOOL",
        "DOUBLE",
        "UINT32",
        "UINT64",
        "COMPLEX64",
        "COMPLEX128",
    }
    known = {number: name for name, number in onnx.TensorProto.DataType.items() if number <= onnx.TensorProto.INT4}
    known |= {23: "FLOAT4E2M1"}
    assert {known[number] for number in _NARROW_TYPES} == {*known.values()} - wide
