"""Which variants of a region are run, in which groups its sets run, and what running it costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY, NEVER_FINITE, Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.regions import region_cost, region_variants, run_groups
from surgery.verification.regions.region_cost import cost, seconds
from surgery.verification.regions.region_values import Form, Point
from surgery.verification.regions.region_variants import variants
from surgery.verification.regions.regions import Region
from surgery.verification.regions.run_groups import run_in_groups
from surgery.verification.regions.value_shapes import follow

FLOAT = np.dtype(np.float32)
SELF: Any = SimpleNamespace(name="self")


@pytest.mark.parametrize(
    ("larger", "turning", "opened", "wide", "expected"),
    [
        ("", None, None, "", []),
        ("L", None, None, "", ["L self sharp"]),
        ("", "T", None, "", ["P T sharp", "P T open"]),
        ("L", "T", None, "", ["L T sharp", "P T open", "L T open"]),
        ("", None, "O", "", ["P O open"]),
        ("L", None, "O", "W", ["L self sharp", "P O open", "L O open", "W O open"]),
        ("L", "T", "O", "W", ["L T sharp", "P T open", "L T open", "P O open", "L O open", "W O open"]),
        ("", "T", None, "W", ["P T sharp", "P T open", "W T open"]),
        ("", None, None, "W", ["W self"]),
    ],
)
def test_a_region_with_empty_values_is_run_at_other_sizes_and_with_elements(
    monkeypatch: pytest.MonkeyPatch, larger: str, turning: Any, opened: Any, wide: str, expected: list[str]
) -> None:
    def made(name: Any) -> Any:
        return None if name is None else SimpleNamespace(name=name)

    monkeypatch.setattr(region_variants, "enlarged", lambda region, points, ones=False: wide if ones else larger)
    monkeypatch.setattr(region_variants, "with_turns", lambda region: made(turning))
    # What has turns is opened, too.
    monkeypatch.setattr(
        region_variants, "with_elements", lambda region: made(opened) if region.name == (turning or "self") else None
    )
    found = [
        f"{one.points} {one.region.name}{' sharp' * one.is_sharp}{' open' * one.is_open}"  # type: ignore[attr-defined]
        for one in variants(ALWAYS_EMPTY, SELF, "P")  # type: ignore[arg-type]
    ]
    assert found == expected


def test_numbers_that_are_never_finite_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_variants, "with_ordinary_numbers", lambda region: ["one", "two"])
    found = list(variants(NEVER_FINITE, SELF, "P"))  # type: ignore[arg-type]
    assert [(one.points, one.region, one.is_sharp, one.is_open) for one in found] == [
        ("P", "one", False, False),
        ("P", "two", False, False),
    ]


# Groups


class Runs:
    """An engine that runs at most so many sets at a time, and a source of sets that are as large as their number."""

    def __init__(self, most: int = 9) -> None:
        self.most = most
        self.asked: list[list[int]] = []

    def feed(self, binding: Binding, number: int) -> dict[str, Any]:
        return {"x": np.zeros(number, np.uint8)}

    def run_each(self, skeletons: list[bytes], feeds: list[Any], room: int) -> list[RunOutcome]:
        assert skeletons == [b"before", b"after"] and room == 100
        self.asked.append([feed["x"].size for feed in feeds])
        return [RunOutcome([{}] * min(self.most, len(feeds))), RunOutcome()]


@pytest.mark.parametrize(
    ("sizes", "most", "asked", "groups"),
    [
        ([10, 20, 30], 9, [[10, 20, 30]], [[10, 20, 30]]),
        # A group ends with the set that fills it, which may take more.
        ([50, 50, 10], 9, [[50, 50], [10]], [[50, 50], [10]]),
        ([99, 500, 10], 9, [[99, 500], [10]], [[99, 500], [10]]),
        ([500, 10, 20], 9, [[500], [10, 20]], [[500], [10, 20]]),
        # Those whose outputs had no room are run with the next.
        ([10, 20, 30], 1, [[10, 20, 30], [20, 30], [30]], [[10], [20], [30]]),
        ([40, 50, 60], 1, [[40, 50, 60], [50, 60], [60]], [[40], [50], [60]]),
        # Nothing runs: all are done.
        ([10, 20], 0, [[10, 20]], [[10, 20]]),
        ([], 9, [], []),
    ],
)
def test_sets_run_in_groups(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], most: int, asked: list[list[int]], groups: list[list[int]]
) -> None:
    monkeypatch.setattr(run_groups, "_ROOM", 100)
    runs: Any = Runs(most)
    found = []
    for group in run_in_groups(runs, [b"before", b"after"], runs, [(Binding(), size) for size in sizes]):
        found.append([feed["x"].size for _, feed in group.sets])
        assert len(group.outcomes) == 2
        last = group
    assert (runs.asked, found) == (asked, groups)
    assert not sizes or (last.sets, last.outcomes) == ((), ())


def test_sets_of_the_same_size_run_together() -> None:
    runs: Any = Runs()
    chosen = [(Binding({"N": n}, seed=seed), seed) for seed, n in enumerate((5, 2, 5, 3, 2))]
    (group,) = [
        [binding.seed for binding, _ in one.sets]
        for one in run_in_groups(SimpleNamespace(run_each=lambda *_, room: [RunOutcome()]), [], runs, chosen)  # type: ignore[arg-type]
    ]
    assert group == [0, 2, 1, 4, 3]


# Cost


def region(body: str, given: str = "x", constants: str = "") -> Region:
    piece = text.parse(f"g (float[N] x, float[N] z) => (float[N] y) <{constants}> {{ {body} }}", opset=18)
    return Region(("y",), ("y",), tuple(given), piece, piece, 1)


def point(n: int = 2, known: str = "xz", dtype: Any = FLOAT, z: int | None = None) -> Point:
    forms = {name: Form(dtype, (n if name == "x" or z is None else z,)) for name in known}
    return Point({"N": n}, [Run(Binding({"N": n}), {}, {})], forms, [{}])


WEIGHTS = "float[65] c = {" + ", ".join(["1"] * 65) + "}"


@pytest.mark.parametrize(
    ("regions", "points", "calls", "twins"),
    [
        ([region("y = Relu(x)")], [point()], ["x"], 0),
        # The form of z is not known at one of the points.
        ([region("y = Relu(x)"), region("y = Relu(z)", "z")], [point(), point(3, "x")], ["x"], 0),
        # The same again, and another operator, other weights, another size.
        ([region("y = Relu(x)"), region("y = Relu(z)", "z")], [point()], ["x"], 1),
        ([region("y = Relu(x)"), region("y = Neg(z)", "z")], [point()], ["x", "z"], 0),
        ([region("y = Relu(x)"), region("y = Relu(z)", "z")], [point(z=3)], ["x", "z few"], 0),
        ([region("y = Add(x, c)", constants=WEIGHTS)] * 3, [point()], ["x", "x few", "x few"], 0),
    ],
)
def test_similar_regions_cost_less(
    monkeypatch: pytest.MonkeyPatch, regions: list[Region], points: list[Point], calls: list[str], twins: int
) -> None:
    asked: list[str] = []

    def one(region: Region, points: Any, promise: Parity, few: bool) -> float:
        asked.append(region.given[0] + " few" * few)
        return 10.0

    monkeypatch.setattr(region_cost, "seconds", one)
    found = cost(regions, points, Parity.EXACT)
    assert found == pytest.approx(10.0 * len(calls) + twins * region_cost._TWIN)
    # What is known is not estimated again.
    assert asked == list(dict.fromkeys(calls))


@pytest.mark.parametrize(
    ("body", "promise", "few", "runs"),
    [
        ("y = Relu(x)", Parity.EXACT, False, 5),
        ("y = Relu(x)", Parity.EXACT, True, 2),
        ("y = Relu(x)", Parity.CLOSE, True, 2),
        ("y = Relu(x)", Parity.CLOSE, False, 12),
        ("y = Conv(x, z)", Parity.EXACT, False, 5),
        ("y = Conv(x, z)", Parity.CLOSE, False, 60),
        ("y = ConvTranspose(x, z)", Parity.CLOSE, True, 60),
    ],
)
def test_a_region_costs_its_runs_and_elements(
    monkeypatch: pytest.MonkeyPatch, body: str, promise: Parity, few: bool, runs: int
) -> None:
    plan = SimpleNamespace(cost=lambda shapes, known: {"[2]": 0.5}[str(shapes["x"])], listing=3.0)
    monkeypatch.setattr(region_cost, "FeedPlan", lambda piece, inputs: plan)
    chosen = [Binding({"N": n}) for n in (2, 3, 3)]
    monkeypatch.setattr(
        region_cost, "bindings", lambda *given, few: chosen if given[3] == 0.5 and few is expected_few else []
    )
    expected_few = few
    found = seconds(region(body), [point(2), point(3)], promise, few=few)
    assert found == pytest.approx(region_cost._REGION + 3.0 + (2 + 3 + 3) * region_cost._ELEMENT + 3 * 0.5 * runs)


# Shapes


def model(body: str, more: str = "") -> bytes:
    return text.parse(f"g (float[N, M] x) => (float[A, B] y) {more} {{ {body} }}", opset=18).SerializeToString()


@pytest.mark.parametrize(
    ("body", "shapes", "found"),
    [
        ("y = Relu(x)", [[2, 3]], [[2, 3]]),
        ("y = Relu(x)", [[2, 3], [5, 3]], [[2, 3], [5, 3]]),
        ("y = Transpose<perm = [1, 0]>(x)", [[2, 3], [5, 4]], [[3, 2], [4, 5]]),
        # Extents that are equal for one choice only are different symbols.
        ("y = Transpose<perm = [1, 0]>(x)", [[2, 2], [2, 5]], [[2, 2], [5, 2]]),
        ("y = Concat<axis = 0>(x, x)", [[2, 3], [7, 3]], [[4, 3], [14, 3]]),
        # A symbol is at least 1.
        ("y = Relu(x)", [[0, 3], [5, 3]], [[0, 3], [5, 3]]),
        ("y = Relu(x)", [[2, 3], [5, 0], [4, 4]], [[2, 3], [5, 0], [4, 4]]),
        ("y = Relu(x)", [[0, 3]], [[0, 3]]),
    ],
)
def test_shapes_are_inferred_for_all_choices_at_once(
    body: str, shapes: list[list[int]], found: list[list[int]]
) -> None:
    results = follow(model(body), [{"x": shape} for shape in shapes])
    assert [one["y"] for one in results] == [(onnx.TensorProto.FLOAT, shape) for shape in found]


def test_declared_shapes_inside_are_bound_for_each_choice() -> None:
    proto = text.parse("g (float[N] x) => (float[N] y) <float[N] h> { h = Own.f(x) y = Relu(h) }", opset=18)
    results = follow(proto.SerializeToString(), [{"x": [2]}, {"x": [5]}])
    assert [one["x"] for one in results] == [(1, [2]), (1, [5])] and [one["y"] for one in results] == [
        (1, [2]),
        (1, [5]),
    ]
