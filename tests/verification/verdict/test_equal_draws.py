"""Models that draw random numbers, also for the shapes of their outputs: right rewrites pass, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.model.runtime import sessions
from surgery.verification.comparing.details import Verdict
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
NOISE = '<domain: "f", opset_import: ["": 21]> uniform (i) => (o) { o = RandomUniformLike(i) }'
"""A draw in a function, which cannot have a seed: two calls would draw the same numbers."""

ROWS = "(float[N] x) => (float[K,M] y)"
LENGTH = """
    six = Constant<value_ints=[6]>() none = Constant<value_ints=[0]>() two = Constant<value_ints=[2]>()
    one = Constant<value=float {{1}}>() many = Constant<value=float {{20}}>()
    wide = Expand(one, six)
    u = {draw}(wide) total = ReduceSum<keepdims=0>(u) longer = Mul(total, many) up = Ceil(longer)
    count = Cast<to=7>(up) length = Unsqueeze(count, none)
"""
"""A number from 0 to 120 that is drawn, as the length of speech is."""

SPEECH = f"""{LENGTH}
    shape = Concat<axis=0>(two, length) zeros = ConstantOfShape(shape)
    k = Constant<value=float {{{{0.5}}}}>() n = RandomNormalLike(zeros) y = Mul(n, k)
"""

NOTHING = "by = Constant<value_ints=[1]>() y = Slice(m, none, none, by)"

RIGHT = {
    "nodes come and go": (("u = ", "same = Identity(wide) u = "), ("(wide) total", "(same) total")),
    "factors commute": (("Mul(n, k)", "Mul(k, n)"),),
    "another order": (
        ("one = Constant<value=float {{1}}>() many", "many"),
        ("wide =", "one = Constant<value=float {{1}}>() wide ="),
    ),
    "other names of the draws": (("u = ", "u2 = "), ("ReduceSum<keepdims=0>(u)", "ReduceSum<keepdims=0>(u2)")),
    "an extra node after the draw": (("y = Mul(n, k)", "m = Neg(n) p = Neg(m) y = Mul(p, k)"),),
}
WRONG = {
    "another scale": (("float {{0.5}}", "float {{0.75}}"),),
    "another number of rows": (("two = Constant<value_ints=[2]>", "two = Constant<value_ints=[3]>"),),
    "another rank": (("y = Mul(n, k)", "m = Mul(n, k) y = Unsqueeze(m, none)"),),
    "nothing is left": (("y = Mul(n, k)", f"m = Mul(n, k) {NOTHING}"),),
    "the axes are swapped": (("y = Mul(n, k)", "m = Mul(n, k) y = Transpose(m)"),),
    "another length": (("float {{20}}", "float {{40}}"),),
    "the length is not drawn": (("up = Ceil(longer)", "up = Ceil(many)"),),
}  # fmt: skip


def _model(body: str, signature: str = ROWS, functions: str = "") -> bytes:
    found: bytes = onnx.parser.parse_model(f"{IR}\ng {signature} {{ {body} }}\n{functions}").SerializeToString()
    return found


def _changed(body: str, changes: tuple[tuple[str, str], ...]) -> str:
    for old, new in changes:
        assert body.count(old) == 1, old
        body = body.replace(old, new)
    return body


def _speech(changes: tuple[tuple[str, str], ...], draw: str, *, seeded: bool = True) -> Verdict:
    functions = NOISE if "." in draw else ""
    models = [_model(body.format(draw=draw), functions=functions) for body in (SPEECH, _changed(SPEECH, changes))]
    return Verifier(models[0], seeded=seeded).verify(models[1], Parity.CLOSE)


@pytest.mark.parametrize("name", sampled(RIGHT, 3))
def test_a_right_rewrite_of_a_model_with_a_drawn_length_passes_with_the_same_numbers(name: str) -> None:
    verdict = _speech(RIGHT[name], "RandomUniformLike")
    assert verdict.passed, verdict
    assert "with the same random numbers in both models (RandomNormalLike, RandomUniformLike)" in verdict.message


@pytest.mark.parametrize("draw", sampled(["RandomUniformLike", "f.uniform"], 2))
@pytest.mark.parametrize("name", sampled(RIGHT, 5))
def test_a_right_rewrite_of_a_model_with_a_drawn_length_passes_by_distribution(name: str, draw: str) -> None:
    verdict = _speech(RIGHT[name], draw, seeded=draw == "f.uniform")
    assert verdict.passed, verdict
    assert "'y' by shape, type and distribution" in verdict.message


@pytest.mark.parametrize("draw", sampled(["RandomUniformLike", "f.uniform"], 2))
@pytest.mark.parametrize("name", sampled(WRONG, 4))
def test_a_wrong_rewrite_of_a_model_with_a_drawn_length_is_different(name: str, draw: str) -> None:
    verdict = _speech(WRONG[name], draw)
    assert verdict.is_different, verdict


HALF = "half = Constant<value=float {0.5}>() big = Greater(u, half)"
BOXES = """
    places = Constant<value_ints=[1,3,4]>() twice = Concat<axis=0>(u, u) boxes = Reshape(twice, places)
    scores = Constant<value=float[1,1,3] {1,1,1}>() most = Constant<value_ints=[3]>()
    overlap = Constant<value=float[1] {0.2}>() kept = NonMaxSuppression(boxes, scores, most, overlap)
    w = Cast<to=1>(kept)
"""
RANGE = """
    start = Constant<value=int64 {0}>() step = Constant<value=int64 {1}>() r = Range(start, count, step)
    w = Cast<to=1>(r)
"""
LOOP = "<body = b (int64 i, bool c) => (bool d, float e) { d = Identity(c) e = Cast<to=1>(i) }>"
BRANCHES = """<then_branch = t () => (float[A] p) { p = Identity(u) },
    else_branch = e () => (float[B] q) { q = Concat<axis=0>(u, u) }>"""
DRAWN_SHAPES = {
    "a range": RANGE,
    "places that are not zero": f"{HALF} p = NonZero(big) w = Cast<to=1>(p)",
    "chosen elements": f"{HALF} w = Compress(u, big)",
    "the largest": "k = Min(length, six) w, i = TopK(u, k)",
    "repeated": "w = Tile(single, length)",
    "padded": "pads = Concat<axis=0>(none, length) w = Pad(single, pads)",
    "a loop": f"go = Constant<value=bool {{1}}>() w = Loop(count, go) {LOOP}",
    "a branch": f"three = Constant<value=float {{3}}>() above = Greater(total, three) w = If(above) {BRANCHES}",
    "kept boxes": BOXES,
}  # fmt: skip


@pytest.mark.parametrize("seeded", sampled([True, False], 2))
@pytest.mark.parametrize("name", sampled(DRAWN_SHAPES, 5))
def test_shapes_that_are_drawn_in_any_way(name: str, seeded: bool) -> None:
    head = LENGTH.format(draw="RandomUniformLike") + "single = Constant<value=float[1] {1}>() " + DRAWN_SHAPES[name]
    signature = f"(float[N] x) => (float[{'A,B' if name in ('places that are not zero', 'kept boxes') else 'A'}] y)"
    before = f"{head} z = ReduceSum<keepdims=0>(x) n = Mul(z, one) y = Add(w, n)"
    moved = _changed(before, (("total = ", "idle = Identity(u) total = "), ("keepdims=0>(u)", "keepdims=0>(idle)")))
    verifier = Verifier(_model(before, signature), seeded=seeded)

    def verified(after: str) -> Verdict:
        return verifier.verify(_model(after, signature), Parity.CLOSE)

    assert verified(moved).passed
    assert verified(_changed(before, (("Add(w, n)", "Sub(w, n)"),))).is_different
    assert verified(_changed(before, (("y = Add(w, n)", "s = Add(w, n) y = Unsqueeze(s, none)"),))).is_different


@pytest.mark.parametrize(
    "draw",
    [
        "r = Constant<value_float=0.5>() t = Constant<value=bool {1}>() u = Dropout(x, r, t)",
        "p = Sigmoid(x) u = Bernoulli(p)",
        "e = RandomUniform<shape=[1]>() u = Add(x, e)",
        "o = Constant<value_ints=[0]>() f = Unsqueeze(x, o) m = Multinomial<sample_size=4>(f) c = Cast<to=1>(m) "
        "d = ReduceSum<keepdims=0>(c) u = Add(x, d)",
    ],
)
def test_each_random_operator_draws_the_same_numbers_in_both_models(draw: str) -> None:
    signature = "(float[N] x) => (float[N] y)"
    verifier = Verifier(_model(f"{draw} y = Neg(u)", signature))
    after = f"same = Identity(x) other = Neg(same) {draw} v = Neg(u) w = Neg(v) y = Neg(w)"
    assert verifier.verify(_model(after, signature), Parity.EXACT).status == "equal"
    assert verifier.verify(_model(f"{draw} y = Abs(u)", signature), Parity.EXACT).is_different


def test_an_error_smaller_than_the_spread_of_the_noise_is_found() -> None:
    """Of distributions in a few runs, a factor of 1.001 shows nothing."""
    signature = "(float[N] x) => (float[N] y)"
    noise = "r = RandomNormalLike(x) k = Constant<value_float={}>() n = Mul(r, k) y = Add(x, n)"
    verifier = Verifier(_model(noise.format(1.0), signature))
    verdict = verifier.verify(_model(noise.format(1.001), signature), Parity.CLOSE)
    assert verdict.is_different, verdict


def test_a_run_does_not_depend_on_the_runs_before() -> None:
    model = _model("r = RandomNormalLike<seed=3.0>(x) y = Add(x, r)", "(float[N] x) => (float[N] y)")
    feeds: list[dict[str, Any]] = [{"x": np.full(4, value, np.float32)} for value in (1, 2, 3)]
    every = sessions.run(model, feeds, 1 << 30)["runs"]
    last = sessions.run(model, feeds[2:], 1 << 30)["runs"]
    np.testing.assert_array_equal(every[2]["y"], last[0]["y"])


@pytest.mark.parametrize("draw", ["RandomUniformLike", "f.uniform"])
def test_the_result_is_compared_as_deployed(draw: str) -> None:
    functions = NOISE if "." in draw else ""
    before, after, wrong = (
        _model(_changed(SPEECH, changes).format(draw=draw), functions=functions)
        for changes in ((), RIGHT["nodes come and go"], WRONG["another number of rows"])
    )
    verifier = Verifier(before)
    assert verifier.verify(after).passed
    assert verifier.deploy(after).ok
    assert not verifier.deploy(wrong).ok
