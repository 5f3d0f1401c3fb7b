"""The values that a region is given: drawn floats, and integers of the original."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from surgery.base.errors import WorkerError
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL
from surgery.verification.regions import region_feeding
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_feeding import Drawn, Feeding
from surgery.verification.regions.region_values import TAKEN, Form, Point
from surgery.verification.regions.regions import Region

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)
PIECE = text.parse(
    "g (float[A, B] x, float[A, B] z, int64[C] i) => (float[A, B] y) { t = Add(x, z) y = Reshape(t, i) }"
)


def feeding(
    made: str = "",
    given: str = "xzi",
    shape: tuple[int, ...] = (2, 3),
    recorded: tuple[Any, ...] = ([4, 5],),
    kinds: tuple[str, ...] = ("normal",),
    drawn: Drawn | None = None,
    dtype: Any = FLOAT,
) -> Feeding:
    """Return the feeding of a region that is given x and z, which `made` may compute, and the integers i."""
    inputs = "".join(f", float[A, B] {name}" for name in "xz" if f"{name} = " not in made)
    before = text.parse(f"g (float[A, B] r{inputs}) => (float[A, B] y) {{ {made} y = Neg(x) }}")
    forms = {"x": Form(dtype, shape), "z": Form(FLOAT, shape), "i": Form(INT, (2,))}
    runs = [Run(Binding({"N": 2}, kind), {}, {}) for kind in kinds]
    point = Point({"N": 2}, runs, forms, [{"i": np.array(values)} for values in recorded])
    region = Region(("y",), ("y",), tuple(given), PIECE, PIECE, 2)
    return Feeding(region, [point], Definitions(before.SerializeToString()), PIECE, drawn or Drawn())


def binding(kind: str = "normal", seed: int = 0, **more: Any) -> Binding:
    return Binding({"N": 2}, kind, seed, **more)


def test_floats_are_drawn_by_their_place_and_seed() -> None:
    made = feeding()
    found = made.feed(binding())
    assert found["x"].shape == (2, 3) and found["x"].dtype == FLOAT and not np.array_equal(found["x"], found["z"])
    assert np.array_equal(found["x"], made.feed(binding())["x"])
    assert not np.array_equal(found["x"], made.feed(binding(seed=1))["x"])
    assert not np.array_equal(found["x"], made.feed(binding("wide"))["x"])
    # Other regions get the same.
    assert np.array_equal(found["x"], feeding(given="zxi").feed(binding())["z"])
    shared = Drawn()
    first, second = (feeding(drawn=shared).feed(binding())["x"] for _ in range(2))
    assert first is second
    half = feeding(drawn=shared, dtype=np.dtype(np.float16)).feed(binding())["x"]
    assert half.dtype == np.float16 and feeding(shape=(3, 2), drawn=shared).feed(binding())["x"].shape == (3, 2)


def test_the_elements_of_a_large_value_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    assert region_feeding._PERIOD == 131_071
    monkeypatch.setattr(region_feeding, "_PERIOD", 5)
    found = feeding(given="xi").feed(binding())["x"].reshape(-1)
    assert found[5] == found[0] and len({*found.tolist()}) == 5
    found = feeding(given="xi", shape=(1, 5)).feed(binding())["x"]
    assert found.shape == (1, 5) and len({*found[0].tolist()}) == 5


@pytest.mark.parametrize(
    ("made", "low", "high"),
    [
        ("", -9, 9),
        ("x = Neg(r)", -9, 9),
        ("x = Relu(r)", 0, 9),
        ("x = Sqrt(r)", 0, 9),
        ("x = Softmax(r)", 0, 1),
        ("x = Sigmoid(r)", 0, 1),
        ("z = Relu(r)", -9, 9),
    ],
)
def test_drawn_elements_are_those_that_the_operator_can_return(made: str, low: float, high: float) -> None:
    found = feeding(made, shape=(16, 16)).feed(binding())["x"]
    assert low <= found.min() < low + 0.3 * (low == 0) + 9 * (low < 0) and found.max() <= high
    assert found.max() > (1 if high == 9 else 0.8)


def test_integers_are_those_of_a_run() -> None:
    made = feeding(recorded=([4, 5], [6, 7], [1, 0]), kinds=("normal", "edges", "padded"))
    assert [made.feed(binding(), number)["i"].tolist() for number in range(3)] == [[4, 5], [6, 7], [4, 5]]
    taken = binding("padded", profile=TAKEN)
    assert made.feed(taken)["i"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("kind", "recorded", "more", "found"),
    [
        ("normal", [0, 1], {}, [0, 1]),
        ("none", [0, 1], {}, [0, 0]),
        ("all", [0, 1], {}, [1, 1]),
        # No mask, integers of a run, another input, and floats only.
        ("all", [0, 2], {}, [0, 2]),
        ("all", [0, 1], {"profile": TAKEN}, [0, 1]),
        ("all", [0, 1], {"ports": ("x",)}, [0, 1]),
        ("all", [0, 1], {"ports": ("i",)}, [1, 1]),
        ("negative", [0, 1], {}, [0, 1]),
    ],
)
def test_masks_for_guards(kind: str, recorded: list[int], more: Any, found: list[int]) -> None:
    assert feeding(recorded=(recorded,)).feed(binding(kind, **more))["i"].tolist() == found


@pytest.mark.parametrize(
    ("made", "kind", "more", "negative"),
    [
        ("", "negative", {}, True),
        ("x = Neg(r)", "negative", {}, True),
        # Floats are drawn for a set with the integers of a run, too.
        ("", "negative", {"profile": TAKEN}, True),
        ("x = Relu(r)", "negative", {}, False),
        ("x = Relu(r)", "positive", {}, False),
        ("", "positive", {}, False),
        ("", "negative", {"ports": ("z",)}, None),
        ("", "normal", {}, None),
    ],
)
def test_floats_for_guards(made: str, kind: str, more: Any, negative: bool | None) -> None:
    signs = {*np.sign(feeding(made, shape=(8, 8)).feed(binding(kind, **more))["x"]).reshape(-1).tolist()} - {0.0}
    assert signs == ({-1.0, 1.0} if negative is None else {-1.0} if negative else {1.0})


@pytest.mark.parametrize(("made", "finite"), [("", False), ("x = Neg(r)", True)])
def test_only_a_caller_gives_nan(made: str, finite: bool) -> None:
    assert bool(np.isfinite(feeding(made, shape=(8, 8)).feed(binding("not finite"))["x"]).all()) is finite


# Sets for guards


class Search:
    """A search for guards that notes what it is given, and finds a set for each piece."""

    made: ClassVar[list[Search]] = []

    def __init__(self, watch: Any, feed: Any, run: Any, tries: int) -> None:
        self.run, self.tries, self.feed = run, tries, feed
        self.seen: list[Binding] = []
        Search.made.append(self)

    def see(self, bindings: list[Binding]) -> None:
        self.seen = [*bindings]

    def find(self, base: Binding) -> list[Binding]:
        return [binding(f"found for {base.character}", len(Search.made))]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    monkeypatch.setattr(region_feeding, "GuardSearch", Search)
    monkeypatch.setattr(region_feeding, "Watch", lambda piece: piece)
    monkeypatch.setattr(Search, "made", [])
    return Search.made


@pytest.mark.parametrize(("cost", "tries"), [(TRIVIAL, 24), (TRIVIAL * 1.01, 8), (CHEAP, 8), (CHEAP * 1.01, None)])
def test_guards_are_looked_for_in_both_pieces(searches: list[Search], cost: float, tries: int | None) -> None:
    made = feeding()
    made._cost = cost
    chosen = [binding(), binding("edges")]
    found = made.deciding(chosen, SimpleNamespace())  # type: ignore[arg-type]
    assert made.deciding([], SimpleNamespace()) == []  # type: ignore[arg-type]
    if tries is None:
        assert found == [] == searches
        return
    first, second = binding("found for normal", 1), binding("found for normal", 2)
    assert found == [(first, 0), (second, 0)] and [one.tries for one in searches] == [tries, tries]
    assert [one.seen for one in searches] == [chosen, [*chosen, first]] and searches[0].feed == made.feed


def test_a_piece_that_does_not_run_decides_nothing(searches: list[Search]) -> None:
    outcomes = [RunOutcome([{"y": 1}, "no"]), RunOutcome(crash=WorkerError("it died", stage="run"))]
    made = feeding()
    made._cost = 0.0
    made.deciding([binding()], SimpleNamespace(run=lambda skeleton, feeds: outcomes.pop(0)))  # type: ignore[arg-type]
    assert searches[0].run(b"", [1, 2]) == [{"y": 1}, "no"] and searches[0].run(b"", [1, 2]) == ["it died"] * 2


def test_integers_of_runs_in_which_guards_decide_otherwise(searches: list[Search]) -> None:
    kinds = ("normal", "edges", "padded", "none", "all", "zeros")
    recorded = ([1, 1], [1, 2], [1, 1], [0, 0], [0, 0], [2, 2])
    made = feeding(recorded=recorded, kinds=kinds)
    made._cost = 0.0
    # Those that an ordinary run has, or another one before, are left out.
    taken = [binding(kind, profile=TAKEN) for kind in ("none", "zeros")]
    found = made.deciding([binding()], SimpleNamespace())  # type: ignore[arg-type]
    assert [one for one, _ in found[:2]] == taken and searches[0].seen == [binding(), *taken]
    assert [made.feed(one)["i"].tolist() for one in taken] == [[0, 0], [2, 2]]


def test_the_sets_of_a_region_have_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def bindings(region: Region, points: Any, promise: Parity, cost: float, few: bool) -> list[str]:
        asked.append((promise, cost, few))
        return ["a", "b"]

    monkeypatch.setattr(region_feeding, "bindings", bindings)
    made = feeding()
    made._cost = 2.5
    assert made.sets(Parity.CLOSE, few=True) == [("a", 0), ("b", 1)] and asked == [(Parity.CLOSE, 2.5, True)]
