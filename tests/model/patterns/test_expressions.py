"""The expressions of rules: what they say of a match, and why they do not hold."""

import onnx_ir as ir
import pytest

from surgery.base.errors import PatternError
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Refusal
from surgery.model.patterns import Match, compile_pattern
from surgery.model.patterns.expression import parse_condition
from surgery.model.patterns.expression_values import check_condition, evaluate
from surgery.model.patterns.match import matches

PATTERN = """
    t = Transpose<perm=p>(x)
    y = Conv<group=g, auto_pad=pad, strides=strides>(t, w, b?)
"""
SOURCE = """
    g (float[N,8,8,4] x) => (float[N,2,8,8] y) <float[2,4,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        t = Transpose<perm = [0, 3, 1, 2]>(x)
        y = Conv(t, w)
    }
"""


@pytest.fixture(scope="module")
def match() -> Match:
    graph = Graph(ir.from_proto(text.parse(SOURCE)), pass_name="test")
    plan = compile_pattern(PATTERN)
    (found,) = (one for anchor in graph.nodes("Conv") for one in matches(graph, plan, anchor))
    return found


@pytest.mark.parametrize(
    "condition",
    [
        "rank(x) == 4",
        "rank(x) == 4 and not present(b)",
        "rank(x) != 4 or constant(w)",
        "dims(x)[-1] == 4 and dims(x)[{1, 2, 3}] == {8, 8, 4}",
        "dims(x)[0] == dims(t)[0]",
        "dims(x)[p] == dims(t)",
        "dims(t)[inverse(p)] == dims(x)",
        "p == {0, 3, 1, 2}",
        "p[0] == 0",
        'g == 1 and pad == "NOTSET"',
        "not present(strides)",
        "dtype(x) == float and dtype(x) in {float, float16}",
        "dtype(x) == dtype(w)",
        "size(w) == 8 and size(w) / 4 == 2 and size(w) % 3 == 2",
        "value(w)[7] == 8 and max(value(w)) == 8 and sum(value(w)) == 36",
        "min(3, 2) == 2 and prod({2, 3}) == 6 and abs(-2) == 2 and floor(7 / 2) == 3 and sqrt(16) == 4.0",
        "concat({1}, 2, {3}) == {1, 2, 3} and len(p) == 4",
        "{1, 2} + {3, 4} == {4, 6} and {1, 2} * 2 == {2, 4} and 2 - -1 == 3",
        "1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 6 / 4 == 1.5 and 6 / 3 == 2",
        "same_shape(w, w) and broadcasts_to(w, w)",
        "reads(t) == 1 and opset() == 21",
        "1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3",
        "rank(b) == 1 or true",
    ],
)
def test_true_conditions(match: Match, condition: str) -> None:
    check_condition(parse_condition(condition), match)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("rank(x) == 3", "rank(x) == 3 does not hold: rank(x) is 4"),
        ("rank(x) == 3 or rank(w) == 3", "does not hold: rank(x) is 4, rank(w) is 4"),
        ("rank(x) == 4 and constant(x)", "rank(x) == 4 and constant(x) does not hold: constant(x) is false"),
        ("not constant(w)", "not constant(w) does not hold: constant(w) is true"),
        ("constant(x)", "constant(x) does not hold"),
        ("dims(x) == {1, 8, 8, 4}", "dims(x) == {1, 8, 8, 4} is not known: N and 1"),
        ("dims(x)[0] != 1", "dims(x)[0] != 1 is not known: N and 1"),
        ("dims(x)[0] > 1", "dims(x)[0] is N and no number"),
        ("dims(x)[7] == 1", "dims(x) is {N, 8, 8, 4} and has no item 7"),
        ("dims(x)[0] + 1 == 2", "dims(x)[0] + 1 cannot be computed: N is no number"),
        ("scalar(x) == 1", "scalar(x) is not known"),
        ("scalar(w) == 1", "scalar(w) is not known"),
        ("value(x) == {1}", "value(x) is not known"),
        ("rank(b) == 1", "b is absent"),
        ("strides == {1, 1}", "strides is absent"),
        ("rank(b) == 1 and true", "b is absent"),
        ("rank(b) == 1 and false", "does not hold: b is absent"),
        ('pad == "SAME_UPPER"', 'does not hold: pad is "NOTSET"'),
        ("dtype(x) == int64", "does not hold: dtype(x) is float"),
        ("g in 1", "1 is no list"),
        ("1 / 0 == 1", "1 / 0 cannot be computed"),
        ("p + {1} == p", "the lists have 4 and 1 items"),
        ("g", "g is 1 and no condition"),
        ("inverse(dims(w)) == {1}", "inverse(dims(w)) is not known"),
        ("sqrt(-4) == 2", "sqrt(-4) is not known"),
        ("g[0] == 1", "g is 1 and no list"),
    ],
)
def test_false_conditions_report_the_actual_values(match: Match, condition: str, reason: str) -> None:
    with pytest.raises(Refusal) as raised:
        check_condition(parse_condition(condition), match)
    assert reason in raised.value.reason


def test_a_custom_reason_is_followed_by_the_actual_values(match: Match) -> None:
    with pytest.raises(Refusal, match=r"^x is no matrix: rank\(x\) is 4$"):
        check_condition(parse_condition("rank(x) == 2"), match, "x is no matrix")


def test_the_longest_conditions_can_be_computed(match: Match) -> None:
    check_condition(parse_condition("151 == 1" + " + 1" * 150), match)
    check_condition(parse_condition("not " * 30 + "true" + " and true" * 150), match)
    check_condition(parse_condition("(" * 30 + "1 == 1" + ")" * 30), match)


def test_an_exact_division_stays_an_integer(match: Match) -> None:
    condition = parse_condition("size(w) / 2 == 4")
    quotient = evaluate(condition.parts[0], match)
    assert (quotient, type(quotient)) == (4, int)


@pytest.mark.parametrize(
    ("condition", "message", "rest"),
    [
        ("rank(x) = 4", "expected a comparison: did you mean '=='?", "= 4"),
        ("rank(x) == ", "expected a name, a number, a list or a function", ""),
        ("1 < 2 < 3", "comparisons cannot be chained; join them with 'and'", "< 3"),
        ("rank(x) == 4 4", "expected the end of the line", "4"),
        ("(rank(x) == 4", "expected ')'", ""),
        ("rank(x == 4", "expected ','", ""),
        ("dims(x)[0 == 1", "expected ']'", "== 1"),
        ("and rank(x)", "'and' is not allowed here", "and rank(x)"),
        ("rank(x) == 4; exit()", "unexpected ';'", "; exit()"),
        ("x.__class__ == 1 @", "unexpected '@'", "@"),
        ("rank(x) ** 2 == 1", "expected a name, a number, a list or a function", "* 2 == 1"),
        ("lambda: 1", "unexpected ':'", ": 1"),
        ("(" * 31 + "1", "nested more than 30 deep", "1"),
        ("not " * 31 + "true", "nested more than 30 deep", "true"),
        ("- " * 31 + "1", "nested more than 30 deep", "1"),
        ("{" * 31 + "1", "nested more than 30 deep", "1"),
        ("1 == 1" + " + 1" * 151, "more than 150 operators on one line; split it", "1"),
        ("true" + " and true" * 151, "more than 150 operators on one line; split it", "true"),
        ("rank(x) == " + "9" * 5000, "the number is too long", "9" * 5000),
    ],
)
def test_mistakes_are_shown_at_their_position(condition: str, message: str, rest: str) -> None:
    with pytest.raises(PatternError) as raised:
        parse_condition(condition)
    assert message in raised.value.what
    assert condition[raised.value.column - 1 :] == rest
