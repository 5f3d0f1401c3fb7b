"""Sizes that a graph admits only together: tables of positions, matrices after images, anchors, frames of a signal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.verification.inputs.admissible import MOST
from surgery.verification.inputs.demands import Demand
from surgery.verification.inputs.dim_constraints import dim_constraints
from surgery.verification.inputs.dims import Dims, Implied
from surgery.verification.inputs.feed_plan import FeedPlan
from surgery.verification.inputs.joint import _groups, _shared, renamed, written
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier


def _model(body: str, **weights: tuple[int, ...] | np.ndarray) -> onnx.ModelProto:
    """Parse a model; `weights` are arrays, or the shapes of small random ones."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{body}')
    random = np.random.default_rng(0)
    for name, weight in weights.items():
        array = random.normal(0, 0.1, weight).astype("f4") if isinstance(weight, tuple) else weight
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def _implied(model: onnx.ModelProto) -> Implied:
    plan = FeedPlan(model, InputsSpec())
    dims = {port.name: list(port.dims) for port in plan.ports}
    return dim_constraints(model.SerializeToString(), dims, list(plan.dims.names))


def _prepared(model: onnx.ModelProto, **dims: tuple[int, ...]) -> Verifier:
    verifier = Verifier(model.SerializeToString(), InputsSpec(dims=dims), VerifySpec())
    verifier.original.prepare()
    return verifier


def _points(verifier: Verifier) -> list[dict[str, int]]:
    points = [dict(entry["dims"]) for entry in verifier.original.bindings if "refused" not in entry]
    return [point for index, point in enumerate(points) if point not in points[:index]]


def _patches(size: int, patch: int, extra: int = 0) -> onnx.ModelProto:
    """Patches of an image, after `extra` tokens, with a table of positions for a square of `size`."""
    count = (size // patch) ** 2
    body = f"""g (float[N,3,H,W] x) => (float[N,T,8] y) <int64[3] to = {{0, 8, -1}}> {{
        c = Conv<strides = [{patch}, {patch}]>(x, w)  r = Reshape(c, to)  t = Transpose<perm = [0, 2, 1]>(r)
        s = Pad(t, pads)  y = Add(s, positions) }}"""
    pads = np.array([0, extra, 0, 0, 0, 0])
    return _model(body, w=(8, 3, patch, patch), positions=(1, count + extra, 8), pads=pads)


def _features(size: int, pad: int) -> onnx.ModelProto:
    """Two halvings of an image, flattened into a matrix for a square of `size`; `pad` pads the windows."""
    body = f"""g (float[N,3,H,W] x) => (float[N,5] y) {{
        c = Conv<pads = [{pad}, {pad}, {pad}, {pad}]>(x, w)  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
        q = MaxPool<kernel_shape = [4, 4], strides = [4, 4]>(p)  f = Flatten(q)  y = Gemm(f, m) }}"""
    side = (size + 2 * pad - 2) // 2 // 4
    return _model(body, w=(4, 3, 3, 3), m=(4 * side * side, 5))


def _anchors(size: int) -> onnx.ModelProto:
    """Boxes at two scales with anchors for a square of `size`."""
    body = """g (float[N,3,H,W] x) => (float[N,4,A] y) <int64[3] to = {0, 4, -1}> {
        a = Conv<strides = [8, 8]>(x, w)  b = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(a)
        c = Reshape(a, to)  d = Reshape(b, to)  e = Concat<axis = 2>(c, d)  y = Add(e, anchors) }"""
    return _model(body, w=(4, 3, 8, 8), anchors=(1, 4, (size // 8) ** 2 + (size // 16) ** 2))


def _runs(side: int, lost: int) -> range:
    """Sides that leave as many positions as `side`: windows lose up to `lost` pixels."""
    return range(side, side + lost)


@pytest.mark.parametrize(
    ("model", "sides"),
    sampled(
        [
            (_patches(384, 16), _runs(384, 16)),
            (_patches(336, 14, 1), _runs(336, 14)),
            (_patches(518, 14, 5), _runs(518, 14)),
            (_features(299, 0), _runs(8 * 37 + 2, 8)),
            (_features(640, 1), _runs(640, 8)),
            (_anchors(320), _runs(320, 16)),
            (_anchors(416), _runs(416, 16)),
        ],
        7,
    ),
    ids=["vit384", "clip336", "dinov2-518", "cnn299", "cnn640", "yolo320", "yolo416"],
)
def test_an_image_has_the_size_of_the_constant_that_its_positions_meet(model, sides):
    (group,) = _implied(model)["joint"]
    assert group["names"] == ["H", "W"]
    first = group["points"][0]
    assert first["H"] == first["W"] and first["H"] in sides
    verifier = _prepared(model)
    points = _points(verifier)
    # The batch moves, too, and so do height and width: other squares and rectangles have as many positions.
    assert all(len({point[name] for point in points}) > 1 for name in ("N", "H", "W"))
    assert any(point["H"] != point["W"] for point in points)
    refused = [entry for entry in verifier.original.bindings if "refused" in entry]
    assert len(refused) <= 8


def test_positions_without_a_square_get_a_rectangle():
    body = """g (float[N,1,F,B] x) => (float[N,8,12,101] y) <int64[4] to = {0, 8, 12, 101}> {
        c = Conv<strides = [10, 10]>(x, w)  y = Reshape(c, to) }"""
    (group,) = _implied(_model(body, w=(8, 1, 16, 16)))["joint"]
    counts = [tuple((point[name] - 16) // 10 + 1 for name in ("F", "B")) for point in group["points"]]
    assert counts and all(first * second == 12 * 101 for first, second in counts)


def test_frames_of_a_video_share_their_positions_with_height_and_width():
    body = """g (float[N,3,T,H,W] x) => (float[N,8,P] y) <int64[3] to = {0, 8, -1}> {
        c = Conv<strides = [2, 16, 16]>(x, w)  r = Reshape(c, to)  y = Add(r, positions) }"""
    model = _model(body, w=(8, 3, 2, 16, 16), positions=(1, 8, 4 * 6 * 6))
    points = _points(_prepared(model))
    assert points
    assert all((point["T"] // 2) * (point["H"] // 16) * (point["W"] // 16) == 4 * 6 * 6 for point in points)


def test_a_size_that_the_user_gives_decides_on_the_other():
    model = _patches(384, 16)
    points = _points(_prepared(model, H=(288,)))
    assert {point["H"] for point in points} == {288}
    assert {point["W"] // 16 for point in points} == {32}


TABLE = """g (float[N,S] x) => (float[N,98,8] y) { f = Gather<axis = 1>(x, table)  y = MatMul(f, w) }"""


def test_a_signal_is_as_long_as_a_table_of_frames_wants():
    table = np.arange(98)[:, None] * 160 + np.arange(400)
    model = _model(TABLE, table=table, w=(400, 8))
    least = 97 * 160 + 400
    admitted = _implied(model)["admits"]["S"]
    assert min(admitted) > MOST
    assert min(admitted) in range(least, least + 8)
    points = _points(_prepared(model))
    assert len({point["S"] for point in points}) > 1 and all(point["S"] >= least for point in points)


FRAMES = """g (float[S] x) => (float[P,5] y)
    <int64 i0 = {0}, int64 i1 = {1}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64 hop = {160}, int64 size = {400},
     int64 window = {96}, int64 step = {48}> {
    n0 = Shape(x)  n = Gather(n0, i0)  r = Sub(n, size)  q = Div(r, hop)  c = Add(q, i1)  frames = Max(c, i0)
    s0 = Range(i0, frames, i1)  s1 = Mul(s0, hop)  s = Unsqueeze(s1, a1)  o0 = Range(i0, size, i1)
    o = Unsqueeze(o0, a0)  at = Add(s, o)  f = Gather(x, at)  m = MatMul(f, w)
    k0 = Shape(m)  k = Gather(k0, i0)  kr = Sub(k, window)  kq = Div(kr, step)  kc = Add(kq, i1)  patches = Max(kc, i0)
    p0 = Range(i0, patches, i1)  p1 = Mul(p0, step)  p = Unsqueeze(p1, a1)  l0 = Range(i0, window, i1)
    l = Unsqueeze(l0, a0)  from = Add(p, l)  g = Gather(m, from)  y = ReduceMean(g, a1) }"""


def test_a_signal_is_long_enough_for_a_patch_of_frames():
    """As tf2onnx writes frames of frames: shorter signals give an empty output, or indices out of range."""
    points = _points(_prepared(_model(FRAMES, w=(400, 5))))
    assert points and all(point["S"] >= 95 * 160 + 400 for point in points)
    assert len({point["S"] for point in points}) > 1


def test_the_first_dim_may_be_the_signal():
    points = list(Dims(("samples", "channels")).ladder())
    assert any(point["samples"] >= 16000 and point["channels"] < 16 for point in points)
    assert any(point["channels"] >= 16000 and point["samples"] < 16 for point in points)


def test_text_that_becomes_a_number_is_a_number():
    body = "g (string[N,1] x) => (float[N] y) <int64[1] a = {1}> { s = Squeeze(x, a) y = Cast<to = 1>(s) }"
    verifier = _prepared(_model(body))
    assert verifier.original.problem is None
    assert verifier.original.runs


def test_the_message_names_the_dims_and_what_the_graph_requires():
    # No number is 21 and 55.
    body = """g (float[N,H] x) => (float[K] y) <int64[1] to = {21}, int64[1] other = {55}>
        { a = Reshape(x, to) b = Reshape(x, other) y = Concat<axis = 0>(a, b) }"""
    message = _prepared(_model(body)).original.problem
    assert message is not None
    assert message.startswith("no legal input found: give the sizes of N, H with --dims, or inputs with --inputs")
    assert "Reshape 'a' requires N*H = 21" in message


def test_two_sides_together_have_the_extents_that_each_admits():
    """A reflection by 5 needs 6 rows, and 36 positions meet a table."""
    table = ", ".join(["1"] * 36)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[H,W] x) => (float[A] y)
        <float[36] t = {{{table}}}, int64[1] flat = {{-1}}, int64[4] pads = {{5, 0, 0, 0}}> {{
            p = Pad<mode = "reflect">(x, pads) s = ReduceSum<keepdims = 0>(p)
            f = Reshape(x, flat) a = Add(f, t) y = Add(a, s) }}""")
    (found,) = dim_constraints(model.SerializeToString(), {"x": ["H", "W"]}, ["H", "W"])["joint"]
    assert found["points"][0] == {"H": 6, "W": 6}


def test_a_least_number_of_positions_is_met_by_small_extents():
    """All positions of an image become one signal: a position is enough, and no window ends with the largest extent."""
    body = """g (float[H,W] x) => (float[1,4,A,1] y)
        <int64[2] add = {0, 1}, int64[1] front = {0}, int64[3] to = {-1, 1, 4}> {
        u = Unsqueeze(x, add)  c = Conv(u, w)  p = MaxPool<kernel_shape = [1, 3], strides = [1, 3]>(c)
        t = Transpose<perm = [0, 2, 3, 1]>(p)  s = Squeeze(t, front)  r = Reshape(s, to)  a = Unsqueeze(r, front)
        q = Transpose<perm = [0, 3, 1, 2]>(a)  y = Conv<pads = [2, 0, 2, 0]>(q, v) }"""
    points = _points(_prepared(_model(body, w=(4, 1, 3, 50), v=(4, 4, 5, 1))))
    assert points[0] == {"H": 52, "W": 52} and all(extent < 60 for point in points for extent in point.values())


def test_frames_without_a_square_are_not_the_only_ones_tried():
    """Neither 2 frames nor 1 leave 75 positions to a square; 3 leave 25."""
    body = "g (float[T,H,W] x) => (float[A] y) <int64[1] to = {75}> { y = Reshape(x, to) }"
    (group,) = _implied(_model(body))["joint"]
    assert group["points"][0] == {"T": 3, "H": 5, "W": 5}


def test_a_size_that_another_one_decides_moves_with_it():
    """The first sizes that are tried, 2 and 3, are legal, but neither moves by itself, nor do both by the same."""
    body = """g (float[N] x, float[M,1] z) => (float[1] y) <int64[1] one = {1}, int64[1] end = {99999}> {
        c = Concat<axis = 0>(x, x)  s = Slice(c, one, end)  y = MatMul(s, z) }"""
    points = _points(_prepared(_model(body)))
    assert points[0] == {"N": 2, "M": 3} and {"N": 3, "M": 5} in points


def test_dims_that_share_demands_are_solved_together() -> None:
    first, second, third, fourth = (Demand(name, 1) for name in "abcd")
    shared = [
        (first, frozenset({"H", "W"})),
        (second, frozenset({"N", "T"})),
        (third, frozenset({"K", "L"})),
        (fourth, frozenset({"W", "T"})),
    ]
    groups = [*_groups(shared, [*"NTHWKL"])]
    assert groups == [(["K", "L"], [third]), ([*"NTHW"], [second, first, fourth])]
    assert [*_groups([], ["N"])] == []


def test_demands_that_always_hold_or_are_on_one_dim_are_left_out() -> None:
    demands = [
        Demand("N", 4),
        Demand("N*W", "W*N"),
        Demand("N*W", 12),
        Demand("alias", "W", least=True),
        Demand("N + W", 2, least=True),
    ]
    found = [*_shared(["N", "W"], demands, {"alias": "N"})]
    assert found == [(demands[2], {"N", "W"}), (demands[3], {"N", "W"})]


def test_a_demand_is_written_in_terms_of_dims() -> None:
    assert written(Demand("a * N", 3), {"a": "W + 1"}) == "(W + 1) * N = 3"
    assert written(Demand("N", "a", least=True), {"a": "b", "b": "W"}) == "N >= ((W))"
    assert written(Demand("N", "c"), {"c": "x" * 5000}) == "N = c"
    assert renamed("ab + a*b2", {"a": "N", "b2": "W", "b": "no"}) == "ab + N*W"
