"""Inputs of the zoo's models are legal: sums of dims, positions that follow the mask, padding on the side asked for."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))

from models import feeds

INPUTS = [
    ("input_ids", "tensor(int64)", ["batch_size", "sequence_length"]),
    ("attention_mask", "tensor(int64)", ["batch_size", "past_sequence_length + sequence_length"]),
    ("position_ids", "tensor(int64)", ["batch_size", "sequence_length"]),
    ("past_key_values.0.key", "tensor(float)", ["batch_size", 2, "past_sequence_length", 8]),
]


def _drawn(padding, past=4, new=2):
    sizes = {"batch_size": 2, "sequence_length": new, "past_sequence_length": past}
    return feeds.draw(INPUTS, sizes, np.random.default_rng(0), padding=padding)


@pytest.mark.parametrize(
    ("padding", "last", "positions"),
    [
        ("none", [1, 1, 1, 1, 1, 1], [4, 5]),
        ("left", [0, 0, 1, 1, 1, 1], [2, 3]),
        ("right", [1, 1, 1, 1, 0, 0], [3, 3]),
        ("row", [0, 0, 0, 0, 0, 0], [0, 0]),
    ],
)
def test_positions_follow_the_mask(padding, last, positions):
    feed = _drawn(padding)
    assert feed["attention_mask"].tolist() == [[1] * 6, last]
    assert feed["position_ids"].tolist() == [[4, 5], positions]


@pytest.mark.parametrize("past", [0, 1, 7])
def test_dims_that_are_sums_agree(past):
    feed = _drawn("left", past=past, new=3)
    assert feed["past_key_values.0.key"].shape == (2, 2, past, 8)
    assert feed["attention_mask"].shape == (2, past + 3)
    assert feed["input_ids"].shape == feed["position_ids"].shape == (2, 3)
    assert feed["input_ids"].max() < feeds.IDS


def test_a_single_token_is_never_padding():
    for padding in ("left", "right"):
        assert _drawn(padding, past=0, new=1)["attention_mask"].tolist() == [[1], [1]]
