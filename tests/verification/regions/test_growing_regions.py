"""How regions are cut and grow until they agree, given the verdicts on them."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.regions import regional_verdict
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_comparer import PROVED
from surgery.verification.regions.regional_verdict import Regional, _GrowingChange
from surgery.verification.regions.regions import Boundary, Region
from surgery.verification.regions.time_budget import COSTLY, CostlyError, TimeBudget

EQUAL = Verdict(Status.EQUAL)
DIFFERENT = Verdict(Status.DIFFERENT, message="far")
NOTHING = Verdict(Status.UNVERIFIED, VACUOUS, message="it shows nothing")


def side(body: str, stored: str = "", opset: int = 18, outputs: str = "y") -> Definitions:
    ports = ", ".join(f"float[N] {name}" for name in outputs)
    model = text.parse(f"g (float[N] x, float[N] z) => ({ports}) <{stored}> {{ {body} }}", opset=opset)
    return Definitions(model.SerializeToString())


CHAIN = "a = Neg(x) b = Exp(a) c = Tanh(b) d = Log(c) e = Cos(d) y = Sin(e)"


def boundary(before: str, after: str, stored: str = "") -> Boundary:
    return Boundary(side(before, stored), side(after, stored))


# Cuts


@pytest.mark.parametrize(
    ("before", "after", "doubted", "opened", "regions"),
    [
        # Only the node that differs, and what it reads is given.
        (CHAIN, CHAIN.replace("Log", "Abs"), "", "", [("d", "c", 1)]),
        (CHAIN, CHAIN.replace("Neg", "Abs"), "", "", [("a", "x", 1)]),
        # What is doubted is computed with its readers, and is no target.
        (CHAIN, CHAIN.replace("Log", "Abs"), "d", "", [("e", "c", 2)]),
        (CHAIN, CHAIN.replace("Log", "Abs"), "de", "", [("y", "c", 3)]),
        # What is opened is computed in the region, and what it reads is given.
        (CHAIN, CHAIN.replace("Log", "Abs"), "", "c", [("d", "b", 2)]),
        (CHAIN, CHAIN.replace("Log", "Abs"), "", "cb", [("d", "a", 3)]),
        # Apart, and joined by a node of both.
        (CHAIN, CHAIN.replace("Log", "Abs").replace("Neg", "Abs"), "", "", [("a", "x", 1), ("d", "c", 1)]),
        (CHAIN, CHAIN.replace("Log", "Abs").replace("Exp", "Abs"), "", "cb", [("bd", "a", 3)]),
        ("y = Add(x, z)", "y = Sub(x, z)", "", "", [("y", "xz", 1)]),
        # What only one of them computes.
        (CHAIN, CHAIN.replace("d = Log(c)", "n = Neg(c) d = Log(n)"), "", "", [("d", "c", 2)]),
        (CHAIN, "a = Neg(x) b = Exp(a) d = Relu(b) e = Cos(d) y = Sin(e)", "", "", [("d", "b", 2)]),
        # A value that only the changed model reads is computed from what the original reads.
        (
            "a = Neg(x) b = Exp(a) y = Log(x)",
            "a = Neg(x) b = Exp(a) y = Abs(b)",
            "",
            "",
            [("y", "x", 3)],
        ),
        ("a = Neg(x) y = Log(a)", "a = Neg(x) y = Add(a, z)", "", "", [("y", "az", 1)]),
        ("a = Split(x) y = Log(a)", "a = Split(x) y = Log(a)", "", "", []),
    ],
)
def test_regions_of_a_change(before: str, after: str, doubted: str, opened: str, regions: list[Any]) -> None:
    made = boundary(before, after)
    made.doubted, made.opened = {*doubted}, {*opened}
    found = made.cut(made.targets)
    assert sorted(("".join(sorted(one.targets)), "".join(one.given), one.nodes) for one in found) == regions


@pytest.mark.parametrize(
    ("largest", "regions"),
    [
        (None, [("bcdy", 5)]),
        (5, [("bcdy", 5)]),
        (4, [("bcd", 4), ("y", 2)]),
        (3, [("bc", 3), ("dy", 3)]),
        (2, [("b", 2), ("c", 2), ("d", 2), ("y", 2)]),
        (1, [("b", 2), ("c", 2), ("d", 2), ("y", 2)]),
    ],
)
def test_regions_that_share_a_node_are_joined_up_to_a_size(largest: int | None, regions: list[Any]) -> None:
    shared = "k = Constant<value_float = 2.0>() b = OP(x, k) c = OP(x, k) d = OP(x, k) y = OP(x, k)"
    made = Boundary(
        side(shared.replace("OP", "Mul"), outputs="bcdy"), side(shared.replace("OP", "Div"), outputs="bcdy")
    )
    found = made.cut(made.targets, largest)
    assert sorted(("".join(sorted(one.targets)), one.nodes) for one in found) == regions


def test_where_a_region_ends() -> None:
    made = Boundary(
        side("a = Neg(x) b = Mul(a, w) y = Mul(b, v)", "float[1] w = {1}, float[1] v = {1}"),
        side("c = Neg(x) b = Mul(c, w) v = Neg(b) y = Mul(b, v)", "float[1] w = {1}"),
    )
    ends = {name: made.stops(name) for name in "xzabcwvy"}
    # Inputs, and values of both that are not stored in both.
    assert [name for name, stops in ends.items() if stops] == [*"xzbvy"]
    made.doubted, made.opened = {"b", "x"}, {"y", "z"}
    assert [name for name in ends if made.stops(name)] == [*"xzv"]


def test_targets_are_those_that_differ_or_read_what_is_doubted() -> None:
    made = Boundary(
        side("a = Neg(x) b = Exp(a) c = Abs(a) y = Add(b, c)", outputs="y"),
        side("a = Log(x) b = Exp(a) d = Abs(a) y = Add(b, d)", outputs="y"),
    )
    assert made.differing == {"a", "y"} == made.targets
    made.doubted = {"a"}
    assert made.targets == {"b", "y"}
    made.doubted = {"a", "b"}
    assert made.targets == {"y"}
    # Readers in the original alone.
    other = Boundary(side("a = Neg(x) y = Exp(a)"), side("a = Log(x) y = Exp(x)"))
    other.doubted = {"a"}
    assert other.targets == {"y"}


# Growing


class Laboratory:
    """Verdicts by target: one for each time that it is compared, the last for all others."""

    def __init__(
        self, moves: bool = True, largest: float = 1e9, runs_whole: bool = True, **verdicts: list[Any]
    ) -> None:
        self.verdicts, self.largest, self.moving, self.runs_whole = verdicts, largest, moves, runs_whole
        self.compared: list[tuple[str, str, bool]] = []
        self.nudged: list[tuple[str, str]] = []

    def holds(self, region: Region) -> bool:
        return region.nodes <= self.largest

    def compare(self, regions: Any, before: Any, promise: Any, *, grown: bool, budget: Any) -> dict[str, Verdict]:
        found = {}
        for region in regions:
            self.compared.append(("".join(region.targets), "".join(region.given), grown))
            for name in region.targets:
                left = self.verdicts.get(name, [EQUAL])
                found[name] = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(found[name], Exception):
                    raise found[name]
        return found

    def beneath(self, region: Region, before: Any, promise: Any, grown: bool) -> dict[str, Verdict]:
        return dict.fromkeys(region.targets, NOTHING)

    def moves(self, region: Region, before: Any, name: str, budget: Any) -> bool:
        self.nudged.append(("".join(region.targets), name))
        return self.moving


def verdict(laboratory: Laboratory, before: str = CHAIN, after: str = CHAIN.replace("Log", "Abs")) -> Verdict:
    change = _GrowingChange(boundary(before, after), laboratory, Parity.CLOSE, TimeBudget())  # type: ignore[arg-type]
    found = change.verdict()
    laboratory.differing = change.differing  # type: ignore[attr-defined]
    laboratory.shown = set(change.shown)  # type: ignore[attr-defined]
    return found


def test_regions_that_agree_decide() -> None:
    laboratory = Laboratory()
    found = verdict(laboratory, CHAIN, CHAIN.replace("Log", "Abs").replace("Neg", "Abs"))
    assert laboratory.compared == [("a", "x", False), ("d", "c", False)]
    assert (found.status, found.region, found.message) == (
        Status.EQUAL,
        2,
        "bit-identical in the region of the change: 2 nodes",
    )
    assert found.needed == {"rtol": 0.0, "atol": 0.0, "factor": 0.0}
    proved = Verdict(Status.EQUAL, message=PROVED)
    found = verdict(Laboratory(d=[proved]))
    assert found.message == f"{PROVED} in the region of the change: 1 nodes"
    found = verdict(Laboratory(d=[proved]), CHAIN, CHAIN.replace("Log", "Abs").replace("Neg", "Abs"))
    assert found.message.startswith("bit-identical")


def test_the_worst_of_the_close_regions_counts() -> None:
    near, nearer = (
        Verdict(Status.CLOSE, needed={"rtol": rtol, "atol": 0.0, "factor": 1.0}, message=f"needs {rtol}")
        for rtol in (0.5, 0.25)
    )
    after = CHAIN.replace("Log", "Abs").replace("Neg", "Abs")
    for verdicts in ({"a": [near], "d": [nearer]}, {"a": [nearer], "d": [near]}):
        found = verdict(Laboratory(**verdicts), CHAIN, after)  # type: ignore[arg-type]
        assert (found.status, found.region) == (Status.CLOSE, 2) and found.needed == near.needed
        assert found.message == "in the region of the change (2 nodes): needs 0.5"
    found = verdict(Laboratory(a=[EQUAL], d=[Verdict(Status.CLOSE, message="no number")]), CHAIN, after)
    assert found.message == "in the region of the change (2 nodes): no number"


def test_a_region_that_differs_grows_both_ways() -> None:
    laboratory = Laboratory(d=[DIFFERENT])
    found = verdict(laboratory)
    # Downstream by one reader, and upstream by one level, then two, and so on.
    assert laboratory.compared == [("d", "c", False), ("e", "b", True)]
    assert found.passed and found.region == 3 and laboratory.nudged == [("e", "d")]
    assert laboratory.differing == ("d",) and laboratory.shown == {"e"}  # type: ignore[attr-defined]
    laboratory = Laboratory(d=[DIFFERENT], e=[DIFFERENT])
    assert verdict(laboratory).passed and laboratory.compared[2:] == [("y", "x", True)]
    assert laboratory.nudged == [("y", "d"), ("y", "e")] and laboratory.differing == ("d",)  # type: ignore[attr-defined]


def test_a_region_that_still_differs_decides_nothing() -> None:
    laboratory = Laboratory(d=[DIFFERENT], e=[DIFFERENT], y=[DIFFERENT])
    found = verdict(laboratory)
    assert (found.status, found.reason) == (Status.UNVERIFIED, "region")
    assert found.message == "in its region, 'y' is not verified: far" and len(laboratory.compared) == 6
    found = verdict(
        Laboratory(d=[Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel")], e=[DIFFERENT], y=[DIFFERENT])
    )
    assert found.reason == "region"
    # What was not run differs in no value.
    laboratory = Laboratory(d=[Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel"), EQUAL])
    assert verdict(laboratory).passed and laboratory.differing == ()  # type: ignore[attr-defined]


def test_a_region_that_is_too_large_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(largest=0)
    found = verdict(laboratory)
    assert (found.message, found.reason) == ("the region of 'd' is too large", "region") and not laboratory.compared
    laboratory = Laboratory(largest=1, d=[DIFFERENT])
    assert verdict(laboratory).message == "in its region, 'd' is not verified: far; the region of 'e' is too large"
    for largest, passes in ((3, True), (2, False)):
        monkeypatch.setattr(regional_verdict, "_LARGEST", largest)
        assert verdict(Laboratory(d=[DIFFERENT])).passed is passes


@pytest.mark.parametrize(("runs_whole", "compared"), [(True, []), (False, ["b", "c", "d", "y"])])
def test_where_no_whole_model_decides_large_regions_are_compared_apart(
    monkeypatch: pytest.MonkeyPatch, runs_whole: bool, compared: list[str]
) -> None:
    monkeypatch.setattr(regional_verdict, "_LARGEST", 2)
    shared = "k = Constant<value_float = 2.0>() b = OP(x, k) c = OP(x, k) d = OP(x, k) y = OP(x, k)"
    sides = [side(shared.replace("OP", op), outputs="bcdy") for op in ("Mul", "Div")]
    laboratory = Laboratory(runs_whole=runs_whole)
    found = _GrowingChange(Boundary(*sides), laboratory, Parity.CLOSE, TimeBudget()).verdict()  # type: ignore[arg-type]
    assert found.passed != runs_whole and sorted(targets for targets, *_ in laboratory.compared) == compared


def test_a_difference_has_to_show_in_a_later_value() -> None:
    # It is compared again, in the larger region.
    laboratory = Laboratory(moves=False, d=[DIFFERENT, EQUAL])
    assert verdict(laboratory).passed and laboratory.compared[-1] == ("d", "b", False)
    laboratory = Laboratory(moves=False, d=[DIFFERENT, DIFFERENT])
    found = verdict(laboratory)
    assert found.message == "'d' differs in its region, but no later value changes" and found.reason == "region"


def test_targets_that_were_given_what_differs_are_open_again() -> None:
    after = CHAIN.replace("Log", "Abs").replace("Sin", "Cos").replace("Cos(d)", "Sqrt(d)")
    before = CHAIN.replace("Cos(d)", "Sqrt(d)")
    laboratory = Laboratory(d=[DIFFERENT], e=[DIFFERENT, EQUAL])
    assert verdict(laboratory, before, after).passed
    assert laboratory.compared == [("d", "c", False), ("y", "e", False), ("e", "b", True), ("y", "x", True)]
    assert "y" in laboratory.shown  # type: ignore[attr-defined]


def test_a_vacuous_value_is_looked_for_beneath(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def descend(region: Region, name: str, nothing: Verdict, compare: Any) -> Any:
        asked.append((name, nothing is NOTHING, compare(region)))
        return EQUAL, [region]

    monkeypatch.setattr(regional_verdict, "descend", descend)
    assert verdict(Laboratory(d=[NOTHING])).passed and asked == [("d", True, {"d": NOTHING})]


# From models to verdicts


def regional(laboratory: Laboratory) -> Regional:
    made = Regional.__new__(Regional)
    made._laboratory, made._last = laboratory, None  # type: ignore[assignment]
    return made


def test_a_change_of_two_models() -> None:
    before, after = side(CHAIN), side(CHAIN.replace("Log", "Abs"))
    made = regional(Laboratory())
    found = made.compare(before.skeleton, after.skeleton, Parity.CLOSE)
    assert found.verdict.passed and (found.differing, found.agreeing, found.changed_opsets) == ((), {"d"}, False)
    # What passed is read already.
    assert made._last is not None and made._last.skeleton == after.skeleton
    assert made._read(after.skeleton) is made._last
    found = made.compare(after.skeleton, side(CHAIN.replace("Log", "Abs"), opset=17).skeleton, Parity.CLOSE)
    assert found.changed_opsets
    made = regional(Laboratory(d=[CostlyError("too long")]))
    found = made.compare(before.skeleton, after.skeleton, Parity.CLOSE)
    assert (found.verdict.reason, found.verdict.message, found.agreeing) == (COSTLY, "too long", set())
    assert made._last is not None and made._last.skeleton == before.skeleton


@pytest.mark.parametrize(
    ("verdicts", "message", "differing"),
    [
        ({}, "no drawn input reads what differs in leaves of 'd'", ("d",)),
        ({"d": [DIFFERENT]}, "", ("d",)),
        ({"d": [DIFFERENT], "e": [DIFFERENT], "y": [DIFFERENT]}, "in its region, 'y' is not verified: far", ("d",)),
    ],
)
def test_tables_that_no_drawn_input_reads(
    monkeypatch: pytest.MonkeyPatch, verdicts: Any, message: str, differing: Any
) -> None:
    monkeypatch.setattr(regional_verdict, "differing_tables", lambda *_: {"d": "leaves"})
    made = regional(Laboratory(**verdicts))
    found = made.compare(side(CHAIN).skeleton, side(CHAIN.replace("Log", "Abs")).skeleton, Parity.CLOSE)
    assert (found.verdict.passed, found.differing) == (not message, differing)
    assert not message or found.verdict.message == message
