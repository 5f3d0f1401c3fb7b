"""The operators that ONNX Runtime runs on the CPU, read from its kernel table."""

from __future__ import annotations

from dataclasses import dataclass

from surgery.base.errors import SurgeryError
from surgery.base.json_record import Record
from surgery.model.analysis.misfits import Reason, misfits
from surgery.model.graph.graph import Graph
from surgery.model.targets import Target

_CPU = Target("ort-cpu", provider="CPUExecutionProvider", expands=True, widens={"float16": "float"})
"""The kernel-related part of the CPU profile, defined here to avoid reading the profile."""


@dataclass(frozen=True)
class Gap(Record):
    """Nodes of one operator without a kernel, and the reason: the operator, its version or a type."""

    op: str
    why: str
    count: int
    first: str


def gaps(graph: Graph) -> list[Gap] | None:
    """List the operators of a model without a kernel, most frequent first; None if that cannot be determined.

    An operator without a kernel still runs if the ONNX specification defines it as a function of other operators,
    because the runtime expands it; so does a model-local function. Float16 is computed in float if only float has a
    kernel.
    """
    try:
        found = misfits(graph, _CPU)
    except SurgeryError:
        return None
    return [Gap(one.reason.op, _why(one.reason), one.count, one.first[0]) for one in found]


def _why(reason: Reason) -> str:
    if reason.kind == "version":
        return f"no kernel for version {reason.subject}"
    if reason.kind == "type":
        return f"no kernel for {', '.join(f'tensor({name})' for name in reason.subject.split(', '))}"
    return "no kernel"
