"""Regions that show nothing as they are: run at other sizes, with other numbers or nodes, by the right tolerance."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.kept_elements import with_elements
from surgery.verification.regions.region_comparer import PROVED
from surgery.verification.regions.region_values import Form, Point
from surgery.verification.regions.region_variants import variants
from surgery.verification.regions.regions import Region, nudged
from surgery.verification.regions.sizes import enlarged
from surgery.verification.verdict.verifier import Verifier


def judged(before: str | onnx.ModelProto, after: str | onnx.ModelProto, promise: Parity = Parity.EXACT) -> Verdict:
    protos = [text.parse(model) if isinstance(model, str) else model for model in (before, after)]
    models = [proto.SerializeToString() for proto in protos]
    verifier = Verifier(models[0], None, VerifySpec())
    try:
        assert verifier.original.problem is None
        return verifier.changes.compare_regions(models[0], models[1], promise).verdict
    finally:
        verifier.close()


HEAD = """g (float[N,1] x, float[1,6] z) => (float[A,B] y) <float one = {1}, float two = {2}, int64[1] at = {1},
    int64[1] last = {-1}, int64[1] first = {0}, bool[2] none = {0, 0}, bool[1] all = {1}, int64[4] cut = {0, -1, 0, 0},
    int64 never = {0}, int64[2] halves = {2, 2}, int64[4] more = {0, 0, 0, 3}, int64[2] flat = {1, -1}> {"""

EMPTYING = {
    "a Slice that ends where it begins": "OUT = Slice(x, at, at)",
    "a Slice that ends before it begins": "OUT = Slice(x, at, first)",
    "a Slice from the end": "OUT = Slice(x, last, last)",
    "a Slice backwards": "OUT = Slice(x, first, first, first, last)",
    "a Compress of nothing": "OUT = Compress<axis = 0>(x, none)",
    "a Pad that cuts off all": "r = Compress<axis = 1>(x, all) OUT = Pad(r, cut)",
    "an end that is computed": """s = Shape(z) n = Gather(s, first) m = Sub(n, at) end = Abs(m)
        OUT = Slice(z, first, end, first)""",
    "a loop that never runs, of parts of a fixed size": """
        f, OUTl = Loop(never, , x) <body = b (int64 i, bool go, float[N,1] v) => (bool on, float[N,1] w, float[N,C] t)
            { on = Identity(go) w = Neg(v) p = Pad(v, more) h, k = Split<axis = 1>(p, halves)
              t = Concat<axis = 1>(k, h) }>
        OUT = Reshape(OUTl, flat)""",
}
RIGHT, WRONG = "y = Mul(d, two)", "y = Mul(d, one)"


@pytest.mark.parametrize("kind", sampled(EMPTYING, 4))
@pytest.mark.parametrize(("change", "holds"), [(RIGHT, True), (WRONG, False)])
def test_empty_values_are_compared_at_sizes_with_elements(kind: str, change: str, holds: bool) -> None:
    before, after = (f"{HEAD} {EMPTYING[kind].replace('OUT', name)} " for name in "cd")
    verdict = judged(before + "y = Add(c, c) }", after + change + "}")
    assert verdict.passed is holds, verdict.message


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("numbers", "opened"),
    [
        ([[1], [1]], [4]),
        ([[2], [1]], [5]),
        ([[2], [3]], None),
        ([[-1], [-1]], [MOST]),
        ([[-2], [1]], None),
        ([[2], [-1]], None),
        ([[MOST - 3], [0]], [MOST]),
        ([[1, 0], [1, 2], [0, 1]], [4, 2]),
        ([[1], [1], [0], [2]], [7]),
        ([[0], [0], [0], [-1]], [1 - 2**63]),
        ([[0], [1], [0], [-1]], [1 - 2**63]),
        ([[1], [0], [0], [-1]], None),
        ([[1], [1, 1]], None),
    ],
)
def test_a_slice_of_nothing_gets_another_end(numbers: list[list[int]], opened: list[int] | None) -> None:
    names = "seab"[: len(numbers)]
    stored = ", ".join(
        f"int64[{len(one)}] {name} = {{{', '.join(map(str, one))}}}" for name, one in zip(names, numbers)
    )
    piece = text.parse(f"g (float[4,4] x) => (float[A,B] y) <{stored}> {{ y = Slice(x, {', '.join(names)}) }}")
    found = with_elements(Region(("y",), ("y",), ("x",), piece, piece, 1))
    assert (found is None) is (opened is None)
    if found is not None:
        (node,), ends = found.after.graph.node, found.after.graph.initializer[-1]
        assert node.input[:2] == ["x", "s"] and node.input[2] == ends.name and node.input[3:] == [*names[2:]]
        assert numpy_helper.to_array(ends).tolist() == opened


@pytest.mark.parametrize(
    ("node", "opened"),
    [
        ("Slice<axes = [1], starts = [1], ends = [1]>(x)", {"ends": [4], "axes": [1], "starts": [1]}),
        ("Slice<starts = [1], ends = [2]>(x)", None),
        ("Pad<pads = [0, -1, 0, 2], value = 1.0>(x)", {"pads": [0, 1, 0, 2], "value": 1.0}),
        ("Pad<pads = [0, 1, 0, 2]>(x)", None),
    ],
)
def test_a_node_with_numbers_in_attributes_gets_others(node: str, opened: dict[str, object] | None) -> None:
    piece = text.parse(f"g (float[4,4] x) => (float[A,B] y) {{ y = {node} }}", opset=9)
    found = with_elements(Region(("y",), ("y",), ("x",), piece, piece, 1))
    attributes = None
    if found is not None:
        (changed,) = found.before.graph.node
        assert list(changed.input) == ["x"]
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in changed.attribute}
    assert attributes == opened


@pytest.mark.parametrize(
    ("wanted", "opened"), [([0, 0, 0], [1, 1, 1]), ([0, 1, 0], None), ([], None)], ids=["none", "one", "empty"]
)
def test_a_compress_of_nothing_selects_everything(wanted: list[int], opened: list[int] | None) -> None:
    stored = f"bool[{len(wanted)}] w = {{{', '.join(map(str, wanted))}}}"
    piece = text.parse(f"g (float[3] x) => (float[A] y) <{stored}> {{ y = Compress<axis = 0>(x, w) }}")
    found = with_elements(Region(("y",), ("y",), ("x",), piece, piece, 1))
    assert (found and numpy_helper.to_array(found.before.graph.initializer[-1]).tolist()) == opened


STARTS = (("p", "far"), ("q", "further"))


def test_a_value_that_is_not_always_empty_is_not_taken_for_empty() -> None:
    """No extent beyond 70,000 is tried: there the first Slice has elements, whatever becomes of the other one."""
    model = """g (float[N] x) => (float[A] y) <int64[1] far = {70000}, int64[1] further = {70001}, int64[1] at = {1},
        int64[1] end = {9223372036854775807}> {
        Ps = Slice(x, FROM, end) Pe = Slice(x, at, at) Pt = Concat<axis = 0>(Ps, Pe) y = Add(Pt, Pt) }"""
    before, other = (model.replace("P", name).replace("FROM", start) for name, start in STARTS)
    assert not judged(before, other).passed


def test_a_region_with_a_possibly_empty_branch_is_not_enlarged() -> None:
    model = """g (float[N] x, bool c) => (float[A] y) <int64[1] at = {1}, int64[1] far = {70}, int64[1] end = {99999}> {
        y = If(c) <then_branch = t () => (float[B] a) { a = Slice(x, at, at) },
            else_branch = f () => (float[D] b) { b = Slice(x, far, end) }> }"""
    piece = text.parse(model)
    assert with_elements(Region(("y",), ("y",), ("x", "c"), piece, piece, 1)) is None
    both = text.parse(model.replace("far, end", "at, at"))
    assert with_elements(Region(("y",), ("y",), ("x", "c"), both, both, 1)) is not None


def test_a_region_that_is_given_integers_is_not_enlarged() -> None:
    """They may be indices or shapes, which are taken from runs at the sizes of the model."""
    piece = text.parse("g (float[N,4] x, int64[M] i) => (float[M,4] y) { y = Gather(x, i) }")
    form, indices = Form(np.dtype(np.float32), (3, 4)), Form(np.dtype(np.int64), (2,))
    point = Point({"N": 3, "M": 2}, [], {"x": form, "i": indices})
    assert enlarged(Region(("y",), ("y",), ("x", "i"), piece, piece, 1), [point]) == []
    floats = text.parse("g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }")
    (larger,) = enlarged(Region(("y",), ("y",), ("x",), floats, floats, 1), [point])
    assert min(larger.forms["x"].shape) > 2


def test_nodes_that_remove_different_elements_stay_different() -> None:
    pieces = [text.parse(f"{HEAD} e = Slice(x, {at}, {at}) y = Add(e, e) }}") for at in ("at", "first")]
    opened = with_elements(Region(("y",), ("y",), ("x",), pieces[0], pieces[1], 2))
    assert opened is not None
    ends = [
        piece.graph.initializer[-1].int64_data or piece.graph.initializer[-1].raw_data
        for piece in (opened.before, opened.after)
    ]
    assert ends[0] != ends[1]


INFINITE = """g (float[N,2] x) => (float[N,4] y) <float[2] low = {-inf, -inf}, float[2] high = {inf, nan},
    float[4] joined = {-inf, -inf, inf, nan}> { m = Exp(x) """


@pytest.mark.parametrize(("second", "holds"), [("m", True), ("n", False)])
def test_never_finite_values_are_compared_after_constants_were_joined(second: str, holds: bool) -> None:
    before = INFINITE + "l = Add(m, low) r = Add(m, high) y = Concat<axis = 1>(l, r) }"
    after = INFINITE + f"n = Tanh(x) d = Concat<axis = 1>(m, {second}) y = Add(d, joined) }}"
    verdict = judged(before, after, Parity.CLOSE)
    assert verdict.passed is holds, verdict.message


@pytest.mark.parametrize(("factor", "holds"), [("two", True), ("one", False)])
def test_stored_numbers_in_a_subgraph_do_not_hide_a_change(factor: str, holds: bool) -> None:
    model = """g (float[N,2] x) => (float[N,2] y) <float one = {1}, float two = {2}, int64 turns = {2}> {
        y = Loop(turns, , x) <body = b (int64 i, bool go, float[N,2] v) => (bool on, float[N,2] w)
            <float no = {nan}> { on = Identity(go) a = CHANGE w = Sub(a, no) }> }"""
    verdict = judged(model.replace("CHANGE", "Add(v, v)"), model.replace("CHANGE", f"Mul(v, {factor})"))
    assert verdict.passed is holds, verdict.message


BRANCHES = """g (float[N,4] x) => (float[A,B] y) <bool yes = {1}, int64[1] at = {1}, float two = {2}> {
    a = Exp(x) y = If(CONDITION) <then_branch = t () => (float[C,D] b) { s = Slice(a, at, at) b = Mul(s, two) },
        else_branch = e () => (float[E,F] c) { c = Slice(x, at, at) }> }"""
TAKEN = "g (float[N,4] x) => (float[A,B] y) <int64[1] at = {1}, float two = {2}> { a = Exp(x) BODY }"


@pytest.mark.parametrize(
    ("body", "proved"),
    [
        ("s = Slice(a, at, at) y = Mul(s, two)", True),
        ("s = Slice(a, at, at) y = Mul(s, s)", False),
        ("y = Slice(x, at, at)", False),
    ],
)
def test_an_if_of_a_constant_condition_is_its_branch(body: str, proved: bool) -> None:
    verdict = judged(BRANCHES.replace("CONDITION", "yes"), TAKEN.replace("BODY", body))
    assert verdict.message.startswith(PROVED) is proved
    assert verdict.passed is proved, verdict.message


def test_an_overridable_condition_is_not_constant() -> None:
    before = text.parse(BRANCHES.replace("CONDITION", "yes"))
    before.graph.input.append(onnx.helper.make_tensor_value_info("yes", onnx.TensorProto.BOOL, []))
    after = text.parse(TAKEN.replace("BODY", "s = Slice(a, at, at) y = Mul(s, two)"))
    after.graph.input.append(before.graph.input[-1])
    after.graph.initializer.append(next(tensor for tensor in before.graph.initializer if tensor.name == "yes"))
    assert not judged(before, after).message.startswith(PROVED)


def test_a_changed_branch_is_a_change_of_the_model() -> None:
    """Outputs that prove nothing are shown where no node has changed that they depend on."""
    model = """g (float[N,4] x) => (float[N,4] y) <bool yes = {1}, float zero = {0}> { z = Mul(x, zero)
        y = If(yes) <then_branch = t () => (float[N,4] b) { b = OP(z) },
            else_branch = e () => (float[N,4] c) { c = Neg(x) }> }"""
    sides = [text.parse(model.replace("OP", op)).SerializeToString() for op in ("Tanh", "Sin")]
    verifier = Verifier(sides[0], None, VerifySpec())
    try:
        assert not verifier.verify(sides[1], Parity.EXACT).passed
    finally:
        verifier.close()


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("number", "holds"), [("-1", True), ("1", False)])
def test_a_zero_of_another_shape_is_replaced_too(opset: int, number: str, holds: bool) -> None:
    model = """<ir_version: 8, opset_import: ["" : %d]> g (float[N,4] x) => (float[N,4] y)
        <float[1,1] c = {-1}, float[1,1] d = {%s}> { n = Neg(x) s = Shape(n) %s y = Add(n, r) }"""
    before = model % (opset, number, "e = Expand(c, s) r = Relu(e)")
    verdict = judged(before, model % (opset, number, "r = Relu(d)"))
    assert verdict.passed is holds, verdict.message


def test_integers_are_not_perturbed() -> None:
    piece = text.parse("g (float[N] x, float s, uint8 z) => (uint8[N] q) { q = QuantizeLinear(x, s, z) }")
    assert nudged(piece, "q", onnx.TensorProto.UINT8) is None and nudged(piece, "x", onnx.TensorProto.FLOAT) is None
    assert nudged(piece, "q", onnx.TensorProto.FLOAT) is not None


@pytest.mark.parametrize(("change", "holds"), [("t = Mul(k, two)", True), ("t = Mul(k, one)", False)])
def test_initializers_that_only_an_inner_subgraph_reads_are_found_at_ir_version_3(change: str, holds: bool) -> None:
    model = """<ir_version: 3, opset_import: ["" : 11]> g (float[N,4] x, bool c, float[4] k) => (float[N,4] y)
        <float[4] k = {1, 2, 3, 4}, float one = {1}, float two = {2}, float far = {7}> { h = Add(x, HOW)
        y = If(c) <then_branch = t () => (float[N,4] a)
            { a = If(c) <then_branch = u () => (float[N,4] p) { p = Mul(h, far) }, else_branch = v () => (float[N,4] q)
                { q = Neg(h) }> },
            else_branch = e () => (float[N,4] b) { CHANGE b = Add(h, t) }> }""".replace("HOW", "x")
    sides = [text.parse(model.replace("CHANGE", body)) for body in ("t = Add(k, k)", change)]
    for side in sides:
        known = {value.name for value in side.graph.input}
        for tensor in side.graph.initializer:
            if tensor.name not in known:
                side.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    verdict = judged(*sides)
    assert verdict.passed is holds, verdict.message


WIDE = """g (float[N,4] x, double[N,4] z) => (double[N,4] y)
    <float one = {1}, double k = {1.1}, double l = {1.1000001}> {"""


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        ("d = Div(one, e) m = Mul(d, h) c = Cast<to = 11>(m)", "n = Div(g, f) c = Cast<to = 11>(n)", True),
        ("d = Div(one, e) m = Mul(d, h) c = Cast<to = 11>(m)", "d = Mul(g, f) n = Exp(d) c = Cast<to = 11>(n)", False),
        ("m = Cast<to = 11>(x) c = Mul(m, k)", "n = Cast<to = 11>(x) c = Mul(n, l)", False),
    ],
)
def test_a_wide_value_has_the_tolerance_of_its_computed_type(before: str, after: str, holds: bool) -> None:
    """Float64 says nothing of it, for there is no Celu of float64."""
    sides = (f"e = Exp(x) h = Celu(x) {before}", f"f = Exp(x) g = Celu(x) {after}")
    verdict = judged(*(f"{WIDE} {body} y = Mul(c, z) }}" for body in sides), Parity.CLOSE)
    assert verdict.passed is holds, verdict.message


@pytest.mark.parametrize(("folded", "holds"), [("0", True), ("0.5", False)])
def test_a_region_extends_far_up_to_the_nodes_that_fix_a_value(folded: str, holds: bool) -> None:
    """A product with a stored zero is zero as long as the other factor is finite."""
    chain = "a0 = Neg(s) " + " ".join(f"a{i + 1} = Tanh(a{i})" for i in range(12)) + " v = Neg(a12)"
    head = f"""g (float[N] x) => (float[1] y, float[1] v, float[N] w)
        <float[1] z = {{0}}, float[1] s = {{3}}, float[1] o = {{{folded}}}> {{ w = Neg(x) {chain} """
    verdict = judged(head + "p = Mul(a12, z) q = Abs(p) y = Celu(q) }", head + "q = Identity(o) y = Celu(q) }")
    assert verdict.passed is holds, verdict.message


@pytest.mark.parametrize(("body", "is_open"), [("y = Neg(x)", False), ("e = Slice(x, at, at) y = Add(e, e)", True)])
def test_a_variant_is_open_if_nodes_keep_elements_that_kept_none(body: str, is_open: bool) -> None:
    piece = text.parse(f"g (float[N,1] x) => (float[A,B] y) <int64[1] at = {{1}}> {{ {body} }}")
    point = Point({"N": 3}, [], {"x": Form(np.dtype(np.float32), (3, 1))})
    *_, wide = variants(ALWAYS_EMPTY, Region(("y",), ("y",), ("x",), piece, piece, 1), [point])
    assert wide.points[0].forms["x"].shape[1] > 1 and wide.is_open is is_open
