"""Partial matches: what is wrong with a line of a pattern, in words."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from surgery.engine.why.explain import Flaw, NearMiss, Refusals, Why
from surgery.engine.why.near_misses import Grower, Partial
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.patterns import compile_pattern


def grown(pattern: str, source: str, op: str, line: int = 0) -> Partial:
    """Grow a match from the first node of an operator, as that line of the pattern."""
    graph = Graph(ir.from_proto(text.parse(source)))
    found = Grower(compile_pattern(pattern)).grow(line, graph.nodes(op)[0], limit=9)
    assert found is not None
    return found


def body(lines: str) -> str:
    constants = "float half = {0.51}, int64[2] shape = {2, 3}"
    return f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) <{constants}> {{ {lines} }}"


@pytest.mark.parametrize(
    ("pattern", "lines", "kind", "told"),
    [
        ("a = Relu(x)\ny = Mul(a, 0.5)", "a = Relu(x) y = Mul(a, half)", "constant",
         "expected 0.5, found 0.51 ('half')"),
        ("a = Relu(x)\ny = Mul(a, 0.5)", "a = Relu(x) y = Mul(a, z)", "constant",
         "expected 0.5, found graph input 'z'"),
        ("a = Relu(x)\ny = Softmax<axis=-1>(a)", "a = Relu(x) y = Softmax<axis=1>(a)", "attribute",
         "expected axis = -1, found axis = 1"),
        ("a = Relu(x)\ny = Softmax<axis=0>(a)", "a = Relu(x) y = Softmax(a)", "attribute",
         "expected axis = 0, found axis = -1 by default"),
        ("a = Relu(x)\ny = Clip(a)", "a = Relu(x) y = Clip(a, half)", "input", "expected 1 input, found 2"),
        ("a = Relu(x)\ny = Clip(a, low)", "a = Relu(x) y = Clip(a)", "input", "expected an input 1 (low), found none"),
        ("a = Relu(x)\ny = Mul(a, x)", "a = Relu(x) y = Mul(a, z)", "value", "expected 'x' as x, found 'z'"),
        ("a = Relu(x)\ny = Sub(a, 1)", "a = Relu(x) y = Add(a, z)", "operator", "expected Sub, found 'Add -> y'"),
        ("a = Relu(x)\ny = Neg(a)", "a = Relu(x) c = Cast<to=1>(a) y = Neg(c)", "between",
         "expected Neg, found 'Cast -> c' in between"),
        ("a = Relu(x)\ny = Sub(a, w)", "a = Relu(x) y = Sub(z, a)", "order", "expected Sub(a, w), found its inputs"),
        ("a = Relu(x)\nb = Neg(a)\ny = Exp(b)", "a = Relu(x) y = Identity(a)", "reader",
         "expected Neg to read 'a', found 'Identity -> y'"),
        ("a = Relu(x)\ny = Neg(a)", "a = Relu(x) y = Identity(z)", "reader", "expected Neg to read 'a', found nothing"),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_named(pattern: str, lines: str, kind: str, told: str) -> None:
    found = grown(pattern, body(lines), "Relu")
    assert found.faults[0].kind == kind
    fault = found.faults[0]
    assert f"expected {fault.expected}, found {fault.actual}".startswith(told)


@pytest.mark.parametrize(
    ("line", "written", "faults"),
    [
        ("y = Reshape(a, {2, 3})", "y = Reshape(a, shape)", []),
        ("y = Reshape(a, {3, 2})", "y = Reshape(a, shape)", ["constant: {3, 2}, not {2, 3} ('shape')"]),
        ("y = Mul(a, ~0.5)", "y = Mul(a, half)", ["constant: ~0.5, not 0.51 ('half')"]),
        ("y = Transpose<perm=p>(a)", "y = Transpose<perm = [1, 0]>(a)", []),
        ("y = Transpose<perm=[0, 1]>(a)", "y = Transpose<perm = [1, 0]>(a)",
         ["attribute: perm = [0, 1], not perm = [1, 0]"]),
        ("y = Cast<to=7>(a)", "y = Cast<to = 1>(a)", ["attribute: to = 7, not to = 1"]),
        ("y = Clip(a, b, c)", "y = Clip(a, , half)", ["input: an input 1 (b), not none"]),
        ("y = Clip(a, b?, c)", "y = Clip(a, , half)", []),
        ("y = Clip(a, more...)", "y = Clip(a, half, half)", []),
        ("y = Clip(a, b)", "y = Clip(a, half, half)", ["input: 2 inputs, not 3"]),
        ("y = Sub(a, a)", "y = Sub(a, z)", ["value: 'a' as a, not 'z'"]),
        ("y = Sub(0.51, a)", "y = Sub(a, half)", ["order: Sub(0.51, a), not its inputs in the reverse order"]),
        ("y = Sub(1, a)", "y = Sub(a, half)",
         ["constant: 1, not the result of 'Relu -> a'", "value: 'a' as a, not 'half'"]),
        ("y, m = Dropout(a)", "y = Dropout(a)", ["output: an output 1 (m), not none"]),
        ("y, m? = Dropout(a)", "y = Dropout(a)", []),
        ("y = Mul|Div(a, w)", "y = Sub(a, z)", ["operator: Mul or Div, not 'Sub -> y'"]),
        ("y = com.microsoft::Gelu(a)", "y = Sub(a, z)", ["operator: com.microsoft::Gelu, not 'Sub -> y'"]),
        ("y = Transpose<perm=[1, 0]>(a)", "y = Transpose<perm = [1, 0]>(a)", []),
        ("v = TopK(a, k)\ny = Neg(v)", "v, i = TopK(a, shape) y = Neg(v)", []),
        ("v, i = TopK(a, k)\ny = Add(v, i)", "v, i = TopK(a, shape) w, j = TopK(x, shape) y = Add(v, j)",
         ["value: 'i' as i, not 'j'"]),
        ("y = Neg(a)", "c = Cast<to = 1>(a) y = Abs(c)", ["operator: Neg, not 'Cast -> c'"]),
        ("k = Neg(w)\nb = Sub(a, k)\ny = Exp(b)", "k = Neg(z) b = Add(a, k) y = Exp(b)",
         ["operator: Sub, not 'Add -> b'"]),
        # Neither of two ways to a line reaches it: that is one mistake.
        ("b = Neg(x)\ny = Add(a, b)", "y = Add(a, z)", ["source: the result of Neg, not graph input 'z'"]),
        # What is further on is found past a line that is missing.
        ("b = Neg(a)\nc = Exp(b)\ny = Add(c, a)", "b = Abs(a) c = Exp(b) y = Add(c, a)",
         ["reader: Neg to read 'a', not 'Abs -> b', 'Add -> y'"]),
    ],
)  # fmt: skip
def test_all_that_differs_is_listed(line: str, written: str, faults: list[str]) -> None:
    found = grown(f"a = Relu(x)\n{line}", body(f"a = Relu(x) {written}"), "Relu")
    assert [f"{one.kind}: {one.expected}, not {one.actual}" for one in found.faults] == faults
    # A wrong operator, a missing source or a missing reader counts twice.
    assert found.distance == sum(1 + one.startswith(("operator", "source", "reader")) for one in faults)


LONG = "a = Relu(x)\nb = Neg(a)\nc = Exp(b)\ny = Mul(c, w)"


@pytest.mark.parametrize(
    ("lines", "op", "line", "may"),
    [
        ("a = Relu(x) y = Neg(a)", "Relu", 0, True),
        ("a = Relu(x) y = Exp(a)", "Relu", 0, False),
        ("a = Abs(x) b = Neg(a) y = Exp(b)", "Neg", 1, True),
        ("a = Relu(x) b = Neg(a) y = Abs(b)", "Neg", 1, True),
        ("a = Abs(x) b = Neg(a) y = Abs(b)", "Neg", 1, False),
        ("c = Exp(x) y = Mul(c, z)", "Mul", 3, True),
        ("c = Exp(x) y = Mul(z, c)", "Mul", 3, True),
        ("c = Abs(x) y = Mul(z, c)", "Mul", 3, False),
    ],
)
def test_a_long_pattern_is_tried_where_a_neighbor_is_as_it_wants(lines: str, op: str, line: int, may: bool) -> None:
    graph = Graph(ir.from_proto(text.parse(body(lines))))
    assert Grower(compile_pattern(LONG)).may_start(line, graph.nodes(op)[0]) is may
    # A short one is tried everywhere.
    assert Grower(compile_pattern("\n".join(LONG.splitlines()[:3]))).may_start(min(line, 2), graph.nodes(op)[0])


def test_a_source_that_no_node_makes() -> None:
    found = grown("a = Relu(x)\ny = Neg(a)", body("y = Neg(x)"), "Neg", line=1)
    (fault,) = found.faults
    assert (fault.kind, fault.expected, fault.actual) == ("source", "the result of Relu", "graph input 'x'")


def test_an_output_that_the_pattern_does_not_have() -> None:
    found = grown("a = TopK(x, k)\ny = Neg(a)", """g (float[4] x, int64[1] k) => (float[4] y, int64[4] j) {
        a, i = TopK(x, k) y = Neg(a) j = Identity(i) }""", "TopK")  # fmt: skip
    (fault,) = found.faults
    assert (fault.kind, fault.expected) == ("output", "one output in use")
    assert fault.actual == "'i' read by 'Identity -> j'"


def test_a_pattern_that_fits_has_no_faults() -> None:
    found = grown("a = Relu(x)\nb = Neg(a)\ny = Add(a, b)", body("a = Relu(x) b = Neg(a) y = Add(b, a)"), "Neg", line=1)
    assert (found.faults, found.matched, found.distance) == ((), 3, 0)


def test_a_match_beyond_the_limit_is_not_a_near_miss() -> None:
    graph = Graph(ir.from_proto(text.parse(body("a = Relu(x) b = Abs(a) y = Cos(b)"))))
    grower = Grower(compile_pattern("a = Relu(x)\nb = Neg(a)\ny = Exp(b)"))
    assert grower.grow(0, graph.nodes("Relu")[0], limit=1) is None
    assert grower.grow(0, graph.nodes("Relu")[0], limit=4) is not None


def test_many_readers_cost_no_more_than_few() -> None:
    lines = " ".join(f"r{number} = Neg(a)" for number in range(300))
    found = grown("a = Relu(x)\nb = Exp(a)\ny = Add(a, b)", body(f"a = Relu(x) {lines} y = Identity(a)"), "Relu")
    assert found.faults and len(found.nodes) >= 1


def test_a_near_miss_counts_its_further_flaws() -> None:
    flaw = Flaw("y = Relu(x)", "operator", "a", "Relu", "Neg")
    one = NearMiss("a", "Neg", 21, 1, 1, (), (flaw,), "", (), "", "", (), ())
    assert one.summary == "'a': expected Relu, found Neg in 'y = Relu(x)'"
    assert replace(one, flaws=(flaw, flaw)).summary == f"{one.summary} and 1 more"


def test_absent_operators_explain_nothing_if_a_pass_refused() -> None:
    why = Why("fuse", "pattern", refusals=(Refusals("no bias", "", 2, ()),), absent=("Erf",))
    assert why.lines(3) == ["refused 2 times: no bias"]
    assert replace(why, refusals=()).lines(3) == ["no pattern can match completely: the model has no Erf"]
