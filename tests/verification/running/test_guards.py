"""Sets of inputs on which the guards of a graph decide: masked rows, norms of zero, padding only, nothing selected."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from support.breadth import sampled

from surgery.base.operators.deciding import DECIDING, PATTERNS, rows
from surgery.base.promises import Parity
from surgery.model.storage import load
from surgery.verification.comparing.details import Status
from surgery.verification.running.guards import Watch
from surgery.verification.verdict.verifier import Verifier

MODELS = Path(__file__).parents[3] / "models"

GUARDED = {
    "rows_without_a_key": (
        "float[B,S,4] q, float[B,T,4] k, float[B,T,4] v, bool[B,S,T] m",
        "float zero = {0}, float low = {-inf}",
        """kt = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, kt) w = Where(m, s, low) p = Softmax(w)
           n = IsNaN(p) @ y = MatMul(g, v)""",
        "g = Where(n, zero, p)",
        "g = Identity(p)",
    ),
    "rows_without_a_token": (
        "float[B,T,T] s, float[B,T,4] v, int64[B,T] mask",
        "float zero = {0}, float one = {1}, float low = {-inf}, int64[1] axes = {1}",
        """b = Cast<to = 9>(mask) r = Unsqueeze(b, axes) w = Where(r, s, low) p = Softmax(w)
           n = IsNaN(p) @ y = MatMul(g, v)""",
        "g = Where(n, zero, p)",
        "g = Identity(p)",
    ),
    "rows_of_padding_only": (
        "int64[B,T] ids, float[B,T] s",
        "int64 pad = {7}, float zero = {0}, float low = {-inf}, float[9] table = {0, 1, 2, 3, 4, 5, 6, 7, 8}",
        """e = Gather(table, ids) x = Mul(e, s) h = Equal(ids, pad) w = Where(h, low, x) p = Softmax(w)
           n = IsNaN(p) @ y = Identity(g)""",
        "g = Where(n, zero, p)",
        "g = Identity(p)",
    ),
    "added_masks_of_minus_infinity": (
        "float[B,S,T] s, float[B,1,T] mask",
        "float zero = {0}",
        "w = Add(s, mask) p = Softmax(w) n = IsNaN(p) @ y = Identity(g)",
        "g = Where(n, zero, p)",
        "g = Identity(p)",
    ),
    "largest_scores_of_minus_infinity": (
        "float[B,T] s, bool[B,T] m",
        "float zero = {0}, float low = {-inf}",
        "w = Where(m, s, low) top = ReduceMax<axes = [1]>(w) n = Equal(top, low) @ d = Sub(w, g) y = Exp(d)",
        "g = Where(n, zero, top)",
        "g = Identity(top)",
    ),
    "norms_below_an_epsilon": (
        "float[B,D] x",
        "float eps = {1e-12}",
        "n = ReduceL2<axes = [1]>(x) @ y = Div(x, g)",
        "g = Max(n, eps)",
        "g = Identity(n)",
    ),
    "counts_of_zero": (
        "float[B,T,3] x, float[B,T] s, bool[B,T] m",
        "int64[1] last = {2}, int64[1] axes = {1}, float zero = {0}, float one = {1}",
        """f = Cast<to = 1>(m) u = Unsqueeze(f, last) w = Mul(x, u) t = ReduceSum(w, axes) c = ReduceSum(u, axes)
           z = Equal(c, zero) @ y = Div(t, g)""",
        "g = Where(z, one, c)",
        "g = Identity(c)",
    ),
    "counts_that_are_clipped": (
        "float[B,T,3] x, int64[B,T] attention_mask",
        "int64[1] last = {2}, int64[1] axes = {1}, float least = {1e-9}",
        """f = Cast<to = 1>(attention_mask) u = Unsqueeze(f, last) w = Mul(x, u) t = ReduceSum(w, axes)
           c = ReduceSum(u, axes) @ y = Div(t, g)""",
        "g = Clip(c, least)",
        "g = Identity(c)",
    ),
    "inputs_that_are_not_numbers": (
        "float[B,T] x",
        "float zero = {0}",
        "n = IsNaN(x) @ y = Mul(g, g)",
        "g = Where(n, zero, x)",
        "g = Identity(x)",
    ),
    "inputs_that_are_infinite": (
        "float[B,T] x",
        "float zero = {0}",
        "n = IsInf(x) @ y = Mul(g, g)",
        "g = Where(n, zero, x)",
        "g = Identity(x)",
    ),
    "indices_from_the_end": (
        "int64[B] i",
        "int64 zero = {0}, int64 count = {5}, float[5] table = {0, 1, 2, 3, 4}",
        "n = Less(i, zero) p = Add(i, count) @ t = Gather(table, g) c = Cast<to = 1>(g) y = Add(t, c)",
        "g = Where(n, p, i)",
        "g = Identity(i)",
    ),
    "nothing_selected": (
        "float[N] x, bool[N] m",
        "int64 one = {1}, int64 zero = {0}",
        "i = NonZero(m) s = Size(i) @ c = Cast<to = 1>(g) y = Add(x, c)",
        "g = Identity(s)",
        "g = Max(s, one)",
    ),
    "branches_for_nothing_selected": (
        "float[N] x, bool[N] m",
        "float zero = {0}",
        """f = Cast<to = 1>(m) c = ReduceSum<keepdims = 0>(f) none = Equal(c, zero)
           y = If(none)<then_branch = a () => (float[N] u) { @ }, else_branch = b () => (float[N] w) {
             w = Identity(x) }>
        """,
        "u = Neg(x)",
        "u = Abs(x)",
    ),
}


def _model(case: str, *, guarded: bool) -> bytes:
    inputs, constants, body, right, wrong = GUARDED[case]
    body = body.replace("@", right if guarded else wrong)
    text = f'<ir_version: 10, opset_import: ["": 17]> g ({inputs}) => (float y) <{constants}> {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


@pytest.mark.parametrize("case", sampled(sorted(GUARDED), 4))
def test_every_guard_is_reached(case: str) -> None:
    verifier = Verifier(_model(case, guarded=True))
    verifier.original.prepare()
    reference = verifier.original
    assert reference.problem is None, reference.problem
    assert reference.guards is not None
    assert reference.guards.watch.sources
    assert reference.guards.left == set()


@pytest.mark.parametrize("regional", [False, True], ids=["whole", "region"])
@pytest.mark.parametrize("case", sampled(sorted(GUARDED), 5))
def test_a_change_that_drops_the_guard_differs(case: str, regional: bool) -> None:
    before, after = _model(case, guarded=True), _model(case, guarded=False)
    with closing(Verifier(before)) as verifier:
        verdict = verifier.verify(after, Parity.CLOSE, before if regional else None)
        assert verdict.status is Status.DIFFERENT, verdict.message
        assert not verifier.changes.compare_regions(before, after).verdict.passed


@pytest.mark.parametrize("case", sampled(sorted(GUARDED), 4))
def test_a_copy_is_equal(case: str) -> None:
    before = onnx.load_model_from_string(_model(case, guarded=True))
    before.graph.node.append(onnx.helper.make_node("Identity", ["y"], ["z"]))
    before.graph.output[0].name = "z"
    after = onnx.load_model_from_string(before.SerializeToString())
    after.graph.node[-1].op_type = "Abs"
    after.graph.node.append(onnx.helper.make_node("Mul", ["z0", "s0"], ["z"]))
    after.graph.node[-2].output[0] = "z0"
    after.graph.node.insert(len(after.graph.node) - 1, onnx.helper.make_node("Sign", ["y"], ["s0"]))
    with closing(Verifier(before.SerializeToString())) as verifier:
        verdict = verifier.verify(after.SerializeToString(), Parity.CLOSE)
        assert verdict.passed, verdict.message


def test_rows_are_masked_completely_not_at_all_and_on_either_side() -> None:
    found = rows((PATTERNS, 5), 0).tolist()
    assert [False] * 5 in found
    assert [True] * 5 in found
    assert any(not row[0] and row[-1] for row in found), "padding on the left"
    assert any(row[0] and not row[-1] for row in found), "padding on the right"


def test_a_mask_gets_all_patterns_of_rows_where_the_graph_has_a_guard() -> None:
    verifier = Verifier(_model("rows_without_a_token", guarded=True))
    verifier.original.prepare()
    fed = [run.feed["mask"] for run in verifier.original.runs if run.binding.character in DECIDING]
    lines = [tuple(row) for mask in fed for row in mask.tolist()]
    assert any(not any(row) for row in lines)
    assert any(all(row) for row in lines)
    assert any(not row[0] and row[-1] for row in lines)
    assert any(row[0] and not row[-1] for row in lines)


def test_no_set_is_added_where_ordinary_data_reach_all_guards() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17]> g (float[N,8] x) => (float[N,8] y) <float zero = {0}>
           { n = Less(x, zero) y = Where(n, zero, x) }"""
    )
    verifier = Verifier(model.SerializeToString())
    verifier.original.prepare()
    assert verifier.original.guards.watch.sources
    assert not any(run.binding.character in DECIDING for run in verifier.original.runs)


def test_inputs_with_a_default_stay_at_it() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17]> g (float[N,4] x, float eps = {1e-6}) => (float[N,4] y)
           <float least = {1e-9}>
           { n = ReduceL2<axes = [1]>(x) m = Max(n, least) s = Add(m, eps) y = Div(x, s) }"""
    )
    with closing(Verifier(model.SerializeToString())) as verifier:
        verifier.original.prepare()
        assert verifier.original.problem is None
        assert verifier.original.guards.left == set()


def test_guards_that_follow_from_shapes_alone_are_not_watched() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17]> g (float[N,8] x) => (float[N,8] y) <int64[2] odd = {-1, 8}>
           { s = Shape(x) n = Equal(s, odd) w = Where(n, s, s) y = Reshape(x, w) }"""
    )
    assert Watch(model).sources == {}


def test_the_sets_are_the_same_every_time() -> None:
    found = []
    for _ in range(2):
        verifier = Verifier(_model("rows_of_padding_only", guarded=True))
        verifier.original.prepare()
        found.append([(run.binding, np.asarray(run.feed["ids"]).tobytes()) for run in verifier.original.runs])
    assert found[0] == found[1]


UNREACHABLE = {"bert-tiny.onnx": {"IsNaN"}}
"""Guards that no input of a bundled model reaches: its mask has the lowest number, and a softmax of these is no NaN."""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.name)
def test_the_guards_of_bundled_models_are_reached(path: Path) -> None:
    model = load(path).proto
    with closing(Verifier(model.SerializeToString())) as verifier:
        verifier.original.prepare()
        producers = {name: node.op_type for node in model.graph.node for name in node.output}
        left = {producers[guard.value] for guard, _ in verifier.original.guards.left}
        assert left == UNREACHABLE.get(path.name, set())
