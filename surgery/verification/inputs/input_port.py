"""The inputs of a model, as they are fed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery.model.shapes.declarations import Extent


@dataclass(frozen=True)
class InputPort:
    """One input to feed. `kind` is "tensor", "sequence" or "optional"; `dims` are extents, names or expressions.

    A port whose type declares no shape is not `ranked`, and its `dims` are chosen by us.
    """

    name: str
    kind: str
    dtype: np.dtype[Any] | None
    dims: tuple[Extent, ...]
    inner: str = "tensor"
    ranked: bool = True
