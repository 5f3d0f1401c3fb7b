"""In which order points are tried, for models that accept the points of a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import pytest

from surgery.base.operators.distributions import ORDINARY
from surgery.base.operators.use import Index
from surgery.model.graph import text
from surgery.verification.inputs import search
from surgery.verification.inputs.dims import UNKNOWN, Implied
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL, choose, further
from surgery.verification.inputs.search import Found, _leaves_positions, reflected_too_far, reflecting
from surgery.verification.inputs.spec import InputsSpec

Point = tuple[int, ...]
TWO = "g (float[N,M] x) => (float[N,M] y) { y = Relu(x) }"
THREE = "g (float[N,M,K] x) => (float[N,M,K] y) { y = Relu(x) }"


def _search(
    body: str,
    accepts: Callable[..., bool],
    *,
    cost: Callable[[Binding], float] = lambda _: TRIVIAL,
    shapes: Any = lambda _: {},
    dims: Any = None,
    **options: bool,
) -> tuple[list[Point], list[Binding], Found]:
    """Return the points that are tried, the bindings, and what was found."""
    return _known(body, UNKNOWN, accepts, cost=cost, shapes=shapes, dims=dims, **options)


def _known(
    body: str, known: Implied, accepts: Callable[..., bool], *, cost: Any, shapes: Any, dims: Any, **options: bool
) -> tuple[list[Point], list[Binding], Found]:
    plan = FeedPlan(text.parse(body), InputsSpec(dims=dims or {}))
    found, tried = Found(), []

    def probe(binding: Binding) -> str | None:
        tried.append(binding)
        return None if accepts(*binding.dims.values()) else "no"

    search.search(plan, 7, probe, lambda: known, cost, shapes, found, **{"covers": False, **options})
    return [tuple(binding.dims.values()) for binding in tried], tried, found


def _tried(body: str, accepts: Callable[..., bool], **options: Any) -> list[Point]:
    return _search(body, accepts, **options)[0]


def test_two_points_then_one_with_ones_and_a_large_one() -> None:
    assert _tried(TWO, lambda *_: True) == [(2, 3), (1, 4), (2, 1), (2, 37)]
    assert _tried(TWO, lambda *_: True, once=True) == [(2, 3)]
    # A run that is not trivial is not tried with ones, and an expensive one not at large sizes.
    assert _tried(TWO, lambda *_: True, cost=lambda _: CHEAP) == [(2, 3), (1, 4), (2, 37)]
    assert _tried(TWO, lambda *_: True, cost=lambda _: 1.0) == [(2, 3), (1, 4)]
    assert _tried("g (float[2] x) => (float[2] y) { y = Relu(x) }", lambda: True) == [()]


def test_the_users_sizes_are_tried_and_no_others() -> None:
    assert _tried(TWO, lambda *_: True, dims={"N": (4, 5), "M": (6, 7)}) == [(4, 6), (5, 7)]
    assert _tried(TWO, lambda n, m: m == 6, dims={"M": (6, 7)}) == [(2, 6), (1, 7), (1, 6), (2, 7)]


def test_dims_that_cannot_move_at_all_once() -> None:
    # One dim has a single size, and the other one moves by itself.
    assert _tried(TWO, lambda *_: True, dims={"N": (4,), "M": (6, 7)})[:2] == [(4, 6), (4, 7)]
    assert _tried(TWO, lambda *_: True, dims={"N": (4,), "M": (6,)}) == [(4, 6)]


COUNTED = "g (float[N,M] x, int64[2] i) => (float[N,M] y, int64[2] j) { y = Relu(x) j = Neg(i) }"


def test_simpler_integers_are_tried_if_no_dim_moves() -> None:
    def search_for(*profiles: str) -> tuple[list[tuple[str, Point]], list[Binding]]:
        found, tried = Found(), []

        def probe(binding: Binding) -> str | None:
            tried.append((binding.profile, tuple(binding.dims.values())))
            return None if tried[-1][1] == (2, 3) or binding.profile in profiles else "no"

        plan = FeedPlan(text.parse(COUNTED), InputsSpec())
        search.search(plan, 0, probe, lambda: UNKNOWN, lambda _: TRIVIAL, lambda _: {}, found, covers=False)
        return tried, found.accepted

    tried, accepted = search_for("ones", "zeros")
    others = [profile for profile, _ in tried if profile != "legal"]
    assert others[:2] == ["binary", "ones"] and "twos" not in others
    assert [binding.profile for binding in accepted[:2]] == ["legal", "ones"]
    # Without any that helps, the usual ones are used further.
    tried, accepted = search_for()
    moved = [profile for profile, point in tried if profile != "legal"]
    assert moved == ["binary", "ones", "twos", "zeros", "sixteens"] and tried[-1] == ("legal", (2, 37))


IMAGES = "g (float[N,3,H,W] x, float[8,3,3,3] w) => (float[N,8,I,J] y) { y = Conv(x, w) }"


@pytest.mark.parametrize(
    ("cost", "shorter", "first"),
    [
        (TRIVIAL, 2, (2, 45, 37)),
        (TRIVIAL * 1.01, 2, (2, 15, 13)),
        # Too few positions are left, or the shapes are not known.
        (TRIVIAL * 1.01, 9, (2, 45, 37)),
        (TRIVIAL * 1.01, None, (2, 45, 37)),
    ],
)
def test_smaller_images_are_tried_where_a_run_takes_long(cost: float, shorter: int | None, first: Point) -> None:
    def shapes(binding: Binding) -> dict[str, list[int]]:
        n, h, w = binding.dims.values()
        return {} if shorter is None else {"x": [n, 3, h, w], "y": [n, 8, h - shorter, w - shorter]}

    assert _tried(IMAGES, lambda *_: True, cost=lambda _: cost, shapes=shapes)[0] == first
    # But not if the model rejects them.
    assert _tried(IMAGES, lambda n, h, w: h > 15, cost=lambda _: cost, shapes=shapes, once=True)[-1] == (2, 45, 37)


def test_dims_move_one_by_one_where_all_together_are_rejected() -> None:
    # Not at the second point; the first at its other sizes until one is accepted.
    assert _tried(TWO, lambda n, m: m == 3) == [(2, 3), (1, 4), (1, 3), (2, 4), (2, 6), (2, 1), (2, 37)]
    assert _tried(TWO, lambda n, m: (n, m) in [(2, 3), (4, 3), (2, 6)]) == [
        (2, 3), (1, 4), (1, 3), (3, 3), (4, 3), (2, 4), (2, 6), (4, 6), (4, 3), (2, 6), (2, 1), (2, 37),
    ]  # fmt: skip


def test_dims_move_together_by_the_same_amount() -> None:
    stuck = [(2, 3), (1, 4), (1, 3), (3, 3), (4, 3), (2, 4), (2, 6), (2, 1)]
    steps = [(3, 4), (4, 5), (6, 7), (34, 35)]
    for last in range(4):
        found = _tried(TWO, lambda n, m, last=last: (n, m) in [(2, 3), steps[last]])
        assert found[: 8 + last + 1] == stuck + steps[: last + 1]
        assert not {*steps[last + 1 :]} & {*found}
    # All three, after each two of them.
    found = _tried(THREE, lambda n, m, k: m == n + 1 and k == n + 3)
    pairs = [(3, 4, 5), (4, 5, 5), (6, 7, 5), (34, 35, 5), (3, 3, 6), (4, 3, 7), (6, 3, 9), (34, 3, 37)]
    pairs += [(2, 4, 6), (2, 5, 7), (2, 7, 9), (2, 35, 37)]
    start = found.index(pairs[0])
    assert found[start : start + 13] == [*pairs, (3, 4, 6)]


def test_a_dim_moves_where_another_one_is_one() -> None:
    tried = _tried(TWO, lambda n, m: (n, m) == (2, 3) or m == 1)
    assert tried == [(2, 3), (1, 4), (1, 3), (3, 3), (4, 3), (2, 4), (2, 6), (2, 1), (1, 1), (2, 37)]


def test_what_the_graph_implies_is_tried_after_the_first_point() -> None:
    known: Implied = {**UNKNOWN, "ties": {"M": {"N": 2}}}
    options: Any = {"cost": lambda _: TRIVIAL, "shapes": lambda _: {}, "dims": None}
    tried, _, found = _known(TWO, known, lambda n, m: m == 2 * n, **options)
    assert tried == [(2, 3), (2, 4), (1, 2)] and [*found.accepted[1].dims.values()] == [1, 2]
    known = {**UNKNOWN, "ties": {"N": {"": 2}, "M": {"": 3}}}
    assert _known(TWO, known, lambda n, m: (n, m) == (2, 3), **options)[0] == [(2, 3), (1, 4)]
    # Sizes are covered with the dims that follow, unless none was rejected.
    known = {**UNKNOWN, "ties": {"M": {"N": 2}}, "meets": [["N", "M"]], "compared": [{"N": 9}]}
    tried, _, found = _known(TWO, known, lambda n, m: m == 2 * n, **options, covers=True)
    assert (9, 18) in tried and found.meets == [("N", ["M"])] and found.compared == [{"N": 9}]
    tried, _, found = _known(TWO, known, lambda *_: True, **options, covers=True)
    assert not found.meets and (9, 18) not in tried
    # Both starting points fit, and yet the second dim follows.
    known = {**UNKNOWN, "ties": {"M": {"N": 1, "": 1}}, "admits": {"N": [2, 6]}}
    known["joint"] = [{"names": ["N"], "points": [{"N": 6}], "demands": ["N is six"]}]
    tried, _, found = _known(TWO, known, lambda n, m: m == n + 1, **options)
    assert tried[:3] == [(2, 3), (1, 4), (6, 7)] and found.demands == ["N is six"]


def test_an_expensive_model_is_tried_with_the_data_of_its_second_set() -> None:
    _, tried, found = _search(TWO, lambda *_: True, cost=lambda _: CHEAP * 1.01)
    assert [binding.character for binding in tried] == ["normal", "edges"]
    assert [binding.character for binding in found.accepted] == ["normal", "normal"]
    _, tried, _ = _search(TWO, lambda *_: True, cost=lambda _: CHEAP)
    assert {binding.character for binding in tried} == {"normal"}


def test_sizes_are_covered_and_the_points_are_few_for_a_dear_model() -> None:
    many: Any = {"dims": dict.fromkeys("NMK", range(2, 12))}
    for cost, most, kept in ((TRIVIAL, 64, 14), (TRIVIAL * 1.01, 24, 5), (1.0, 4, 1)):
        many["cost"] = lambda _, cost=cost: cost
        _, _, found = _search(THREE, lambda *_: True, covers=True, **many)
        _, _, usual = _search(THREE, lambda *_: True, **many)
        assert len(found.accepted) - len(usual.accepted) == kept
        rejecting = [
            _tried(THREE, lambda n, m, k: (n, m, k) in [(2, 2, 2), (3, 3, 3)], covers=covers, **many)
            for covers in (True, False)
        ]
        assert len(rejecting[0]) - len(rejecting[1]) == most
    assert found.meets == [] and found.compared == []


def test_the_size_of_a_run_is_that_of_the_larger_of_the_first_two() -> None:
    bindings = [Binding({"N": n}) for n in (1, 2, 3)]
    sizes = {bindings[0].dim_key: 5, bindings[1].dim_key: 7, bindings[2].dim_key: 9}
    assert Found(accepted=bindings, sizes=sizes).size == 7
    assert Found(accepted=bindings, sizes={bindings[0].dim_key: 5}).size == 5
    assert Found(sizes=sizes).size == 0


IMAGE = [4, 3, 20, 20]


@pytest.mark.parametrize(
    ("body", "first", "second", "leaves"),
    [
        ("y = Conv(x, w)", {"y": [4, 8, 5, 6]}, {"y": [4, 8, 7, 5]}, True),
        ("y = Conv(x, w)", {"y": [4, 8, 4, 6]}, {"y": [4, 8, 7, 5]}, False),
        ("y = Conv(x, w)", {"y": [4, 8, 5, 6]}, {"y": [4, 8, 7, 4]}, False),
        # The axis that stays may be short.
        ("y = Conv(x, w)", {"x": [4, 3, 20, 9], "y": [4, 8, 5, 1]}, {"x": [4, 3, 30, 9], "y": [4, 8, 9, 1]}, True),
        ("y = Conv(x, w)", {"y": [4, 8, 5]}, {"y": [4, 8, 7, 5]}, False),
        ("y = Conv(x, w)", {}, {"y": [4, 8, 7, 5]}, False),
        # Windows over what does not differ, or is not known.
        ("y = Conv(x, w)", {"x": IMAGE, "y": [4, 8, 9, 9]}, {"x": IMAGE, "y": [4, 8, 9, 9]}, False),
        ("y = Conv(z, w)", {"y": [4, 8, 9, 9]}, {"y": [4, 8, 9, 9]}, False),
        ("y = Conv(x, w)", {"x": [4, 3, 20], "y": [4, 8, 9, 9]}, {"y": [4, 8, 9, 9]}, False),
        ("y = GlobalMaxPool(x)", {"y": [4, 8, 1, 1]}, {"y": [4, 8, 1, 1]}, True),
        ("y = Relu(x)", {"y": [4, 8, 1, 1]}, {"y": [4, 8, 1, 1]}, True),
        ("v = Relu(x) y = Conv(x, w)", {"y": [4, 8, 1, 1]}, {"y": [4, 8, 9, 9]}, False),
    ],
)
def test_windows_with_enough_positions(
    body: str, first: Mapping[str, Sequence[int]], second: Mapping[str, Sequence[int]], leaves: bool
) -> None:
    index = Index(onnx.ModelProto(graph=onnx.GraphProto(node=text.parse_nodes(body))))
    assert _leaves_positions(index, {"x": IMAGE, **first}, {"x": [4, 3, 30, 30], **second}) is leaves


PADS = {
    "too far": ('y = Pad<mode = "reflect">(x, p)', "<int64[4] p = {0, 3, 0, 5}>", [5, 5]),
    "too far on the other side": ('y = Pad<mode = "reflect">(x, p)', "<int64[4] p = {0, 5, 0, 3}>", [5, 5]),
    "far": ('y = Pad<mode = "reflect">(x, p)', "<int64[4] p = {0, 4, 0, 4}>", None),
    "along an axis": ('y = Pad<mode = "reflect">(x, p, , a)', "<int64[2] p = {0, 2}, int64[1] a = {0}>", [2, 2]),
    "along another axis": ('y = Pad<mode = "reflect">(x, p, , a)', "<int64[2] p = {0, 2}, int64[1] a = {1}>", None),
    "along unknown axes": ('y = Pad<mode = "reflect">(x, p, , n)', "<int64[2] p = {0, 9}>", None),
    "by an unknown number": ('y = Pad<mode = "reflect">(x, n)', "", None),
    "of some axes": ('y = Pad<mode = "reflect">(x, p)', "<int64[2] p = {9, 9}>", None),
    "as an attribute": ('y = Pad<mode = "reflect", pads = [2, 0, 0, 0]>(x)', "", [2, 2]),
    "with zeros": ("y = Pad(x, p)", "<int64[4] p = {9, 9, 9, 9}>", None),
    "at the edge": ('y = Pad<mode = "edge">(x, p)', "<int64[4] p = {9, 9, 9, 9}>", None),
    "of a value of unknown shape": ('y = Pad<mode = "reflect">(v, p)', "<int64[4] p = {9, 9, 9, 9}>", None),
    "of another domain": ('y = com.microsoft.Pad<mode = "reflect">(x, p)', "<int64[4] p = {9, 9, 9, 9}>", None),
}


@pytest.mark.parametrize("what", PADS)
def test_reflections(what: str) -> None:
    body, constants, expected = PADS[what]
    index = Index(text.parse(f"g (float[2,5] x, int64[1] n, float v) => (float y) {constants} {{ {body} }}"))
    found = reflected_too_far(index, reflecting(index), {"x": [2, 5]})
    assert found == (
        expected and f"Pad 'y': an axis of {expected[0]} is reflected by {expected[1]}".replace("None", "")
    )


def test_more_sets_have_other_seeds() -> None:
    binding = Binding({"N": 2}, seed=10)
    usual = [*((character, 14) for character in ORDINARY), ("normal", 15), ("normal", 16), ("normal", 17)]
    found = further([binding, Binding({"N": 3})], special=False)
    assert [(one.character, one.seed) for one in found] == usual and {one.dims["N"] for one in found} == {2}
    assert [(one.character, one.seed) for one in further([binding], special=True)] == [*usual, ("special", 10)]


def test_a_trivial_model_gets_28_sets() -> None:
    points = [Binding({"N": n}, seed=10) for n in (2, 1)]
    found = choose(points, TRIVIAL)
    assert len(found) == 28 and {one.seed for one in found} == {10, 11, 12, 13}
    # Each kind in turn at either point.
    assert [(one.character, one.dims["N"]) for one in found[7:21:7]] == [(ORDINARY[0], 1), (ORDINARY[0], 2)]
    assert len(choose(points, TRIVIAL * 1.01)) == 7 and len(choose(points, CHEAP * 1.01)) == 2
    assert choose([], TRIVIAL) == []
