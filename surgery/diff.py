"""Differences between two models: operators, nodes, signature, sizes, opsets, metadata."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from surgery import storage
from surgery.correspondence import Correspondence, correspond
from surgery.inspect import Inspection, Port, inspect

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Change:
    """One thing that differs; None stands for absent."""

    what: str
    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {"what": self.what, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator occurs on either side."""

    op: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """After minus before."""
        return self.after - self.before

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {"op": self.op, "before": self.before, "after": self.after, "difference": self.difference}


@dataclass(frozen=True)
class Difference:
    """What `surgery diff` tells. `operators` lists all operators, also those that stayed as they were.

    `nodes` says which nodes became which; it is no difference of its own, for names do not matter.
    """

    before: Inspection
    after: Inspection
    operators: tuple[OperatorCount, ...]
    signature: tuple[Change, ...]
    opsets: tuple[Change, ...]
    functions: tuple[Change, ...]
    metadata: tuple[Change, ...]
    sizes: tuple[Change, ...]
    nodes: Correspondence = field(default_factory=Correspondence)

    @property
    def same(self) -> bool:
        """Whether nothing that is compared differs."""
        changed = (self.signature, self.opsets, self.functions, self.metadata, self.sizes)
        return not any(changed) and not any(count.difference for count in self.operators)

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {
            "same": self.same,
            "before": {"path": _path(self.before), "nodes": self.before.nodes},
            "after": {"path": _path(self.after), "nodes": self.after.nodes},
            "nodes": self.nodes.to_json(),
            "operators": [count.to_json() for count in self.operators],
            "signature": [change.to_json() for change in self.signature],
            "opsets": [change.to_json() for change in self.opsets],
            "functions": [change.to_json() for change in self.functions],
            "metadata": [change.to_json() for change in self.metadata],
            "sizes": [change.to_json() for change in self.sizes],
        }


def _path(side: Inspection) -> str | None:
    return str(side.path) if side.path is not None else None


def diff(before: str | Path | onnx.ModelProto, after: str | Path | onnx.ModelProto) -> Difference:
    """Compare two model files, or messages in memory."""
    nodes = correspond(_load(before), _load(after))
    return replace(compare(inspect(before), inspect(after)), nodes=nodes)


def _load(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    return (storage.load(Path(model)) if isinstance(model, str | Path) else storage.from_proto(model)).proto


def compare(a: Inspection, b: Inspection) -> Difference:
    """Compare two inspections."""
    return Difference(
        a,
        b,
        operators=histogram(a.ops, b.ops),
        signature=(
            *_ports("input", a.inputs, b.inputs),
            *_ports("overridable input", a.overridable, b.overridable),
            *_ports("output", a.outputs, b.outputs),
        ),
        opsets=_maps("opset ", a.opsets, b.opsets),
        functions=_maps("function ", a.functions, b.functions),
        metadata=(*_maps("metadata ", a.metadata, b.metadata), *_one("producer", a.producer, b.producer)),
        sizes=(
            *_one("nodes", a.nodes, b.nodes),
            *_one("depth", a.depth, b.depth),
            *_one("parameters", a.parameters, b.parameters),
            *_one("weight bytes", a.weight_bytes, b.weight_bytes),
            *_one("file bytes", a.bytes, b.bytes),
            *_one("IR version", a.ir_version, b.ir_version),
        ),
    )


def histogram(before: dict[str, int], after: dict[str, int]) -> tuple[OperatorCount, ...]:
    """Join two operator counts, the most frequent operators first."""
    counts = [OperatorCount(op, before.get(op, 0), after.get(op, 0)) for op in {**before, **after}]
    return tuple(sorted(counts, key=lambda count: (-max(count.before, count.after), count.op)))


def _one(what: str, before: Any, after: Any) -> tuple[Change, ...]:
    return () if before == after else (Change(what, before, after),)


def _maps(prefix: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    return tuple(
        Change(prefix + key, before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    )


def _ports(kind: str, before: tuple[Port, ...], after: tuple[Port, ...]) -> tuple[Change, ...]:
    changes = _maps(f"{kind} ", {port.name: str(port) for port in before}, {port.name: str(port) for port in after})
    if changes:
        return changes
    return _one(f"order of {kind}s", [port.name for port in before], [port.name for port in after])


class _Callable(ModuleType):
    """Lets `surgery.diff(a, b)` be the function, as the module has the same name."""

    def __call__(self, before: str | Path | onnx.ModelProto, after: str | Path | onnx.ModelProto) -> Difference:
        return diff(before, after)


sys.modules[__name__].__class__ = _Callable
