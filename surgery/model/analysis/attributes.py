"""Attributes written by a user, checked against the schema of the operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.base.operators.schemas import (
    is_defined,
    missing_attribute,
    schema_at,
    unknown_attribute,
    unknown_operator,
    wrong_count,
)
from surgery.model.wire.globs import did_you_mean
from surgery.model.wire.long_attributes import named

if TYPE_CHECKING:
    from surgery.model.graph.values import Node

Written = int | float | str | list[int] | list[float] | list[str]
"""The types of attribute values in a recipe."""

_Kind = ir.AttributeType


def typed_attribute(node: Node, name: str, value: Written | ir.Attr | None, *, op: str | None = None) -> ir.Attr | None:
    """Return an attribute of the type that its operator declares; for a value of None, return None to remove it.

    `op` is the new operator of the node, if it changes. The value may be an attribute of the node. Raises UsageError
    if the operator has no such attribute, requires the attribute that is to be removed, or takes another type.
    """
    where, op = f"node '{node.label}'", op or node.op
    held = node.ir.attributes.get(name)
    if isinstance(value, ir.Attr):
        return _kept(node, name, value, op, where)
    kind, required = _declared(node, name, op, where)
    if value is None:
        if required:
            raise UsageError(f"{op} needs the attribute '{name}'", where=where)
        if held is None:
            hint = did_you_mean(name, node.ir.attributes)
            raise UsageError(f"there is no attribute '{name}' to remove", where=where, todo=hint or None)
        return None
    if kind is None and held is not None and not held.is_ref():
        kind = held.type
    return _made(name, value, kind or _kind_of(value), where)


def _kept(node: Node, name: str, attribute: ir.Attr, op: str, where: str) -> ir.Attr:
    """Return an attribute of a node under this name, checked against another operator."""
    todo = f"drop it by 'attributes: {{{name}: null}}'"
    kind, _ = _declared(node, name, op, where, todo)
    if kind not in (None, attribute.type):
        told = f"{op} has the attribute '{name}' as {_told(kind)}, and the node has {_told(attribute.type)}"
        raise UsageError(told, where=where, todo=todo)
    if attribute.is_ref():
        return ir.RefAttr(name, attribute.ref_attr_name or "", attribute.type)
    return named(name, attribute)


def _told(kind: ir.AttributeType) -> str:
    return _WORDS.get(kind, f"a {kind.name.lower()}")


def require_form(node: Node, op: str, inputs: int, outputs: int, attributes: Collection[str]) -> None:
    """Raise UsageError if an operator cannot have this many inputs and outputs, or lacks a required attribute.

    Operators of domains that ONNX does not define are not checked.
    """
    domain, _, name = op.rpartition("::")
    where = f"node '{node.label}'"
    function = node.graph.ir.functions.get((domain, name, ""))
    if function is not None:
        for what, given, known in (("inputs", inputs, function.inputs), ("outputs", outputs, function.outputs)):
            if given > len(known):
                raise UsageError(f"the function {op} has {len(known)} {what}, not {given}", where=where)
        return
    if not is_defined(domain):
        return
    # A domain that the model does not import yet will be imported at version 1.
    version = node.graph.imports_of(node.ir).get(domain, 1)
    schema = schema_at(domain, name, version)
    if schema is None:
        raise UsageError(unknown_operator(domain, name, f"at opset {version}"), where=where)
    wrong = wrong_count([schema], inputs, "inputs") or wrong_count([schema], outputs, "outputs")
    wrong = wrong or missing_attribute([schema], attributes)
    if wrong is not None:
        raise UsageError(wrong, where=where)


def _declared(
    node: Node, name: str, op: str, where: str, todo: str | None = None
) -> tuple[ir.AttributeType | None, bool]:
    """Return the type of an attribute, None if unknown, and whether the operator requires it."""
    domain, _, op_type = op.rpartition("::")
    overload = node.ir.overload if op == node.op else ""
    function = node.graph.ir.functions.get((domain, op_type, overload))
    if function is not None:
        formal = function.attributes.get(name)
        if formal is None:
            hint = did_you_mean(name, function.attributes) or f"it has {', '.join(function.attributes) or 'none'}"
            raise UsageError(f"the function {op} has no attribute '{name}'", where=where, todo=todo or hint)
        return (None if formal.type == _Kind.UNDEFINED else formal.type), formal.value is None
    schema = schema_at(domain, op_type, node.graph.imports_of(node.ir).get(domain, 1))
    if schema is None:
        return None, False
    unknown = unknown_attribute([schema], name)
    if unknown is not None:
        raise UsageError(unknown, where=where, todo=todo)
    attribute = schema.attributes[name]
    return ir.AttributeType[str(attribute.type).rpartition(".")[2]], attribute.required


def _kind_of(value: Written) -> ir.AttributeType:
    items = value if isinstance(value, list) else [value]
    kinds = {str: _Kind.STRING, float: _Kind.FLOAT, int: _Kind.INT}
    kind = next(
        (kind for written, kind in kinds.items() if any(isinstance(item, written) for item in items)), _Kind.INT
    )
    return _LISTS[kind] if isinstance(value, list) else kind


def _made(name: str, value: Written, kind: ir.AttributeType, where: str) -> ir.Attr:
    """Make an attribute of a type; raise UsageError if the value does not have this type."""
    wanted = _WORDS.get(kind)
    if wanted is None:
        raise UsageError(f"the attribute '{name}' is a {kind.name.lower()}, which cannot be written here", where=where)
    many = kind in _LISTS.values()
    items = value if isinstance(value, list) else [value]
    fits = _FITS[next(one for one, several in _LISTS.items() if kind in (one, several))]
    if isinstance(value, list) != many or not all(fits(item) for item in items):
        raise UsageError(f"the attribute '{name}' takes {wanted}, not {value!r}", where=where)
    if kind in (_Kind.FLOAT, _Kind.FLOATS):
        items = [float(item) for item in items]
    return ir.Attr(name, kind, tuple(items) if many else items[0])


def _is_int(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and -(2**63) <= item < 2**63


def _is_float(item: object) -> bool:
    if not isinstance(item, float | int) or isinstance(item, bool):
        return False
    # ONNX stores floats in 32 bits.
    return not math.isfinite(item) or abs(item) <= float(np.finfo(np.float32).max)


_LISTS = {_Kind.INT: _Kind.INTS, _Kind.FLOAT: _Kind.FLOATS, _Kind.STRING: _Kind.STRINGS}
_FITS: Mapping[ir.AttributeType, Callable[[object], bool]] = {
    _Kind.INT: _is_int,
    _Kind.FLOAT: _is_float,
    _Kind.STRING: lambda item: isinstance(item, str),
}
_WORDS = {
    _Kind.INT: "a whole number",
    _Kind.FLOAT: "a number of 32 bits",
    _Kind.STRING: "a text",
    _Kind.INTS: "a list of whole numbers",
    _Kind.FLOATS: "a list of numbers of 32 bits",
    _Kind.STRINGS: "a list of texts",
}
