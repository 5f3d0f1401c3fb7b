"""The context that operator rules write to: types, shapes, and the contents of small integer tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from surgery.model.shapes.linear import names
from surgery.model.shapes.symbols import Element, element, normal
from surgery.model.storage.node_constants import constant_tensor

Content = np.ndarray[Any, Any]
"""An array of elements."""


MOST_ELEMENTS = 1024


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of a constant, without reading its elements."""
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or producer.domain:
        return None
    return constant_tensor(producer)


def as_content(items: Sequence[Element], shape: Sequence[int]) -> Content:
    """Arrange elements in an array."""
    content = np.empty(len(items), dtype=object)
    content[:] = items
    return content.reshape(tuple(shape))


_HOLDS_ELEMENTS = {
    ir.DataType.BOOL,
    ir.DataType.INT8,
    ir.DataType.INT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
    ir.DataType.UINT8,
    ir.DataType.UINT16,
    ir.DataType.UINT32,
    ir.DataType.UINT64,
}


_HOLDS_SYMBOLS = {ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64}


_LIMITS = {
    dtype: (int(np.iinfo(dtype.numpy()).min), int(np.iinfo(dtype.numpy()).max))
    for dtype in _HOLDS_ELEMENTS - {ir.DataType.BOOL}
}


class Context(ShapeInferenceContext):  # type: ignore[misc]
    """The context that operator rules write to. Contents of tensors come only from `model.shapes.shape_contents`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.elements: dict[ir.Value, list[Element]] = {}
        self.wild: set[str] = set()
        """Symbols of elements about which nothing is known, not even that they are positive."""
        self._constants: dict[ir.Value, Content | None] = {}

    def child(self, opset_imports: Any, resolved_attrs: dict[str, ir.Attr]) -> Context:
        """Return the context for the body of a function; its symbols stay distinct from those of this context."""
        made = Context(opset_imports, self.policy, resolved_attrs, allocator=self._allocator)
        made.wild = self.wild
        return made

    def know(self, value: ir.Value, content: Content, dtype: ir.DataType | None) -> bool:
        """Record the contents of a value, and so its shape; return False if the type cannot hold them."""
        dtype = value.dtype or dtype
        if dtype not in _HOLDS_ELEMENTS or content.size > MOST_ELEMENTS:
            return False
        items = content.reshape(-1).tolist()
        numbers = [item for item in items if isinstance(item, int)]
        if dtype != ir.DataType.BOOL:
            lowest, highest = _LIMITS[dtype]
            if numbers and (min(numbers) < lowest or max(numbers) > highest):
                return False
            if len(numbers) < len(items) and dtype not in _HOLDS_SYMBOLS:
                return False
        self.elements[value] = items
        if value.type is None:
            value.type = ir.TensorType(dtype)
        value.shape = ir.Shape(content.shape)
        if len(numbers) == len(items) and value.const_value is None:
            value.const_value = ir.Tensor(np.array(numbers, dtype=dtype.numpy()).reshape(content.shape))
        return True

    def content(self, value: ir.Value) -> Content | None:
        """Return the contents of a small integer tensor, known from the rules or constant."""
        items = self.elements.get(value)
        if items is not None and value.shape is not None:
            return as_content(items, value.shape.numpy())
        if value not in self._constants:
            self._constants[value] = _constant_content(value)
        return self._constants[value]

    def set_symbolic_value(self, value: ir.Value, data: Sequence[Element]) -> None:
        """Ignore the contents that a rule of the package claims to know."""

    def get_symbolic_value(self, value: ir.Value) -> list[Element] | None:
        """Return the elements of a value with at most one axis, known from the rules or constant."""
        content = self.content(value)
        return None if content is None or content.ndim > 1 else content.reshape(-1).tolist()

    def forget(self, value: ir.Value) -> None:
        """Drop the elements of a value."""
        if self.elements.pop(value, None) is not None and not value.is_initializer():
            value.const_value = None

    def normal(self, extent: Element) -> Element:
        """Return an extent in normal form."""
        return extent if isinstance(extent, int) else element(normal(str(extent.value)))

    def new_wild(self) -> ir.SymbolicDim:
        """Return a symbol for an element about which nothing is known."""
        symbol: ir.SymbolicDim = self.new_symbolic_dim()
        self.wild.add(str(symbol.value))
        return symbol

    def is_wild(self, item: Element) -> bool:
        """Return whether an element contains a wild symbol."""
        if isinstance(item, int) or not self.wild:
            return False
        return not self.wild.isdisjoint(names(item.value or ""))


def _constant_content(value: ir.Value) -> Content | None:
    """Return the contents of a small integer constant; None for anything else."""
    tensor = constant_of(value)
    if tensor is None or tensor.dtype not in _HOLDS_ELEMENTS or tensor.size > MOST_ELEMENTS:
        return None
    return tensor.numpy().astype(np.int64 if tensor.dtype == ir.DataType.BOOL else object).astype(object)
