"""Checks of names in a profile: element types, operators, their inputs and attributes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import onnx_ir as ir

from surgery.base.operators.schemas import history, is_defined, unknown_operator
from surgery.base.operators.schemas import schema_of as _schema_of

_TYPES = {dtype.name.lower() for dtype in ir.DataType} - {"undefined"}
_NEWEST = 1 << 16

_OF_RUNTIME = frozenset({"SimplifiedLayerNormalization"})
"""Operators of ONNX Runtime in the default domain that ONNX does not define."""


def element_type(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of element types; raise ValueError for an unknown one."""
    wrong = next((name for name in names if name not in _TYPES and "(" not in name), None)
    if wrong is not None:
        raise ValueError(f"no element type '{wrong}'{_meant(wrong, _TYPES)}")
    return names


def operator(domain: str, op: str, newest: int) -> str:
    """Return the problem with the name of an operator; domains that ONNX does not define are not checked."""
    if not is_defined(domain) or (not domain and op in _OF_RUNTIME):
        return ""
    if _schema_of(domain, op, _NEWEST) is None:
        return unknown_operator(domain, op, "known here")
    if not domain and _schema_of(domain, op, min(newest, _NEWEST)) is None:
        return f"{op} exists since opset {history(domain, op, _NEWEST)[0].since_version}, after `opset`"
    return ""


def parameters(domain: str, op: str, name: str) -> str:
    """Return the problem with the name of an input of an operator."""
    known = {one.name for schema in history(domain, op, _NEWEST) for one in schema.inputs}
    return _unknown(op, "input", name, known) if is_defined(domain) else ""


def attribute(domain: str, op: str, name: str) -> str:
    """Return the problem with the name of an attribute of an operator."""
    known = {one for schema in history(domain, op, _NEWEST) for one in schema.attributes}
    return _unknown(op, "attribute", name, known) if is_defined(domain) else ""


def _unknown(op: str, what: str, name: str, known: Collection[str]) -> str:
    if name in known:
        return ""
    listed = f"; it has {', '.join(sorted(known)) or 'none'}"
    return f"{op} has no {what} '{name}'{_meant(name, known) or listed}"


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [*known], n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
