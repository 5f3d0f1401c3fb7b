"""Regions of which the target proves nothing, or whose boundary does not belong together."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import VACUOUS
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions import regional_verdict
from surgery.verification.regions.regions import Region
from surgery.verification.regions.target_descent import descend, trimmed
from surgery.verification.verdict.verifier import Verifier


def judged(before: str, after: str, promise: Parity = Parity.EXACT, times: int = 1) -> Verdict:
    models = [text.parse(model).SerializeToString() for model in (before, after)]
    verifier = Verifier(models[0], None, VerifySpec())
    try:
        for _ in range(times):
            verdict = verifier.changes.compare_regions(models[0], models[1], promise).verdict
        return verdict
    finally:
        verifier.close()


HEAD = "g (float[N,4] x) => (float[N,4] y) <float zero = {0}, float one = {1}, float two = {2}>"

HIDING = {
    "a product with zero": "m = Mul(READ, zero) y = Add(m, x)",
    "a Clip that is crossed": "y = Clip(READ, two, one)",
    "two operators": "m = Mul(READ, zero) e = Exp(m) y = Mul(e, two)",
    "an empty Slice": "at = Constant<value = int64[1] {0}>() m = Slice(READ, at, at) y = Concat<axis = 0>(m, x)",
    "a loop that never runs": """none = Constant<value = int64 {0}>() go = Constant<value = bool {1}>()
        l, s = Loop(none, go, x) <body = b (int64 i, bool cond, float[N,4] v) => (bool d, float[N,4] w, float[N,4] r)
            { d = Identity(cond) w = Identity(v) r = Add(v, READ) }>
        z = ReduceSum<keepdims = 0>(s) y = Add(l, z)""",
}
"""What reads a value in the middle, and is the same whatever that is."""

RIGHT = {
    "product with one": ("a = Relu(x) b = Mul(a, one)", "a = Relu(x)"),
    "sum of equals": ("a = Relu(x) b = Add(a, a)", "a = Relu(x) c = Mul(a, two)"),
    "two negations": ("n = Neg(x) b = Neg(n)", ""),
}
NAMES = {"product with one": "a", "sum of equals": "c", "two negations": "x"}

WRONG = {
    "activation dropped": ("a = Neg(x) b = Relu(a)", "a = Neg(x)"),
    "product for sum": ("a = Relu(x) b = Add(a, one)", "a = Relu(x) c = Mul(a, one)"),
    "another constant": ("b = Mul(x, two)", "c = Mul(x, one)"),
}
WRONG_NAMES = {"activation dropped": "a", "product for sum": "c", "another constant": "c"}


def pair(change: tuple[str, str], name: str, hiding: str) -> tuple[str, str]:
    """Make two models in which what hides the change reads values of different names."""
    return tuple(  # type: ignore[return-value]
        f"{HEAD} {{ {body} {HIDING[hiding].replace('READ', read)} }}" for body, read in zip(change, ("b", name))
    )


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("kind", RIGHT)
def test_a_hidden_change_is_verified_at_the_input_of_the_hiding_operator(kind: str, hiding: str) -> None:
    verdict = judged(*pair(RIGHT[kind], NAMES[kind], hiding))
    assert verdict.status == "equal", verdict.message


@pytest.mark.parametrize("hiding", ["an empty Slice", "a loop that never runs"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_hidden_wrong_change_is_not_taken_for_equal(kind: str, hiding: str) -> None:
    assert not judged(*pair(WRONG[kind], WRONG_NAMES[kind], hiding)).passed


@pytest.mark.parametrize("kind", WRONG)
def test_inputs_that_prove_nothing_either_are_traced_further(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators on nothing: the input of the second one agrees for any change, too."""
    descend, found = regional_verdict.descend, []

    def noted(*given: Any) -> tuple[Verdict, list[Region]]:
        found.append(descend(*given))
        return found[-1]

    monkeypatch.setattr(regional_verdict, "descend", noted)
    nothing = "at = Constant<value = int64[1] {0}>() k = Slice(%s, at, at) m = Abs(k) y = Concat<axis = 0>(m, x)"
    names = "b", WRONG_NAMES[kind]
    judged(*(f"{HEAD} {{ {body} {nothing % name} }}" for body, name in zip(WRONG[kind], names)))
    assert found and not any(verdict.passed for verdict, _ in found)


@pytest.mark.parametrize("kind", WRONG)
def test_a_difference_upstream_of_several_empty_values_is_found(kind: str) -> None:
    """The empty values have other names in the changed model, so they are first compared on the way upstream."""
    nothing = """at = Constant<value = int64[1] {0}>() k%d = Slice(%s, at, at) m%d = Abs(k%d) n = Neg(m%d)
        y = Concat<axis = 0>(n, x)"""
    before, after = (
        f"{HEAD} {{ {body} {nothing % (side, name, side, side, side)} }}"
        for side, (body, name) in enumerate(zip(WRONG[kind], ("b", WRONG_NAMES[kind])))
    )
    assert not judged(before, after).passed


def test_values_shown_to_be_equal_are_interchangeable() -> None:
    """After the change `b` is what `a` was; both were read by an operator of a constant result."""
    body = "{ d = Exp(x) a = Add(d, d) %s y = Add(q, r) }"
    before = "b = Mul(a, one) q = Sub(a, b) r = Add(b, x)"
    after = "q = Sub(b, b) r = Add(b, x)"
    renamed = (HEAD + body % after).replace("a = Add(d, d)", "b = Add(d, d)")
    verdict = judged(HEAD + body % before, renamed)
    assert verdict.status == "equal", verdict.message


def test_values_that_differ_are_not_interchangeable() -> None:
    body = "{ d = Exp(x) a = Add(d, d) %s y = Add(q, r) }"
    before = "b = Mul(a, two) q = Sub(a, b) r = Add(b, x)"
    renamed = (HEAD + body % "q = Sub(b, b) r = Add(b, x)").replace("a = Add(d, d)", "b = Add(d, d)")
    assert not judged(HEAD + body % before, renamed).passed


def test_a_transpose_that_keeps_the_order_needs_no_run() -> None:
    """Its output is empty whatever is tried."""
    head = "g (float[N,M] x) => (float[A,B] y) <int64[1] none = {0}> { s = Slice(x, none, none) "
    before, after = head + "y = Transpose<perm = [0, 1]>(s) }", head + "y = Identity(s) }"
    assert judged(before, after).message.startswith("computed by the same operators")
    assert not judged(before, before.replace("[0, 1]", "[1, 0]")).passed


def test_values_empty_at_all_sizes_need_no_comparison() -> None:
    head = """g (float[N,2,3] x) => (float[N,A,3] y) <int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2}>
        { a = Relu(x) """
    before = head + "b = Slice(a, one, two, two) y = Slice(b, last, one, one) }"
    after = (
        head
        + """from = Constant<value = int64[2] {1, -1}>() to = Constant<value = int64[2] {2, 1}>()
        axes = Constant<value = int64[2] {2, 1}>() y = Slice(a, from, to, axes) }"""
    )
    verdict = judged(before.replace("A,3", "0,1"), after.replace("A,3", "0,1"))
    assert verdict.status == "equal", verdict.message


SLICES = """g (float[N,M] x) => (float[A,B] y)
    <int64[1] first = {0}, int64[1] last = {-1}, int64[1] none = {0}, int64[1] one = {1}, int64[1] five = {5}>
    { a = Relu(x) BODY }"""


def test_values_empty_at_large_sizes_count_as_always_empty() -> None:
    before = SLICES.replace("BODY", "b = Slice(a, five, last, first) y = Slice(b, last, none, one)")
    after = SLICES.replace(
        "BODY",
        """from = Constant<value = int64[2] {5, -1}>() to = Constant<value = int64[2] {-1, 0}>()
        axes = Constant<value = int64[2] {0, 1}>() y = Slice(a, from, to, axes)""",
    )
    verdict = judged(before, after)
    assert verdict.status == "equal", verdict.message


@pytest.mark.parametrize("wrong", ["c = Neg(x) y = Slice(c, many, last, none)", "y = Slice(a, more, last, none)"])
def test_values_empty_only_at_small_sizes_are_compared_at_large_sizes(wrong: str) -> None:
    """No dim is tried at a size beyond forty, as nothing says that it would be."""
    head = """g (float[N,3] x) => (float[A,3] y)
        <int64[1] many = {45}, int64[1] more = {46}, int64[1] last = {9223372036854775807}, int64[1] none = {0}>
        { a = Relu(x) """
    assert not judged(head + "y = Slice(a, many, last, none) }", head + wrong + " }").passed


def test_zero_weights_do_not_hide_a_close_change() -> None:
    head = """g (float[N,2] x) => (float[N,2] y)
        <float[2,2] w = {0, 0, 0, 0}, float[2] b = {0.1, 0.7}, float[2] k = {0.3, 1.7}, float[2] c = {B0, B1}> """
    right, wrong = head.replace("B0, B1", "0.03, 1.19"), head.replace("B0, B1", "0.03, 1.2")
    before = right + "{ a = MatMul(x, w) d = Add(a, b) y = Mul(d, k) }"
    verdict, other = (
        judged(before, one + "{ a2 = MatMul(x, w) y = Add(a2, c) }", Parity.CLOSE) for one in (right, wrong)
    )
    assert verdict.passed, verdict.message
    assert not other.passed


def test_a_repeated_equal_change_is_verified_again() -> None:
    """The value that differs is nudged in a region that was not run, being like another one."""
    body = " { a = Exp(x) n = %s(a) y = Abs(n) }"
    for times in (1, 2):
        verdict = judged(HEAD + body % "Neg", HEAD + body % "Identity", times=times)
        assert verdict.status == "equal", verdict.message


def test_a_model_of_empty_outputs_is_not_run_at_growing_sizes() -> None:
    body = "g (float[2,n,n,4] x) => (float[a,b,c,d] y) <int64[1] none = {0}> { s = Slice(x, none, none) y = Relu(s) }"
    verifier = Verifier(text.parse(body).SerializeToString())
    verifier.original.prepare()
    try:
        assert verifier.original.problem is None
        assert max(run.feed["x"].shape[1] for run in verifier.original.runs) < 100
    finally:
        verifier.close()


def test_the_models_are_valid() -> None:
    for kind, change in RIGHT.items():
        for hiding in HIDING:
            for model in pair(change, NAMES[kind], hiding):
                onnx.checker.check_model(text.parse(model), full_check=True)


def test_unused_random_numbers_do_not_hide_a_change() -> None:
    head = "g (float[N,4] x, bool c) => (float[N,4] y) <float one = {1}, float zero = {0}> "
    body = """{ y = If(c) <then_branch = t () => (float[N,4] a) { d = RandomNormalLike(x) a = %s(x, %s) },
        else_branch = e () => (float[N,4] b) { b = Relu(x) }> }"""
    assert judged(head + body % ("Mul", "one"), head + body % ("Div", "one")).status == "equal"
    assert not judged(head + body % ("Mul", "one"), head + body % ("Mul", "zero")).passed


def test_values_that_depend_on_a_draw_are_not_compared_by_region() -> None:
    body = "g (float[N,4] x) => (float[N,4] y) { d = RandomNormalLike(x) n = %s(d) y = Add(n, x) }"
    assert judged(body % "Neg", body % "Identity").reason == "not-run"


def test_a_region_extends_to_the_nodes_that_keep_values_finite() -> None:
    """A difference of equals is zero, but not for the values that floats could have."""
    head = "g (bool[4] c) => (float[4] y, float[4] w) <float[4] z = {0, 0, 0, 0}> "
    chain = (
        "f = Cast<to = 1>(c) d = Sub(f, f) e = Abs(d) h = Sqrt(e) k = Floor(h) l = Ceil(k) m = Sin(l) w = Sub(m, f) "
    )
    verdict = judged(head + "{ " + chain + "y = Tanh(m) }", head + "{ " + chain + "y = Identity(z) }")
    assert verdict.status == "equal", verdict.message


EQUAL, NOTHING = Verdict(Status.EQUAL), Verdict(Status.UNVERIFIED, VACUOUS)
DIFFERENT = Verdict(Status.DIFFERENT, message="they differ")


def descended(before: str, after: str, *answers: Verdict) -> tuple[Verdict, list[Region], list[tuple[str, ...]]]:
    """Descend from `y`, with these verdicts on what is compared, in order; also return the labels of that."""
    given, asked = list(answers), []

    def compare(piece: Region) -> dict[str, Verdict]:
        asked.append(piece.targets)
        return {label: given.pop(0) for label in piece.targets}

    region = Region(("y",), ("y",), ("x", "z"), text.parse(before), text.parse(after), 9)
    verdict, shown = descend(region, "y", NOTHING, compare)
    assert not given
    return verdict, shown, asked


CHAIN = "g (float[N,4] x, float[N,4] z) => (float[N,4] y) <float two = {2}> { a = Relu(x) "
ONE = CHAIN + "b = Mul(a, two) c = Exp(b) d = Sub(c, z) y = Neg(d) }"
OTHER = CHAIN + "e = Add(a, a) f = Exp(e) h = Sub(f, z) y = Neg(h) }"
LEVELS = [("d/0",), ("c/0",), ("b/0",)]


def test_a_target_agrees_if_what_it_is_computed_from_does() -> None:
    verdict, shown, asked = descended(ONE, OTHER, EQUAL)
    assert verdict == Verdict(Status.EQUAL, message="computed by the same operators from values that agree")
    assert asked == LEVELS[:1] == [piece.targets for piece in shown]
    assert (shown[0].given, shown[0].nodes) == (("x", "z"), 4)
    needed = {"rtol": 1e-6, "atol": 0.0}
    verdict, shown, asked = descended(ONE, OTHER, NOTHING, Verdict(Status.CLOSE, needed=needed, message="near"))
    assert (verdict.status, verdict.needed) == (Status.CLOSE, needed)
    assert verdict.message == "computed by the same operators from values that agree: near"
    assert asked == LEVELS[:2] == [piece.targets for piece in shown]
    assert shown[1].given == ("x",)


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_a_target_stays_unproven_if_what_it_is_computed_from_does(levels: int) -> None:
    answers = [*[NOTHING] * levels, *([DIFFERENT] if levels < len(LEVELS) else [])]
    assert descended(ONE, OTHER, *answers) == (NOTHING, [], LEVELS[: levels + 1])


def test_only_values_that_prove_nothing_are_traced_further() -> None:
    before = CHAIN + "b = Mul(a, two) c = Exp(b) d = Mul(z, two) i = Sin(d) y = Sub(c, i) }"
    after = CHAIN + "e = Add(a, a) f = Exp(e) h = Add(z, z) j = Sin(h) y = Sub(f, j) }"
    large, small = (
        Verdict(Status.CLOSE, needed={"rtol": rtol, "atol": 0.0}, message=str(rtol)) for rtol in (1e-3, 1e-5)
    )
    verdict, _, asked = descended(before, after, small, NOTHING, large)
    assert asked == [("c/0", "i/1"), ("d/0",)]
    assert verdict.needed == large.needed and verdict.message.endswith(": 0.001")
    verdict, _, _ = descended(before, after, large, NOTHING, Verdict(Status.CLOSE))
    assert verdict.needed == large.needed


def test_a_descent_ends() -> None:
    steps = " ".join(f"v{number + 1} = Sin(v{number})" for number in range(9))
    before, after = (f"{CHAIN} v0 = {start} {steps} y = Neg(v9) }}" for start in ("Mul(a, two)", "Add(a, a)"))
    assert descended(before, after, *[NOTHING] * 6) == (NOTHING, [], [(f"v{9 - level}/0",) for level in range(6)])
    assert descended(before, after, *[NOTHING] * 5, EQUAL)[0].passed
    # Without any difference, there is nothing that shows more.
    assert descended(before, before) == (NOTHING, [], [])


def test_a_piece_has_the_functions_and_the_weights_that_it_reads() -> None:
    head = CHAIN.replace("g (", '<ir_version: 3, opset_import: ["" : 21, "f" : 1]> g (').replace("two", "unused")
    head = head.replace("float unused", "float two = {2}, float three = {3}, float unused")
    functions = """<domain: "f", opset_import: ["" : 21]> twice (v) => (w) { w = Add(v, v) }
        <domain: "f", opset_import: ["" : 21]> thrice (v) => (w) { u = Add(v, v) w = Add(u, v) }"""
    before = f"{head} b = Mul(a, two) c = f.twice(b) y = Sub(c, three) }} {functions}"
    after = f"{head} e = Add(a, a) i = f.twice(e) y = Sub(i, three) }} {functions}"
    _, (piece,), _ = descended(before, after, EQUAL)
    assert [function.name for function in piece.before.functions] == ["twice"]
    assert [tensor.name for tensor in piece.before.graph.initializer] == ["two"]
    assert [tensor.name for tensor in piece.after.graph.initializer] == []
    assert [node.op_type for node in piece.after.graph.node] == ["Relu", "Add", "twice", "Identity"]
    assert piece.before.ir_version == 4 and len(piece.before.opset_import) == 2


@pytest.mark.parametrize(
    ("before", "after", "targets"),
    [
        (ONE, OTHER, ("b/0",)),
        (CHAIN + "b = Mul(a, two) y = Mul(b, k) }", CHAIN + "e = Add(a, a) y = Mul(e, l) }", ("b/0",)),
        (CHAIN + "b = Mul(a, two) y = Neg(b) }", CHAIN + "e = Add(a, a) y = Abs(e) }", None),
        (CHAIN + "y = Mul(a, two) }", CHAIN + "y = Mul(a, l) }", None),
        (CHAIN + "y = Mul(a, two) }", CHAIN + "y = Mul(a, two) }", None),
        (
            CHAIN + "b = Mul(a, two) i = Sin(z) y = Sub(b, i) }",
            CHAIN + "e = Add(a, a) j = Cos(z) y = Sub(e, j) }",
            ("b/0", "i/1"),
        ),
    ],
    ids=["after the same operators", "with equal weights", "another end", "another weight", "the same", "two places"],
)
def test_a_region_is_trimmed_to_where_its_operators_differ(
    before: str, after: str, targets: tuple[str, ...] | None
) -> None:
    first, second = (
        text.parse(one.replace("{2}>", f"{{2}}, float {k} = {{3}}>")) for one, k in ((before, "k"), (after, "l"))
    )
    found = trimmed(Region(("y",), ("y",), ("x", "z"), first, second, 9))
    assert (found and found.targets) == targets
