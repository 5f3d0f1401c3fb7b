"""The schema of an operator at one opset, from onnx or ONNX Runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_FLOATS = frozenset({"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"})


def plain_domain(domain: str) -> str:
    """Return a domain with the default domain as the empty name, not "ai.onnx"."""
    return "" if domain == "ai.onnx" else domain


def key_of(domain: str, op: str) -> str:
    """Return the name of an operator in tables, with its domain if it is not the default domain."""
    return f"{domain}::{op}" if plain_domain(domain) else op


@dataclass(frozen=True)
class Parameter:
    """A formal input or output: its name, its type variable or type, and the types that the schema allows."""

    name: str
    variable: str
    types: frozenset[str]
    option: str

    @property
    def variadic(self) -> bool:
        """Whether it takes any number of values."""
        return self.option == "Variadic"

    @property
    def is_discrete(self) -> bool:
        """Whether it is a tensor of integers, booleans or strings, never of floats."""
        return not self.types & _FLOATS and any(kind.startswith("tensor(") for kind in self.types)


@dataclass(frozen=True)
class Schema:
    """The schema of an operator at one opset.

    `attributes` has the type of each attribute, such as "GRAPH", and `optional` the serialized defaults of optional
    ones. `draws` says whether its results may differ between runs, as far as the schema shows.
    """

    name: str
    domain: str
    since: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, str]
    optional: dict[str, bytes]
    draws: bool

    @classmethod
    def of(cls, native: Any) -> Schema:
        """Read a schema of onnx or of ONNX Runtime."""
        attributes = {name: str(attribute.type).rpartition(".")[2] for name, attribute in native.attributes.items()}
        inputs, outputs = (tuple(_parameter(native, one) for one in side) for side in (native.inputs, native.outputs))
        return cls(
            native.name,
            native.domain,
            native.since_version,
            inputs,
            outputs,
            attributes,
            {name: attribute._default_value for name, attribute in native.attributes.items() if not attribute.required},
            bool(getattr(native, "non_deterministic", False))
            or "seed" in attributes
            or any(one.name == "seed" for one in inputs),
        )

    @property
    def key(self) -> str:
        """The name of the operator in tables."""
        return key_of(self.domain, self.name)


def allowed_types(schema: Any, parameter: Any) -> frozenset[str]:
    """Return the types that a schema of onnx or of ONNX Runtime allows for a parameter.

    They are read from its constraints, because the `types` of a parameter cannot be read in onnx 1.20.
    """
    variable = _variable(parameter)
    named = (one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == variable)
    # Constraints write "map(int64, float)" where parameters have "map(int64,tensor(float))".
    return frozenset(_MAP.sub(r"map(\1,tensor(\2))", kind) for kind in next(named, [variable]))


_MAP = re.compile(r"map\((\w+), (\w+)\)")


def _variable(parameter: Any) -> str:
    found: str = parameter.type_str if hasattr(parameter, "type_str") else parameter.typeStr
    return found


def _parameter(schema: Any, native: Any) -> Parameter:
    types = allowed_types(schema, native)
    return Parameter(native.name, _variable(native), types, str(native.option).rpartition(".")[2])
