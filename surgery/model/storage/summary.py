"""The main figures of a model: nodes, operators, bytes and hash; and operator counts of two models."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.json_record import Record
from surgery.base.operators.subgraphs import nodes
from surgery.model import storage

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Summary:
    """The figures that `apply` reports of a model before and after. `nodes` includes subgraphs and functions."""

    path: Path | None
    nodes: int
    ops: dict[str, int]
    bytes: int | None = None
    _files: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def sha256(self) -> str | None:
        """The hash of the .onnx file, computed on demand because it reads every byte."""
        if not self._files:
            return None
        with self._files[0].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report, with plain values."""
        return {
            "path": storage.shown(str(self.path)) if self.path is not None else None,
            "nodes": self.nodes,
            "ops": self.ops,
            "bytes": self.bytes,
            "sha256": self.sha256,
        }


def summarize(proto: onnx.ModelProto, files: Iterable[Path] = ()) -> Summary:
    """Summarize a skeleton; `files` are its .onnx file, followed by its external data files."""
    found = tuple(files)
    counts = operators(proto)
    size = sum(path.stat().st_size for path in found) if found else None
    return Summary(found[0] if found else None, sum(counts.values()), counts, size, found)


def opset(model: onnx.ModelProto) -> int:
    """Return the opset version of the default domain; 0 if it is not imported."""
    return next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)


def operators(proto: onnx.ModelProto) -> dict[str, int]:
    """Count the operators of a model, including subgraphs and functions, most frequent first."""
    found: defaultdict[tuple[str, str], int] = defaultdict(int)
    for node in nodes(proto):
        found[node.domain, node.op_type] += 1
    counts = Counter[str]()
    for (domain, op), count in found.items():
        counts[op if domain in ("", "ai.onnx") else f"{domain}::{op}"] += count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def data_files(stored: storage.StoredModel) -> list[Path]:
    """List the files of a model: its own file, and its external data; empty for a model in memory."""
    if stored.path is None:
        return []
    own = stored.path.resolve()
    found = {own: None}
    for tensor in storage.all_tensors(stored.proto):
        for entry in tensor.external_data:
            if entry.key == "location" and not stored.weights.is_scratch(entry.value):
                found[Path("/") / entry.value] = None
    return [stored.path, *(other for other in found if other != own)]


@dataclass(frozen=True)
class OperatorCount(Record, keys="op before after difference"):
    """The number of occurrences of an operator in two models."""

    op: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """After minus before."""
        return self.after - self.before


def histogram(before: dict[str, int], after: dict[str, int]) -> tuple[OperatorCount, ...]:
    """Join two operator counts, the most frequent operators first."""
    counts = [OperatorCount(op, before.get(op, 0), after.get(op, 0)) for op in {**before, **after}]
    return tuple(sorted(counts, key=lambda count: (-max(count.before, count.after), count.op)))
