"""What is concluded from runs of regions, which are given by hand, and which of them are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.errors import WorkerError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY, NEVER_FINITE
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions import region_comparer
from surgery.verification.regions.region_comparer import (
    FOLLOWS,
    PROVED,
    RegionComparer,
    _failure,
    _follows,
    _moved,
    _proved,
)
from surgery.verification.regions.region_values import UnknownError
from surgery.verification.regions.region_variants import RegionVariant
from surgery.verification.regions.regions import Region
from surgery.verification.regions.time_budget import CostlyError, TimeBudget

EQUAL, CLOSE, DIFFERENT = Verdict(Status.EQUAL), Verdict(Status.CLOSE), Verdict(Status.DIFFERENT, message="far")
NOWHERE: Any = SimpleNamespace()


def _piece(body: str) -> onnx.ModelProto:
    return text.parse(f"g (float x, float z) => (float y) {{ {body} }}", opset=18)


def _region(before: str, after: str, targets: str = "y", given: str = "x", outputs: str = "") -> Region:
    return Region((*targets,), (*(outputs or targets),), (*given,), _piece(before), _piece(after), 3)


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def _nothing(why: str, name: str = "y") -> Verdict:
    return Verdict(Status.UNVERIFIED, "vacuous", message=f"'{name}' {why}")


# What a run says


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (RunOutcome(runs=[{}, "it failed"]), None),
        (RunOutcome(runs=["it failed", {}]), "the changed region does not run: it failed"),
        (RunOutcome(crash=WorkerError("it died", stage="run")), "the changed region does not run: "),
    ],
)
def test_a_changed_region_has_to_run_where_the_original_does(outcome: RunOutcome, verdict: str | None) -> None:
    found = _failure(outcome, {0: None})
    if verdict is None:
        assert found is None
    else:
        assert found is not None and found.is_different and found.message.startswith(verdict)


def test_what_the_runtime_does_not_support_is_no_difference() -> None:
    found = _failure(RunOutcome(unsupported="no kernel"), {})
    assert found == Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel")
    found = _failure(RunOutcome(invalid="it is wrong"), {})
    assert found is not None and found.is_different and found.message.endswith("it is wrong")


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        (_f32(1, 2), _f32(1, 2), False),
        (_f32(1, 2), _f32(1, 2.1), True),
        (_f32(1, 2), _f32(1, 2 + 1e-6), False),
        (_f32(1, np.inf), _f32(1, 2), False),
        (_f32(1, 2), _f32(1, np.nan), False),
        (_f32(1, np.inf), _f32(2, np.inf), True),
        (_f32(1, 2), _f32(3), False),
        (np.array([1, 2]), np.array([1, 3]), False),
        ([_f32(1)], [_f32(2)], False),
    ],
)
def test_values_that_move_where_they_are_finite(first: Any, second: Any, moved: bool) -> None:
    assert _moved(first, second) is moved


# What needs no run


@pytest.mark.parametrize(
    ("before", "after", "proved"),
    [
        ("y = Neg(x)", "y = Neg(x)", True),
        ("y = Neg(x)", "t = Identity(x) y = Neg(t)", True),
        ("y = Neg(x)", "y = Abs(x)", False),
        ("a = Neg(x) y = Abs(a)", "a = Abs(x) y = Neg(a)", False),
    ],
)
def test_the_same_operators_prove_a_region(before: str, after: str, proved: bool) -> None:
    expected = {"y": Verdict(Status.EQUAL, message=PROVED)} if proved else {}
    assert _proved(_region(before, after)) == expected


def test_targets_are_proved_one_by_one_and_by_their_names_in_the_pieces() -> None:
    region = _region("p = Neg(x) q = Abs(x)", "p = Neg(x) q = Exp(x)", "ab", "x", "pq")
    assert [*_proved(region)] == ["a"]
    branches = "then_branch = t () => (float p) { p = Neg(x) }, else_branch = e () => (float q) { q = Abs(x) }"
    taken = _region(f"c = Constant<value = bool {{1}}>() y = If(c) <{branches}>", "y = Neg(x)")
    assert [*_proved(taken)] == ["y"] == [*_proved(_region("y = Neg(x)", "y = Neg(x)"))]


def test_targets_follow_from_equal_ones_that_are_given() -> None:
    # `a` is read, and so is `y`, which the original computes from it: their inputs do not belong together.
    pieces = [text.parse(f"g (float x, float a) => (float y) {{ {body} }}") for body in ("y = Exp(a)", "y = Exp(made)")]
    for piece in pieces:
        piece.graph.node.insert(0, onnx.helper.make_node("Neg", ["x"], ["made"]))
    region = Region(("a", "y"), ("made", "y"), ("x", "a"), *pieces, 2)
    found = {"y": Verdict(Status.EQUAL, message=FOLLOWS)}
    assert _follows(region, {"a": EQUAL, "y": DIFFERENT}) == found
    assert _follows(region, {"a": CLOSE, "y": DIFFERENT}) == {} == _follows(region, {"a": EQUAL, "y": CLOSE})
    apart = Region(("a", "y"), ("made", "y"), ("x",), *pieces, 2)
    assert _follows(apart, {"a": EQUAL, "y": DIFFERENT}) == {}


# Which regions are run


class _Values:
    """Values of which some are unknown."""

    def __init__(self, unknown: Mapping[str, str] | None = None, points: int = 1, cost: float = 0.0) -> None:
        self.unknown, self.points = unknown or {}, [SimpleNamespace(forms={}, dims={})] * points
        self.asked: list[Any] = []
        self._cost = cost

    def infer(self, before: Any, names: Any, budget: Any) -> None:
        self.asked.append(("infer", {*names}))

    def cost(self, before: Any, names: Any) -> float:
        return self._cost

    def learn(self, before: Any, names: Any) -> dict[str, str]:
        self.asked.append(("learn", {*names}))
        return {name: why for name, why in self.unknown.items() if name in names}


def _comparer(values: Any = None, problem: str | None = None) -> Any:
    original: Any = SimpleNamespace(engine_for=lambda name: name, problem=problem)
    found: Any = RegionComparer(original, VerifySpec())
    found._values = values or _Values()
    return found


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region takes one second."""
    monkeypatch.setattr(region_comparer, "cost", lambda regions, *_: float(len(regions)))
    monkeypatch.setattr(region_comparer, "by_size", lambda regions, _: [*reversed(regions)])


ONE, OTHER = _region("y = Neg(x)", "y = Abs(x)"), _region("z = Neg(w)", "z = Abs(w)", "z", "w")
SAME = _region("p = Exp(v)", "p = Exp(v)", "p", "v")


@pytest.mark.usefixtures("costs")
def test_only_what_is_not_proved_is_run() -> None:
    comparer = _comparer()
    ran: list[Any] = []

    def find(region: Region, before: Any, promise: Parity, grown: bool) -> dict[str, Verdict]:
        ran.append((region, promise, grown))
        return dict.fromkeys(region.targets, CLOSE)

    comparer._found = find
    found = comparer.compare([ONE, SAME, OTHER], NOWHERE, Parity.CLOSE, grown=True, budget=TimeBudget())
    assert ran == [(OTHER, Parity.CLOSE, True), (ONE, Parity.CLOSE, True)]
    assert found == {"p": Verdict(Status.EQUAL, message=PROVED), "y": CLOSE, "z": CLOSE}
    assert comparer._values.asked == [("infer", {"x", "w"}), ("learn", {"x", "w"})]
    proved = _comparer()
    assert [*proved.compare([SAME], NOWHERE, Parity.CLOSE, budget=TimeBudget())] == ["p"] and not proved._values.asked


@pytest.mark.usefixtures("costs")
def test_a_region_that_is_given_something_unknown_is_not_run() -> None:
    comparer = _comparer(_Values({"w": "'w' is unknown"}))
    comparer._found = lambda region, *_: dict.fromkeys(region.targets, CLOSE)
    found = comparer.compare([ONE, OTHER], NOWHERE, Parity.CLOSE, budget=TimeBudget())
    assert found == {"y": CLOSE, "z": Verdict(Status.UNVERIFIED, NOT_RUN, message="'w' is unknown")}


@pytest.mark.parametrize(("problem", "message"), [("it fails", "it fails"), (None, "no inputs are known")])
def test_nothing_is_known_without_inputs(problem: str | None, message: str) -> None:
    comparer = _comparer(_Values(points=0), problem)
    found = comparer.compare([ONE, SAME], NOWHERE, Parity.CLOSE, budget=TimeBudget())
    assert found["y"] == Verdict(Status.UNVERIFIED, NOT_RUN, message=message) and found["p"].passed
    assert not comparer.moves(ONE, NOWHERE, "y", TimeBudget())


@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize(("seconds", "learned"), [(1.4, False), (1.6, True)])
def test_nothing_is_learned_beyond_the_budget(seconds: float, learned: bool) -> None:
    values = _Values(cost=0.5)
    comparer = _comparer(values)
    comparer._found = lambda region, *_: dict.fromkeys(region.targets, CLOSE)
    budget = TimeBudget(seconds)
    if learned:
        comparer.compare([ONE], NOWHERE, Parity.CLOSE, budget=budget)
        with pytest.raises(CostlyError):
            budget.check(0.2)
    else:
        with pytest.raises(CostlyError):
            comparer.compare([ONE], NOWHERE, Parity.CLOSE, budget=budget)
    assert (("learn", {"x"}) in values.asked) is learned


def test_the_part_that_differs_runs_first_in_a_long_region(monkeypatch: pytest.MonkeyPatch) -> None:
    part = _region("y = Neg(x)", "y = Abs(x)")
    whole = _region("a = Exp(x) y = Neg(a)", "a = Exp(x) y = Abs(a)")
    monkeypatch.setattr(region_comparer, "trimmed", lambda region: part)
    monkeypatch.setattr(region_comparer, "elements", lambda region, point: sizes[0])
    ran: list[Any] = []

    def beneath(region: Region, before: Any, promise: Parity, grown: bool) -> Any:
        ran.append((region is part, promise))
        return {"y": answers.pop(0)}

    comparer = _comparer()
    comparer.beneath = beneath
    sizes, answers = [region_comparer._FEW_ELEMENTS], [CLOSE]
    assert comparer._found(whole, NOWHERE, Parity.CLOSE, False) == {"y": CLOSE} and ran == [(False, Parity.CLOSE)]
    sizes[0] += 1
    ran, answers = [], [EQUAL]
    assert comparer._found(whole, NOWHERE, Parity.CLOSE, False) == {"y": Verdict(Status.EQUAL, message=FOLLOWS)}
    assert ran == [(True, Parity.EXACT)]
    # A part that does not keep all bits is not tried again in other regions.
    for expected in ([(True, Parity.EXACT), (False, Parity.CLOSE)], [(False, Parity.CLOSE)]):
        ran, answers = [], [CLOSE] * len(expected)
        assert comparer._found(whole, NOWHERE, Parity.CLOSE, False) == {"y": CLOSE} and ran == expected
    monkeypatch.setattr(region_comparer, "trimmed", lambda region: None)
    ran, answers = [], [CLOSE]
    assert comparer._found(whole, NOWHERE, Parity.CLOSE, False) == {"y": CLOSE} and ran == [(False, Parity.CLOSE)]


# Sizes and variants


class _Tries:
    """A comparer of a region whose runs at some points give known verdicts, or are unknown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, smaller: Any = None, **found: Sequence[RegionVariant]) -> None:
        self.comparer = _comparer()
        self.tried: list[Any] = []
        self.answers: list[Any] = []
        self.comparer._try_at = self._try_at
        monkeypatch.setattr(region_comparer, "reduced", lambda region, points: smaller or points)
        reasons = {ALWAYS_EMPTY: "empty", NEVER_FINITE: "infinite"}
        monkeypatch.setattr(region_comparer, "variants", lambda why, *_: iter(found.get(reasons[why], ())))

    def _try_at(self, points: Any, region: Region, *_: Any) -> Any:
        self.tried.append(points if isinstance(points, str) else "own")
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise UnknownError(answer)
        return {"y": answer}

    def run(self, *answers: Any) -> tuple[Verdict, list[Any]]:
        self.answers, self.tried = [*answers], []
        found = self.comparer.beneath(ONE, NOWHERE, Parity.CLOSE, False)["y"]
        assert not self.answers
        return found, self.tried


def test_a_region_runs_at_its_own_sizes_unless_smaller_ones_show_that_it_agrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = _Tries(monkeypatch, "small")
    assert tries.run(CLOSE) == (CLOSE, ["small"])
    assert tries.run(DIFFERENT, CLOSE) == (CLOSE, ["small", "own"])
    assert tries.run("does not run", DIFFERENT) == (DIFFERENT, ["small", "own"])
    unknown = Verdict(Status.UNVERIFIED, NOT_RUN, message="neither")
    assert tries.run("does not run", "neither") == (unknown, ["small", "own"])
    assert _Tries(monkeypatch).run(DIFFERENT) == (DIFFERENT, ["own"])


def _variant(points: Any, **how: bool) -> RegionVariant:
    return RegionVariant(points, ONE, **how)


def test_variants_are_tried_until_one_shows_something(monkeypatch: pytest.MonkeyPatch) -> None:
    empty, infinite = _nothing(ALWAYS_EMPTY), _nothing(NEVER_FINITE)
    tries = _Tries(monkeypatch, empty=[_variant("first"), _variant("second", is_sharp=True)], infinite=[_variant("n")])
    assert tries.run(empty, CLOSE) == (CLOSE, ["own", "first"])
    # A difference counts only where it is one of the region itself.
    assert tries.run(empty, DIFFERENT, DIFFERENT) == (DIFFERENT, ["own", "first", "second"])
    assert tries.run(empty, "unknown", CLOSE) == (CLOSE, ["own", "first", "second"])
    assert tries.run(empty, empty, infinite) == (empty, ["own", "first", "second"])
    assert tries.run(infinite, CLOSE) == (CLOSE, ["own", "n"])
    assert tries.run(_nothing("is zero")) == (_nothing("is zero"), ["own"])


def test_an_open_variant_counts_only_if_all_values_have_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = _nothing(ALWAYS_EMPTY)
    tries = _Tries(monkeypatch, empty=[_variant("open", is_open=True)])
    for has, verdict in ((True, CLOSE), (False, empty)):
        tries.comparer._has_elements = lambda *_, has=has: has
        assert tries.run(empty, CLOSE) == (verdict, ["own", "open"])


@pytest.mark.parametrize(
    ("why", "status", "grown", "constant", "is_empty", "fixed"),
    [
        (None, Status.EQUAL, False, False, False, True),
        ("is zero", Status.DIFFERENT, False, False, False, True),
        ("is zero", Status.EQUAL, False, False, False, True),
        ("is zero", Status.EQUAL, True, False, False, False),
        ("is zero", Status.CLOSE, False, False, False, False),
        ("is zero", Status.CLOSE, False, True, False, True),
        ("is zero", Status.CLOSE, True, True, False, False),
        (NEVER_FINITE, Status.EQUAL, False, True, False, False),
        (ALWAYS_EMPTY, Status.EQUAL, False, True, False, False),
        (ALWAYS_EMPTY, Status.EQUAL, True, False, True, True),
    ],
)
def test_a_target_that_shows_nothing_may_be_constant_by_definition(
    why: str | None, status: Status, grown: bool, constant: bool, is_empty: bool, fixed: bool
) -> None:
    asked: list[Parity] = []

    def vacuous(promise: Parity) -> dict[str, str]:
        asked.append(promise)
        return {} if why is None else {"out": why}

    values: Any = SimpleNamespace(is_empty=lambda before, name: is_empty and name == "y")
    region = _region("y = Neg(x)", "y = Abs(x)")
    tally = SimpleNamespace(
        region=SimpleNamespace(targets=region.targets, outputs=("out",)),
        vacuous=vacuous,
        is_constant=lambda output: constant and output == "out",
    )
    found = _comparer(values)._vacuous(tally, NOWHERE, {"y": Verdict(status)}, Parity.CLOSE, grown)
    assert found == ({} if fixed else {"y": _nothing(str(why))})
    assert asked == [Parity.CLOSE if status is Status.CLOSE else Parity.EXACT]


def test_weights_of_both_pieces_have_to_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    comparer = _comparer()
    comparer._original.holds = lambda size: size <= 10
    for before, after, holds in ((10, 10, True), (11, 10, False), (10, 11, False)):
        sizes = {id(ONE.before): before, id(ONE.after): after}
        monkeypatch.setattr(region_comparer, "external_bytes", lambda piece, sizes=sizes: sizes[id(piece)])
        assert comparer.holds(ONE) is holds


# Whether a region depends on a value


def test_a_region_moves_if_a_value_inside_it_is_nudged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_comparer, "_declared", lambda *_: None)
    monkeypatch.setattr(region_comparer, "reduced", lambda region, points: points)
    monkeypatch.setattr(region_comparer, "seconds", lambda *_, **how: 2.0)
    region = _region("a = Exp(x) y = Neg(a)", "y = Abs(x)")
    comparer = _comparer()
    moved: list[bool] = []
    answers: list[bool] = []

    def moves(region: Region, piece: Any, before: Any, *, few: bool) -> bool:
        moved.append(few)
        return answers.pop(0)

    comparer._moves = moves
    for types, given, result, asked in (
        ({"a": 1}, [True], True, [True]),
        ({"a": 1}, [False, True], True, [True, False]),
        ({"a": 1}, [False, False], False, [True, False]),
        (None, [True], True, [True]),
        ({"a": 7}, [], False, []),
    ):
        moved, answers, comparer._values = [], [*given], _Values()
        comparer._engine = SimpleNamespace(analyse=lambda *_, found=types, **how: found)
        assert comparer.moves(region, NOWHERE, "a", TimeBudget(2.0)) is result and moved == asked
        assert comparer._values.asked == [("infer", {"x"}), ("learn", {"x"})]
    moved, comparer._engine = [], SimpleNamespace(analyse=lambda *_, **how: {"a": 1})
    with pytest.raises(CostlyError):
        comparer.moves(region, NOWHERE, "a", TimeBudget(1.9))
    assert comparer.moves(region, NOWHERE, "elsewhere", TimeBudget()) is False and not moved
    comparer._values = _Values({"x": "'x' is unknown"})
    assert comparer.moves(region, NOWHERE, "a", TimeBudget()) is False and not moved
    comparer._values = None
    assert comparer.moves(region, NOWHERE, "a", TimeBudget()) is False


def test_moving_takes_one_set_on_which_both_run(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Any] = []
    monkeypatch.setattr(region_comparer, "reduced", lambda region, points: points)
    monkeypatch.setattr(region_comparer, "run_in_groups", lambda *_: iter(groups))
    comparer = _comparer()
    comparer._feeding = lambda *_: SimpleNamespace(sets=lambda promise, few: [])

    def runs(*values: Any) -> RunOutcome:
        return RunOutcome(runs=[one if isinstance(one, str) else {"y": _f32(one)} for one in values])

    crash = RunOutcome(crash=WorkerError("it died", stage="run"))
    for outcomes, moves in (
        ([(runs(1, 2), runs(1, 2))], False),
        ([(runs(1, 2), runs(1, 3))], True),
        ([(runs(1), runs(1)), (runs(2), runs(3))], True),
        ([(runs("it failed", 1), runs(1, "it failed"))], False),
        ([(crash, runs(2)), (runs(2), runs(3))], False),
        ([(runs(2), crash), (runs(2), runs(3))], False),
        ([], False),
    ):
        groups = [SimpleNamespace(outcomes=pair) for pair in outcomes]
        assert comparer._moves(ONE, ONE.before, NOWHERE, few=True) is moves
