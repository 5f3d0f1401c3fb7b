"""Mistakes in the texts of rules: all of them, each where it is in the recipe."""

import pytest
from support.rule_texts import mistakes, recipe, rule_of

from surgery.engine.recipe import parse

# Mistakes in the texts


def body(match: str, emit: str, more: str = "") -> str:
    lines = ["match: |", *(f"  {line}" for line in match.splitlines())]
    lines += ["emit: |", *(f"  {line}" for line in emit.splitlines()), more]
    return recipe("\n".join(lines))


@pytest.mark.parametrize(
    ("match", "emit", "expected"),
    [
        ("y Relu(x)", "y = x", ["4:9: expected '=' @ Relu(x)"]),
        (
            "a = Relu(x\nb = Neg(a)\ny = Abs b",
            "y = x",
            ["4:17: expected ',' @ ", "6:15: expected '(' @ b"],
        ),
        ("y = Relu(x)\ny = Neg(x)", "y = x", ["5:7: 'y' is defined twice @ y = Neg(x)"]),
        ("t = Relu(a)\ny = Neg(x)", "y = x", ["4:7: this is not connected to the last line @ t = Relu(a)"]),
        ("y = Rleu(x)", "y = x", ["4:11: ONNX has no operator 'Rleu'; did you mean 'Relu'? @ Rleu(x)"]),
        ("y = relu(x)", "y = x", ["4:11: ONNX has no operator 'relu'; did you mean 'Relu'? @ relu(x)"]),
        (
            "y = FusedFrobnicate(x)",
            "y = x",
            [
                "4:11: ONNX has no operator 'FusedFrobnicate'; an operator of your own has a domain: "
                "my.domain::FusedFrobnicate @ FusedFrobnicate(x)"
            ],
        ),
        (
            "y = ai.onnx.ml::Scalar(x)",
            "y = x",
            ["4:11: ai.onnx.ml has no operator 'Scalar'; did you mean 'Scaler'? @ ai.onnx.ml::Scalar(x)"],
        ),
        ("y = Relu(x, z)", "y = x", ["4:11: Relu takes 1 input, not 2 @ Relu(x, z)"]),
        ("y, z = Relu(x)", "y = x\nz = x", ["4:14: Relu has 1 output, not 2 @ Relu(x)"]),
        ("y = Add(x)", "y = x", ["4:11: Add takes 2 inputs, not 1 @ Add(x)"]),
        (
            "y = Transpose<perms=p>(x)",
            "y = x",
            ["4:21: Transpose has no attribute 'perms'; did you mean 'perm'? @ perms=p>(x)"],
        ),
        ("y = Relu<axis=0>(x)", "y = x", ["4:16: Relu has no attribute 'axis'; it has consumed_inputs @ axis=0>(x)"]),
        (
            "y = Transpose<perm=x>(x)",
            "y = x",
            ["4:21: 'x' is a value; choose another name for the attribute @ perm=x>(x)"],
        ),
        ("y = Relu(x)", "y = Abs(z)", ["6:15: the match has no name 'z'; it has x, y @ z)"]),
        ("y = Relu(input)", "y = Abs(inpt)", ["6:15: the match has no name 'inpt'; did you mean 'input'? @ inpt)"]),
        ("y = Relu(x)", "y = Abs(y)", ["6:15: 'y' is read before it is defined @ y)"]),
        ("y = Relu(x)", "t = Abs(y)\ny = Neg(t)", ["6:15: 'y' is read before it is defined @ y)"]),
        (
            "a = Relu(x)\nb = Relu(x)\ny = Add(a, b)",
            "y = Neg(a)\na = Neg(x)",
            [
                "8:15: 'a' is read before it is defined @ a)",
            ],
        ),
        (
            "y = Relu(x)",
            "x = Abs(x)\ny = Neg(x)",
            ["6:7: 'x' is an input of the match; choose another name @ x = Abs(x)"],
        ),
        ("y = Relu(x)", "y = Abs(x)\ny = Neg(x)", ["7:7: 'y' is defined twice @ y = Neg(x)"]),
        (
            "y = Relu(out)",
            "yy = Abs(out)",
            ["6:7: 'yy' is never read; did you mean 'y'? @ yy = Abs(out)"],
        ),
        (
            "y = Relu(x)",
            "t = Abs(x)\ny = Neg(x)",
            ["6:7: 't' is never read; the match returns y @ t = Abs(x)"],
        ),
        ("a, b = TopK(x, k)", "a, i = TopK(x, k)", ["5:11: no line defines 'b', which the match returns"]),
        ("y = Relu(x)", "# nothing", ["5:11: nothing is emitted; 'y = x' replaces y by x"]),
        (
            "y = Relu(x)",
            "y = Abs|Neg(x)",
            ["6:14: emit needs a single operator; 'op(y)' is the operator that y matched @ |Neg(x)"],
        ),
        ("y = Relu(x)", "y, z = x", ["6:14: expected an operator: several values on one line come from one node @ x"]),
        (
            "y = Relu(x)",
            "y = Absolute(x)",
            [
                "6:11: ONNX has no operator 'Absolute'; an operator of your own has a domain: "
                "my.domain::Absolute @ Absolute(x)"
            ],
        ),
        ("y = Relu(x)", "y = Abs(x, x)", ["6:11: Abs takes 1 input, not 2 @ Abs(x, x)"]),
        ("y = Relu(x)", "y, z = Abs(x)", ["6:14: Abs has 1 output, not 2 @ Abs(x)"]),
        ("y = Relu(x)", "y = Cast(x)", ["6:11: Cast needs the attribute 'to' @ Cast(x)"]),
        (
            "y = Relu(x)",
            "y = Softmax<axes=1>(x)",
            ["6:19: Softmax has no attribute 'axes'; did you mean 'axis'? @ axes=1>(x)"],
        ),
        ("y = Relu(x)", "y = Softmax<axis=a>(x)", ["6:24: the match has no name 'a'; it has x, y @ a>(x)"]),
        (
            "y = Relu(x)",
            "y = Softmax<axis=x>(x)",
            ["6:24: 'x' is a value, not an attribute; bind one in the match: <axis=p> @ x>(x)"],
        ),
        ("y = Relu(x)", "y = Softmax<axis=rnk(x)>(x)", ["6:24: no function 'rnk'; did you mean 'rank'? @ rnk(x)>(x)"]),
        ("y = Relu(x)", "y = Softmax<axis=rank(x, 1)>(x)", ["6:24: 'rank' takes one argument, not 2 @ rank(x, 1)>(x)"]),
        ("y = Relu(x)", "y = Softmax<axis=rank(1)>(x)", ["6:29: 'rank' takes a name of the match @ 1)>(x)"]),
        (
            "y = Relu(x)",
            'y = Softmax<axis=__import__("os")>(x)',
            [
                "6:24: no function '__import__'; there are rank, dims, size, dtype, constant, scalar, value, present, "
                "reads, count, same_shape, broadcasts_to, len, concat, inverse, min, max, sum, prod, abs, floor, sqrt "
                '@ __import__("os")>(x)'
            ],
        ),
        (
            "y = Softmax<axis=a>(x)",
            "y = Softmax<axis=rank(a)>(x)",
            ["6:29: 'rank' takes a value, and 'a' is an attribute @ a)>(x)"],
        ),
        (
            "y = Relu(x)",
            "y = Softmax<x...>(x)",
            ["6:19: 'x...' refers to the node that produces 'x', but no line of the match does @ x...>(x)"],
        ),
        ("y = Softmax(x)", "y = Relu<y...>(x)", ["6:16: 'y...' are attributes of Softmax, not of Relu @ y...>(x)"]),
        (
            "y = Relu(x)",
            "y = op(x)(x)",
            ["6:11: 'op(x)' refers to the node that produces 'x', but no line of the match does @ op(x)(x)"],
        ),
        ("y = Relu(x)", "y = Mul(x, rank(x) == 4)", ["6:26: expected ',' @ == 4)"]),
        (
            "y = Relu(x)",
            "y = Shape(3)",
            ["6:17: Shape does not determine the type of this constant: write float(3) @ 3)"],
        ),
        (
            "y = Relu(x)",
            "y = com.acme::F(x, 3)",
            ["6:26: F does not determine the type of this constant: write float(3) @ 3)"],
        ),
        ("y = Relu(x)", "y = 3", ["6:11: a constant alone needs a type: float(1) or like(x, 1) @ 3"]),
        (
            "y = Relu(x)",
            "y = Mul(x, float(1, 2))",
            ["6:18: 'float' creates a constant: write float({0, 1}) @ float(1, 2))"],
        ),
        ("y = Relu(x)", "y = Mul(x, like(1, 2))", ["6:23: 'like' takes a name of the match @ 1, 2))"]),
        (
            "y = Relu(x)",
            "y = Mul(x, 1 + float(2))",
            ["6:22: 'float' creates a constant and cannot be part of an expression @ float(2))"],
        ),
        (
            "y = Conv(x, w, b?)",
            "y = Conv<y...>(x, w, b)",
            ["6:28: 'b' may be absent; write 'b?' to omit it then, or add 'where: present(b)' @ b)"],
        ),
        (
            "y = Conv(x, w, b?)",
            "t = Conv<y...>(x, w)\ny = Add(t, b?)",
            ["7:18: Add needs this input, but 'b' may be absent @ b?)"],
        ),
        ("y = Conv(x, w, b?)", "y = b?", ["6:11: 'b' may be absent; add 'where: present(b)' @ b?"]),
        ("y = Concat<axis=a>(xs...)", "y = Concat<axis=a>(xs)", ["6:26: the match has 'xs...' here, not 'xs' @ xs)"]),
        ("y = Relu(x)", "y = Concat<axis=0>(x...)", ["6:26: the match has 'x' here, not 'x...' @ x...)"]),
        ("y = Relu(x)", "y = Abs(x) z", ["6:18: expected the end of the line @ z"]),
        ("y = Relu(x)", "y = Abs(é)", ["6:15: unexpected 'é' @ é)"]),
    ],
)
def test_mistakes_in_match_and_emit(match: str, emit: str, expected: list[str]) -> None:
    assert mistakes(body(match, emit)) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("rank(z) == 4", "4:19: the match has no name 'z'; it has p, x, y @ z) == 4"),
        ("rank(x) = 4", "4:22: expected a comparison: did you mean '=='? @ = 4"),
        ("rank(x)", None),
        ("x == 4", "4:14: 'x' is a value; use a property of it, such as dims(x) @ x == 4"),
        ("dimz(x) == 4", "4:14: no function 'dimz'; did you mean 'dims'? @ dimz(x) == 4"),
        ("p", "4:14: this is not a condition; compare it with a value @ p"),
        ("1 + 2", "4:14: this is not a condition; compare it with a value @ 1 + 2"),
        ("'rank(z) == 4'", "4:20: the match has no name 'z'; it has p, x, y @ z) == 4'"),
        ('"rank(z) == 4"', "4:20: the match has no name 'z'; it has p, x, y @ z) == 4\""),
        ("rank(z) == 4: no image", "4:19: the match has no name 'z'; it has p, x, y @ z) == 4: no image"),
        ("count(x) == 1", "4:20: 'count' takes a variadic name, and 'x' is a value @ x) == 1"),
        ("float(1) == 1", "4:14: 'float' creates a constant and cannot be part of an expression @ float(1) == 1"),
    ],
)
def test_mistakes_in_conditions(condition: str, expected: str | None) -> None:
    text = (
        f"rules:\n  swish:\n    where:\n    -        {condition}\n"
        "    match: y = Softmax<axis=p>(x)\n    emit: y = x\nsteps: [swish]\n"
    )
    if expected is None:
        parse(text)
    else:
        assert mistakes(text) == [expected]


def test_the_place_of_a_mistake_in_every_yaml_text_style() -> None:
    ways = {
        "match: y = Rleu(x)": "3:16",
        "match: 'y = Rleu(x)'": "3:17",
        'match: "y = Rleu(x)"': "3:17",
        "match: >\n  y = Rleu(x)": "4:11",
        "match: |1\n    y = Rleu(x)": "4:13",
        "match: |\n\n  # comment\n  y = Rleu(x)": "6:11",
        "match: [y = Abs(x), y = Rleu(x)]": "3:29",
        'match: "t = Abs(x)\\ny = Rleu(t)"': "3:12",
    }
    for rule, place in ways.items():
        (found,) = mistakes(recipe(f"{rule}\nemit: y = x"))
        assert found.startswith(f"{place}: ONNX has no operator 'Rleu'"), rule


def test_all_mistakes_are_reported_at_once() -> None:
    text = """rules:
  one:
    match: |
      y = Rleu(x)
    emit: |
      y = Abs(z)
    where: rank(q) == 1
    parity: good
  two:
    match: y = Relu(x)
    emit: y = Negative(x)
steps:
  - one
  - tow
"""
    assert [found.split(" ")[0] for found in mistakes(text)] == ["4:11:", "6:15:", "7:17:", "8:13:", "11:15:", "14:5:"]


def test_operators_are_checked_against_the_opset_of_the_rule() -> None:
    gelu = "match: y = Relu(x)\nemit: y = Gelu(x)\n"
    parse(recipe(gelu))
    parse(recipe(gelu + "opset: '>= 20'"))
    assert mistakes(recipe(gelu + "opset: '< 20'")) == [
        "4:15: Gelu exists since opset 20, and not where opset < 20 @ Gelu(x)"
    ]
    axes = "match: y = Relu(x)\nemit: y = Squeeze<axes=[0]>(x)\n"
    parse(recipe(axes))
    assert mistakes(recipe(axes + "opset: '>= 13'"))[0].startswith("4:23: Squeeze has no attribute 'axes'")


def test_ways_to_match_must_agree() -> None:
    rule = "match: ['y = Clip(x, lo)', 'y = Relu(x)']\nemit: y = Max(x, lo)"
    assert mistakes(recipe(rule)) == [
        "4:22: 'lo' may be absent; write 'lo?' to omit it then, or add 'where: present(lo)' @ lo)"
    ]
    parse(recipe(rule + "\nwhere: present(lo) and rank(x) == 2"))
    assert mistakes(recipe("match: ['y = Relu(x)', 'z = Abs(x)']\nemit: y = x")) == [
        "3:28: this alternative returns z, but the first one returns y"
    ]


FUNCTION = """
match: y = Relu(x)
emit: y = com.acme::Ramp(x)
functions: |
  <domain: "com.acme", opset_import: ["": 21]>
  Ramp (x) => (y) { y = Relu(x) }
"""


def test_functions_are_read() -> None:
    (function,) = rule_of(recipe(FUNCTION)).rule.defined
    assert (function.domain, function.name) == ("com.acme", "Ramp")
    two = FUNCTION + '\n  # and\n  <domain: "com.acme">\n  Other <a> (x) => (y) { y = Abs(x) }\n'
    assert len(rule_of(recipe(two)).rule.defined) == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Relu(x) }", "Relu(x }", "7:3"),
        ("{ y = Relu(x) }", "{ y = Elu<alpha = 1e400>(x) }", "6:7: not ONNX text"),
        ('domain: "com.acme", ', "", '7:7: function Ramp needs a domain: <domain: "my.domain"> @ Ramp (x)'),
        ("{ y = Relu(x) }", "{ }", "7:7: function Ramp does nothing"),
        ("{ y = Relu(x) }", "{ y = Relu(z) }", "7:7: in function Ramp, no node produces 'z'"),
        ("{ y = Relu(x) }", "{ z = Relu(x) }", "7:7: in function Ramp, no node produces 'y'"),
        ("::Ramp", "::Rampe", "4:15: no function 'Rampe' in this rule; did you mean 'Ramp'? @ com.acme::Rampe(x)"),
        ("::Ramp(x)", "::Ramp(x, x)", "4:15: function Ramp takes 1 input, not 2"),
        ("::Ramp(x)", "::Ramp<a=1>(x)", "4:30: function Ramp has no attribute 'a'"),
        ("Ramp (x) => (y) { y = Relu(x) }", "", "6"),
    ],
)
def test_mistakes_in_functions(old: str, new: str, expected: str) -> None:
    found = mistakes(recipe(FUNCTION.replace(old, new)))
    assert [found[0][: len(expected)]] == [expected], found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('dtype(x) == "float32"', 'a type is written as a word without quotes: float, float16, int64, ... @ "float32"'),
        ("dtype(x) in {float, 1}", "a type is written as a word without quotes: float, float16, int64, ... @ 1}"),
        ("dtype(x) == float32", "the match has no name 'float32'; the name of this type is float @ float32"),
    ],
)
def test_a_type_is_compared_only_with_types(where: str, expected: str) -> None:
    (found,) = mistakes(body("y = Relu(x)", "y = x", f"where: '{where}'"))
    assert found.startswith("7:")
    assert found.partition(": ")[2].startswith(expected)
