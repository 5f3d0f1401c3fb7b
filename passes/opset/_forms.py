"""The form of an operator at one version, and its body in smaller operators from the schema.

Source: `onnx.defs`, the schemas of the installed onnx; only the default domain is used. Types are written as in the
schemas: "tensor(float)".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ._schemas import schemas_of

if TYPE_CHECKING:
    from onnx import FunctionProto, TypeProto
    from onnx.defs import OpSchema


@dataclass(frozen=True)
class Parameter:
    """An input or output of an operator; `type` is a type, or the name of a type parameter."""

    name: str
    type: str
    is_optional: bool
    is_variadic: bool
    is_homogeneous: bool


@dataclass(frozen=True)
class Form:
    """An operator at one version. `types` maps each type parameter to its allowed types."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    defaults: Mapping[str, Any]
    """The attributes and their defaults; None if an attribute has no default."""
    required: frozenset[str]
    types: Mapping[str, frozenset[str]]

    def allowed(self, parameter: Parameter) -> frozenset[str]:
        """Return the types that a parameter may have."""
        return self.types.get(parameter.type, frozenset({parameter.type}))


@dataclass(frozen=True)
class Step:
    """A node of a body; values are given by name, "" for an omitted one."""

    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Body:
    """The decomposition of an operator into smaller ones."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]


@cache
def form(op: str, version: int) -> Form:
    """Return the form of an operator at one of its versions."""
    schema = schemas_of(op)[version]
    return Form(
        tuple(map(_parameter, schema.inputs)),
        tuple(map(_parameter, schema.outputs)),
        {name: _default(attribute) for name, attribute in schema.attributes.items()},
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints},
    )


def _parameter(item: OpSchema.FormalParameter) -> Parameter:
    from onnx.defs import OpSchema

    kinds = OpSchema.FormalParameterOption
    optional, variadic = item.option == kinds.Optional, item.option == kinds.Variadic
    return Parameter(item.name, item.type_str, optional, variadic, item.is_homogeneous)


def _default(attribute: OpSchema.Attribute) -> Any:
    import onnx.helper

    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def type_number(name: str) -> int:
    """Return the ONNX number of a type, which may be written as in the schemas."""
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(name.removeprefix("tensor(").removesuffix(")").upper()))


def type_name(number: int) -> str:
    """Return the type with this number as the schemas write it."""
    from onnx import TensorProto

    return f"tensor({TensorProto.DataType.Name(number).lower()})"


def body(
    op: str,
    version: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[tuple[str, Sequence[int | str | None] | None] | None],
) -> Body | None:
    """Return the function body that the schema gives for a call; None without one, or with subgraphs in it.

    `inputs` holds the type and the dims of each input, None for an omitted one. If there are several bodies, the one
    in the newest operators is returned.
    """
    schema = schemas_of(op)[version]
    function = _function(schema, attributes, inputs)
    if function is None or any(one.HasField("g") or one.graphs for node in function.node for one in node.attribute):
        return None
    opset = next((item.version for item in function.opset_import if item.domain in ("", "ai.onnx")), version)
    given = {**form(op, version).defaults, **attributes}
    steps = [_step(node, opset, given) for node in function.node]
    names = [parameter.name for parameter in schema.inputs][: len(function.input)]
    return Body(tuple(function.input) or tuple(names), tuple(function.output), tuple(steps))


def _function(
    schema: Any, attributes: Mapping[str, Any], inputs: Sequence[tuple[str, Any] | None]
) -> FunctionProto | None:
    import onnx
    import onnx.helper

    if schema.has_function:
        text = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    elif schema.has_context_dependent_function:
        # An output is requested by giving it a name; the body computes all outputs that the node has.
        names = [parameter.name for parameter in schema.outputs]
        read = [f"i{index}" if item is not None else "" for index, item in enumerate(inputs)]
        node = onnx.helper.make_node(schema.name, read, names, **attributes)
        types = [_type_proto(item).SerializeToString() for item in inputs]
        text = schema.get_context_dependent_function_with_opset_version(
            max(schema.context_dependent_function_opset_versions), node.SerializeToString(), types
        )
    else:
        return None
    return onnx.FunctionProto.FromString(text) if text else None


def _type_proto(item: tuple[str, Any] | None) -> TypeProto:
    import onnx
    import onnx.helper

    if item is None:
        return onnx.TypeProto()
    kind, dims = item
    return onnx.helper.make_tensor_type_proto(type_number(kind), dims)


def _step(node: Any, opset: int, given: Mapping[str, Any]) -> Step:

    attributes = {}
    for attribute in node.attribute:
        value = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else _value(attribute)
        if value is not None:
            attributes[attribute.name] = value
    version = max(number for number in schemas_of(node.op_type) if number <= opset)
    return Step(node.op_type, version, tuple(node.input), tuple(node.output), attributes)


def _value(attribute: Any) -> Any:
    import onnx.helper
    from onnx import AttributeProto, numpy_helper

    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value
