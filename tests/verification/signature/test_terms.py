"""The original restricted to the inputs and outputs of a changed model."""

from surgery.model.graph import text
from surgery.verification.comparing.ports import by_name
from surgery.verification.signature.terms import see

TWO = "g (float[n] x, float[n] w) => (float[n] y, float[n] z) <float[1] w = {1}> { y = Exp(x) z = Mul(y, w) }"


def test_the_same_inputs_and_outputs_leave_the_original_as_it_is() -> None:
    model = text.parse(TWO)
    assert see(model, model, by_name(model, model)) == model


def test_the_remaining_output_keeps_its_type() -> None:
    model, shorter = text.parse(TWO), text.parse(TWO)
    del shorter.graph.output[0]
    (output,) = see(model, shorter, by_name(model, shorter)).graph.output
    assert output == model.graph.output[1]
