"""Tensors in branches, loops and functions: the message names the steps that bring them into reach, and these do it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import surgery
from surgery.engine.recipe import parse
from surgery.model.graph import text

X = np.array([-1.5, 2.0], np.float32)
BRANCHES = (
    "y = If(c) <then_branch = p () => (float[2] a) { i = Abs(t) a = Exp(i) },"
    " else_branch = q () => (float[2] b) { j = Neg(t) b = Exp(j) }>"
)
LOOP = (
    "g (float[2] x) => (float[2] y) <int64 n = {2}, bool k = {1}> { t = Relu(x) y = Loop(n, k, t)"
    " <body = b (int64 it, bool on, float[2] v) => (bool go, float[2] w) { go = Identity(on) u = Neg(v) w = Exp(u) }> }"
)
FUNCTION = (
    '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { t = Abs(x) y = local.f(t) }'
    ' <domain: "local", opset_import: ["" : 17]> f (v) => (w) { u = Exp(v) w = Neg(u) }'
)


@dataclass(frozen=True)
class Way:
    """A model, an inner tensor, the runs that the message names, its name then, and its value computed by hand."""

    model: str
    tensor: str
    advice: str
    runs: Sequence[str]
    name: str
    value: Any
    feeds: dict[str, Any] = field(default_factory=lambda: {"x": X})


WAYS = {
    "a function": Way(
        FUNCTION,
        "u",
        "of the function local::f; first run inline-functions; the tensor then is named 'u_1' or alike",
        ["[inline-functions]"],
        "u_1",
        np.exp(np.abs(X)),
    ),
    "a branch that is always taken": Way(
        f"g (float[2] x) => (float[2] y) <bool c = {{1}}> {{ t = Relu(x) {BRANCHES} }}",
        "i",
        "of a subgraph of node 'If -> y' (If); first run inline-if; the tensor then is named 'i_1' or alike",
        ["[inline-if]"],
        "i_1",
        np.abs(np.maximum(X, 0)),
    ),
    "a branch that an input chooses": Way(
        f"g (float[2] x, bool c) => (float[2] y) {{ t = Relu(x) {BRANCHES} }}",
        "j",
        "first run remove-inputs with {inputs: {c: 0}}, then inline-if; the tensor then is named 'j_1' or alike",
        ["[remove-inputs: {inputs: {c: 0}}, inline-if]"],
        "j_1",
        -np.maximum(X, 0),
    ),
    "the result of a branch that is chosen by what the model computes": Way(
        f"g (float[2] x, int64 k) => (float[2] y) <int64 z = {{0}}>"
        f" {{ c = Greater(k, z) t = Relu(x) s = Abs(t) {BRANCHES.replace('(t)', '(s)')} }}",
        "b",
        "first run cut with {inputs: c} in a run of its own, then remove-inputs with {inputs: {c: 0}}, then inline-if;"
        " the tensor then has the name of the result that it becomes",
        ["[cut: {inputs: c}]", "[remove-inputs: {inputs: {c: 0}}, inline-if]"],
        "y",
        np.exp(-np.maximum(X, 0)),
    ),
    "a loop": Way(
        LOOP,
        "u",
        "of a subgraph of node 'Loop -> y' (Loop); first run unroll-loop, if its number of iterations is constant;"
        " the tensor then is named 'u_1' or alike",
        ["[unroll-loop]"],
        "u_1",
        -np.maximum(X, 0),
    ),
}


def apply(model: onnx.ModelProto, steps: str) -> surgery.Result:
    return surgery.apply(model, parse(f"steps: {steps}"))


@pytest.mark.parametrize("name", WAYS)
def test_the_message_names_steps_that_bring_an_inner_tensor_into_reach(name: str) -> None:
    way = WAYS[name]
    model = text.parse(way.model)
    failed = apply(model, f"[extract: {{outputs: {way.tensor}}}]").steps[0]
    assert failed.status == "failed"
    assert failed.message.startswith(f"'{way.tensor}' is not a tensor of the main graph, but of ")
    assert failed.message.endswith(way.advice)
    for steps in way.runs:
        result = apply(model, steps)
        assert result.ok
        model = result.proto
    result = apply(model, f"[extract: {{outputs: {way.name}}}]")
    assert result.ok
    session = onnxruntime.InferenceSession(result.proto.SerializeToString())
    np.testing.assert_allclose(session.run(None, way.feeds)[0], way.value, rtol=1e-6)


def test_a_glob_that_only_fits_inner_tensors_is_explained() -> None:
    message = apply(text.parse(FUNCTION), "[extract: {outputs: 'u*'}]").steps[0].message
    assert message.startswith("'u' is not a tensor of the main graph, but of the function local::f; first run ")
