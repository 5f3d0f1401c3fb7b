"""Outputs that are at the bounds of their range.

After a Sigmoid with an input of 50, or a Softmax with one input far above the others, only the sign or the position of
the values before it is left. Such an output agrees for most wrong models too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import is_float
from surgery.base.operators.message_tensors import to_array
from surgery.base.operators.moving import RESHAPING
from surgery.base.operators.ranges import BOUNDS
from surgery.base.operators.rounding_behavior import ROUNDING_AS_ONE
from surgery.base.promises import Parity
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.tolerance import blocks

if TYPE_CHECKING:
    import onnx

_HANDING_ON = RESHAPING | {"Cast", "Dropout", "Expand", "Gather", "Slice", "Tile", "Transpose"}
"""Operators that pass on the elements of their first input."""

_SHARE = 1e-3
"""Maximum share of elements between the bounds for an output to count as saturated."""

_LEAST = 16
"""Number of elements over all runs below which being at a bound may be chance."""


def unit_ranges(model: onnx.ModelProto) -> dict[str, float]:
    """Find the outputs whose elements have the rounding error of 1, however small they are."""
    producers = {name: node for node in model.graph.node for name in node.output if name}
    sources = ((output.name, _source(producers, output.name)) for output in model.graph.output)
    return {name: 1.0 for name, node in sources if node is not None and node.op_type in ROUNDING_AS_ONE}


def _source(producers: Mapping[str, onnx.NodeProto], name: str) -> onnx.NodeProto | None:
    """Find the operator of the default domain that computes the elements of a value."""
    node, seen = producers.get(name), 0
    while node is not None and node.op_type in _HANDING_ON and not node.domain and node.input and seen < len(producers):
        node, seen = producers.get(node.input[0]), seen + 1
    return node if node is not None and not node.domain else None


def bounds(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """Return the bounds of the outputs of the main graph that have any."""
    producers = {name: node for node in model.graph.node for name in node.output if name}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}

    def constant(name: str) -> onnx.TensorProto | None:
        node = producers.get(name)
        if node is None or node.op_type != "Constant":
            return initializers.get(name)
        return next((attribute.t for attribute in node.attribute), None)

    found = {}
    for output in model.graph.output:
        node = _source(producers, output.name)
        limits = _limits(node, constant) if node is not None else None
        if limits is not None:
            found[output.name] = limits
    return found


@dataclass
class Saturation:
    """A count of the elements of an output that are at its bounds, over the runs so far."""

    limits: tuple[float, float]
    rules: ComparisonRules
    total: int = 0
    between: int = 0
    floats: bool = True

    def add(self, tensor: Any) -> None:
        """Count the elements that differ from the bounds: in their bits, or beyond the tolerance."""
        if not is_float(tensor.dtype):
            self.floats = False
            return
        margin = self._margin(tensor.dtype)
        # The bounds in the precision that the runtime computes with.
        ends = [np.asarray(limit).astype(tensor.dtype).astype(np.float64) for limit in self.limits]
        for block in blocks(tensor.shape):
            wide = np.asarray(tensor[block]).astype(np.float64)
            apart = np.ones(wide.shape, bool)
            for bound in ends:
                apart &= ~(np.abs(wide - bound) <= margin)
            self.between += int(np.count_nonzero(apart))
        self.total += tensor.size

    def _margin(self, dtype: np.dtype[Any]) -> float:
        if self.rules.promise is Parity.EXACT:
            return 0.0
        tolerance = self.rules.tolerance(dtype)
        return (tolerance.atol + tolerance.rtol) * max(map(abs, self.limits))

    def __bool__(self) -> bool:
        """Return whether hardly any element is between the bounds."""
        return self.floats and self.total >= _LEAST and self.between <= _SHARE * self.total


def _limits(node: onnx.NodeProto, constant: Callable[[str], onnx.TensorProto | None]) -> tuple[float, float] | None:
    if node.op_type != "Clip":
        return BOUNDS.get(node.op_type)
    given = {attribute.name: attribute.f for attribute in node.attribute}
    for name, key in zip(node.input[1:], ("min", "max")):
        value = _number(constant(name))
        if value is not None:
            given[key] = value
    return (given["min"], given["max"]) if given.keys() == {"min", "max"} else None


def _number(tensor: onnx.TensorProto | None) -> float | None:
    """Read a tensor of one element that is stored in place."""
    if tensor is None or tensor.external_data or any(extent != 1 for extent in tensor.dims) or not tensor.data_type:
        return None
    array = to_array(tensor)
    return float(array.reshape(-1)[0]) if is_float(array.dtype) else None
