"""What a lossy step loses is measured, and held to the budget."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.base.errors import UsageError
from surgery.base.promises import Parity
from surgery.verification.accuracy.budget import read_argument
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import AccuracySpec, DataSpec, InputsSpec, SampleSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

HEAD = '<ir_version: 10, opset_import: ["": 21, "f": 1]> g (float[N,24] x) => (float[N,24] y) '
BEFORE = "{ y = Identity(x) }"


def _scaled(factor: float) -> str:
    return f"{{ c = Constant<value=float {{{factor}}}>() y = Mul(x, c) }}"


def _verdict(
    after: str,
    budget: str = "",
    before: str = BEFORE,
    samples: SampleSpec | None = None,
    inputs: InputsSpec | None = None,
) -> Verdict:
    one, other = (onnx.parser.parse_model(HEAD + body).SerializeToString() for body in (before, after))
    limits = read_argument(budget) if budget else ()
    spec = VerifySpec(accuracy=AccuracySpec(limits, samples or SampleSpec()))
    with closing(Verifier(one, inputs, spec)) as verifier:
        return verifier.verify(other, Parity.LOSSY)


def test_a_loss_within_the_budget_is_lossy_and_never_close() -> None:
    verdict = _verdict(_scaled(1.002))
    assert (verdict.status, verdict.passed, verdict.status.accepted) == ("lossy", False, True)
    assert verdict.details is not None and verdict.details.metrics is not None
    assert verdict.details.metrics["snr"] == pytest.approx(20 * np.log10(500), rel=1e-3)
    assert "SNR 54 dB" in verdict.message
    assert "budget snr >= 20 dB; measured on 64 synthetic sets of inputs" in verdict.message
    written = json.loads(json.dumps(verdict.to_json(), allow_nan=False))["details"]["accuracy"]
    assert (written["sets"], written["synthetic"]) == (64, True)
    assert [limit["limit"] for limit in written["limits"]] == ["snr >= 20 dB"]
    assert written["limits"][0]["inputs"]["dims"]


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        ("", "lossy"),
        ("snr >= 26 dB", "lossy"),
        ("snr >= 30 dB", "different"),
        ("cosine >= 0.999", "lossy"),
        ("y: max_rel <= 0.06", "lossy"),
        ("max_rel <= 0.04", "different"),
        ("snr >= 20 dB, max_rel <= 0.04", "different"),
        ("top1 >= 100 %", "lossy"),
    ],
)
def test_each_limit_must_be_met(budget: str, status: str) -> None:
    verdict = _verdict(_scaled(1.05), budget)
    assert verdict.status == status, verdict
    if budget == "snr >= 30 dB":
        assert verdict.message.startswith("output 'y' has SNR 26 dB (N=")


def test_a_nan_is_over_every_budget() -> None:
    after = "{ z = Constant<value_float=0.0>() n = Div(z, z) y = Add(x, n) }"
    assert _verdict(after, "snr >= 0 dB").status == "different"


def test_a_model_that_does_not_run_is_over_every_budget() -> None:
    after = "{ s = Constant<value_ints=[7, 7]>() y = Reshape(x, s) }"
    verdict = _verdict(after)
    assert verdict.status == "different"
    assert "fails" in verdict.message


def test_an_unknown_output_in_the_budget_is_named() -> None:
    with pytest.raises(UsageError, match="the budget names 'z', which is not an output; the outputs are y"):
        _verdict(_scaled(1.0001), "z: snr >= 3 dB")


def test_a_margin_is_left_for_other_inputs() -> None:
    """An error that depends on the inputs may be larger on others than on those that were measured."""
    after = "{ c = Constant<value=float {0.01}>() s = Mul(x, x) t = Mul(s, c) y = Add(x, t) }"
    found = _verdict(after, "snr >= 10 dB")
    assert found.details is not None and found.details.accuracy is not None
    limit = found.details.accuracy["limits"][0]
    assert limit["guarded"] > limit["used"]
    verdict = _verdict(after, f"snr >= {limit['value'] - 0.01:.3f} dB")
    assert verdict.status == "different"
    assert "other inputs may exceed the budget" in verdict.message


def test_accuracy_is_measured_on_the_given_data(tmp_path: Path) -> None:
    """The error is outside of the range of the data."""
    after = "{ l = Constant<value=float {-1.0}>() h = Constant<value=float {1.0}>() y = Clip(x, l, h) }"
    assert _verdict(after, "snr >= 40 dB").status == "different"
    path = tmp_path / "eval.npz"
    np.savez(path, x=np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 24))
    verdict = _verdict(after, "snr >= 40 dB", samples=SampleSpec((DataSpec(path),)))
    assert verdict.status == "lossy"
    assert verdict.message.endswith("; measured on 1 set of inputs")
    also = _verdict(after, "snr >= 40 dB", inputs=InputsSpec(data=(DataSpec(path),)))
    assert also.status == "lossy"


NOISE = ' <domain: "f", opset_import: ["": 21]> noise (i) => (o) { o = RandomNormalLike(i) }'
"""Random numbers that cannot have a seed, because each call draws its own."""


def test_random_outputs_alone_are_vacuous() -> None:
    before = f"{{ r = f.noise(x) y = Add(x, r) }}{NOISE}"
    after = f"{{ r = f.noise(x) t = Add(x, r) y = Identity(t) }}{NOISE}"
    verdict = _verdict(after, before=before)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous")
    assert "all outputs of the original are random" in verdict.message


def test_outputs_with_the_same_draws_are_measured() -> None:
    before = "{ r = RandomNormalLike(x) y = Add(x, r) }"
    after = "{ c = Constant<value=float {1.002}>() r = RandomNormalLike(x) t = Add(x, r) y = Mul(t, c) }"
    verdict = _verdict(after, before=before)
    assert verdict.status == "lossy"
    assert verdict.details is not None and verdict.details.metrics is not None
    assert verdict.details.metrics["snr"] == pytest.approx(20 * np.log10(500), rel=1e-3)


def test_a_random_output_has_no_limit() -> None:
    before = f"{{ r = f.noise(x) y = Add(x, r) }}{NOISE}"
    with pytest.raises(UsageError, match="the budget names 'y', which is random in the original"):
        _verdict(before, "y: snr >= 3 dB", before=before.replace("Add", "Sub"))


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("{ z = Constant<value=float {0.0}>() y = Mul(x, z) }", "'y' is always zero"),
        (
            "{ c = Constant<value=float {1e-9}>() o = Constant<value=float {3.0}>() t = Mul(x, c) y = Add(t, o) }",
            "'y' does not change with the inputs",
        ),
    ],
)
def test_a_constant_output_is_vacuous(before: str, why: str) -> None:
    verdict = _verdict(before.replace("y =", "w =")[:-1] + " y = Identity(w) }", "", before)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict
    assert why in verdict.message


def test_a_metric_needs_only_its_own_output_to_vary() -> None:
    """One output that says nothing does not keep the others from being measured."""
    head = '<ir_version: 10, opset_import: ["": 21]> g (float[N,24] x) => (float[N,24] y, float[N,24] dead) '
    body = "{ z = Constant<value=float {0.0}>() dead = Mul(x, z) c = Constant<value=float {F}>() y = Mul(x, c) }"
    one, other = (onnx.parser.parse_model(head + body.replace("F", f)).SerializeToString() for f in ("1.0", "1.01"))
    for budget, status in (("snr >= 20 dB", "lossy"), ("dead: snr >= 20 dB", "unverified")):
        with closing(Verifier(one, None, VerifySpec(accuracy=AccuracySpec(read_argument(budget))))) as verifier:
            assert verifier.verify(other, Parity.LOSSY).status == status, budget


def test_integers_that_differ_use_the_budget() -> None:
    """A model that returns indices alone is measured by how many are right."""
    head = '<ir_version: 10, opset_import: ["": 21]> g (float[N,960] x) => (int64[N,960] y) '
    body = "{ c = Constant<value=float {F}>() m = Mul(x, c) y = Cast<to=7>(m) }"
    one, near, far = (
        onnx.parser.parse_model(head + body.replace("F", f)).SerializeToString() for f in ("10.0", "10.001", "10.5")
    )
    with closing(Verifier(one, None, VerifySpec(accuracy=AccuracySpec()))) as verifier:
        assert verifier.verify(near, Parity.LOSSY).status == "lossy"
        assert verifier.verify(far, Parity.LOSSY).status == "different"


def test_drawn_sets_that_the_original_rejects_are_left_out() -> None:
    # The index is out of range if more than three elements exceed 1.5, as in some sets.
    rejects = (
        "{ b = Constant<value=float {1.5}>() g = Greater(x, b) h = Cast<to=1>(g) n = ReduceSum<keepdims=0>(h)"
        " i = Cast<to=7>(n) t = Constant<value=float[4] {1, 1, 1, 1}>() f = Gather(t, i)"
    )
    before = f"{rejects} y = Mul(x, f) }}"
    after = f"{rejects} c = Constant<value=float {{0.999}}>() m = Mul(f, c) y = Mul(x, m) }}"
    verdict = _verdict(after, before=before)
    assert verdict.status == "lossy"
    assert verdict.details is not None
    assert 0 < verdict.details.accuracy["sets"] < 64
