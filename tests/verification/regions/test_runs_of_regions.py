"""One run of a region after another: which sets it takes, what is counted, and what similar regions are spared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions import region_comparer
from surgery.verification.regions.patterns import Pattern
from surgery.verification.regions.region_comparer import RegionComparer, _declared
from surgery.verification.regions.region_values import Form, UnknownError
from surgery.verification.regions.regions import Region

EQUAL, CLOSE, DIFFERENT = Verdict(Status.EQUAL), Verdict(Status.CLOSE), Verdict(Status.DIFFERENT, message="far")
EMPTY = Verdict(Status.UNVERIFIED, "vacuous")
NOWHERE: Any = SimpleNamespace()
POINTS: Any = [SimpleNamespace(forms={"x": Form(np.dtype(np.float32), (2, 3))})]


def region(before: str = "y = Neg(x)", after: str = "y = Abs(x)") -> Region:
    pieces = [onnx.ModelProto() for _ in range(2)]
    for piece, body in zip(pieces, (before, after)):
        piece.CopyFrom(text.parse(f"g (float x) => (float y) {{ {body} }}", opset=18))
        del piece.graph.input[:], piece.graph.output[:]
    return Region(("t",), ("y",), ("x",), pieces[0], pieces[1], 1)


def comparer() -> Any:
    return RegionComparer(SimpleNamespace(engine_for=lambda name: name), VerifySpec())  # type: ignore[arg-type]


# Regions with the same pattern


class Tries:
    """A comparer whose runs give scripted verdicts, or a failure, for regions with scripted patterns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pattern: Any = None
        self.ran: list[bool] = []
        self.looked = 0
        self.verdict = CLOSE
        self.failure: Verdict | None = None
        self.comparer = comparer()
        self.comparer._run = self.run
        self.comparer._vacuous = self.vacuous
        self.nothing: dict[str, Verdict] = {}
        monkeypatch.setattr(region_comparer, "pattern_of", lambda *_: self.pattern)
        monkeypatch.setattr(region_comparer, "Tally", self.tally)

    def tally(self, region: Region, original: Any, verify: Any, engine: Any, promise: Parity, few: bool) -> Any:
        return SimpleNamespace(few=few, verdicts=lambda: {"t": self.verdict})

    def run(self, tally: Any, points: Any, before: Any, promise: Parity, *, few: bool) -> Verdict | None:
        assert tally.few is few
        self.ran.append(few)
        return self.failure

    def vacuous(self, *_: Any) -> dict[str, Verdict]:
        self.looked += 1
        return self.nothing

    def found(self, promise: Parity = Parity.CLOSE) -> Verdict:
        found: Verdict = self.comparer._try_at(POINTS, region(), NOWHERE, promise, False)["t"]
        return found


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(monkeypatch)


def test_a_region_without_a_pattern_always_runs(tries: Tries) -> None:
    assert [tries.found(), tries.found()] == [CLOSE, CLOSE] and tries.ran == [False, False] and tries.looked == 2


def test_a_region_with_a_known_pattern_does_not_run(tries: Tries) -> None:
    tries.pattern = Pattern("f", "d", weights=False)
    assert [tries.found(), tries.found()] == [CLOSE, CLOSE] and tries.ran == [False]
    # Another promise is another question.
    assert tries.found(Parity.EXACT) == CLOSE and tries.ran == [False, False]
    # One of the same family runs with few sets, and need not show again that it is not empty.
    tries.pattern = Pattern("f", "other", weights=False)
    assert tries.found() == CLOSE and tries.ran == [False, False, True] and tries.looked == 2
    tries.pattern = Pattern("g", "other", weights=False)
    assert tries.found() == CLOSE and tries.ran[3:] == [False]


def test_a_region_with_other_weights_runs_with_few_sets(tries: Tries) -> None:
    tries.pattern = Pattern("f", "d", weights=True)
    assert [tries.found() for _ in range(3)] == [CLOSE] * 3 and tries.ran == [False, True, True] and tries.looked == 1


@pytest.mark.parametrize("how", ["differs", "fails", "empty"])
def test_a_region_that_does_not_agree_says_nothing_about_others(tries: Tries, how: str) -> None:
    tries.pattern = Pattern("f", "d", weights=False)
    tries.verdict = DIFFERENT if how == "differs" else EQUAL
    tries.failure = DIFFERENT if how == "fails" else None
    tries.nothing = {"t": EMPTY} if how == "empty" else {}
    for _ in range(2):
        assert tries.found() == (EMPTY if how == "empty" else DIFFERENT)
    assert tries.ran == [False, False] and tries.looked == (0 if how == "fails" else 2)


def test_pieces_are_declared_before_they_run(tries: Tries) -> None:
    given = region()
    tries.comparer._try_at(POINTS, given, NOWHERE, Parity.CLOSE, False)
    for piece in (given.before, given.after):
        (port,) = piece.graph.input
        assert (port.name, port.type.tensor_type.elem_type) == ("x", 1) and [
            one.name for one in piece.graph.output
        ] == ["y"]
        assert [dim.WhichOneof("value") for dim in port.type.tensor_type.shape.dim] == [None, None]
        assert _declared(piece, given, {}) is piece and len(piece.graph.input) == len(piece.graph.output) == 1


# Sets and what is counted


class Runs:
    """A comparer whose groups are scripted: outcomes of both pieces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *groups: tuple[RunOutcome, RunOutcome]) -> None:
        self.added: list[tuple[list[Any], list[Any]]] = []
        self.chosen: list[Any] = []
        self.asked: list[Any] = []
        self.comparer = comparer()
        self.comparer._feeding = lambda region, points, before, piece: SimpleNamespace(
            sets=self.sets, deciding=self.deciding
        )
        monkeypatch.setattr(region_comparer, "run_in_groups", self.groups)
        self.left = groups

    def sets(self, promise: Parity, *, few: bool) -> list[Any]:
        self.asked.append((promise, few))
        return [(Binding(seed=seed), seed) for seed in range(2)]

    def deciding(self, chosen: list[Binding], engine: Any) -> list[Any]:
        self.asked.append([binding.seed for binding in chosen])
        return [(Binding(seed=9), 0)]

    def groups(self, engine: Any, skeletons: list[bytes], feeding: Any, chosen: list[Any]) -> Any:
        self.chosen = [binding.seed for binding, _ in chosen]
        assert [onnx.load_model_from_string(one).graph.node[0].op_type for one in skeletons] == ["Neg", "Abs"]
        for number, outcomes in enumerate(self.left):
            sets = [(Binding(seed=10 * number + one), {"x": one}) for one in range(3)]
            yield SimpleNamespace(outcomes=outcomes, sets=sets)

    def add(self, runs: list[Any], values: list[Any]) -> None:
        self.added.append(([(run.binding.seed, run.feed["x"], run.outputs) for run in runs], values))

    def run(self, *, few: bool = False) -> Verdict | None:
        tally = SimpleNamespace(region=region(), add=self.add)
        found: Verdict | None = self.comparer._run(tally, POINTS, NOWHERE, Parity.CLOSE, few=few)
        return found


def ran(*runs: Any) -> RunOutcome:
    return RunOutcome([one if isinstance(one, str) else {"y": one} for one in runs])


def test_sets_on_which_the_original_runs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (ran(1, "no", 3), ran(4, 5, 6)), (ran("no"), ran("no")), (ran(7), ran(8)))
    assert runs.run() is None
    assert runs.added == [
        ([(0, 0, {"y": 1}), (2, 2, {"y": 3})], [{"y": 4}, {"y": 6}]),
        ([(20, 0, {"y": 7})], [{"y": 8}]),
    ]
    # Guards decide on special data, except for one region of many alike.
    assert runs.chosen == [0, 1, 9] and runs.asked == [(Parity.CLOSE, False), [0, 1]]
    runs = Runs(monkeypatch, (ran(1), ran(1)))
    assert runs.run(few=True) is None and runs.chosen == [0, 1] and runs.asked == [(Parity.CLOSE, True)]


def test_a_changed_piece_that_fails_ends_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (ran(1), ran(1)), (ran(1, 2), ran(1, "too long")), (ran(1), ran(1)))
    found = runs.run()
    assert found is not None and found.message == "the changed region does not run: too long"
    assert len(runs.added) == 1


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([(RunOutcome(invalid="broken"), ran(1))], "broken"),
        ([(ran("first", "second"), ran(1, 1))], "first"),
        ([(ran("first"), ran(1)), (ran("second"), ran(1))], "first"),
        ([(ran(1), ran(1)), (RunOutcome(unsupported="no kernel"), ran(1))], "no kernel"),
        ([], ""),
    ],
)
def test_nothing_is_known_of_a_region_whose_original_does_not_run(
    monkeypatch: pytest.MonkeyPatch, groups: Any, why: str
) -> None:
    with pytest.raises(UnknownError, match=f"^the region of the original does not run: {why}$"):
        Runs(monkeypatch, *groups).run()


@pytest.mark.parametrize("side", [0, 1])
def test_nothing_is_known_of_a_region_that_draws(monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    bodies = ["y = Neg(x)", "y = Neg(x)"]
    bodies[side] = "y = RandomNormalLike(x)"
    drawing = region(*bodies)
    for piece in (drawing.before, drawing.after):
        _declared(piece, drawing, POINTS[0].forms)
    runs = Runs(monkeypatch)
    with pytest.raises(UnknownError, match=r"^it draws random numbers \(RandomNormalLike\)$"):
        runs.comparer._run(SimpleNamespace(region=drawing), POINTS, NOWHERE, Parity.CLOSE, few=True)


# Values with elements


@pytest.mark.parametrize(
    ("sides", "has"),
    [
        ([[{"a": 2, "y": 1}], [{"y": 1}]], True),
        ([[{"a": 0, "y": 1}], [{"y": 1}]], False),
        ([[{"a": 2, "y": 1}], [{"y": 0}]], False),
        # At some of the sizes each.
        ([[{"a": 0, "y": 1}, {"a": 2, "y": 0}], [{"y": 1}]], True),
        ([["it fails", {"a": 2, "y": 1}], [{"y": 1}]], True),
        ([["it fails"], [{"y": 1}]], False),
    ],
)
def test_all_values_of_a_variant_have_elements_at_some_size(
    monkeypatch: pytest.MonkeyPatch, sides: Any, has: bool
) -> None:
    names: list[list[str]] = []
    left = [*sides]

    def groups(engine: Any, skeletons: list[bytes], feeding: Any, chosen: Any) -> Any:
        assert chosen == "few"
        names.append([port.name for port in onnx.load_model_from_string(skeletons[0]).graph.output])
        for run in left.pop(0):
            found = run if isinstance(run, str) else {name: np.zeros(size) for name, size in run.items()}
            yield SimpleNamespace(outcomes=[RunOutcome([found])])

    monkeypatch.setattr(region_comparer, "run_in_groups", groups)
    made = comparer()
    made._feeding = lambda *_: SimpleNamespace(sets=lambda promise, few: "few" if few else "all")
    tried = region("c = Constant<value_float = 1.0>() a = Neg(x) y = Abs(a)")
    for piece in (tried.before, tried.after):
        _declared(piece, tried, POINTS[0].forms)
    assert made._has_elements(SimpleNamespace(region=tried, points=POINTS), NOWHERE) is has
    assert names == [["a", "y"], ["y"]][: len(names)] and [port.name for port in tried.before.graph.output] == ["y"]
