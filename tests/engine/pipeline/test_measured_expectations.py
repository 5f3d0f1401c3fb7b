"""Expectations of a target, of empty batches and of a speed, without measuring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.base.errors import SurgeryError
from surgery.engine.pipeline import expectations
from surgery.engine.pipeline.expectations import Speed, fits
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime import engine
from surgery.verification.benchmarking import bench
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

RELU, NEG = (
    text.parse(f"g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ a = {op}(x) y = Add(a, w) }}", opset=17)
    for op in ("Relu", "Neg")
)


@pytest.mark.parametrize(
    ("before", "after", "words", "holds"),
    [
        ({"Add": 1}, {"Add": 2}, "empty: allowed", True),
        ({}, {"Attention": 1}, "empty: allowed (Attention added)", False),
        ({"Attention": 1}, {"Attention": 1}, "empty: allowed", True),
        ({"Attention": 1}, {"Attention": 2}, "empty: allowed (Attention added)", False),
    ],
)
def test_operators_that_take_no_empty_batch(before: Any, after: Any, words: str, holds: bool) -> None:
    assert expectations.empty(before, after) == (words, holds)


def test_a_target_runs_a_model_or_not() -> None:
    stored = storage.from_proto(RELU)
    assert fits("openvino", stored, stored.proto) == ("target: openvino", True)
    words, holds = fits("rknn-like", stored, stored.proto)
    assert words.startswith("target: rknn-like (opset 17: the target takes ") and not holds


def measured(least: float, other: onnx.ModelProto = NEG) -> Speed:
    stored = storage.from_proto(RELU)
    return expectations.speed(least, stored, (stored.proto, other), InputsSpec(), VerifySpec())


def test_the_same_model_is_as_fast() -> None:
    assert measured(1.0, RELU) == Speed("the same model", True, 1.0)
    assert measured(1.1, RELU) == Speed("the same model", False, 1.0)


def test_a_model_with_many_weights_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "most_to_measure", lambda memory: 7)
    assert measured(2.0) == Speed("not measured: 8 bytes of weights are more than 7", True, None)


@pytest.mark.parametrize(("least", "ok"), [(0.0, True), (0.5, False)])
def test_a_speed_that_cannot_be_measured(monkeypatch: pytest.MonkeyPatch, least: float, ok: bool) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise SurgeryError("no kernel")

    monkeypatch.setattr(engine, "most_to_measure", lambda memory: 8)
    monkeypatch.setattr(bench, "bench", fail)
    assert measured(least) == Speed("cannot be measured: no kernel", ok, None)


@pytest.mark.parametrize(
    ("least", "ok", "remedy"),
    [(1.5, True, ""), (1.7, False, "; 'surgery tune' finds the steps and sites that are faster")],
)
def test_a_measured_speed(monkeypatch: pytest.MonkeyPatch, least: float, ok: bool, remedy: str) -> None:
    given: dict[str, Any] = {}

    def run(first: Any, second: Any, **more: Any) -> Any:
        given.update(more, names=(first.name, second.name))
        found = SimpleNamespace(ratio=1.5, low=1.41, high=1.6, reaches=lambda wanted: wanted <= 1.6)
        return SimpleNamespace(speed=found)

    monkeypatch.setattr(bench, "bench", run)
    words = f"found 1.500, between 1.410 and 1.600 with a confidence of 95%{remedy}"
    assert measured(least) == Speed(words, ok, 1.5)
    assert given["decide"] == least and given["memory"] is False and given["names"] == ("the original", "the result")
