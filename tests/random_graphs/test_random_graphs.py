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
from random_graphs.judge import _agrees_rounded, judge, leaves_unwritten
from surgery.model.graph import text

SEEDS = range(100_000, 100_024)


@pytest.mark.parametrize("seed", sampled(SEEDS, 6))
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


@pytest.mark.parametrize(("last", "agrees"), [("d = Sub(b, h)", True), ("d = Sub(b, q)", False)])
def test_a_lossy_result_is_right_if_it_is_so_with_every_value_rounded(last: str, agrees: bool, tmp_path: Path) -> None:
    """The difference of a value and its copy is 0, also where the runtime rounds the copy only."""
    before = text.parse("g (float[N] x) => (float[N] y) { a = Neg(x) b = Relu(a) y = Sub(b, a) }")
    path = tmp_path / "after.onnx"
    body = f"c = Cast<to=10>(x) h = Neg(c) q = Abs(h) b = Relu(h) {last} y = Cast<to=1>(d)"
    onnx.save(text.parse(f"g (float[N] x) => (float[N] y) {{ {body} }}"), path)
    made: Any = SimpleNamespace(model=before, random=set())
    fed = {"x": np.array([-5.48743, 3.3], np.float32)}
    assert _agrees_rounded(made, path, fed, lossy=True) is agrees
    assert not _agrees_rounded(made, path, fed)


@pytest.mark.parametrize(("extents", "unwritten"), [((8, 0), True), ((8, 4), False), ((0, 4), False)])
def test_a_concat_of_a_misfit_empty_tensor_leaves_elements_unwritten(extents: tuple[int, int], unwritten: bool) -> None:
    model = text.parse("g (float[N,M] x, float[8,4] z) => (float[A,B] y) { e = Relu(x) y = Concat<axis=0>(e, z) }")
    fed = {"x": np.zeros(extents, np.float32), "z": np.ones((8, 4), np.float32)}
    assert leaves_unwritten(model, fed) is unwritten
