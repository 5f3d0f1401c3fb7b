"""Queries of the ONNX schemas for operators in patterns and in emitted nodes.

Source: `onnx.defs`, the schemas of the installed onnx. Operators of domains that ONNX does not define have none.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

from surgery.base.operators.forms import Schema

if TYPE_CHECKING:
    from onnx.defs import OpSchema


@cache
def _versions() -> dict[str, dict[str, list[int]]]:
    """List the versions of the schemas of each operator, by domain and operator."""
    import onnx.defs

    found: dict[str, dict[str, list[int]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault(schema.domain, {}).setdefault(schema.name, []).append(schema.since_version)
    return found


@cache
def newest_opset() -> int:
    """Return the newest version of the default domain that the installed onnx knows."""
    import onnx.defs

    return int(onnx.defs.onnx_opset_version())


def is_defined(domain: str) -> bool:
    """Return whether ONNX itself defines the operators of a domain."""
    return domain in _versions()


def is_standard(domain: str, op: str) -> bool:
    """Return whether ONNX itself defines an operator; ONNX Runtime has a few of its own in the standard domain."""
    return op in _versions().get(domain, {})


@cache
def schema_of(domain: str, op: str, version: int) -> OpSchema | None:
    """Return the schema of an operator at a version of its domain, possibly deprecated, or None."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def form_of(domain: str, op: str, version: int) -> Schema | None:
    """Return the result of `schema_of` as a `Schema`, the form in which schemas of ONNX Runtime are read."""
    found = schema_of(domain, op, version)
    return None if found is None else Schema.of(found)


def schema_at(domain: str, op: str, version: int) -> OpSchema | None:
    """Return the schema of an operator at a version of its domain; None if there is none or it is deprecated."""
    found = schema_of(domain, op, version) if op in _versions().get(domain, {}) else None
    return None if found is None or found.deprecated else found


def history(domain: str, op: str, most: int) -> list[OpSchema]:
    """List the schemas of an operator up to a version of its domain, the oldest first."""
    import onnx.defs

    versions = sorted(version for version in _versions().get(domain, {}).get(op, ()) if version <= most)
    return [onnx.defs.get_schema(op, version, domain) for version in versions]


def forms(domain: str, op: str, versions: Collection[int]) -> list[OpSchema]:
    """List the schemas of an operator at these versions of its domain."""
    found = {schema.since_version: schema for v in versions if (schema := schema_at(domain, op, v)) is not None}
    return [found[since] for since in sorted(found)]


def unknown_operator(domain: str, op: str, where: str) -> str:
    """Return the message that an operator has no schema here, with a suggestion."""
    versions = _versions().get(domain, {})
    if op in versions:
        return f"{op} exists since opset {min(versions[op])}, and not {where}"
    same = [name for name in versions if name.lower() == op.lower()]
    near = same or difflib.get_close_matches(op, versions, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else f"; an operator of your own has a domain: my.domain::{op}"
    return f"{f'{domain} has' if domain else 'ONNX has'} no operator '{op}'{hint}"


def unknown_attribute(schemas: Sequence[OpSchema], name: str) -> str | None:
    """Return the message that none of the schemas has an attribute; None if one has it."""
    known = {attribute for schema in schemas for attribute in schema.attributes}
    if name in known:
        return None
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"it has {', '.join(sorted(known))}" if known else "it has none"
    return f"{schemas[0].name} has no attribute '{name}'; {f'did you mean {near[0]!r}?' if near else listed}"


def missing_attribute(schemas: Sequence[OpSchema], names: Collection[str]) -> str | None:
    """Return the message that every schema lacks a required attribute; None if one has all it requires."""
    lacking = [{name for name, kind in schema.attributes.items() if kind.required} - {*names} for schema in schemas]
    if not all(lacking):
        return None
    return f"{schemas[0].name} needs the attribute '{min(lacking[-1])}'"


def wrong_count(schemas: Sequence[OpSchema], given: int, what: str, *, open_end: bool = False) -> str | None:
    """Return the message that no schema has this many inputs or outputs; None if one does.

    With `open_end`, there may be more than `given`.
    """
    pairs = [_limits(schema, what) for schema in schemas]
    if any((open_end or least <= given) and given <= most for least, most in pairs):
        return None
    least, most = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    verb = "takes" if what == "inputs" else "has"
    if given < least:
        wanted = f"at least {least}" if least < most else f"{least}"
        number = least
    else:
        wanted = f"at most {most}" if least < most else f"{most}"
        number = most
    return f"{schemas[0].name} {verb} {wanted} {what if number != 1 else what[:-1]}, not {given}"


def _limits(schema: OpSchema, what: str) -> tuple[int, int]:
    return (schema.min_input, schema.max_input) if what == "inputs" else (schema.min_output, schema.max_output)


def parameter(schema: OpSchema, position: int) -> OpSchema.FormalParameter | None:
    """Return the input parameter of a schema at a position; the last one repeats if it is variadic."""
    from onnx.defs import OpSchema

    inputs = schema.inputs
    if position < len(inputs):
        return inputs[position]
    last = inputs[-1] if inputs else None
    return last if last is not None and last.option == OpSchema.FormalParameterOption.Variadic else None


def fixed_type(type_str: str) -> str | None:
    """Return the element type in a type such as "tensor(int64)"; None for a type variable."""
    return type_str[len("tensor(") : -1] if type_str.startswith("tensor(") else None


def only_type(schema: OpSchema, type_str: str) -> str | None:
    """Return the element type in a type, or the only one that a type variable of the schema may be; else None."""
    allowed = [one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == type_str]
    return fixed_type(allowed[0][0] if allowed and len(allowed[0]) == 1 else type_str)


def alike(schema: OpSchema, position: int) -> list[int]:
    """List the positions of other inputs with the same element type as the input at `position`."""
    this = parameter(schema, position)
    if this is None:
        return []
    count = max(len(schema.inputs), position + 2)
    others = [(other, parameter(schema, other)) for other in range(count) if other != position]
    return [other for other, found in others if found is not None and found.type_str == this.type_str]
