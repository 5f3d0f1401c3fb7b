"""Sets of inputs on disk, for tests of what is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from surgery.model.graph import text

MODEL = "g (float[batch, 4] x, int64[batch] i) => (float[batch, 4] y, int64[batch] j) {{ {} }}"
BODY = "t = Relu(x) k = Identity(t) y = Neg(k) j = Identity(i)"


def model(body: str = BODY) -> onnx.ModelProto:
    """Return a model that takes `x` and `i`, and gives -Relu(x) and `i`."""
    return text.parse(MODEL.format(body))


def arrays(batch: int = 3) -> dict[str, np.ndarray]:
    """Return inputs for the model."""
    x = np.arange(batch * 4, dtype=np.float32).reshape(batch, 4) - 3
    return {"x": x, "i": np.arange(batch)}


def expected(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what the model makes of inputs."""
    return {"y": -np.maximum(given["x"], 0), "j": given["i"]}


def write_set(folder: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Path:
    """Write a test set of ONNX; names that begin with "_" are left out of the files."""
    folder.mkdir(parents=True)
    for kind, values in (("input", inputs), ("output", outputs or {})):
        for index, (name, value) in enumerate(values.items()):
            convert = numpy_helper.from_list if isinstance(value, list) else numpy_helper.from_array
            proto = convert(value, None if name.startswith("_") else name)
            (folder / f"{kind}_{index}.pb").write_bytes(proto.SerializeToString())
    return folder
