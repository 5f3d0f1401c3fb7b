"""Wrong rewrites written by hand: what the seeded kinds do not reach, or what only certain inputs show.

`INPUTS` holds inputs that show that a pair is wrong, where random ones need luck.
"""

from __future__ import annotations

import numpy as np

from mutation.pairs import Pair
from mutation.wrong_graphs import ATTENTION, SHAPES, WINDOWS
from mutation.wrong_values import CHANCE, CONTROL, NUMBERS, THRESHOLDS, ZEROS

WRONG: dict[str, Pair] = ZEROS | NUMBERS | THRESHOLDS | CONTROL | CHANCE | WINDOWS | SHAPES | ATTENTION

_OFFSET = np.array([[1000.0, 1000.5, 1001.0], [2000.0, 2001.0, 2000.5]], np.float32)
_LEVEL = np.array([[1.0, 1.000001, 1.0, 1.000002], [0.0, 1e-6, 0.0, -1e-6]], np.float32)
INPUTS: dict[str, dict[str, np.ndarray]] = {
    "variance by the mean of squares": {"x": _OFFSET},
    "or equal lost": {"x": np.full((1, 2), 3.7, np.float32), "z": np.ones((1, 2), np.float32)},
    "or equal gained": {"x": np.full((1, 2), 0.3, np.float32), "z": np.ones((1, 2), np.float32)},
    "a token that is compared with lost": {"x": np.full((1, 2), 4217), "z": np.ones((1, 2), np.float32)},
    "Slice to the end pinned far out": {"x": np.ones((1, 600), np.float32)},
    "mean of bytes in a wide type": {"x": np.array([200, 3], np.uint8), "z": np.array([100, 4], np.uint8)},
    "wide to narrow int and back dropped": {"x": np.array([300, -200])},
    "twice and half of an int": {"x": np.array([2**30 + 5, 7], np.int32)},
    "tiny epsilon of a LayerNormalization times ten": {"x": _LEVEL},
    "epsilon of a LayerNormalization times ten": {"x": _LEVEL * 0.01},
    "overridable initializer as a constant": {"x": np.ones((1, 2), np.float32), "w": np.full(1, 3, np.float32)},
    "overridable condition as a constant": {"x": -np.ones((1, 2), np.float32), "b": np.array(False)},
    "overridable bias folded into another": {"x": np.ones((1, 2), np.float32), "w": np.array(5, np.float32)},
}
