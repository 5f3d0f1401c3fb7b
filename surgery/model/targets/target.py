"""The features of one runtime: its domains, its operators with versions and element types, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.operators.schemas import schema_of
from surgery.base.operators.traits import since_version
from surgery.model.targets.installed_kernels import kernels, kernels_of_release
from surgery.model.targets.kernels import is_computed
from surgery.model.targets.support import ANY_VERSION, MANY, ONNX, Support

if TYPE_CHECKING:
    import onnx_ir as ir

Key = tuple[str, str]
"""The domain ("" is the default domain) and the name of an operator."""


Elsewhere = Literal["openvino", "ort-web"]
"""Runtimes other than ONNX Runtime in which models run as deployed; see `runtime.engine`."""


@dataclass(frozen=True)
class Limits:
    """The limits of a runtime on the model as a whole."""

    rank: int = MANY
    dynamic_dims: bool = True
    subgraphs: bool = True
    functions: bool = True
    bytes: int = 0
    """The maximum size of all constants in bytes; 0 means no limit."""


@dataclass(frozen=True)
class Target:
    """A runtime as described by its profile.

    `provider` is an execution provider of ONNX Runtime; its kernels are used if the installed ONNX Runtime has it.
    `runtime` is another runtime, in which models run as deployed if it is installed.
    `release` is a release of ONNX Runtime whose CPU kernels are used, whatever is installed.
    `domains` are the domains whose operators may be produced, and single operators of others ("domain::name").
    `listed` has the supported part of operators by domain and name; if it is empty, all standard operators are
    supported. `types` are the element types of computed values; empty means all. `expands` says whether the runtime
    runs an operator through its function body in the standard, and `widens` maps types to the wider types in which they
    are computed. `rounded_sums` maps operators ("ReduceMean", "com.microsoft::SkipLayerNormalization") whose kernels
    round a sum to the element type on the way to the result to what they sum up; None if that is not known. `plugins`
    are operators that onnx does not define and plugins run, in any domain.
    """

    name: str
    about: str = ""
    source: str = ""
    provider: str = ""
    domains: frozenset[str] = frozenset({ONNX})
    opset: tuple[int, int] = ANY_VERSION
    ir_version: tuple[int, int] = ANY_VERSION
    types: frozenset[str] = frozenset()
    listed: Mapping[Key, tuple[Support, ...]] = field(default_factory=dict)
    excluded: Mapping[Key, str] = field(default_factory=dict)
    limits: Limits = Limits()
    expands: bool = False
    widens: Mapping[str, str] = field(default_factory=dict)
    prefers: Mapping[str, str] = field(default_factory=dict)
    rounded_sums: Mapping[str, str] | None = None
    runtime: str = ""
    release: str = ""
    plugins: frozenset[str] = frozenset()

    @property
    def deploys_on(self) -> str:
        """The runtime or the execution provider on which models run as deployed; "" for those of the verification."""
        return self.runtime or self.provider

    @cached_property
    def operators(self) -> Mapping[Key, tuple[Support, ...]]:
        """The supported part of each operator, by domain ("" is the default domain) and name."""
        if self.release:
            return kernels_of_release(self.release)
        known = kernels(self.provider) if self.provider else {}
        return known or self.listed

    def has(self, op: str, dtype: ir.DataType | None = None, opset: int = 0) -> bool:
        """Return whether a pass may produce an operator ("Gelu", "com.microsoft::BiasGelu") in an element type.

        `opset` is the version of the domain that the model imports; 0 means any.
        """
        domain, _, name = op.rpartition("::")
        domain = "" if domain == ONNX else domain
        if not domain and dtype is not None and not is_computed(name, dtype):
            return False
        if not self._may_have(domain, name):
            return False
        rows = self.operators.get((domain, name))
        if rows is None:
            return not domain and (not self.operators or self._is_expanded(name, opset))
        version = version_of(domain, name, opset)
        return any(row.takes(version, dtype.name.lower() if dtype is not None else None) for row in rows)

    def rejected(self, op: str, inputs: int, attributes: Mapping[str, Any]) -> str | None:
        """Return an attribute of a node, or its number of inputs, which the target does not take; None if it takes all.

        An operator of which no part is listed is taken as it is.
        """
        found = [row.rejected(inputs, attributes) for row in self._rows(op)]
        return found[-1] if found and None not in found else None

    def least_outputs(self, op: str) -> int:
        """Return how many outputs a node of an operator ("com.microsoft::GroupQueryAttention") must have."""
        return max((row.least_outputs for row in self._rows(op)), default=1)

    def _rows(self, op: str) -> tuple[Support, ...]:
        domain, _, name = op.rpartition("::")
        return self.operators.get(("" if domain == ONNX else domain, name), ())

    @property
    def limits_versions(self) -> bool:
        """Whether it restricts opsets or IR versions."""
        return self.opset != ANY_VERSION or self.ir_version != ANY_VERSION

    def computes(self, op: str, dtype: ir.DataType | None, opset: int = 0) -> bool:
        """Return whether a pass may produce an operator for the element type of a value, which must be known.

        For an operator that the target lacks completely, only the usual types count: `Builder.node` refuses it with a
        reason.
        """
        if not self.has(op):
            return is_computed(op, dtype)
        return dtype is not None and self.has(op, dtype, opset)

    def _may_have(self, domain: str, name: str) -> bool:
        """Return whether the domain and opset of an operator are supported, and it is not excluded."""
        if self.domains.isdisjoint((domain or ONNX, f"{domain}::{name}")) or (domain, name) in self.excluded:
            return False
        newest = self.opset[1]
        return bool(domain) or newest == MANY or schema_of("", name, newest) is not None

    def _is_expanded(self, name: str, opset: int) -> bool:
        return self.expands and has_body("", name, opset or min(self.opset[1], _NEWEST))


_NEWEST = 1 << 16
"""An opset newer than all existing ones."""


def version_of(domain: str, op: str, opset: int) -> int:
    """Return the version of an operator at an opset; the opset itself if it has no schema, and 0 for opset 0."""
    return (since_version(op, opset, domain) or opset) if opset else 0


@cache
def has_body(domain: str, op: str, opset: int) -> bool:
    """Return whether the specification defines an operator by a function body that is valid at an opset.

    A body for an older opset is valid as long as its operators have no newer version, as in `OpSchema::GetFunction` of
    onnx: Swish has a valid body at opset 24, but no longer at opset 25, which has a new version of Constant.
    """
    schema: Any = schema_of(domain, op, opset)
    if schema is None or schema.has_context_dependent_function or not schema.has_function:
        return schema is not None and bool(schema.has_context_dependent_function)
    written = max((version for version in schema.function_opset_versions if version <= opset), default=0)
    body = _body(schema, written) if written else None
    return body is not None and all(
        since_version(node.op_type, written, node.domain) == since_version(node.op_type, opset, node.domain)
        for node in body.node
        if node.domain == domain
    )


def _body(schema: Any, version: int) -> Any:
    """Return the function body of an operator for an opset."""
    import onnx

    found = schema.get_function_with_opset_version(version)
    return onnx.FunctionProto.FromString(found) if isinstance(found, bytes) else found


STANDARD = Target("standard", "Any runtime that follows the ONNX standard.")
"""The default target: the operators of the standard, in the types that runtimes compute."""
