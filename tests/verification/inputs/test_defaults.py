"""Inputs that have a default: a change must not take it for a constant."""

import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.inputs.defaults import listed_weights, overridable, without_defaults
from surgery.verification.verdict.verifier import Verifier

HEAD = '<ir_version: {}, opset_import: ["": 21]>'
SCALED = "g (float[n,3] x, float factor = {1}) => (float[n,3] y) { y = Mul(x, factor) }"
UNSCALED = "g (float[n,3] x, float factor = {1}) => (float[n,3] y) { y = Identity(x) }"


def model(source, ir_version=10):
    return text.parse(HEAD.format(ir_version) + source).SerializeToString()


def verdict(before, after, promise=Parity.CLOSE):
    return Verifier(model(before)).verify(model(after), promise)


def test_only_initializers_that_are_inputs_can_be_overridden():
    source = "g (float x, float a = {1}) => (float y) <float b = {2}> { t = Add(x, a) y = Add(t, b) }"
    assert overridable(model(source)) == {"a"}


def test_before_ir_version_4_initializers_are_not_inputs():
    assert overridable(model(SCALED, 3)) == frozenset()


def test_a_large_default_is_left_alone():
    source = text.parse(HEAD.format(10) + SCALED)
    (tensor,) = source.graph.initializer
    tensor.raw_data = bytes(5 << 20)
    assert overridable(source.SerializeToString()) == frozenset()


def test_defaults_may_take_64_mib_in_all():
    source = text.parse(HEAD.format(10) + "g (float x) => (float y) { y = Neg(x) }")
    for number, size in enumerate([1 << 22] * 15 + [(1 << 22) + 1, 1, 1 << 22, (1 << 22) - 1, 1]):
        source.graph.input.add(name=f"w{number}")
        tensor = source.graph.initializer.add(name=f"w{number}", data_location=1)
        tensor.external_data.add(key="location", value="weights")
        tensor.external_data.add(key="length", value=str(size))
    found = overridable(source.SerializeToString())
    # One is too large by itself, and the next one of 4 MiB for what is left.
    assert found == {f"w{number}" for number in range(20)} - {"w15", "w17", "w19"}


def test_weights_that_are_inputs_are_counted():
    both = "g (float x, float a = {1}) => (float y) <float b = {2}> { t = Add(x, a) y = Add(t, b) }"
    assert [listed_weights(text.parse(HEAD.format(version) + both)) for version in (3, 4)] == [0, 1]
    assert overridable(model(both, 4)) == {"a"}


def test_other_initializers_are_kept():
    import onnx

    both = "g (float x, float a = {1}) => (float y) <float b = {2}> { t = Add(x, a) y = Add(t, b) }"
    stripped = onnx.load_model_from_string(without_defaults(model(both), frozenset({"a"})))
    assert [tensor.name for tensor in stripped.graph.initializer] == ["b"]


def test_a_model_without_defaults_has_all_its_inputs():
    import onnx

    stripped = onnx.load_model_from_string(without_defaults(model(SCALED), frozenset({"factor"})))
    assert [port.name for port in stripped.graph.input] == ["x", "factor"]
    assert not stripped.graph.initializer


def test_a_default_taken_for_a_constant_is_different():
    found = verdict(SCALED, UNSCALED)
    assert found.status == "different"
    assert "explicit values for inputs that have a default" in found.message


def test_a_default_that_changed_is_different():
    assert verdict(SCALED, SCALED.replace("{1}", "{2}")).status == "different"


@pytest.mark.parametrize("promise", [Parity.EXACT, Parity.CLOSE])
def test_a_right_change_is_equal(promise):
    after = SCALED.replace("y = Mul(x, factor)", "t = Identity(factor) y = Mul(t, x)")
    assert verdict(SCALED, after, promise).status == "equal"


def test_a_shape_input_with_a_default_gets_legal_values():
    before = "g (float[2,3] x, int64[2] shape = {3, 2}) => (float[a,b] y) { y = Reshape(x, shape) }"
    assert verdict(before, before.replace("y =", "t = Identity(x) y =").replace("(x, s", "(t, s")).status == "equal"
    fixed = "g (float[2,3] x, int64[2] shape = {3, 2}) => (float[a,b] y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }"
    assert verdict(before, fixed).status == "different"


def test_an_exact_step_after_a_close_step_is_compared_with_it():
    verifier = Verifier(model(SCALED))
    close = model(
        SCALED.replace("y = Mul(x, factor)", "e = Constant<value_float=1.0000001>() t = Mul(x, e) y = Mul(t, factor)")
    )
    assert verifier.verify(close).status == "close"
    verifier.accept(close)
    exact = model(
        SCALED.replace(
            "y = Mul(x, factor)",
            "e = Constant<value_float=1.0000001>() i = Identity(x) t = Mul(i, e) y = Mul(t, factor)",
        )
    )
    assert verifier.verify(exact, Parity.EXACT).passed
    verifier.close()
