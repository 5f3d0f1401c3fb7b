"""Names of dims, their first extents, and expressions over them, also for many extents at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surgery.verification.inputs.dims import evaluate, first_extents, free_names
from surgery.verification.inputs.expressions import Reader

N = np.arange(1, 9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N", lambda n: n),
        ("3", lambda n: 3),
        ("-N + 2", lambda n: 2 - n),
        ("2 * N - 1", lambda n: 2 * n - 1),
        ("floor(N / 2)", lambda n: n // 2),
        ("floor(N / 2 - 1 / 2) + 1", lambda n: (n - 1) // 2 + 1),
        ("N / 2 + N / 2", lambda n: n),
        ("floor(N / 3 * 2 + 1 / 2)", lambda n: (4 * n + 3) // 6),
        ("Max(N / 2, N / 3 + 1)", lambda n: max(3 * n, 2 * n + 6) // 6),
        ("Max(N, 4, 6)", lambda n: max(n, 6)),
        ("Min(N, 4)", lambda n: min(n, 4)),
        ("Mod(N + 1, 3)", lambda n: (n + 1) % 3),
        ("Mod(7, N - 2)", lambda n: 7 % (n - 2) if n > 2 else -1),
        ("6 / N", lambda n: 6 // n),
        ("6 / (N - 3)", lambda n: 6 // (n - 3) if n > 3 else -1),
        ("truncated((3 - N) / 2)", lambda n: math.trunc((3 - n) / 2)),
        ("double + 1", lambda n: 2 * n + 1),
        ("deep", lambda n: 2 * n + 3),
    ],
)
def test_an_expression_has_its_value_at_each_extent(text: str, value) -> None:
    read = Reader({"N": N}, {"double": "2 * N", "deep": "double + 3"}).read(text)
    assert read is not None
    used, values = read
    assert np.broadcast_to(values, N.shape).tolist() == [value(n) for n in N.tolist()]
    assert used == (frozenset() if text == "3" else {"N"})


def test_several_dims_are_broadcast() -> None:
    reader = Reader({"N": N[:, None], "M": N[None, :3], "unused": N}, {})
    read = reader.read("N * M - 1")
    assert read is not None and read[0] == {"N", "M"}
    assert read[1].tolist() == [[n * m - 1 for m in range(1, 4)] for n in range(1, 9)]
    assert reader.read(5) == (frozenset(), 5)


@pytest.mark.parametrize(
    "text",
    ["M", "N +", "N ** 2", "sqrt(N)", "floor(N, 2)", "truncated(N, 2)", "Mod(N)", "Mod(N, 1 / 2)", "Min()", "N.real",
     "2.5", "loop", "+N", "N + " * 1001 + "N", "(" * 999 + "N" + ")" * 999],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_an_expression_that_cannot_be_evaluated_is_none(text: str) -> None:
    assert Reader({"N": N}, {"loop": "loop + 1"}).read(text) is None


def test_aliases_are_followed_to_a_depth_of_forty() -> None:
    aliases = {f"a{number}": f"a{number + 1}" for number in range(40)} | {"a40": "N"}
    assert Reader({"N": N}, aliases).read("a0") is None
    assert Reader({"N": N}, aliases).read("a1") is not None


def test_names_of_dims():
    assert free_names(["batch", "batch-size", 3, "past", "past + 1", "1 + ", "past // now"]) == (
        "batch", "batch-size", "past", "1 + ", "past // now",
    )  # fmt: skip
    assert evaluate("past + 2 * now - 1", {"past": 3, "now": 5}) == 12
    assert evaluate("batch-size", {"batch-size": 4}) == 4
    assert evaluate("past / 2 * 2", {"past": 5}) == 4


def test_small_extents_differ_for_each_of_many_dims():
    for which in (0, 1):
        extents = [*first_extents(map(str, range(40)), which).values()]
        assert len({*extents}) == 40 and max(extents) == 2 * 39 + 11 and min(extents) >= 1
