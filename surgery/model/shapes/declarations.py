"""The graph with functions inlined, and the shapes of its values for given inputs. Runs in a worker process."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, cast

from surgery.base.operators.subgraphs import graphs
from surgery.base.workers import stage

if TYPE_CHECKING:
    import onnx

Extent = int | str
"""A dim: a number, or a name or expression."""

_KNOWN = ("", "ai.onnx", "ai.onnx.ml")
"""Domains whose operators are known to onnx's shape inference."""

CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's own operators, whose shapes are inferred by the rules of surgery."""

Declared = Mapping[str, tuple[int, list[int]]]
"""Element types, as numbers, and shapes by name."""

General = Mapping[str, tuple[int, list[Extent]]]
"""The same with dims that may have names."""

INLINE_LIMIT = 64 << 20
"""Bytes above which an inlined skeleton is not sent back: nested functions can grow without bound."""


def inline(skeleton: bytes) -> bytes | None:
    """Replace the calls of model-local functions with their bodies; None if the result is too large."""
    import onnx
    import onnx.inliner

    stage("inliner")
    model = onnx.load_model_from_string(skeleton)
    if not model.functions:
        return skeleton
    inlined = onnx.inliner.inline_local_functions(model)
    return inlined.SerializeToString() if inlined.ByteSize() <= INLINE_LIMIT else None


def declare(skeleton: bytes, dims: Mapping[str, Sequence[int]]) -> Declared:
    """Infer the shapes of all values, and the element types of tensors, as numbers of `TensorProto.DataType`.

    The element type of values that are not tensors is 0.
    """
    return cast("Declared", declare_by_names(skeleton, dims))  # without names, there are only numbers


def declare_by_names(skeleton: bytes, dims: Mapping[str, Sequence[Extent]]) -> General:
    """Infer like `declare`, but the dims of inputs may be names; dims of other values are numbers or such names."""
    import onnx
    import onnx.shape_inference

    stage("shape inference")
    model = bound(skeleton, dims)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:
        inferred = model
    names = {extent for shape in dims.values() for extent in shape if isinstance(extent, str)}
    found: dict[str, tuple[int, list[Extent]]] = {}
    for graph in graphs(inferred.graph):
        for value in chain(graph.value_info, graph.input, graph.output):
            if _has_shape(value.type):
                extents = _extents(value.type.tensor_type.shape, names)
                if extents is not None:
                    found[value.name] = value.type.tensor_type.elem_type, extents
    return found


def _extents(shape: onnx.TensorShapeProto, names: Container[str]) -> list[Extent] | None:
    """Return dims that are numbers or one of the names; None if there are others."""
    found: list[Extent] = []
    for dim in shape.dim:
        extent: Extent = dim.dim_value
        if not extent and not dim.HasField("dim_value"):
            extent = dim.dim_param
            if extent not in names:
                return None
        found.append(extent)
    return found


def declare_contrib(skeleton: bytes, dims: Mapping[str, Sequence[int]]) -> Declared:
    """Infer like `declare`, and with our own rules the values that depend on operators unknown to onnx."""
    import onnx_ir as ir

    from surgery.model.shapes.inference import Inference
    from surgery.model.storage import ir_from_proto

    found: dict[str, tuple[int, list[int]]] = {}
    for value, fact in Inference(ir_from_proto(bound(skeleton, dims))).everything().items():
        if value.name and isinstance(fact.type, ir.TensorType) and fact.shape is not None and fact.shape.is_static():
            found[value.name] = int(fact.type.dtype), [int(extent) for extent in fact.shape.numpy()]
    return {**found, **declare(skeleton, dims)}


def element_types(skeleton: bytes) -> dict[str, int]:
    """Infer the element types of tensors in the main graph, including those whose shapes depend on data."""
    import onnx
    import onnx.shape_inference

    stage("shape inference")
    inferred = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(skeleton)).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def bound(skeleton: bytes, dims: Mapping[str, Sequence[Extent]]) -> onnx.ModelProto:
    """Parse a model and bind its inputs to `dims`."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    # Earlier results with symbolic dims would only keep numbers from being inferred.
    kept = list(_bound_by_hand(model, dims))
    for value in model.graph.input:
        if value.name in dims:
            shape = _tensor_type(value.type).shape
            del shape.dim[:]
            for extent in dims[value.name]:
                _bind(shape.dim.add(), extent)
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    model.graph.value_info.extend(_contrib(model, {value.name for value in kept}))
    return model


def _contrib(model: onnx.ModelProto, known: Container[str]) -> list[onnx.ValueInfoProto]:
    """Infer the undeclared outputs of ONNX Runtime's own operators, which onnx does not know."""
    wanted = {name for node in model.graph.node if node.domain == CONTRIB for name in node.output if name}
    wanted = {name for name in wanted if name not in known}
    if not wanted:
        return []
    import onnx

    from surgery.model.shapes.inference import Inference
    from surgery.model.storage import ir_from_proto

    parsed = ir_from_proto(model)
    facts = Inference(parsed).everything()
    found = []
    for value in (output for node in parsed.graph for output in node.outputs if output.name in wanted):
        fact = facts.get(value)
        shape = None if fact is None else fact.shape
        if fact is not None and shape is not None and fact.type is not None and shape.is_static():
            extents = [int(extent) for extent in shape.numpy()]
            found.append(onnx.helper.make_tensor_value_info(value.name or "", int(fact.type.dtype), extents))
    return found


def empty(skeleton: bytes) -> list[str]:
    """Return the tensors of the main graph that have no elements, whatever the dynamic dims are."""
    import onnx
    import onnx.shape_inference

    stage("shape inference")
    model = onnx.load_model_from_string(skeleton)
    # Declarations of values other than inputs are no proof.
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.ClearField("type")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return [
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in _tensor_type(value.type).shape.dim)
    ]


def _bind(dim: onnx.TensorShapeProto.Dimension, extent: Extent) -> None:
    if isinstance(extent, str):
        dim.dim_param = extent
    else:
        dim.dim_value = extent


def _bound_by_hand(model: onnx.ModelProto, dims: Mapping[str, Sequence[Extent]]) -> Iterator[onnx.ValueInfoProto]:
    """Yield the declared outputs of operators that onnx does not know, with the names of dims bound."""
    unknown = {name for node in model.graph.node if node.domain not in _KNOWN for name in node.output}
    if not unknown:
        return
    extents: dict[str, Extent] = {}
    for value in model.graph.input:
        declared = _tensor_type(value.type).shape.dim
        extents |= {dim.dim_param: extent for dim, extent in zip(declared, dims.get(value.name, ())) if dim.dim_param}
    for value in model.graph.value_info:
        if value.name in unknown and _has_shape(value.type):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in extents:
                    _bind(dim, extents[dim.dim_param])
            yield value


def _tensor_type(kind: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    while (field := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, field).elem_type
    return kind.tensor_type


def _has_shape(kind: onnx.TypeProto) -> bool:
    return bool(kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"))
