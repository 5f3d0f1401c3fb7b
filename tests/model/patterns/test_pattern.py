"""The pattern language and its matcher."""

from collections.abc import Callable

import onnx_ir as ir
import pytest

from surgery.base.errors import PassError, PatternError
from surgery.model.graph import text
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value
from surgery.model.patterns import Match, compile_pattern, rewrite, rewrite_any

Function = Callable[[Match, Builder], Value | tuple[Value | None, ...] | None]


def fire(pattern: str, source: str, function: Function) -> Graph:
    g = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    rewrite(g, pattern, function, {})
    g.finish()
    return g


def ops(g: Graph) -> list[str]:
    return [node.op for node in g.nodes()]


def mark(m: Match, new: Builder) -> Value:
    """Replace a match by one operator that no pattern here looks for."""
    return new.node("Softsign", m.x)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "the pattern is empty"),
        ("y = Relu(x", "expected ','"),
        ("y Relu(x)", "expected '='"),
        ("y = Relu(x) z", "expected the end of the line"),
        ("y = Relu(x; z)", "unexpected ';'"),
        ("y = Relu(a)\ny = Neg(b)", "line 2 of the pattern: 'y' is defined twice"),
        ("y = Relu(a)\na = Neg(b)", "line 1 of the pattern: 'a' is read before it is defined"),
        ("a = Relu(x)\ny = Neg(z)", "line 1 of the pattern: this is not connected"),
        ("y = Concat(xs..., z)", "must be the last input"),
        ("y = Mul(x, " + "1" * 5000 + ")", "the number is too long"),
        ("y = Relu<axis=>(x)", "expected a number, a string or a list"),
    ],
)
def test_mistakes_in_a_pattern_are_shown(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message.replace("(", r"\(").replace("'", ".").replace("...", ".*")):
        compile_pattern(pattern)


def test_the_caret_is_under_the_mistake() -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern("t = MatMul(a, b)\ny = Add(t bias)")
    line, caret = str(raised.value).splitlines()[-2:]
    assert line[caret.index("^") :] == "bias)"


def test_operands_of_commutative_operators_match_in_either_order() -> None:
    pattern = "a = Neg(x)\ny = Add(a, b)"
    for call in ("Add(p, q)", "Add(q, p)"):
        g = fire(pattern, f"g (float[n] x, float[n] q) => (float[n] y) {{ p = Neg(x) y = {call} }}", mark)
        assert ops(g) == ["Softsign"]
    g = fire(
        pattern.replace("Add", "Sub"), "g (float[n] x, float[n] q) => (float[n] y) { p = Neg(x) y = Sub(q, p) }", mark
    )
    assert ops(g) == ["Neg", "Sub"]


def test_the_other_order_is_tried_when_a_guard_refuses_the_first() -> None:
    def only_abs(m: Match, new: Builder) -> Value:
        m.require(m.b.producer is not None and m.b.producer.op == "Abs", "b is no Abs")
        return new.node("Softsign", m.a)

    source = "g (float[n] x, float[n] z) => (float[n] y) { p = Abs(x) q = Neg(z) y = Add(p, q) }"
    assert ops(fire("y = Add(a, b)", source, only_abs)) == ["Neg", "Softsign"]


@pytest.mark.parametrize(("call", "fires"), [("Clip(x, lo, hi)", True), ("Clip(x, , hi)", True), ("Clip(x)", False)])
def test_optional_inputs(call: str, fires: bool) -> None:
    def check(m: Match, new: Builder) -> Value:
        m.require(m.hi is not None, "no upper bound")
        assert (m.lo is None) == (", ," in call)
        return new.node("Softsign", m.x)

    source = f"g (float[n] x) => (float[n] y) <float lo = {{0}}, float hi = {{6}}> {{ y = {call} }}"
    g = fire("y = Clip(x, lo?, hi?)", source, check)
    assert ops(g) == (["Softsign"] if fires else ["Clip"])


@pytest.mark.parametrize(
    ("constant", "fires"),
    [("float h = {0.5}", True), ("float[2] h = {0.5, 0.5}", True), ("float h = {0.25}", False)],
)
def test_scalar_constants(constant: str, fires: bool) -> None:
    source = f"g (float[2] x) => (float[2] y) <{constant}> {{ y = Mul(h, x) }}"
    assert ops(fire("y = Mul(x, 0.5)", source, mark)) == (["Softsign"] if fires else ["Mul"])


@pytest.mark.parametrize(
    ("constant", "fires"),
    [
        ("float h = {1.4142135}", True),
        ("float h = {1.4142133}", True),
        ("float h = {1.414}", False),
        ("double h = {1.4142135}", False),
        ("float16 h = {15784}", True),  # 1.4140625
        ("int32 h = {1}", False),
    ],
)
def test_constants_up_to_rounding(constant: str, fires: bool) -> None:
    kind = constant.split()[0]
    g = fire(
        "y = Div(x, ~1.4142135623730951)", f"g ({kind}[2] x) => ({kind}[2] y) <{constant}> {{ y = Div(x, h) }}", mark
    )
    assert ops(g) == (["Softsign"] if fires else ["Div"])


@pytest.mark.parametrize(("elements", "fires"), [("{0, -1}", True), ("{-1, 0}", False), ("{0}", False)])
def test_constants_by_their_elements(elements: str, fires: bool) -> None:
    source = "g (float[a, b] x) => (float[a, b] y) <int64[2] s = {0, -1}> { y = Reshape(x, s) }"
    g = fire(f"y = Reshape(x, {elements})", source, mark)
    assert ops(g) == (["Softsign"] if fires else ["Reshape"])


def test_an_overridable_initializer_is_not_matched_as_constant() -> None:
    model = text.parse("g (float[2] x, float h) => (float[2] y) <float other = {0.5}> { y = Mul(x, h) }")
    model.graph.initializer[0].name = "h"
    g = Graph(ir.from_proto(model))
    rewrite(g, "y = Mul(x, 0.5)", mark, {})
    assert ops(g) == ["Mul"]


@pytest.mark.parametrize(
    ("attribute", "fires"), [("<axis=-1>", True), ("<axis=1>", False), ("<axis=which>", True), ("", True)]
)
def test_attributes_and_their_defaults(attribute: str, fires: bool) -> None:
    def check(m: Match, new: Builder) -> Value:
        assert "which" not in attribute or m.which == -1
        return new.node("Softsign", m.x)

    source = "g (float[a, b] x) => (float[a, b] y) { y = Softmax(x) }"
    assert ops(fire(f"y = Softmax{attribute}(x)", source, check)) == (["Softsign"] if fires else ["Softmax"])


def test_a_list_attribute() -> None:
    source = "g (float[a, b] x) => (float[b, a] y) { y = Transpose<perm = [1, 0]>(x) }"
    assert ops(fire("y = Transpose<perm=[1, 0]>(x)", source, mark)) == ["Softsign"]
    assert ops(fire("y = Transpose<perm=[0, 1]>(x)", source, mark)) == ["Transpose"]


def test_variadic_inputs_and_alternatives() -> None:
    def all_of_them(m: Match, new: Builder) -> Value:
        return new.node("Mean", *m.xs)

    for op in ("Max", "Sum"):
        source = f"g (float[n] a, float[n] b, float[n] c) => (float[n] y) {{ y = {op}(a, b, c) }}"
        g = fire("y = Max|Sum(xs...)", source, all_of_them)
        assert ops(g) == ["Mean"]
        assert [value.name for value in g.nodes("Mean")[0].inputs if value] == ["a", "b", "c"]


def test_another_domain() -> None:
    source = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n] x) => (float[n] y) { y = com.microsoft.Gelu(x) }"""
    assert ops(fire("y = Gelu(x)", source, mark)) == ["com.microsoft::Gelu"]
    assert ops(fire("y = com.microsoft::Gelu(x)", source, mark)) == ["Softsign"]


def test_several_outputs() -> None:
    def both(m: Match, new: Builder) -> tuple[Value | None, ...]:
        return new.node("Softsign", m.x), new.node("Softplus", m.x)

    source = "g (float[n] x) => (float[n] y, float[n] z) { y = Neg(x) z = Abs(x) }"
    assert sorted(ops(fire("p = Neg(x)\nq = Abs(x)", source, both))) == ["Softplus", "Softsign"]


def test_outputs_that_lead_to_each_other_are_refused() -> None:
    def both(m: Match, new: Builder) -> tuple[Value | None, ...]:
        return new.nodes("Split", m.x, outputs=2)

    source = "g (float[n] x) => (float[n] z) { p = Neg(x) e = Exp(p) q = Add(x, e) z = Add(p, q) }"
    g = fire("p = Neg(x)\nq = Add(x, other)", source, both)
    assert "Neg" in ops(g)
    assert any("computed from another" in refused.reason for refused in g.refusals)


def test_an_absent_optional_output_needs_no_replacement() -> None:
    source = "g (float[n] x) => (float[n] y) { y = Dropout(x) }"
    assert ops(fire("y, mask? = Dropout(x, ratio?, training?)", source, mark)) == ["Softsign"]


def test_a_used_output_missing_from_the_pattern_prevents_the_match() -> None:
    source = "g (float[n] x) => (float[n] y, bool[n] m) { y, m = Dropout(x) }"
    assert ops(fire("y = Dropout(x)", source, mark)) == ["Dropout"]


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("y = Abs(t) z = Exp(t)", "t is used outside the pattern"),
        ("y = Abs(t) z = Exp(x)", None),
        ("y = Abs(z)", "t is a graph output"),
    ],
)
def test_interior_values_may_not_escape(rest: str, reason: str | None) -> None:
    first = "z" if "Abs(z)" in rest else "t"
    g = fire(
        "t = Neg(x)\ny = Abs(t)", f"g (float[n] x) => (float[n] y, float[n] z) {{ {first} = Neg(x) {rest} }}", mark
    )
    assert ("Softsign" in ops(g)) == (reason is None)
    assert [refused.reason for refused in g.refusals] == ([reason] if reason else [])


def test_a_capture_counts_as_a_use() -> None:
    source = """g (float[n] x, bool c) => (float[n] y, float[n] z) {
        t = Neg(x)
        y = Abs(t)
        z = If(c) <then_branch = a () => (float[n] q) { q = Exp(t) }, else_branch = b () => (float[n] r) { r = Exp(x) }>
    }"""
    g = fire("t = Neg(x)\ny = Abs(t)", source, mark)
    assert [refused.reason for refused in g.refusals] == ["t is used outside the pattern"]


def test_a_pattern_does_not_reach_across_a_subgraph_boundary() -> None:
    source = """g (float[n] x, bool c) => (float[n] z) {
        t = Neg(x)
        z = If(c) <then_branch = a () => (float[n] q) { q = Abs(t) }, else_branch = b () => (float[n] r) { r = Exp(x) }>
    }"""
    g = fire("t = Neg(x)\ny = Abs(t)", source, mark)
    assert [refused.reason for refused in g.refusals] == ["the pattern crosses the boundary of a subgraph"]


def test_a_value_is_not_both_inside_and_an_input() -> None:
    g = fire("t = Neg(x)\ny = Add(t, b)", "g (float[n] x) => (float[n] y) { t = Neg(x) y = Add(t, t) }", mark)
    assert ops(g) == ["Neg", "Add"]
    assert g.refusals[0].reason == "b is computed inside the pattern"


def test_a_rewrite_can_enable_the_next() -> None:
    def halve(m: Match, new: Builder) -> Value:
        return new.node("Neg", m.x)

    source = "g (float[n] x) => (float[n] y) { a = Neg(x) b = Neg(a) c = Neg(b) d = Neg(c) y = Neg(d) }"
    g = fire("a = Neg(x)\ny = Neg(a)", source, halve)
    assert ops(g) == ["Neg"]
    assert len(g.sites) == 4


def test_an_endless_rewrite_is_stopped() -> None:
    def again(m: Match, new: Builder) -> Value:
        return new.node("Neg", m.x)

    with pytest.raises(PassError, match="does not terminate"):
        fire("y = Neg(x)", "g (float[n] x) => (float[n] y) { y = Neg(x) }", again)


def test_several_patterns_are_tried_in_turn() -> None:
    source = "g (float[n] x) => (float[n] y, float[n] z) { a = Neg(x) y = Abs(a) b = Exp(x) z = Abs(b) }"
    g = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    rewrite_any(g, ("a = Neg(x)\ny = Abs(a)", "y = Abs(x)"), mark, {})
    assert ops(g) == ["Softsign", "Exp", "Softsign"]


def test_the_result_of_a_later_pattern_can_match_an_earlier_one() -> None:
    source = "g (float[n] x) => (float[n] y) { a = Exp(x) y = Abs(a) }"
    g = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    rewrite_any(
        g,
        ("a = Neg(x)\ny = Abs(a)", "y = Exp(x)"),
        lambda m, new: new.node("Neg" if m.root.op == "Exp" else "Softsign", m.x),
        {},
    )
    assert ops(g) == ["Softsign"]


def test_a_skipped_site_is_not_taken_by_another_pattern() -> None:
    source = "g (float[n] x) => (float[n] y) { a = Neg(x) y = Abs(a) }"
    g = Graph(ir.from_proto(text.parse(source)), pass_name="test", skip=frozenset({1}))
    rewrite_any(g, ("a = Neg(x)\ny = Abs(a)", "y = Abs(x)"), mark, {})
    assert ops(g) == ["Neg", "Abs"]


def test_cost_follows_the_sites() -> None:
    """A value with many readers must not be walked again for each of its sites."""
    count = 3000
    body = "\n".join(f"t{i} = Neg(x)\nu{i} = Abs(t{i})" for i in range(count))
    total = f"y = Sum({', '.join(f'u{i}' for i in range(count))})"
    calls = 0

    def counted(m: Match, new: Builder) -> Value:
        nonlocal calls
        calls += 1
        return new.node("Softsign", m.x)

    g = fire("t = Neg(x)\ny = Abs(t)", f"g (float[n] x) => (float[n] y) {{ {body} {total} }}", counted)
    assert calls == len(g.sites) == count
