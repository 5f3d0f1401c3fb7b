"""Attentions whose guard turns the NaN of fully masked rows into zeros, before and after fusion.

ONNX Runtime runs both without and with its optimizations, on rows that are masked at each place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import installed, lacking
from support.case_files import read

from surgery.features.testing.case import Case
from surgery.model.graph import text

GUARDED = [
    "fuse-attention/fuses_a_guarded_mask_of_minus_infinity",
    "fuse-group-query-attention/makes_rows_zero_that_a_guard_makes_zero",
    "fuse-group-query-attention/makes_rows_zero_without_a_past",
    "fuse-multi-head-attention/makes_rows_zero_that_a_guard_makes_zero",
    "fuse-multi-head-attention/makes_rows_zero_next_to_a_finite_bias",
    "fuse-multi-head-attention/makes_rows_zero_that_a_choice_of_infinity_hides",
    "fuse-multi-head-attention/makes_rows_zero_where_minus_infinity_replaces_masked_scores",
    "fuse-multi-head-attention/makes_rows_zero_that_two_choices_of_infinity_hide",
]
LOWEST = [
    "fuse-attention/fuses_a_bias_of_relative_positions_under_a_mask",
    "fuse-attention/fuses_with_a_mask_of_finite_numbers",
    "fuse-multi-head-attention/steps_over_a_guard_where_a_finite_number_replaces_masked_scores",
]
"""Masks of the lowest number, under which the probabilities of fully masked rows are equal."""
SIZES = {"B": 3, "S": 4, "T": 4, "P": 2}
LEVELS = onnxruntime.GraphOptimizationLevel


def _case(name: str) -> Case:
    return next(case for case in read() if f"{case.pass_name}/{case.path.stem}" == name)


def _inputs(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    """Draw inputs; in the first two batch elements, masks hide everything, or all but the last columns."""
    generator, feeds = np.random.default_rng(seed), {}
    for one in model.graph.input:
        shape = [SIZES.get(dim.dim_param, dim.dim_value) for dim in one.type.tensor_type.shape.dim]
        if one.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
            mask = generator.random(shape) < 0.7
            mask[0] = False
            mask[1:2, ..., :-1] = False
            feeds[one.name] = mask
        else:
            feeds[one.name] = generator.normal(size=shape).astype(np.float32)
    return feeds


def _run(model: onnx.ModelProto, feeds: dict[str, Any], level: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("level", [LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL])
def test_rows_that_are_masked_completely_are_zero(name: str, level: Any) -> None:
    case = _case(name)
    before, after = text.parse(case.before), text.parse(case.after or "")
    if any((node.domain, node.op_type) == ("", "Attention") for node in after.graph.node):
        lacking.skip_opset(23)
        if not installed.hides_rows():
            pytest.skip("Attention of the installed runtime gives NaN for rows that are masked completely")
    for seed in range(3):
        feeds = _inputs(before, seed)
        wanted, found = _run(before, feeds, LEVELS.ORT_DISABLE_ALL), _run(after, feeds, level)
        assert (wanted[0][0] == 0).all()
        for one, other in zip(wanted, found):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOWEST)
@pytest.mark.parametrize("level", [LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL])
def test_rows_of_the_lowest_number_are_the_mean_of_the_values(name: str, level: Any) -> None:
    case = _case(name)
    before, after = text.parse(case.before), text.parse(case.after or "")
    for seed in range(3):
        feeds = _inputs(before, seed)
        wanted, found = _run(before, feeds, LEVELS.ORT_DISABLE_ALL), _run(after, feeds, level)
        mean = feeds["v"][0].mean(axis=-2, keepdims=True)
        np.testing.assert_allclose(found[0][0], np.broadcast_to(mean, found[0][0].shape), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-6)
