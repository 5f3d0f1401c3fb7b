"""Seeds of the draws of two models: the same numbers for the same draw, wherever its node is."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery.verification.verdict.seeding import Seeds

IR = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
PAIR = "(float[4] x) => (float[4] y, float[4] z)"


def _model(body: str, signature: str = PAIR, functions: str = "") -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(f"{IR}\ng {signature} {{ {body} }}\n{functions}")
    return model


def _run(skeleton: bytes) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(skeleton, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {"x": np.full(4, 0.5, np.float32)})
    return found


TRAINING = "r = Constant<value_float=0.5>() t = Constant<value=bool {1}>()"


@pytest.mark.parametrize(
    "draws",
    [
        "a = RandomNormalLike(x) b = RandomUniformLike(x)",
        "a = RandomNormal<shape=[4]>() b = RandomUniform<shape=[4]>()",
        "a = Bernoulli(x) b = Bernoulli(x)",
        f"{TRAINING} a = Dropout(x, r, t) b = Dropout(x, r, t)",
    ],
)
def test_two_models_draw_the_same_numbers(draws: str) -> None:
    original = _model(f"{draws} y = Neg(a) z = Neg(b)")
    changed = _model(f"i = Abs(x) j = Neg(i) k = Add(x, j) {draws} c = Add(k, a) y = Neg(c) z = Neg(b)")
    seeds = Seeds(original)
    assert seeds.outputs == {"y", "z"}
    one, other = seeds.seed(original), seeds.seed(changed)
    assert one is not None and other is not None and other.is_certain
    first, second = _run(one.skeleton), _run(other.skeleton)
    for mine, theirs in zip(first, second):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(first[0], _run(one.skeleton)[0])


def test_seeds_are_multiples_of_1009_in_the_order_of_the_draws_of_the_original() -> None:
    original = _model(f"{TRAINING} a = RandomNormalLike(x) b = Bernoulli(x) y = Dropout(a, r, t) z = Neg(b)")
    changed = _model(f"{TRAINING} b = Bernoulli(x) a = RandomNormalLike(x) y = Dropout(a, r, t) z = Neg(b)")
    known = Seeds(original)
    for model, order in ((original, (1, 2, 3)), (changed, (2, 1, 3))):
        found = known.seed(model)
        assert found is not None and found.is_certain
        nodes = [node for node in onnx.load_model_from_string(found.skeleton).graph.node if node.op_type != "Constant"]
        seeds = [onnx.helper.get_node_attr_value(node, "seed") for node in nodes if node.op_type != "Neg"]
        assert seeds == [1009 * place for place in order]
        assert [type(seed) for seed in seeds] == [float, float, int]


def test_two_draws_have_different_numbers() -> None:
    original = _model("y = RandomNormalLike(x) z = RandomNormalLike(x)")
    found = Seeds(original).seed(original)
    assert found is not None
    y, z = _run(found.skeleton)
    assert np.all(y != z)


def test_several_draws_of_one_operator_may_swap_places() -> None:
    signature = "(float[1,3] m) => (int32[1,4] a, int32[1,4] b)"
    draw = "{} = Multinomial<sample_size=4>(m)"
    original, changed = (_model(" ".join(map(draw.format, names)), signature) for names in ("ab", "ba"))
    seeds = Seeds(original)
    one, other = seeds.seed(original), seeds.seed(changed)
    assert one is not None and other is not None and other.is_certain
    mine, theirs = (
        {node.output[0]: node.attribute[-1].f for node in onnx.load_model_from_string(side.skeleton).graph.node}
        for side in (one, other)
    )
    assert mine == theirs and len(set(mine.values())) == 2


@pytest.mark.parametrize(
    ("after", "is_certain"),
    [
        ("q = RandomNormalLike(x) y = Neg(q) z = Identity(x)", False),
        ("a = RandomNormalLike<scale=2.0>(x) y = Neg(a) z = Identity(x)", False),
        ("a = RandomNormalLike(x) y = Abs(a) z = Identity(x)", True),
    ],
)
def test_a_renamed_or_altered_draw_is_not_certain(after: str, is_certain: bool) -> None:
    seeds = Seeds(_model("a = RandomNormalLike(x) y = Neg(a) z = Identity(x)"))
    found = seeds.seed(_model(after))
    assert found is not None and found.is_certain is is_certain


@pytest.mark.parametrize(
    ("after", "functions"),
    [
        ("a = RandomUniformLike(x) y = Neg(a) z = Identity(x)", ""),
        ("a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b) z = Identity(x)", ""),
        (
            "a = f.noise(x) y = Neg(a) z = Identity(x)",
            '<domain: "f", opset_import: ["": 21]> noise (i) => (o) { o = RandomNormalLike(i) }',
        ),
    ],
)
def test_draws_that_are_none_of_the_original_have_no_seed(after: str, functions: str) -> None:
    seeds = Seeds(_model("a = RandomNormalLike(x) y = Neg(a) z = Identity(x)"))
    assert seeds.seed(_model(after, functions=functions)) is None


def test_draws_in_loops_and_branches_have_seeds_too() -> None:
    body = """
        go = Constant<value=bool {1}>() three = Constant<value=int64 {3}>()
        y = Loop(three, go, x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
            d = Identity(c) r = RandomNormalLike(v) w = Add(v, r) }>
    """
    original = _model(body, "(float[4] x) => (float[4] y)")
    found = Seeds(original).seed(original)
    assert found is not None
    first, again = _run(found.skeleton), _run(found.skeleton)
    np.testing.assert_array_equal(first[0], again[0])
