"""The original restricted to the inputs and outputs of a changed model."""

import pytest

from surgery.model.graph import text
from surgery.verification.comparing.ports import by_name
from surgery.verification.signature.terms import see

TWO = "g (float[n] x, float[n] w) => (float[n] y, float[n] z) <float[1] w = {1}> { y = Exp(x) z = Mul(y, w) }"


def test_the_same_inputs_and_outputs_leave_the_original_as_it_is() -> None:
    # Nodes without effect stay, too.
    for model in (text.parse(TWO), text.parse(TWO.replace("z =", "dead = Neg(x) z ="))):
        assert see(model, model, by_name(model, model)) == model


@pytest.mark.parametrize(
    ("before", "after", "dims"),
    [
        ("4, n", "m, n", [4, "n"]), ("4, n", "m, 5", [4, 5]), ("4, n", "m, k", [4, "k"]),
        ("4, 5", "m, m", [5, 5]), ("4, n", ",", [4, None]), ("n, m", ",", [None, None]), ("4", "m, 5", [4, 5]),
        ("4, 6", "8, n", [8, 6]),
    ],
)  # fmt: skip
def test_dims_of_inputs_are_those_of_the_changed_model(before: str, after: str, dims: list[int | str | None]) -> None:
    original, changed = (
        text.parse(f"g (float[{shape}] x) => (float y) {{ y = Neg(x) }}") for shape in (before, "a, b")
    )
    del changed.graph.input[0].type.tensor_type.shape.dim[:]
    for dim in after.split(","):
        added = changed.graph.input[0].type.tensor_type.shape.dim.add()
        if dim.strip().isdigit():
            added.dim_value = int(dim)
        elif dim.strip():
            added.dim_param = dim.strip()
    (port,) = see(original, changed, by_name(original, changed)).graph.input
    found = [dim.dim_value or dim.dim_param or None for dim in port.type.tensor_type.shape.dim]
    assert found == dims


def test_the_remaining_output_keeps_its_type() -> None:
    model, shorter = text.parse(TWO), text.parse(TWO)
    del shorter.graph.output[0]
    (output,) = see(model, shorter, by_name(model, shorter)).graph.output
    assert output == model.graph.output[1]
