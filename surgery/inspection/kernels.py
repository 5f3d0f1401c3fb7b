"""Which operators ONNX Runtime runs on the CPU, as its own table of kernels has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir

from surgery.errors import SurgeryError
from surgery.graph.graph import Graph
from surgery.graph.values import Node, Value
from surgery.operators.schemas import form_of, schema_of
from surgery.operators.traits import since_version
from surgery.workers import Worker

_ONNX = "ai.onnx"


@dataclass(frozen=True)
class Gap:
    """Nodes of one operator that have no kernel, and why: the operator, its version or a type."""

    op: str
    why: str
    count: int
    first: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


Kernel = tuple[int, int, Mapping[str, list[str]]]
"""The first and the last version that it is for, and the types that each type parameter may have."""


@cache
def _kernels() -> Mapping[tuple[str, str], list[Kernel]] | None:
    """Return the kernels by domain and operator; None when the runtime does not tell."""
    try:
        with Worker(timeout=60) as worker:
            listed = worker.call("surgery.operators.kernels:registered")
    except SurgeryError:
        return None
    found: dict[tuple[str, str], list[Kernel]] = {}
    for domain, op, (first, last), types in listed:
        found.setdefault(("" if domain == _ONNX else domain, op), []).append((first, last, types))
    return found


def gaps(graph: Graph) -> list[Gap] | None:
    """List the operators of a model that no kernel runs, the most frequent first; None when that cannot be known.

    An operator without a kernel still runs where the ONNX specification defines it by others, for the runtime puts
    those in its place, and so does a model-local function. Float16 is computed in float where only that has a kernel.
    """
    kernels = _kernels()
    if kernels is None:
        return None
    local = {(function.domain, function.name) for function in graph.ir.functions.values()}
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for node in graph.nodes():
        if (node.ir.domain, node.ir.op_type) in local or node.op == "Constant":
            continue  # constants are initializers before anything runs
        why = _problem(node, kernels)
        if why:
            counts[node.op, why] += 1
            first.setdefault((node.op, why), node.label)
    return [Gap(op, why, count, first[op, why]) for (op, why), count in counts.most_common()]


def _problem(node: Node, kernels: Mapping[tuple[str, str], list[Kernel]]) -> str:
    """Return why no kernel runs a node; empty when one does."""
    domain, op = node.ir.domain, node.ir.op_type
    version = since_version(op, node.opset, domain) or node.opset
    of_op = kernels.get((domain, op), [])
    matching = [types for start, end, types in of_op if start <= version <= end]
    if any(_takes(types, node) for types in matching) or _has_body(op, node.opset, domain):
        return ""
    if not of_op:
        return "no kernel"
    if not matching:
        return f"no kernel for version {version}"
    listed = sorted({text for text in _types(node).values() if text})
    return f"no kernel for {', '.join(listed)}" if listed else ""


def _takes(types: Mapping[str, list[str]], node: Node) -> bool:
    """Return whether a kernel takes the types of a node, as far as these are known."""
    for parameter, actual in _types(node).items():
        allowed = types.get(parameter)
        if allowed is None or not actual or actual in allowed:
            continue
        if actual != "tensor(float16)" or "tensor(float)" not in allowed:
            return False
    return True


def _types(node: Node) -> dict[str, str]:
    """Give the types of a node by type parameter of its operator; empty where nothing is known."""
    form = form_of(node.ir.domain, node.ir.op_type, node.opset)
    found: dict[str, str] = {}
    if form is None:
        return found
    operands: tuple[list[Value | None], ...] = (node.inputs, [*node.outputs])
    for parameters, values in zip((form.inputs, form.outputs), operands):
        for index, value in enumerate(values):
            if value is None or not parameters or (index >= len(parameters) and not parameters[-1].variadic):
                continue
            found.setdefault(parameters[min(index, len(parameters) - 1)].variable, _type_name(value))
    return found


def _type_name(value: Value) -> str:
    kind = value.type
    return f"tensor({kind.dtype.name.lower()})" if isinstance(kind, ir.TensorType) else ""


@cache
def _has_body(op: str, opset: int, domain: str) -> bool:
    """Return whether the specification defines an operator by others."""
    schema: Any = schema_of(domain, op, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)
