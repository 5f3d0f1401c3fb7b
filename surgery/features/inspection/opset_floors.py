"""The lowest opset at which an unchanged node is legal and computes the same.

Computed from the operator schemas of the installed onnx, version by version: attributes, numbers of inputs and outputs,
types. Changes that the schemas do not show are listed in `silent_changes`; so a floor may be too high, but is never
too low.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from surgery.features.inspection.silent_changes import CHANGED_MEANING, COUNTS_BACK, WITHOUT_EFFECT
from surgery.model.graph.values import Node, Value

if TYPE_CHECKING:
    from onnx.defs import OpSchema


@dataclass(frozen=True)
class Floor:
    """The lowest opset of a node's domain that is sufficient for it, and the reason why a lower one is not."""

    version: int
    reason: str


def floor(node: Node) -> Floor | None:
    """Return the floor of a node; None if it is not an ONNX operator but a function call or from another domain."""
    if node.ir.op_identifier() in node.graph.ir.functions:
        return None
    schemas = _schemas(node.ir.domain).get(node.ir.op_type, {})
    versions = sorted((version for version in schemas if version <= node.opset), reverse=True)
    if not versions:
        return None if node.ir.domain else Floor(node.opset, f"onnx has no such operator at opset {node.opset}")
    for version, older in pairwise(versions):
        reason = next(_differences(node, schemas[version], schemas[older]), None)
        if reason is not None:
            return Floor(version, reason)
    return Floor(versions[-1], "the operator did not exist before")


@cache
def _schemas(domain: str) -> dict[str, dict[int, OpSchema]]:
    import onnx.defs

    found: dict[str, dict[int, OpSchema]] = defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain:
            found[schema.name][schema.since_version] = schema
    return found


def _differences(node: Node, new: OpSchema, old: OpSchema) -> Iterator[str]:
    """Yield the reasons why a node of one version is not valid or not equivalent in the previous version."""
    yield from _attributes(node, new, old)
    yield from _numbers(node, old)
    yield from _types(node, new, old)
    if not node.ir.domain:
        change = CHANGED_MEANING.get((node.ir.op_type, new.since_version))
        if change is not None and change.concerns(node):
            yield change.reason
        if old.since_version < COUNTS_BACK <= new.since_version and _counts_back(node):
            yield "an axis could not be negative before"


def _attributes(node: Node, new: OpSchema, old: OpSchema) -> Iterator[str]:
    given = node.ir.attributes
    for name, attribute in given.items():
        known = old.attributes.get(name)
        if known is None:
            yield f"attribute {name} did not exist before"
        elif str(known.type).rpartition(".")[2] != attribute.type.name:
            yield f"attribute {name} has another type before"
    for name, known in old.attributes.items():
        if name in given or ("*", name) in WITHOUT_EFFECT or (node.ir.op_type, name) in WITHOUT_EFFECT:
            continue
        if known.required:
            yield f"attribute {name} is required before"
        elif known.default_value.name:
            now = new.attributes.get(name)
            if now is None or now.default_value != known.default_value:
                yield f"attribute {name} has another default before"


def _numbers(node: Node, old: OpSchema) -> Iterator[str]:
    from onnx.defs import OpSchema

    if len(node.ir.inputs) > old.max_input:
        yield f"{_count(old.max_input, 'input')} at most before"
    if sum(bool(value.name) for value in node.outputs) > old.max_output:
        yield f"{_count(old.max_output, 'output')} at most before"
    if len(node.ir.inputs) < old.min_input:
        yield f"{_count(old.min_input, 'input')} at least before"
    for parameter, value in zip(old.inputs, node.inputs):
        if value is None and parameter.option == OpSchema.FormalParameterOption.Single:
            yield f"input {parameter.name} cannot be omitted before"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _types(node: Node, new: OpSchema, old: OpSchema) -> Iterator[str]:
    """Compare the types of a node with those that the older version allows."""
    kinds: dict[str, str] = {}
    joined = _joined(new, old)
    pairs = [*_paired(node.inputs, new.inputs, old.inputs), *_paired(node.outputs, new.outputs, old.outputs)]
    for value, now, before in pairs:
        allowed, one = _allowed(old, before), before.type_str
        if allowed >= _allowed(new, now) and one not in joined:
            continue
        kind = type_text(value.type)
        if kind is None:
            yield f"the type of '{value.name}' is not known, and not every type is allowed before"
        elif kind not in allowed:
            yield f"{kind} is not allowed before"
        elif one in joined and kinds.setdefault(one, kind) != kind:
            yield f"{kinds[one]} and {kind} had to be the same type before"


def _joined(new: OpSchema, old: OpSchema) -> frozenset[str]:
    """Return the type parameters of the older version that the newer one splits into several."""
    found: dict[str, set[str]] = defaultdict(set)
    for now, before in (*zip(new.inputs, old.inputs), *zip(new.outputs, old.outputs)):
        if before.is_homogeneous:
            found[before.type_str].add(now.type_str)
    return frozenset(name for name, parts in found.items() if len(parts) > 1)


def _paired(values: Sequence[Value | None], new: Sequence[Any], old: Sequence[Any]) -> Iterator[tuple[Value, Any, Any]]:
    """Yield each present value with its parameter in both versions; the last parameter may be variadic."""
    if not new or not old:
        return
    for index, value in enumerate(values):
        if value is not None and (value.name or value.is_used):
            yield value, new[min(index, len(new) - 1)], old[min(index, len(old) - 1)]


def _allowed(schema: OpSchema, parameter: OpSchema.FormalParameter) -> frozenset[str]:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter.type_str:
            return frozenset(constraint.allowed_type_strs)
    return frozenset({parameter.type_str})


def type_text(kind: ir.TypeProtocol | None) -> str | None:
    """Format a type as in the schemas, such as "seq(tensor(float))"; None if it is unknown."""
    if kind is None:
        return None
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = type_text(kind.elem_type)
        return None if inner is None else f"{'seq' if isinstance(kind, ir.SequenceType) else 'optional'}({inner})"
    word = "sparse_tensor" if isinstance(kind, ir.SparseTensorType) else "tensor"
    return f"{word}({kind.dtype.name.lower()})"


def _counts_back(node: Node) -> bool:
    for name in ("axis", "axes"):
        attribute = node.ir.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            held = attribute.value
            numbers = held if isinstance(held, Sequence) else [held]
            if any(isinstance(number, int) and number < 0 for number in numbers):
                return True
    return False
