"""The form of an operator at one opset, as the schemas of onnx and of ONNX Runtime have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_FLOATS = frozenset({"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"})


def key_of(domain: str, op: str) -> str:
    """Return an operator as tables name it, with its domain when it is another one than the default."""
    return op if domain in ("", "ai.onnx") else f"{domain}::{op}"


@dataclass(frozen=True)
class Parameter:
    """A formal input or output: its name, its type variable or type, and the types that the schema allows."""

    name: str
    variable: str
    types: frozenset[str]
    option: str

    @property
    def variadic(self) -> bool:
        """Whether it stands for any number of values."""
        return self.option == "Variadic"

    @property
    def is_discrete(self) -> bool:
        """Whether it is a tensor of integers, booleans or strings, and never one of floats."""
        return not self.types & _FLOATS and any(kind.startswith("tensor(") for kind in self.types)


@dataclass(frozen=True)
class Schema:
    """The form of an operator at one opset.

    `attributes` has the kind of each attribute, such as "GRAPH", `optional` the serialized default of those that may be
    left out. `draws` is whether its results may differ from run to run, as far as the schema shows that.
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
        """Read a schema of onnx or of the runtime."""
        attributes = {name: str(attribute.type).rpartition(".")[2] for name, attribute in native.attributes.items()}
        inputs, outputs = (tuple(map(_parameter, side)) for side in (native.inputs, native.outputs))
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
        """The operator as tables name it."""
        return key_of(self.domain, self.name)


def _parameter(native: Any) -> Parameter:
    variable = native.type_str if hasattr(native, "type_str") else native.typeStr
    return Parameter(native.name, variable, frozenset(native.types), str(native.option).rpartition(".")[2])
