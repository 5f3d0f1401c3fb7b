"""The constants of nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir

_FORMS = {
    "value": onnx_ir.AttributeType.TENSOR,
    "value_int": onnx_ir.AttributeType.INT,
    "value_ints": onnx_ir.AttributeType.INTS,
    "value_float": onnx_ir.AttributeType.FLOAT,
    "value_floats": onnx_ir.AttributeType.FLOATS,
    "value_string": onnx_ir.AttributeType.STRING,
    "value_strings": onnx_ir.AttributeType.STRINGS,
}
"""The attributes of a Constant, and their types; in an invalid model, `value` may be a sparse tensor."""


def constant_tensor(node: onnx_ir.Node) -> onnx_ir.TensorProtocol | None:
    """Return the tensor of a Constant node, from any of its attributes; None for a sparse tensor."""
    attribute = next(iter(node.attributes.values()), None)
    if attribute is None or attribute.is_ref() or _FORMS.get(attribute.name) != attribute.type:
        return None
    match attribute.name:
        case "value":
            # `as_tensor` checks each member of the protocol, which would dominate the run time of some passes.
            tensor: onnx_ir.TensorProtocol = attribute.value
            return tensor
        case "value_int" | "value_ints":
            return onnx_ir.Tensor(np.array(attribute.value, dtype=np.int64))
        case "value_float" | "value_floats":
            return onnx_ir.Tensor(np.array(attribute.value, dtype=np.float32))
        case "value_string":
            return onnx_ir.StringTensor([attribute.as_string().encode()], shape=onnx_ir.Shape([]))
        case "value_strings":
            strings = attribute.as_strings()
            return onnx_ir.StringTensor([item.encode() for item in strings], shape=onnx_ir.Shape([len(strings)]))
    return None


def constant_of(value: onnx_ir.Value) -> onnx_ir.TensorProtocol | None:
    """Return the tensor of an initializer or a Constant output, without reading its elements; None for other values."""
    if value.is_initializer():
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or producer.domain:
        return None
    return constant_tensor(producer)
