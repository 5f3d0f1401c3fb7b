"""The types that schemas allow, in any release of onnx."""

from __future__ import annotations

from types import SimpleNamespace

import onnx

from surgery.base.operators.forms import allowed_types


def test_the_types_of_a_parameter_are_those_of_its_constraint() -> None:
    """In onnx 1.20, `types` of a parameter raises TypeError."""
    numbers = SimpleNamespace(type_param_str="T", allowed_type_strs=["tensor(float)", "map(int64, float)"])
    schema = SimpleNamespace(type_constraints=[numbers])
    assert allowed_types(schema, SimpleNamespace(type_str="T")) == {"tensor(float)", "map(int64,tensor(float))"}
    assert allowed_types(schema, SimpleNamespace(typeStr="tensor(int64)")) == {"tensor(int64)"}


def test_the_schema_of_a_reshape_takes_an_integer_shape() -> None:
    schema = onnx.defs.get_schema("Reshape", 13)
    data, shape = schema.inputs
    assert allowed_types(schema, shape) == {"tensor(int64)"}
    assert {"tensor(float)", "tensor(string)", "tensor(bfloat16)"} <= allowed_types(schema, data)
