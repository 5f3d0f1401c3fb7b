"""Which points are tried so that each dim has each size, for a model that accepts the points of a predicate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from surgery.verification.inputs.cover import Cover, CoverBudget, Point, sizes, stands_alone
from surgery.verification.inputs.dims import UNKNOWN, Dims, Implied

TWO = Dims(("n", "w"))


def _implied(**known: Any) -> Implied:
    return Implied(**{**UNKNOWN, **known})


def _tried(
    dims: Dims,
    accepts: Callable[[Point], bool] = lambda point: True,
    *,
    base: Point | None = None,
    further: tuple[Point, ...] = (),
    ties: dict[str, dict[str, int]] | None = None,
    joint: Any = (),
    pairs: bool = False,
    **known: Any,
) -> tuple[list[tuple[int, ...]], Cover]:
    """Return the points that are tried, with the extents in the order of the dims, and the search."""
    asked: list[Point] = []

    def probe(point: Point) -> bool:
        asked.append(point)
        return accepts(point)

    tied = dims.tied(ties) if ties else dims.joined(joint)
    cover = Cover(dims, tied, _implied(**known), [base or dims.point(0), *further], probe)
    cover.run(pairs)
    return [tuple(point[name] for name in dims.names) for point in asked], cover


@pytest.mark.parametrize(
    ("accepts", "expected"),
    [
        # Not both are 1 at once; 2 and 3 are those of the base.
        (lambda n, w: True, [(1, 2), (5, 1)]),
        # By itself, and then with the other dim at 1.
        (lambda n, w: n != 1 or w == 1, [(1, 2), (1, 3), (1, 1), (2, 2), (5, 3)]),
        (lambda n, w: w > 1, [(1, 2), (5, 1), (5, 3), (2, 1), (1, 1)]),
        # Then at other points that were accepted, but not at the base again.
        (lambda n, w: w > 1 or n == 5, [(1, 2), (5, 1)]),
        (lambda n, w: (n, w) in [(2, 2), (5, 2)], [(1, 2), (1, 3), (1, 1), (2, 2), (5, 1), (5, 3), (5, 2), (2, 1)]),
    ],
    ids=["all", "one needs one", "never one", "one of two", "only with another"],
)
def test_sizes_are_tried_together_and_split_where_they_are_rejected(
    accepts: Callable[[int, int], bool], expected: list[tuple[int, int]]
) -> None:
    tried, _ = _tried(TWO, lambda point: accepts(point["n"], point["w"]))
    assert tried == expected


def test_four_sizes_are_split_in_halves() -> None:
    tried, _ = _tried(Dims(tuple("abcd"), dict.fromkeys("abcd", (2, 4))), lambda point: point["d"] == 2)
    assert tried == [(4, 4, 4, 4), (4, 4, 2, 2), (2, 2, 4, 4), (2, 2, 4, 2), (2, 2, 2, 4), (4, 4, 2, 4)]


def test_the_users_sizes_replace_the_usual_ones() -> None:
    dims = Dims(("n", "w"), {"n": (4, 7)})
    found = sizes(dims, {"n": [9], "w": [9, 2]}, [{"w": 11}, {"w": 12}, {"n": 3}, {"n": 4, "w": 40}])
    assert found == [("n", 4), ("n", 7), *(("w", extent) for extent in (11, 1, 12, 2, 3, 9))]
    tried, _ = _tried(dims)
    assert tried == [(7, 2), (4, 1)]


def test_any_odd_extent_is_as_good_as_another() -> None:
    assert _tried(Dims(("n",)), base={"n": 4})[0] == [(1,), (2,), (5,)]
    assert _tried(Dims(("n",)), base={"n": 4}, further=({"n": 7},))[0] == [(1,), (2,)]
    assert _tried(Dims(("n",)), base={"n": 4}, further=({"n": 1}, {"n": 3}))[0] == [(2,)]
    # But not for the sizes that a user wants.
    assert _tried(Dims(("n",), {"n": (5, 9)}), base={"n": 9})[0] == [(5,)]


def test_a_dim_that_follows_moves_with_those_that_it_follows_from() -> None:
    ties = {"w": {"n": 1, "": 1}}
    assert _tried(TWO, base={"n": 2, "w": 3}, ties=ties)[0] == [(1, 2), (5, 6)]
    # It can be broadcast to the others where it is 1.
    assert _tried(TWO, base={"n": 2, "w": 3}, ties=ties, broadcast=["w"])[0] == [(1, 2), (5, 6), (2, 1)]
    # A base in which it does not follow shows that it does not.
    assert _tried(TWO, base={"n": 2, "w": 4}, ties=ties)[0] == [(1, 2), (5, 3), (2, 1)]
    # A dim that follows from a constant only is tried at that, and each other size.
    assert _tried(TWO, base={"n": 2, "w": 4}, ties={"w": {"": 4}})[0] == [(1, 4), (5, 4), (2, 1), (2, 2), (2, 3)]


def test_dims_that_move_together_have_only_the_sizes_of_their_points() -> None:
    joint: Any = [{"names": ["n", "w"], "points": [{"n": 2, "w": 3}, {"n": 5, "w": 1}], "demands": []}]
    assert _tried(TWO, joint=joint)[0] == [(5, 1)]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        # A long size next to a constant comes first, with the other dims at 1; a short one with all others.
        ([{"w": 33}], [(1, 33), (5, 2), (2, 1)]),
        ([{"w": 32}], [(1, 1), (5, 2), (2, 32)]),
        # Dims that are compared together, unless a point has both.
        ([{"n": 4, "w": 6}], [(1, 2), (5, 1), (4, 6)]),
        ([{"n": 5, "w": 1}], [(1, 2), (5, 1)]),
    ],
)
def test_sizes_on_either_side_of_a_constant(compared: list[Point], expected: list[tuple[int, int]]) -> None:
    assert _tried(TWO, compared=compared)[0] == expected


def test_the_users_sizes_are_not_moved_next_to_constants() -> None:
    dims = Dims(("n", "w"), {"n": (2,)})
    assert _tried(dims, compared=[{"n": 4, "w": 6}, {"n": 40}])[0] == [(2, 1), (2, 2)]
    assert _tried(dims, compared=[{"w": 40}])[0] == [(2, 40), (2, 1), (2, 2)]


def test_dims_are_one_where_those_that_they_meet_are_larger() -> None:
    assert stands_alone({"n": 1, "w": 2}, "n", ["w"]) and stands_alone({"n": 1, "k": 3}, "n", ["w", "k"])
    assert not stands_alone({"n": 2, "w": 3}, "n", ["w"]) and not stands_alone({"n": 1, "w": 1}, "n", ["w"])
    three = Dims(("n", "w", "k"))
    tried, cover = _tried(three, meets=[["n", "w"], ["k", "w"]])
    # Both stand alone at the first of the usual points.
    assert tried == [(1, 2, 1), (5, 1, 2)]
    assert cover.meets == [("n", ["w"]), ("k", ["w"])]
    # Those that do not meet are 1 at once.
    dims = Dims(("n", "w", "k"), {"n": (2, 1), "w": (2, 1), "k": (2, 1)})
    assert _tried(dims, meets=[["n", "w"]])[1].meets == []


def test_dims_that_meet_are_one_in_turn() -> None:
    def only(*points: tuple[int, int]) -> Callable[[Point], bool]:
        return lambda point: (point["n"], point["w"]) in points

    meets = [["n", "w"], ["w", "n"]]
    base = {"n": 4, "w": 4}
    ties = {"w": {"n": 1}}
    # They are equal elsewhere, and one of them may be 1.
    tried, _ = _tried(TWO, only((1, 1), (2, 2), (5, 5), (1, 4), (4, 1)), base=base, ties=ties, meets=meets)
    assert tried == [(1, 1), (2, 2), (5, 5), (1, 4), (4, 1)]
    # A third dim follows from the one that is 1, and the one that it meets stays.
    three = Dims(("n", "w", "k"))
    tried, _ = _tried(
        three,
        lambda point: point["k"] == 2 * point["n"] and point["w"] in (4, point["n"]),
        base={"n": 4, "w": 4, "k": 8},
        ties={"w": {"n": 1}, "k": {"n": 2}},
        meets=[["n", "w"]],
    )
    assert tried == [(1, 1, 2), (2, 2, 4), (5, 5, 10), (1, 4, 8), (1, 4, 2)]


def test_pairs_of_sizes() -> None:
    tried, _ = _tried(TWO, pairs=True)
    assert tried == [(1, 2), (5, 1), (1, 1), (1, 3), (2, 1), (2, 2), (5, 2), (5, 3)]
    # What is rejected together is not tried again.
    tried, _ = _tried(TWO, lambda point: (point["n"], point["w"]) != (1, 1), pairs=True)
    assert tried == [(1, 2), (5, 1), (1, 1), (1, 3), (2, 1), (2, 2), (5, 2), (5, 3)]
    # No pairs of one dim, of dims that follow, of sizes next to a constant, and of more than six dims.
    assert len(_tried(Dims(("n",)), pairs=True)[0]) == 2
    assert len(_tried(TWO, ties={"w": {"n": 1, "": 1}}, pairs=True)[0]) == 2
    assert not [point for point in _tried(TWO, compared=[{"w": 9}], pairs=True)[0][4:] if point[1] == 9]
    for count, more in ((6, True), (7, False)):
        dims = Dims(tuple("abcdefg"[:count]), dict.fromkeys("abcdefg", (2, 3)))
        assert (len(_tried(dims, pairs=True)[0]) > len(_tried(dims)[0])) is more


def test_few_points_have_all_pairs_of_three_dims() -> None:
    dims = Dims(tuple("abc"), dict.fromkeys("abc", (2, 3, 5)))
    _, cover = _tried(dims, pairs=True)
    for first, second in combinations("abc", 2):
        assert {(point[first], point[second]) for point in cover.accepted} == {
            (n, m) for n in (2, 3, 5) for m in (2, 3, 5)
        }
    # Nine points are the fewest for three dims with three sizes.
    assert len(cover.accepted) <= 11


def test_a_budget_is_spent() -> None:
    budget = CoverBudget(2, 1, 5.0)
    assert budget.spend(4.0) and budget.spend(4.0) and not budget.spend(0.0)
    assert (budget.probes, budget.seconds) == (0, -3.0)
    assert not CoverBudget(1, 0, 5.0).spend(1.0)
    assert CoverBudget(1, 1, 0.5).spend(1.0) and not CoverBudget(1, 1, 0.0).spend(1.0)
