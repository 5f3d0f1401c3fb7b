"""A session draws in each run what a new session would draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from surgery.model.runtime import sessions

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MODELS = {
    "in the main graph": """(float[N,M] x) => (float[N,M] y) {
        r = RandomNormalLike<seed: float = 7.0>(x) y = Add(x, r)
    }""",
    "as an output": "(float[N,M] x) => (float[N,M] y) { y = RandomUniformLike<seed: float = 7.0>(x) }",
    "two of them": """(float[N,M] x) => (float[N,M] y, float z) {
        r = RandomNormalLike<seed: float = 7.0>(x)  a = Add(r, x)
        s = RandomUniformLike<seed: float = 9.0>(a) y = Mul(a, s)
        z = RandomNormal<seed: float = 3.0, shape: ints = [2]>()
    }""",
    "with two outputs": """(float[N,M] x) => (float[N,M] y, bool[N,M] mask) <float ratio = {0.5}, bool on = {1}> {
        y, mask = Dropout<seed: int = 5>(x, ratio, on)
    }""",
    "with one of two outputs": """(float[N,M] x) => (float[N,M] y) <float ratio = {0.5}, bool on = {1}> {
        y = Dropout<seed: int = 5>(x, ratio, on)
    }""",
    "in a branch": """(float[N,M] x) => (float[A,B] y) <int64 axes = {0}, int64 two = {2}> {
        shape = Shape(x) zero = Constant<value: tensor = int64 {0}>()
        rows = Gather(shape, zero) many = Greater(rows, two)
        y = If(many) <
            then_branch = one () => (t) { t = RandomNormalLike<seed: float = 7.0>(x) },
            else_branch = two () => (e) { d = RandomNormalLike<seed: float = 8.0>(x) e = Neg(d) }
        >
    }""",
    "in a loop": """(float[N,M] x) => (float[N,M] y) <int64 times = {3}, bool go = {1}> {
        y = Loop(times, go, x) <
            body = b (int64 i, bool c, float[N,M] a) => (bool d, float[N,M] e) {
                d = Identity(c) r = RandomNormalLike<seed: float = 7.0>(a) e = Add(a, r)
            }
        >
    }""",
}
FUNCTION = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[N,M] x) => (float[N,M] y) { y = own.draw(x) }
<domain: "own", opset_import: ["": 17]> draw (x) => (y) { r = RandomNormalLike<seed: float = 7.0>(x) y = Add(x, r) }"""


def _feeds() -> list[dict[str, Any]]:
    return [{"x": np.ones(shape, np.float32)} for shape in ((2, 3), (4, 1), (2, 3), (0, 3), (5, 5))]


def _one_by_one(skeleton: bytes, feeds: list[dict[str, Any]]) -> list[Any]:
    return [sessions.run(skeleton, [feed], 1 << 30)["runs"][0] for feed in feeds]


@pytest.fixture(name="opened")
def _opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the models of the sessions that are created."""
    found: list[int] = []
    make = sessions.make_session

    def counted(source: Any, *arguments: Any, **how: Any) -> Any:
        found.append(len(source))
        return make(source, *arguments, **how)

    monkeypatch.setattr(sessions, "make_session", counted)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_each_run_draws_what_a_new_session_draws(name: str, opened: list[int]) -> None:
    skeleton = onnx.parser.parse_model(HEAD + MODELS[name]).SerializeToString()
    feeds = _feeds()
    found = sessions.run(skeleton, feeds, 1 << 30)["runs"]
    assert len(opened) == 1
    for one, other in zip(found, _one_by_one(skeleton, feeds), strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])
    assert sessions.run(skeleton, feeds[::-1], 1 << 30)["runs"][-1].keys() == found[0].keys()


def test_equal_inputs_draw_equal_numbers_in_the_same_session(opened: list[int]) -> None:
    skeleton = onnx.parser.parse_model(HEAD + MODELS["as an output"]).SerializeToString()
    first, _, third, *_ = sessions.run(skeleton, _feeds(), 1 << 30)["runs"]
    assert len(opened) == 1
    assert first["y"].std() > 0
    np.testing.assert_array_equal(first["y"], third["y"])


def test_a_draw_in_a_function_has_a_new_session_for_each_run(opened: list[int]) -> None:
    skeleton = onnx.parser.parse_model(FUNCTION).SerializeToString()
    found = sessions.run(skeleton, _feeds(), 1 << 30)["runs"]
    assert len(opened) == 5
    np.testing.assert_array_equal(found[0]["y"], found[2]["y"])


def test_a_failing_run_has_its_message() -> None:
    body = """(float[N,M] x) => (float[A,B] y) <int64[2] to = {3, 2}> {
        r = RandomNormalLike<seed: float = 7.0>(x) y = Reshape(r, to)
    }"""
    skeleton = onnx.parser.parse_model(HEAD + body).SerializeToString()
    found = sessions.run(skeleton, _feeds(), 1 << 30)["runs"]
    assert [isinstance(run, str) for run in found] == [False, True, False, True, True]
    assert "Reshape" in found[1]
