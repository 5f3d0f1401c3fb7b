"""What regions that agree or differ say about a change, given the verdicts on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.regional_verdict import REGION, _GrowingChange

MODEL = text.parse("""g (float[N,4] x, int64[1] axes) => (float[N,4] y, float[N,4] z) {
    b = Neg(x) c = Unsqueeze(x, axes) y = Exp(b) z = Squeeze(c, axes) }""")


def change(**moving: bool) -> tuple[_GrowingChange, list[str]]:
    """Return a change whose regions, by name, move or stay with a value, and the names of those that are asked."""
    asked: list[str] = []

    def moves(region: Any, before: Any, name: str, budget: Any) -> bool:
        asked.append(region.name)
        return moving[region.name]

    boundary: Any = SimpleNamespace(sides=(Definitions(MODEL.SerializeToString()), None))
    laboratory: Any = SimpleNamespace(moves=moves)
    return _GrowingChange(boundary, laboratory, None, None), asked  # type: ignore[arg-type]


def shown(*names: str) -> dict[str, Any]:
    return {name: (Verdict(Status.EQUAL), SimpleNamespace(name=name)) for name in names}


@pytest.mark.parametrize(
    ("moving", "shows", "asked"),
    [
        ({"y": True, "deep": False}, True, ["y"]),
        ({"y": False, "deep": True}, True, ["y", "deep"]),
        ({"y": False, "deep": False}, False, ["y", "deep"]),
    ],
)
def test_a_value_shows_if_a_region_of_a_target_moves_with_it(
    moving: dict[str, bool], shows: bool, asked: list[str]
) -> None:
    made, found = change(**moving)
    made.shown, made.beneath = shown("y"), {"y": [SimpleNamespace(name="deep")], "z": [SimpleNamespace(name="other")]}  # type: ignore[list-item]
    assert made._shows("b") is shows
    assert found == asked


def test_a_region_of_several_targets_is_asked_once() -> None:
    made, found = change(y=False)
    made.shown = shown("y")
    made.shown["z"] = made.shown["y"]
    assert not made._shows("b") and found == ["y"]


@pytest.mark.parametrize(("targets", "shows"), [("cz", True), ("c", False), ("z", False)])
def test_axes_show_in_all_that_their_readers_make(targets: str, shows: bool) -> None:
    made, found = change(c=False, z=False)
    made.shown = shown(*targets)
    assert made._shows("axes") is shows
    assert found == ([] if shows else [*targets])


@pytest.mark.parametrize(("reason", "kept"), [(NOT_RUN, NOT_RUN), (VACUOUS, REGION), (None, REGION)])
def test_the_first_failing_region_is_named(reason: str | None, kept: str) -> None:
    made, _ = change()
    region: Any = None
    made.failing = {
        "b": (Verdict(Status.DIFFERENT, message="another"), region),
        "a": (Verdict(Status.UNVERIFIED, reason, message="nothing shown"), region),
    }
    verdict = made._refusal("more", "words")
    assert (verdict.status, verdict.reason) == (Status.UNVERIFIED, kept)
    assert verdict.message == "in its region, 'a' is not verified: nothing shown; more; words"
