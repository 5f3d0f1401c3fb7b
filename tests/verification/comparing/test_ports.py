"""Inputs and outputs of two models: which belong together, and a model with those of the other one."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery.base.errors import UsageError
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine
from surgery.verification.comparing.ports import (
    PortMatch,
    by_name,
    by_position,
    mismatch,
    narrowed,
    rename,
    required,
    retype,
)
from surgery.verification.running.ensembles import EnsembleEngine, KnownOutputs, engine_knowing
from surgery.verification.running.pieces import PieceEngine


def run(model: onnx.ModelProto, *values: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = dict(zip((port.name for port in session.get_inputs()), values))
    return dict(zip((port.name for port in session.get_outputs()), session.run(None, feeds)))


X, Z = np.float32([1, -2]), np.float32([3, 4])
MODEL = text.parse("""g (float[2] x, float[2] z, bool c) => (float[2] y, float[2] s, float[2] y, float[2] z)
    <float one = {1}> {
        y = Sub(x, z)
        s = If(c) <then_branch = t () => (float[2] a) { a = Add(x, one) },
                   else_branch = e () => (float[2] b) { b = Neg(y) }>
    }""")


def test_names_are_swapped_and_given_to_outputs_that_stand_twice() -> None:
    # The first model calls z what this one calls x, and one of its outputs as this one calls a value inside.
    match = PortMatch((("z", "x"), ("x", "z"), ("c", "c")), (("one", "y"), ("y", "s"), ("u", "y"), ("v", "z")))
    made = rename(MODEL, match)
    onnx.checker.check_model(made, full_check=True)
    assert [port.name for port in made.graph.input] == ["z", "x", "c"]
    assert [port.name for port in made.graph.output] == ["one", "y", "u", "v"]
    assert MODEL.graph.input[0].name == "x"
    for condition in (True, False):
        expected = run(MODEL, X, Z, np.array(condition))
        found = run(made, X, Z, np.array(condition))
        assert [found[name].tolist() for name in ("one", "y", "u", "v")] == [
            expected[name].tolist() for name in ("y", "s", "y", "z")
        ]


def test_an_output_may_stand_three_times() -> None:
    thrice = text.parse("g (float[2] x) => (float[2] y, float[2] y, float[2] y) { y = Neg(x) }")
    made = rename(thrice, PortMatch((("x", "x"),), (("a", "y"), ("b", "y"), ("c", "y"))))
    assert [port.name for port in made.graph.output] == ["a", "b", "c"]
    assert {name: value.tolist() for name, value in run(made, X).items()} == {key: [-1, 2] for key in "abc"}


def test_an_inner_value_may_be_an_input_of_the_other() -> None:
    made = rename(MODEL, PortMatch((("x", "x"),), (("y", "y"),), (("inner", "z"),)))
    assert [port.name for port in made.graph.input] == ["x", "inner", "c"]
    assert made.graph.node[0].input[1] == "inner"
    assert PortMatch((("x", "x"),), ()).renames is False
    for renamed in (PortMatch((("x", "z"),), ()), PortMatch((), (("x", "z"),)), PortMatch((), (), (("x", "z"),))):
        assert renamed.renames


def test_types_are_cast_at_both_ends() -> None:
    model = text.parse("g (float[2] x, float[2] z) => (float[2] y, float[2] x) { cast_0 = Add(x, z) y = Neg(cast_0) }")
    like = text.parse("g (double[2] x, float[2] z, int64 w) => (int32[2] y) { y = Cast<to = 6>(x) }")
    made = retype(model, like)
    assert [port.type.tensor_type.elem_type for port in (*made.graph.input, *made.graph.output)] == [11, 1, 6, 11]
    assert [node.op_type for node in made.graph.node] == ["Cast", "Add", "Neg", "Cast"]
    assert [port.name for port in made.graph.output] == ["y", "x"]
    found = run(made, np.float64([1, -2]), Z)
    assert found["x"].tolist() == [1, -2]
    assert found["y"].tolist() == [-4, -2] and found["y"].dtype == np.int32


def model(signature: str) -> onnx.ModelProto:
    ports, _, more = signature.partition("; ")
    return text.parse(f"g ({ports}) => (float[N] y) <{more or 'float unused = {0}'}> {{ y = Neg(x) }}")


def plain(line: str) -> str:
    return re.sub(r"tensor\((\w+)\)", r"\1", line).replace(", 3]", ",3]")


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        ("float[N,3] x", "float[M,3] x", []),
        ("float[N,3] x", "float[2,3] x", ["input 'x' is float[2,3], not float[N,3]"]),
        ("float[N,3] x", "float[N] x", ["input 'x' is float[N], not float[N,3]"]),
        ("float[N,3] x", "float x", ["input 'x' is float[], not float[N,3]"]),
        ("float[N] x, float[M] z", "float[N] x, float[N] z", ["input 'z' is float[N], not float[M]"]),
        ("float[N] x, float[N] z", "float[M] x, float[M] z", []),
        ("float[N] x, float[N] z", "float[N] x, float[M] z", []),
        ("float[N] x, float[M] z", "float[N] x", ["input 'z' is missing"]),
    ],
)
def test_inputs_that_the_second_model_does_not_accept(first: str, second: str, lines: list[str]) -> None:
    one, other = model(first), model(second)
    assert [plain(line) for line in narrowed(one, other, by_name(one, other))] == lines


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("float[N] x", "float[M] x", None),
        ("float[N] x", "float[N] x, float[N] z", "B needs an input 'z' that A does not have"),
        ("float[N] x", "float[N] x, float[1] z; float[1] z = {1}", None),
        ("float[N] x, float z", "float[N] x", None),
        ("float[N] x, int64 z", "float[N] x, float z", "input 'z' is int64 in A and float in B"),
    ],
)
def test_inputs_that_the_second_model_cannot_take(first: str, second: str, why: str | None) -> None:
    one, other = model(first), model(second)
    found = mismatch(one, other, by_name(one, other))
    assert (found and plain(found)) == why


def test_a_match_by_position_needs_equal_numbers() -> None:
    one, other = model("float[N] x, float z"), model("float a, float[N] x")
    match = by_position(one, other)
    assert match.inputs == (("x", "a"), ("z", "x")) and match.outputs == (("y", "y"),)
    assert mismatch(one, other, PortMatch((("x", "x"), ("z", "a")), ())) is None
    swapped = mismatch(
        model("int64 z, float[N] x"), model("float q, float[N] x"), PortMatch((("z", "q"), ("x", "x")), ())
    )
    assert swapped is not None and plain(swapped) == "input 'z' (B's 'q') is int64 in A and float in B"
    listed = model("float[N] x, float[1] z; float[1] z = {1}")
    assert [port.name for port in required(listed)] == ["x"]
    many = model(", ".join(f"float[N] {name}" for name in ("x", *"abcdefgh")))
    with pytest.raises(UsageError, match=r"A has 1 input \(x\), B has 9 inputs \(x, a, b, c, d, e, f, g, …\)"):
        by_position(listed, many)


def test_the_engine_of_a_model_follows_from_its_ensembles_and_its_size() -> None:
    known = KnownOutputs()
    assert engine_knowing(None, whole=False) is PieceEngine is engine_knowing(known, whole=False)
    assert engine_knowing(None, whole=True) is Engine
    made = engine_knowing(known, whole=True)
    assert isinstance(made, partial) and made.func is EnsembleEngine and made.keywords == {"known": known}
