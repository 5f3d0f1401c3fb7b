"""The points at which dims are tried, and guesses about dims that the graph does not tie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from surgery.verification.inputs.alike import guesses
from surgery.verification.inputs.dims import Dims, Joint, calculate, evaluate
from surgery.verification.inputs.input_port import InputPort

IMAGES = Dims(("a", "b", "c", "d"), wishes={"b": (7, 9)}, spatial=("c", "d"))
FIVE = Dims(("a", "b", "c", "d", "e"))


def _rows(points: Iterable[Mapping[str, int]]) -> list[tuple[int, ...]]:
    return [tuple(point.values()) for point in points]


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        (Dims(()), [()]),
        (Dims(("n",)), [(2,), (1,), (4,), (32,), (1601,), (16001,), (64,), (224,), (16,), (8,), (128,)]),
        (Dims(("n",), wishes={"n": (6, 8)}), [(6,), (8,)]),
        (
            Dims(("n", "w")),
            [(2, 3), (1, 4), (4, 4), (1, 1), (1, 3), (2, 1), (2, 32), (2, 64), (32, 32)]
            + [(2, 1601), (2, 16001), (1601, 3), (16001, 3), (2, 224), (2, 16), (2, 8), (2, 128), (1, 64), (1, 224)]
            + [(extent, extent) for extent in (64, 224, 16, 8, 128)]
            + [(first, extent) for extent in (512, 576, 1024, 160, 256, 96) for first in (2, 1)],
        ),
        (
            IMAGES,
            [
                *((2, 7, 45, 37), (2, 7, 5, 7), (1, 9, 50, 68), (2, 7, 64, 96), (2, 7, 96, 64), (2, 7, 32, 64)),
                *((4, 7, 4, 4), (1, 7, 1, 1), (1, 7, 45, 37), (2, 7, 1, 37), (2, 7, 45, 1), (2, 7, 32, 32)),
                *((2, 7, 64, 64), (32, 7, 32, 32), (2, 7, 224, 224), (2, 7, 16, 16), (2, 7, 8, 8), (2, 7, 128, 128)),
                *((1, 7, 64, 64), (1, 7, 224, 224), *((n, 7, n, n) for n in (64, 224, 16, 8, 128))),
            ],
        ),
        (
            FIVE,
            [(2, 3, 5, 7, 11), (1, 4, 6, 9, 8), (4,) * 5, (1,) * 5, (1, 3, 5, 7, 11), (2, 1, 5, 7, 11)]
            + [(2, 3, 1, 7, 11), (2, 3, 5, 1, 11), *((2, n, n, n, n) for n in (32, 64)), (32,) * 5]
            + [(first, n, n, n, n) for first, n in ((2, 224), (2, 16), (2, 8), (2, 128), (1, 64), (1, 224))]
            + [(n,) * 5 for n in (64, 224, 16, 8, 128)],
        ),
    ],
    ids=["none", "one", "given", "two", "images", "five"],
)
def test_small_points_come_first_and_none_twice(dims: Dims, expected: list[tuple[int, ...]]) -> None:
    assert _rows(dims.ladder()) == expected


def test_three_dims_may_be_sequences_or_a_waveform_and_four_may_not() -> None:
    three, four = (_rows(Dims(tuple(names)).ladder()) for names in ("abc", "abcd"))
    assert (2, 3, 1601) in three and (1601, 3, 5) in three and (1, 96, 96) in three
    assert not [point for point in four if max(point) > 224]


@pytest.mark.parametrize(
    ("name", "extent", "expected"),
    [
        ("a", 2, [1, 3, 4]),  # Of the second point, of the sets, the next one, twice as much, and 1.
        ("a", 1, [2]),
        ("b", 7, [9]),
        ("b", 8, [7, 9]),
        ("c", 45, [50, 6, 5, 46, 90, 1]),
        ("d", 64, [68, 96, 9, 7, 65, 128, 1]),
    ],
)
def test_other_extents_of_a_dim(name: str, extent: int, expected: list[int]) -> None:
    assert IMAGES.alternatives(name, extent) == expected


def test_a_dim_is_moved_to_admitted_extents_that_others_do_not_have() -> None:
    dims = Dims(("n", "w", "h", "k"), {"k": (3,)}, admits={"w": [4, 8, 12], "h": [4, 8, 12], "n": [2], "k": [5]})
    assert dims.point(0) == {"n": 2, "w": 4, "h": 8, "k": 3}
    # Not those of the first point, unless there is no other.
    assert dims.point(1) == {"n": 2, "w": 8, "h": 12, "k": 3}
    assert dims.alternatives("w", 4) == [8]
    assert dims.alternatives("w", 8) == [4]
    assert dims.alternatives("n", 2) == []
    assert dims.uneven("w") == 5 and dims.uneven("k") == 3


def test_a_dim_of_which_all_extents_are_admitted_stays() -> None:
    assert Dims(("b", "w"), admits={"w": [4]}).point(0) == {"b": 2, "w": 4}


@pytest.mark.parametrize(
    ("least", "first", "second", "starts"),
    # The first extent, 2, and four windows; then two windows, and one.
    [(17, 70, 69, [70, 69, 36, 35, 19, 18]), (16, 16, 17, [16, 17, 16, 16, 16, 16])],
)
def test_a_dim_under_a_large_window_gets_several_windows(
    least: int, first: int, second: int, starts: list[int]
) -> None:
    dims = Dims(("n",), admits={"n": range(least, 400)})
    assert (dims.point(0), dims.point(1)) == ({"n": first}, {"n": second})
    assert [point["n"] for point in dims.starts()] == starts


def test_starts_are_points_of_joint_dims_and_images() -> None:
    joint: list[Joint] = [
        {"names": ["b", "x"], "points": [{"b": 7, "x": 2}, {"b": 8, "x": 3}, {"b": 9, "x": 4}], "demands": []},
        {"names": ["d"], "points": [{"d": 40}], "demands": []},
        {"names": ["b"], "points": [{"b": 1}], "demands": []},
    ]
    dims = IMAGES.joined(joint)
    # The user's sizes exclude b = 8, and a group without points is none.
    assert dims.joint == ([{"b": 7, "x": 2}, {"b": 9, "x": 4}], [{"d": 40}])
    assert dims.together == {"b", "x", "d"}
    assert _rows(dims.starts()) == [
        (2, 7, 45, 40), (1, 9, 50, 40), (2, 7, 5, 40), (1, 9, 6, 40), (2, 7, 64, 96), (2, 7, 96, 64), (2, 7, 32, 64),
    ]  # fmt: skip
    assert _rows(IMAGES.starts()) == [(2, 7, 45, 37), (1, 9, 50, 68), (2, 7, 64, 96), (2, 7, 96, 64), (2, 7, 32, 64)]


def test_larger_extents() -> None:
    assert _rows([FIVE.long(), IMAGES.long()]) == [(2, 37, 41, 31, 29), (2, 7, 101, 118)]
    assert Dims(tuple("abcdefg")).long()["g"] == 2 * 6 + 11
    joint = Dims(("a", "b"), joint=[[{"b": 1}, {"b": 2}, {"b": 3}, {"b": 4}]])
    assert joint.long() == {"a": 2, "b": 3}


def test_a_dim_moves_together_with_others_or_alone() -> None:
    points = [{"w": 4, "h": 2}, {"w": 5, "h": 2}, {"w": 6, "h": 3}, {"w": 4, "h": 3}]
    dims = Dims(("n", "w", "h"), joint=[points])
    assert dims.alternatives("w", 4) == [5, 6]
    assert dims.alternatives("w", 5) == [4]
    assert dims.alternatives("h", 2) == [3]


def test_dims_that_follow_are_at_least_one() -> None:
    dims = Dims(("n", "w", "h"), wishes={"h": (3,)}).tied({"w": {"n": 2, "": -5}, "h": {"n": 1}})
    assert dims.names == ("n", "h") and dims.ties == {"w": {"n": 2, "": -5}}
    assert dims.complete({"n": 4}) == {"n": 4, "w": 3}
    assert dims.complete({"n": 2, "w": 9}) == {"n": 2, "w": 1}


def test_values_of_inferred_extents() -> None:
    assert calculate("floor(n/2 - 1/2) + 1", {"n": 6}) == 3 and calculate("Min(512, n) - 8", {"n": 7}) == -1
    with pytest.raises(ValueError, match="the dim 'n/2' is 5/2"):
        calculate("n/2", {"n": 5})
    assert evaluate("n - 9", {"n": 4}) == 0 and evaluate("-n + 9", {"n": 4}) == 5


def _port(name: str, *dims: int | str, dtype: Any = np.float32) -> InputPort:
    return InputPort(name, "tensor", np.dtype(dtype), dims)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        # One input: nothing to guess.
        ([("x", "n", "s")], []),
        # The batch is one for all, and each length may be the sum of the others.
        (
            [("ids", "b", "s"), ("mask", "c", "t")],
            [{"c": {"b": 1}}, {"c": {"b": 1}, "s": {"t": 1}}, {"c": {"b": 1}, "t": {"s": 1}}],
        ),
        # A dim with a place of its own does not follow from the batch.
        ([("k", "b", 2, "p", 4), ("ids", "p", "s")], []),
        # Caches that differ only in names; a fixed dim makes them differ, and so does the element type.
        (
            [("k", "b", 2, "p", 4), ("v", "b", 2, "q", 4)],
            [{"q": {"p": 1}}],
        ),
        ([("k", "b", 2, "p", 4), ("v", "b", 2, "q", 8)], [{"p": {"q": 1}}, {"q": {"p": 1}}]),
        # The second axis of states of recurrent layers is the batch; without fixed layers or units it is a length.
        ([("x", "n", "s", 8), ("h", 2, "m", 16)], [{"m": {"n": 1}}]),
        (
            [("x", "n", "s", 8), ("h", 2, "m", "u")],
            [{"s": {"m": 1, "u": 1}}, {"m": {"s": 1, "u": 1}}, {"u": {"s": 1, "m": 1}}],
        ),
    ],
)  # fmt: skip
def test_guesses_about_similar_inputs(ports: list[Any], expected: list[dict[str, Any]]) -> None:
    inputs = [_port(*port) for port in ports]
    names = dict.fromkeys(dim for port in inputs for dim in port.dims if isinstance(dim, str))
    found = [*guesses(Dims(tuple(names)), inputs)]
    assert [one.ties for one in found] == expected
    assert all(set(one.names) == set(names) - set(one.ties) for one in found)


def test_guesses_keep_known_ties_and_the_users_sizes() -> None:
    inputs = [_port("ids", "b", "s"), _port("mask", "c", "t"), _port("k", "c", 2, "p", 4)]
    dims = Dims(("b", "s", "c", "p"), wishes={"p": (3,)}, ties={"t": {"c": 2, "s": 1, "": 4}})
    found = [*guesses(dims, inputs)]
    assert [one.ties for one in found] == [
        {"t": {"b": 2, "s": 1, "": 4}, "c": {"b": 1}},
        {"t": {"b": 2, "p": 1, "": 4}, "c": {"b": 1}, "s": {"p": 1}},
    ]
    # Two caches of different types are not alike.
    other = [_port("k", "b", 2, "p", 4), _port("v", "b", 2, "q", 4, dtype=np.float16)]
    assert {"q": {"p": 1}} in [one.ties for one in guesses(Dims(("b", "p", "q")), other)]
    assert len([*guesses(Dims(tuple("bpq")), other)]) == 2


def test_at_most_six_dims_are_sums_of_the_others() -> None:
    inputs = [_port("x", "n", *"abcdefg")]
    found = [*guesses(Dims(tuple("nabcdefg")), inputs)]
    assert [next(iter(one.ties)) for one in found] == [*"abcdef"]
    assert found[0].ties == {"a": dict.fromkeys("bcdefg", 1)}
