"""A sample of random graphs: none gets a wrong result. The whole campaign is for `measure.py`."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from random_graphs.generate import generate
from random_graphs.judge import _agrees_rounded, judge
from surgery.model.graph import text

SEEDS = range(100_000, 100_024)


@pytest.mark.parametrize("seed", sampled(SEEDS, 3))
def test_a_random_graph_gets_a_right_result(seed: int) -> None:
    made = generate(seed)
    if made is None:
        return  # the checker or this runtime does not take it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ONNX Runtime's operators print of overflows
        record = judge(made, "modern" if seed % 4 == 3 else "default", seed)
    assert record["status"] in ("equal", "close", "not run"), record


def test_the_sample_is_not_empty() -> None:
    kept = sum(generate(seed) is not None for seed in SEEDS)
    assert kept >= len(SEEDS) // 2


@pytest.mark.parametrize(("after", "agrees"), [("i = Mul(x, x)", True), ("i = Mul(x, w)", False)])
def test_float32_intermediates_of_a_float16_model_are_accepted(after: str, agrees: bool, tmp_path: Path) -> None:
    model = "g (float16[N] x, float16[N] w) => (float16[N] i, float16[N] y) { BODY y = Mul(i, w) }"
    path = tmp_path / "after.onnx"
    onnx.save(text.parse(model.replace("BODY", after)), path)
    before = text.parse(model.replace("BODY", "a = Mul(x, x) i = Identity(a)"))
    made: Any = SimpleNamespace(model=before, random=set())
    fed = {"x": np.array([300, 3.3], np.float16), "w": np.array([0.001, 1.7], np.float16)}
    assert _agrees_rounded(made, path, fed) is agrees
