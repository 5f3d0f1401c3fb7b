"""Facts about TensorProto: the tensors of a model, their sizes, and the locations of their data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from surgery.base.errors import ModelFileError
from surgery.model.wire.wire import Reference

EXTERNAL: Final = 1
STRING: Final = 8
PAYLOAD_FIELDS: Final = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")

_Kind: Final = AttributeProto.AttributeType
_WITHOUT_TENSORS: Final = {_Kind.INT, _Kind.INTS, _Kind.FLOAT, _Kind.FLOATS, _Kind.STRING, _Kind.STRINGS}
# Bits per element of each data type, by its number in TensorProto.DataType
_BITS: Final = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((25, 26), 2),
    **dict.fromkeys((27, 28), 6),
    15: 128,
}


def payload_size(data_type: int, dims: Sequence[int]) -> int | None:
    """Return the size of the raw data of a tensor in bytes; None for strings, unknown types and negative dims."""
    bits = _BITS.get(data_type)
    if bits is None or any(dim < 0 for dim in dims):
        return None
    return -(-math.prod(dims) * bits // 8)


def payload_bytes(tensor: TensorProto) -> int:
    """Return the size of the data of a tensor in bytes, wherever it is stored; 0 if it is unknown."""
    if tensor.data_type == STRING:
        return sum(len(text) for text in tensor.string_data)
    return payload_size(tensor.data_type, tensor.dims) or 0


def is_external(tensor: TensorProto) -> bool:
    """Return whether the data of a tensor is outside its message."""
    return tensor.data_location == EXTERNAL


def external_reference(tensor: TensorProto) -> Reference:
    """Return the location of the data of an external tensor. Raises ModelFileError if it is invalid.

    The length defaults to the size of the tensor, and the offset to 0.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location")
    if not location or not isinstance(location, str):
        raise ModelFileError(f"tensor '{tensor.name}' has external data without a location")
    size = payload_size(tensor.data_type, tensor.dims)
    if size is None:
        raise ModelFileError(
            f"tensor '{tensor.name}' has external data, which its type {tensor.data_type} and dims "
            f"{list(tensor.dims)} do not allow"
        )
    numbers = {"offset": 0, "length": size}
    for key in numbers:
        text = entries.get(key)
        if text is not None:
            if not (text.isascii() and text.isdigit()) or len(text) > 18:
                raise ModelFileError(f"tensor '{tensor.name}' has the {key} '{text}' of external data")
            numbers[key] = int(text)
    if numbers["length"] != size:
        raise ModelFileError(
            f"tensor '{tensor.name}' has {numbers['length']:,} bytes of external data, but its type and dims need "
            f"{size:,}"
        )
    return Reference(location, numbers["offset"], numbers["length"])


def refer(tensor: TensorProto, reference: Reference) -> None:
    """Make a tensor external with this reference, and drop its payload."""
    for field in PAYLOAD_FIELDS:
        tensor.ClearField(field)
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in zip(reference._fields, reference, strict=True):
        tensor.external_data.add(key=key, value=str(value))


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor of a model: initializers, attributes, subgraphs, functions, training, sparse parts."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _function_tensors(function)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def weight_bytes(model: ModelProto) -> int:
    """Return the size of all tensors of a model in bytes, wherever they are stored."""
    return sum(map(payload_bytes, all_tensors(model)))


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node)


def _function_tensors(function: FunctionProto) -> Iterator[TensorProto]:
    yield from _node_tensors(function.node)
    for attribute in function.attribute_proto:
        yield from _attribute_tensors(attribute)


def _node_tensors(nodes: Sequence[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type not in _WITHOUT_TENSORS:
                yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
        if attribute.type == _Kind.TENSOR:
            return
    if attribute.HasField("g"):
        yield from _graph_tensors(attribute.g)
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor.values
        yield attribute.sparse_tensor.indices
    yield from attribute.tensors
    for graph in attribute.graphs:
        yield from _graph_tensors(graph)
    for sparse in attribute.sparse_tensors:
        yield sparse.values
        yield sparse.indices
