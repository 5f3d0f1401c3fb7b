"""Comparison of an operator at two opsets by the operator schemas of ONNX.

Source: `onnx.defs`, the schemas of the installed onnx; only the default domain is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnx.defs import OpSchema

LEGACY_ATTRIBUTE = "consumed_inputs"
"""A hint to reuse memory, removed from all operators at opset 6; it never affected results."""


@dataclass(frozen=True)
class Change:
    """What changed in an operator from one version to the next.

    `broken` is the reason why a node of the old form is not a node of the new form, or None if it is one. `narrowed`
    maps the position of a formal input to the types that are still allowed, if some no longer are.
    """

    broken: str | None
    narrowed: dict[int, frozenset[str]]


@cache
def schemas_of(op: str) -> dict[int, OpSchema]:
    """Return the schemas of an operator of the default domain, by version; empty for an unknown operator.

    The schemas of all operators together would take 8 MiB.
    """
    from onnx.defs import SchemaError, get_schema, onnx_opset_version

    found: dict[int, OpSchema] = {}
    opset = onnx_opset_version()
    while opset > 0:
        try:
            schema = get_schema(op, opset, "")
        except SchemaError:
            break
        found[schema.since_version] = schema
        opset = schema.since_version - 1
    return dict(sorted(found.items()))


def version_at(op: str, opset: int) -> int | None:
    """Return the version of an operator in an opset, or None if the opset lacks it."""
    return max((version for version in schemas_of(op) if version <= opset), default=None)


def unknown(op: str) -> str:
    """Return the reason against a rewrite that needs an operator of a newer onnx than the installed one."""
    return f"the installed onnx does not know {op}"


def next_version(op: str, version: int, opset: int) -> int | None:
    """Return the first version of an operator after `version` and up to `opset`."""
    return min((other for other in schemas_of(op) if version < other <= opset), default=None)


def previous_version(op: str, version: int) -> int | None:
    """Return the version of an operator before `version`, or None for the first one."""
    return max((other for other in schemas_of(op) if other < version), default=None)


def transitions() -> Iterator[tuple[str, int, int]]:
    """Yield each operator with each pair of successive versions."""
    import onnx.defs

    for op in sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}):
        for old, new in pairwise(schemas_of(op)):
            yield op, old, new


def has_attribute(op: str, version: int, name: str) -> bool:
    """Return whether a version of an operator has an attribute."""
    return name in schemas_of(op)[version].attributes


@cache
def change(op: str, old: int, new: int) -> Change:
    """Compare two versions of an operator by their schemas alone."""
    before, after = schemas_of(op)[old], schemas_of(op)[new]
    found = "it is gone" if after.deprecated and not before.deprecated else None
    found = found or _parameters(before.inputs, after.inputs, "inputs")
    found = found or _parameters(before.outputs, after.outputs, "outputs")
    found = found or _attributes(before, after) or _shared_types(before, after)
    broken = None if found is None else f"{op} changed at opset {new}: {found}"
    return Change(broken, dict(_narrowed(before, after)))


@cache
def newest_opset() -> int:
    """Return the newest opset of the installed onnx."""
    import onnx.defs

    return onnx.defs.onnx_opset_version()


@cache
def ir_version_for(opset: int) -> int:
    """Return the IR version of the first ONNX release that had an opset."""
    import onnx.helper

    versions = onnx.helper.OP_SET_ID_VERSION_MAP.items()
    return min(ir for (domain, version), ir in versions if domain == "ai.onnx" and version >= opset)


def _parameters(
    before: Sequence[OpSchema.FormalParameter], after: Sequence[OpSchema.FormalParameter], what: str
) -> str | None:
    from onnx.defs import OpSchema

    kinds = OpSchema.FormalParameterOption
    if len(after) < len(before) or any(item.option != kinds.Optional for item in after[len(before) :]):
        return f"the {what} differ"
    for old, new in zip(before, after):
        same = old.option == new.option or (old.option == kinds.Single and new.option == kinds.Optional)
        if not same or new.min_arity > old.min_arity or new.is_homogeneous > old.is_homogeneous:
            return f"the {what} differ"
    return None


def _attributes(before: OpSchema, after: OpSchema) -> str | None:
    for name, old in before.attributes.items():
        new = after.attributes.get(name)
        if new is None:
            if name == LEGACY_ATTRIBUTE:
                continue
            return f"attribute {name} was removed"
        if new.type != old.type or (new.required and not old.required):
            return f"attribute {name} differs"
        if new.default_value != old.default_value:
            return f"attribute {name} has another default"
    for name, new in after.attributes.items():
        if name not in before.attributes and new.required:
            return f"attribute {name} is required"
    return None


def _types(schema: OpSchema, parameter: OpSchema.FormalParameter) -> frozenset[str]:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter.type_str:
            return frozenset(constraint.allowed_type_strs)
    return frozenset({parameter.type_str})


def _shared_types(before: OpSchema, after: OpSchema) -> str | None:
    """Return a reason if two parameters that could differ in type must now have the same type, else None."""
    old = [item.type_str for item in (*before.inputs, *before.outputs)]
    new = [item.type_str for item in (*after.inputs[: len(before.inputs)], *after.outputs[: len(before.outputs)])]
    for position, (first_old, first_new) in enumerate(zip(old, new)):
        for second_old, second_new in zip(old[:position], new[:position]):
            if first_new == second_new and first_old != second_old:
                return "two types that could differ must be the same"
    if any(
        _types(before, one) - _types(after, other)
        for one, other in zip(before.outputs, after.outputs)
        if one.type_str not in {item.type_str for item in before.inputs}
    ):
        return "the type of an output differs"
    return None


def _narrowed(before: OpSchema, after: OpSchema) -> Iterator[tuple[int, frozenset[str]]]:
    for position, (old, new) in enumerate(zip(before.inputs, after.inputs)):
        allowed = _types(after, new)
        if _types(before, old) - allowed:
            yield position, allowed
