"""The inputs that a case provides for calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.verification.inputs.spec import TensorSpec

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class GivenInputs:
    """One input set, given as lists of numbers; each gets the element type that the model declares."""

    model: onnx.ModelProto
    given: Mapping[str, Any]
    is_drawn: bool = False

    def feeds(self) -> Sequence[Mapping[str, Any]]:
        """Return the input set as arrays by name."""
        from onnx.helper import tensor_dtype_to_np_dtype

        types = {value.name: value.type.tensor_type.elem_type for value in self.model.graph.input}
        names = [name for name in types if name in self.given]
        return [{name: np.array(self.given[name], dtype=tensor_dtype_to_np_dtype(types[name])) for name in names}]


def ranges(given: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Return specs that fill inputs with numbers in the range of the given ones, for the verification of a case."""
    arrays = {name: np.array(numbers, np.float64) for name, numbers in given.items()}
    return {
        name: TensorSpec(range=(float(array.min()), float(array.max())))
        for name, array in arrays.items()
        if array.size and np.isfinite(array).all() and array.min() < array.max()
    }
