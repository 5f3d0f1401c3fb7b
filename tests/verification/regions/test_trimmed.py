"""Regions of which only the part that differs is run, where the same operators read it in both models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.arbiter import Float64Arbiter
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions import region_comparer, region_feeding
from surgery.verification.regions.region_comparer import RegionComparer
from surgery.verification.regions.region_feeding import Drawn
from surgery.verification.regions.regions import Region
from surgery.verification.verdict.verifier import Verifier

NUMBERS = ",".join(map(str, range(16)))
HEAD = f"g (float[N,4] x) => (float[N,4] y) <float zero = {{0}}, float two = {{2}}, float[4,4] w = {{{NUMBERS}}}>"


def compared(before: str, after: str, promise: Parity = Parity.EXACT) -> Verdict:
    models = [text.parse(f"{HEAD} {{ {body} }}").SerializeToString() for body in (before, after)]
    verifier = Verifier(models[0], None, VerifySpec())
    try:
        return verifier.changes.compare_regions(models[0], models[1], promise).verdict
    finally:
        verifier.close()


@pytest.fixture(autouse=True)
def all_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trim regions of any size."""
    monkeypatch.setattr(region_comparer, "_FEW_ELEMENTS", 0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of all regions that were run."""
    found: list[str] = []
    run = Engine.run_each

    def noted(self: Engine, skeletons: Sequence[bytes], *rest: Any, **more: Any) -> list[RunOutcome]:
        for skeleton in skeletons:
            found.extend(node.op_type for node in onnx.load_model_from_string(skeleton).graph.node)
        return run(self, skeletons, *rest, **more)

    monkeypatch.setattr(Engine, "run_each", noted)
    return found


RIGHT = {
    "rearranged twice": ("t = Transpose(x) u = Transpose(t) y = MatMul(u, w)", "y = MatMul(x, w)"),
    "two operators": (
        "t = Transpose(x) u = Transpose(t) m = MatMul(u, w) y = Softmax(m)",
        "m2 = MatMul(x, w) y = Softmax(m2)",
    ),
    "read twice": ("a = Neg(x) b = Neg(a) m = MatMul(b, w) y = Add(m, b)", "m2 = MatMul(x, w) y = Add(m2, x)"),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_operators_that_read_equal_values_are_not_run(kind: str, ran: list[str]) -> None:
    verdict = compared(*RIGHT[kind])
    assert verdict.status == "equal", verdict.message
    assert ran and "MatMul" not in ran


def test_a_region_with_few_elements_is_run_whole(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_comparer, "_FEW_ELEMENTS", 1 << 14)
    assert compared(*RIGHT["rearranged twice"]).status == "equal"
    assert "MatMul" in ran


def test_the_whole_region_is_run_where_its_part_differs(ran: list[str]) -> None:
    verdict = compared("n = Neg(x) y = Abs(n)", "y = Abs(x)")
    assert verdict.status == "equal", verdict.message
    assert "Abs" in ran


def test_parts_with_exchanged_operands_are_run_once_and_never_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Parity] = []
    beneath = RegionComparer.beneath

    def noted(self: RegionComparer, region: Region, before: Any, promise: Parity, grown: bool) -> Any:
        kinds.append(promise)
        return beneath(self, region, before, promise, grown)

    monkeypatch.setattr(RegionComparer, "beneath", noted)
    monkeypatch.setattr(Float64Arbiter, "judge", None)
    layers = [("x", "p"), ("p", "q"), ("q", "y")]
    old = "e{1} = Erf({0}) b{1} = Mul({0}, e{1}) m{1} = Mul(two, b{1}) {1} = MatMul(m{1}, w)"
    new = "f{1} = Erf({0}) c{1} = Mul({0}, two) n{1} = Mul(c{1}, f{1}) {1} = MatMul(n{1}, w)"
    before, after = (" ".join(layer.format(*names) for names in layers) for layer in (old, new))
    verdict = compared(before, after, Parity.CLOSE)
    assert verdict.passed, verdict.message
    assert kinds == [Parity.EXACT, Parity.CLOSE, Parity.CLOSE, Parity.CLOSE]


def test_values_that_are_close_are_compared_where_they_are_read(ran: list[str]) -> None:
    after = "l = Log(two) d = Sub(x, l) h = Exp(d) y = MatMul(h, w)"
    verdict = compared("e = Exp(x) q = Div(e, two) y = MatMul(q, w)", after, Parity.CLOSE)
    assert verdict.status == "close", verdict.message
    assert "MatMul" in ran


WRONG = {
    "activation dropped": ("r = Relu(x) y = MatMul(r, w)", "y = MatMul(x, w)"),
    "turned": ("m = MatMul(x, w) r = Relu(m) y = Neg(r)", "m2 = MatMul(x, w) y = Neg(m2)"),
    "other operand": ("m = MatMul(x, w) y = Sub(m, x)", "m2 = MatMul(x, w) y = Sub(x, m2)"),
    "other constant": ("m = Mul(x, two) y = MatMul(m, w)", "m2 = Mul(x, zero) y = MatMul(m2, w)"),
}


@pytest.mark.parametrize("promise", sampled([Parity.EXACT, Parity.CLOSE], 2))
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_changes_are_found(kind: str, promise: Parity) -> None:
    assert not compared(*WRONG[kind], promise).passed


@pytest.mark.parametrize("order", [("Abs", "Cos"), ("Cos", "Abs"), ("Sqrt", "Neg"), ("Abs", "")])
def test_a_region_is_not_like_one_whose_values_have_another_range(order: tuple[str, str]) -> None:
    """A Relu of what is never negative does nothing; that says nothing about a Relu of other values."""
    first, second = (f"{name} = {operator}(x)" if operator else "" for name, operator in zip("ac", order))
    c = "c" if second else "x"
    head = f"{first} {second}"
    verdict = compared(
        f"{head} r = Relu(a) p = Exp(r) q = Relu({c}) s = Exp(q) y = Add(p, s)",
        f"{head} p = Exp(a) s = Exp({c}) y = Add(p, s)",
    )
    assert not verdict.passed


def test_drawn_elements_are_the_same_once_they_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_feeding, "_REMEMBERED", 100)
    drawn, calls = Drawn(), []

    def draw(key: int, size: int) -> Any:
        calls.append(key)
        return np.full(size, key, np.uint8)

    for key, size in ((1, 60), (1, 60), (2, 60), (1, 60), (3, 200), (3, 200), (1, 60)):
        assert (drawn.of(key, lambda key=key, size=size: draw(key, size)) == np.full(size, key, np.uint8)).all()
    assert calls == [1, 2, 1, 3, 3, 1]
