"""Which outputs share which random draws, and what it says when a change merges, folds or adds some."""

import pytest

from surgery.model.graph import text
from surgery.model.proto.draws import draws, redrawn
from surgery.verification.verdict.verifier import Verifier

ONE = "(float[4] x) => (float[4] y)"
TWO = "(float[4] x) => (float[4] y, float[4] z)"
BRANCH = "then_branch = t () => (float[4] p) {{ {} }}, else_branch = e () => (float[4] q) {{ q = Neg(x) }}"


def model(signature, body, functions=""):
    head = '<ir_version: 10, opset_import: ["": 21, "f": 1]>\n' if functions else ""
    return text.parse(f"{head}g {signature} {{ {body} }}\n{functions}")


def counted(signature, body, functions=""):
    found = draws(model(signature, body, functions))
    return found if found is None else {"".join(sorted(outputs)): count for outputs, count in found.items()}


@pytest.mark.parametrize(
    ("signature", "body", "expected"),
    [
        (ONE, "y = Neg(x)", {}),
        (ONE, "a = RandomNormalLike(x) y = Add(a, x)", {"y": 1}),
        (ONE, "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b)", {"y": 2}),
        (ONE, "a = RandomNormalLike<seed=1.0>(x) y = Add(a, x)", {}),
        (ONE, "a = RandomNormalLike(x) y = Neg(x)", {}),
        (ONE, "a = RandomNormalLike(x) y = RandomUniformLike(a)", {"y": 1}),
        (ONE, "a = RandomNormalLike(x) s = Shape(a) y = Expand(x, s)", {}),
        (TWO, "a = RandomNormalLike(x) y = Neg(a) z = Abs(a)", {"yz": 1}),
        (TWO, "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Neg(a) z = Add(a, b)", {"yz": 1, "z": 1}),
        (ONE, "y = Dropout(x)", {}),
        (ONE, "r = Constant<value_float=0.5>() t = Constant<value=bool {1}>() y = Dropout(x, r, t)", {"y": 1}),
        (ONE, "r = Constant<value_float=0.5>() t = Constant<value=bool {0}>() y = Dropout(x, r, t)", {}),
    ],
)
def test_draws_are_counted_by_the_outputs_they_reach(signature, body, expected):
    assert counted(signature, body) == expected


def test_a_mask_depends_on_its_own_draw_only():
    body = (
        "r = Constant<value_float=0.5>() t = Constant<value=bool {1}>() a = RandomNormalLike(x) y, z = Dropout(a, r, t)"
    )
    assert counted("(float[4] x) => (float[4] y, bool[4] z)", body) == {"y": 1, "yz": 1}


def test_each_call_of_a_function_draws_for_itself():
    function = '<domain: "f", opset_import: ["": 21]> noise (x) => (y) { y = RandomNormalLike(x) }'
    assert counted(ONE, "a = f.noise(x) b = f.noise(x) y = Sub(a, b)", function) == {"y": 2}


@pytest.mark.parametrize("inner", ["p = RandomNormalLike(x)", "p = Neg(a)"])
def test_randomness_in_a_branch_is_not_decided(inner):
    signature = "(float[4] x, bool c) => (float[4] y)"
    body = f"a = RandomNormalLike(x) y = If(c) <{BRANCH.format(inner)}>"
    assert draws(model(signature, body)) is None
    assert redrawn(model(signature, body), model(signature, "y = Neg(x)")) == ""


def test_a_branch_without_randomness_is_ignored():
    signature = "(float[4] x, bool c) => (float[4] y)"
    body = f"a = RandomNormalLike(x) b = If(c) <{BRANCH.format('p = Abs(x)')}> y = Add(a, b)"
    assert counted(signature, body) == {"y": 1}


@pytest.mark.parametrize(
    ("signature", "before", "after", "expected"),
    [
        (
            ONE,
            "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)",
            "a = RandomNormalLike(x) y = Sub(a, a)",
            "output 'y' depends on 1 random draw instead of 2 random draws",
        ),
        (
            ONE,
            "a = RandomNormalLike(x) y = Add(a, x)",
            "a = Constant<value_floats=[0.1,0.2,0.3,0.4]>() y = Add(a, x)",
            "output 'y' depends on no random draws instead of 1 random draw",
        ),
        (
            TWO,
            "y = RandomNormalLike(x) z = RandomNormalLike(x)",
            "y = RandomNormalLike(x) z = Identity(y)",
            "output 'y' depends on no random draws instead of 1 random draw",
        ),
        (
            TWO,
            "a = RandomNormalLike(x) y = Neg(a) z = Abs(a)",
            "y = RandomNormalLike(x) z = RandomNormalLike(x)",
            "output 'y' depends on 1 random draw instead of no random draws",
        ),
        (ONE, "a = RandomNormalLike(x) b = Identity(a) y = Neg(b)", "a = RandomNormalLike(x) y = Neg(a)", ""),
    ],
)
def test_a_verdict_on_random_outputs(signature, before, after, expected):
    original, changed = model(signature, before), model(signature, after)
    assert redrawn(original, changed) == expected
    verdict = Verifier(original.SerializeToString()).verify(changed.SerializeToString())
    assert verdict.status == ("different" if expected else "equal")
    assert expected in verdict.message


def test_a_draw_may_use_another_random_operator():
    """ONNX Runtime draws ones with the probability of zeros in Bernoulli, so that distributions say nothing here."""
    original = model(ONE, "y = Bernoulli(x)")
    changed = model(ONE, "r = RandomUniformLike(x) g = Greater(x, r) y = Cast<to=1>(g)")
    assert redrawn(original, changed) == ""
    verdict = Verifier(original.SerializeToString()).verify(changed.SerializeToString())
    assert verdict.status == "equal"
    assert "by shape and type only" in verdict.message
