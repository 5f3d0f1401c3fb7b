"""The nodes that ONNX Runtime executes: those that its own optimizations leave, and copies between devices.

The functions here run in a worker process, but for `Executed`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import counted

if TYPE_CHECKING:
    import onnxruntime

_KERNEL = "_kernel_time"
"""The ending of the events that are kernels; others are the waiting for them."""

_COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})


@dataclass(frozen=True)
class Executed:
    """The nodes that one run executes, by operator and execution provider; a node in a loop counts once."""

    nodes: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, int]]) -> Executed:
        """Return the nodes from rows of operator, provider and count."""
        return cls({(op, provider): count for op, provider, count in rows})

    def __str__(self) -> str:
        copies = f" and {self.copies} copies between devices" if self.copies else ""
        return f"{counted(self.total, 'node')}{copies} executed"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report: nodes, copies between devices, and both by provider and operator."""
        providers: dict[str, dict[str, int]] = {}
        for (op, provider), count in sorted(self.nodes.items()):
            providers.setdefault(provider, {})[op] = count
        return {"nodes": self.total, "copies": self.copies, "providers": providers}

    @cached_property
    def total(self) -> int:
        """The number of nodes, without copies between devices."""
        return sum(count for (op, _), count in self.nodes.items() if op not in _COPIES)

    @cached_property
    def copies(self) -> int:
        """The number of copies between devices."""
        return sum(count for (op, _), count in self.nodes.items() if op in _COPIES)

    @cached_property
    def operators(self) -> Counter[str]:
        """The number of nodes by operator, copies included."""
        found: Counter[str] = Counter()
        for (op, _), count in self.nodes.items():
            found[op] += count
        return found

    def on(self, provider: str) -> int:
        """Return the number of nodes that a provider runs, without copies."""
        return sum(count for (op, name), count in self.nodes.items() if name == provider and op not in _COPIES)


def begin_profile(options: onnxruntime.SessionOptions, folder: str) -> None:
    """Let a session write a profile into a folder of the caller, who removes it even if this process is killed."""
    options.enable_profiling = True
    options.profile_file_prefix = f"{folder}/run"


def executed(session: onnxruntime.InferenceSession) -> list[tuple[str, str, int]]:
    """End the profile of a session, and return rows of operator, provider and number of nodes."""
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text("utf-8", errors="replace"))
    kernels = {
        (event["name"], event["args"].get("node_index"), event["args"]["op_name"], event["args"]["provider"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)
    }
    counted = Counter((op, provider) for _, _, op, provider in kernels)
    return [(op, provider, count) for (op, provider), count in sorted(counted.items())]
