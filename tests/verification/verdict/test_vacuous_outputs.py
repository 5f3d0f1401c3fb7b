"""Outputs that do not vary prove nothing, and a verdict says so."""

from __future__ import annotations

from contextlib import closing

import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import VACUOUS
from surgery.verification.comparing.vacuity import declares_empty
from surgery.verification.verdict.verifier import Verifier

X = "(float[N,S] x) => (float[N,S] y)"


def between(io: str, before: str, after: str, promise: Parity = Parity.EXACT) -> Verdict:
    one, other = (
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\ng {io} {{ {body} }}').SerializeToString()
        for body in (before, after)
    )
    return Verifier(one).verify(other, promise)


def scalar(name: str, value: float) -> str:
    return f"{name} = Constant<value=float {{{value}}}>()"


@pytest.mark.parametrize(
    ("io", "before", "why"),
    [
        (X, f"{scalar('z', 0)} n = Abs(x) y = Mul(n, z)", "always zero"),
        (X, f"{scalar('c', -1)} a = Abs(x) n = Neg(a) m = Add(n, c) y = Log(m)", "never finite"),
        (X, f"{scalar('z', 0)} n = Abs(x) m = Mul(n, z) y = Exp(m)", "does not change"),
        ("(float[N] x) => (int64[1,M] y)", f"{scalar('c', -5)} a = Abs(x) b = Less(a, c) y = NonZero(b)", "empty"),
    ],
)
def test_outputs_that_do_not_vary_are_vacuous(io, before, why):
    after = before.replace("(x", "(t", 1)
    verdict = between(io, before, f"t = Identity(x) {after}")
    # Nothing but the structure speaks for it.
    assert verdict.status == "equal", verdict
    assert "the outputs prove nothing" in verdict.message
    assert "do not depend on changed nodes" in verdict.message
    assert why in verdict.message


def test_a_vacuous_output_that_differs_is_different():
    before = "c = Constant<value_float=5e6>() y = Max(x, c)"
    assert between(X, before, before.replace("5e6", "6e6")).status == "different"


def test_an_output_that_varies_less_than_its_tolerance_is_vacuous():
    before = "c = Constant<value_float=1e9>() y = Add(x, c)"
    after = "c = Constant<value_float=1e9>() o = Constant<value_float=100.0>() a = Add(c, o) y = Add(x, a)"
    verdict = between(X, before, after, Parity.CLOSE)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict


@pytest.mark.parametrize(
    ("io", "body"),
    [
        ("(float[N,S] x) => (int64[2] y)", "y = Shape(x)"),
        ("(float[N,S] x) => (float[N,S] y)", "s = Shape(x) y = ConstantOfShape(s)"),
        ("(float[N] x) => (float[N] y, bool[N] z)", "y, z = Dropout(x)"),
        ("(float[0] x) => (float[0] y)", "y = Relu(x)"),
        ("(float[N] x) => (bool[N] y)", "y = IsNaN(x)"),
        ("(float[N] x) => (bool[N] y)", "y = IsInf(x)"),
        ("(int64[3] x, int64[3] z) => (bool[3] y)", "y = Equal(x, z)"),
        ("(float[N] x) => (int64 y)", "y = ArgMax<keepdims=0>(x)"),
        ("(bool b) => (bool y)", "y = Not(b)"),
    ],
)
def test_outputs_that_are_constant_by_nature_are_not_vacuity(io, body):
    verdict = between(io, body, body.replace("(x", "(t").replace("(b", "(t").replace("y", "y", 1)
                       .join([f"t = Identity({'b' if 'bool b' in io else 'x'}) ", ""]))  # fmt: skip
    assert verdict.status == "equal", verdict


def test_a_region_that_is_not_shown_leaves_the_verdict_on_the_outputs():
    before, after = (
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 21]>\ng {X} {{ {scalar("z", 0)} m = {made}(x) y = Mul(m, z) }}'
        ).SerializeToString()
        for made in ("Abs", "Neg")
    )
    vacuous = Verdict(Status.UNVERIFIED, VACUOUS, message="the outputs prove nothing")
    with closing(Verifier(before)) as verifier:
        found = verifier.look_inside(before, after, Parity.CLOSE, vacuous)
    assert (found.status, found.reason) == (Status.UNVERIFIED, VACUOUS)
    assert found.message.startswith("the outputs prove nothing; ")


@pytest.mark.parametrize(
    ("declared", "empty"),
    [
        ("float[0,N] y", True),
        ("float[2,0] y", True),
        ("float[2,N] y", False),
        ("float[N] y", False),
        ("float y", False),
    ],
)
def test_an_output_that_is_declared_empty_has_an_extent_of_zero(declared: str, empty: bool) -> None:
    model = text.parse(f"g (float[N] x) => ({declared}) {{ y = Neg(x) }}")
    assert declares_empty(model.graph.output[0]) is empty
    assert not declares_empty(onnx.ValueInfoProto(name="y"))
