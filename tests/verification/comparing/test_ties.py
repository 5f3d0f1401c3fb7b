"""Other choices among nearly equal values: judged by the values that are chosen."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

# The scores of a row are equal but for the last bits, so that rounding decides their order.
ROWS = 64
TIED = """
    g (float[n, 64] x) => (int64[n, 8] labels, float[n, 8] scores) <int64[1] k = {8}, float two = {2}>
    {
        a = MatMul(x, u)
        b = MatMul(x, v)
        s = Add(a, b)
        z = Mul(s, two)
        top, at = TopK(z, k)
        scores = Identity(top)
        labels = Identity(at)
    }
"""


def model(body: str = TIED, seed: int = 0) -> onnx.ModelProto:
    made = text.parse(body)
    random = np.random.default_rng(seed)
    column = random.normal(size=(ROWS, 1)).astype(np.float32)
    # All columns are equal up to a few units in the last place.
    u = column * (1 + random.integers(-2, 3, size=(ROWS, 40)) * np.float32(2**-23))
    v = np.repeat(random.normal(size=(ROWS, 1)).astype(np.float32), 40, axis=1)
    made.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for a, n in ((u, "u"), (v, "v")))
    return made


def verdict_on(changed: str, original: str = TIED, promise: Parity = Parity.CLOSE) -> Verdict:
    verifier = Verifier(model(original).SerializeToString(), InputsSpec(), VerifySpec())
    try:
        return verifier.verify(model(changed).SerializeToString(), promise)
    finally:
        verifier.close()


JOINED = (
    TIED.replace("a = MatMul(x, u)", "w = Add(u, v)")
    .replace("b = MatMul(x, v)", "")
    .replace("s = Add(a, b)", "s = MatMul(x, w)")
)


def test_another_choice_among_nearly_equal_values_is_a_tie() -> None:
    found = verdict_on(JOINED)
    assert found.status is Status.CLOSE
    assert found.message.startswith("near ties of nearly equal values: output 'labels'")
    assert found.is_tied and found.to_json()["details"]["tied"]
    assert "with the original's choices, " in found.message


def test_a_tie_is_no_excuse_for_an_exact_step() -> None:
    assert verdict_on(JOINED, promise=Parity.EXACT).status is Status.DIFFERENT


@pytest.mark.parametrize(
    "wrong",
    [
        JOINED.replace("z = Mul(s, two)", "z = Sub(s, two)"),  # it chooses from other values
        JOINED.replace("TopK(z, k)", "TopK<largest = 0>(z, k)"),  # it chooses otherwise
        JOINED.replace("labels = Identity(at)", "o = Sign(at)  labels = Add(at, o)"),  # what it chose is changed
        JOINED.replace("scores = Identity(top)", "scores = Mul(top, two)"),
        JOINED.replace("top, at = TopK(z, k)", "y = Neg(z)  top, at = TopK(y, k)"),
    ],
)
def test_other_values_remain_a_difference(wrong: str) -> None:
    assert verdict_on(wrong).status is Status.DIFFERENT


def test_a_label_that_is_an_output_itself() -> None:
    head, tail = "g (float[n, 64] x) => (int64[n] y)", "y = ArgMax<axis = 1, keepdims = 0>(s)"
    whole = f"{head} {{ a = MatMul(x, u)  b = MatMul(x, v)  s = Add(a, b)  {tail} }}"
    other = f"{head} {{ w = Add(u, v)  s = MatMul(x, w)  {tail} }}"
    found = verdict_on(other, whole)
    assert found.status is Status.CLOSE and found.message.startswith("near ties")
    assert (
        verdict_on(other.replace("s = MatMul(x, w)", "t = MatMul(x, w)  s = Neg(t)"), whole).status is Status.DIFFERENT
    )
