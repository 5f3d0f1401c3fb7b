"""The opsets that a model can have, unchanged or converted by passes, and the obstacles to the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.errors import SurgeryError, UsageError
from surgery.base.json_record import Record
from surgery.base.operators.schemas import newest_opset
from surgery.base.views import view
from surgery.base.workers import default_memory
from surgery.base.workers.fork import call_in_fork
from surgery.engine.bridges.run_pass import run_pass
from surgery.features.inspection.opset_floors import Floor, floor
from surgery.features.inspection.releases import Release, reader, release
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Refused
from surgery.model.storage import summary

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from surgery.engine.registry.passes import Pass
    from surgery.model.graph.values import Node
    from surgery.model.storage.loading import Model

LOWEST = 7
"""The lowest opset that ONNX Runtime accepts."""

_TIMEOUT = 300.0
"""Time limit for one conversion, in seconds."""

How = Literal["current", "as it stands", "converted", "blocked"]


@dataclass(frozen=True)
class Obstacle:
    """Nodes of one operator that require at least this opset without conversion, for one reason."""

    opset: int
    op: str
    reason: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.nodes)} x {self.op} ({self.opset}): {self.reason}"


@dataclass(frozen=True)
class Blocker:
    """Nodes of one operator that a pass cannot convert to an opset, for one reason."""

    op: str
    reason: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.nodes)} x {self.op}: {self.reason}" if self.op else self.reason


@dataclass(frozen=True)
class OpsetCandidate(Record, keys="opset how by? *release operators blockers"):
    """An opset, and how the model gets there. `operators` has the changed operator counts, before and after."""

    opset: int
    how: How
    release: Release
    by: str = ""
    operators: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()

    @property
    def is_reached(self) -> bool:
        """Whether the model can have this opset."""
        return self.how != "blocked"


@dataclass(frozen=True)
class ImportedDomain:
    """A domain that the model imports: the owner of its operators, and the lowest version that its nodes allow."""

    name: str
    version: int
    kind: Literal["ONNX", "ONNX Runtime", "functions of the model", "unknown"]
    nodes: int
    lowest: int | None


@dataclass(frozen=True)
class Study(
    Record,
    keys="path opset ir_version ir_version_read_by=reader lowest lowest_converted candidates"
    " obstacles domains functions",
):
    """The result of `surgery opset`. `opset` is that of the default domain, 0 if the model does not import it."""

    path: Path | None
    opset: int
    ir_version: int
    reader: str | None
    lowest: int | None
    candidates: tuple[OpsetCandidate, ...]
    obstacles: tuple[Obstacle, ...]
    domains: tuple[ImportedDomain, ...]
    functions: Mapping[str, int]

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        reached = ", ".join(str(one.opset) for one in self.candidates if one.is_reached)
        return f"<Study of opset {self.opset}: can have {reached or 'no other'}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(str(one.opset), "yes" if one.is_reached else "no") for one in self.candidates]
        return view("listed")(repr(self)[1:-1], "info", (), ("Opset", "Possible"), rows, "opsets")

    @property
    def lowest_converted(self) -> int | None:
        """The lowest opset that the model can have, with or without conversion."""
        return min((candidate.opset for candidate in self.candidates if candidate.is_reached), default=None)


def opset(model: Model, to: int | None = None) -> Study:
    """List the opsets that a model can be converted to by the passes of surgery, or report on the opset `to` only.

    Nothing is verified or written; `surgery.run(model, "upgrade-opset", to=21)` converts.

    Raises UsageError for an opset that the installed onnx does not have, and ModelFileError or TransferError if the
    model cannot be read.
    """
    from surgery.engine.registry.catalog import catalog

    known = catalog.passes()
    return study(storage.opened(model), known.get("downgrade-opset"), known.get("upgrade-opset"), to)


def study(
    stored: storage.StoredModel, lower: Pass | None = None, higher: Pass | None = None, to: int | None = None
) -> Study:
    """Determine which opsets a model can have, or whether it can have the opset `to`.

    `lower` and `higher` are passes with an option `to` that convert the model down and up; without them, only opsets
    that need no conversion are reached. The model is not changed, and nothing is verified.
    """
    if to is not None and (isinstance(to, bool) or not isinstance(to, int)):
        what = f"an opset is a whole number such as 17, not {to!r}"
        raise UsageError(what, todo=f"to convert, run surgery.run(model, 'upgrade-opset', to={newest_opset()})")
    if to is not None and not 1 <= to <= newest_opset():
        raise UsageError(
            f"opset {to} does not exist; the installed onnx has 1 to {newest_opset()}", todo="name one of them"
        )
    weights = stored.weights
    weights.open_scratch()
    graph = Graph(storage.ir_from_proto(storage.without_alias(stored.proto), weights), weights=weights)
    floors = {node: floor(node) for node in graph.nodes()}
    road = _Road(graph, stored.proto, lower, higher)
    own = [found.version for node, found in floors.items() if found is not None and not node.ir.domain]
    lowest = max(own, default=1) if road.current else None
    return Study(
        path=stored.path,
        opset=graph.opset,
        ir_version=stored.proto.ir_version,
        reader=reader(stored.proto.ir_version),
        lowest=lowest,
        candidates=tuple(road.candidate(opset, lowest) for opset in ([to] if to else road.every())) if lowest else (),
        obstacles=tuple(_obstacles(floors, to or LOWEST)),
        domains=tuple(_domains(graph, floors)),
        functions={
            f"{function.domain}::{function.name}": function.opset_imports.get("", 0)
            for function in graph.ir.functions.values()
        },
    )


def _current(graph: Graph) -> int:
    """Return the opset of the default domain, or the newest one that a function imports if that is higher."""
    return max(graph.opset, *(function.opset_imports.get("", 0) for function in graph.ir.functions.values()), 0)


class _Road:
    """The paths of one model to other opsets. `graph` is not changed: each conversion is tried in a fork."""

    def __init__(self, graph: Graph, proto: onnx.ModelProto, lower: Pass | None, higher: Pass | None) -> None:
        self.graph = graph
        self.current = _current(graph)
        self.lower = lower
        self.higher = higher
        self.operators = summary.operators(proto)
        self.ops = {node.label: node.op for node in graph.nodes()}
        self.rises = False

    def every(self) -> range:
        """Return the opsets to try, newest first."""
        return range(newest_opset(), min(LOWEST, self.current) - 1, -1)

    def candidate(self, opset: int, lowest: int) -> OpsetCandidate:
        """Determine how the model gets to an opset; those from `lowest` to the current one need no conversion."""
        if opset == self.current:
            return OpsetCandidate(opset, "current", release(opset))
        if lowest <= opset < self.current:
            return OpsetCandidate(opset, "as it stands", release(opset))
        declared = self.higher if opset > self.current else self.lower
        if declared is None:
            return OpsetCandidate(opset, "blocked", release(opset))
        if opset > self.current and self.rises:
            return OpsetCandidate(opset, "converted", release(opset), declared.name)
        found = self._converted(opset, declared)
        # A conversion up passes through all opsets in between: if no operator changes, none changes for those either.
        self.rises = opset > self.current and found.is_reached and not found.operators
        return found

    def _converted(self, opset: int, declared: Pass) -> OpsetCandidate:
        options = declared.bind({"to": opset})
        if opset < self.current:
            self._infer()

        def work() -> dict[str, Any]:
            try:
                made = run_pass(declared, self.graph, options, contained=False)
            except SurgeryError as error:
                return {"refusals": _refusals(self.graph.refusals) or [["", error.todo or error.what]]}
            if made.proto is None:
                return {"refusals": _refusals(made.refusals)}
            return {"operators": summary.operators(made.proto)}

        stage = f"pass '{declared.name}' to opset {opset}"
        answer, _ = call_in_fork(work, stage=stage, timeout=_TIMEOUT, memory=default_memory())
        if "refusals" in answer:
            found = ((self.ops.get(anchor, ""), reason, anchor) for anchor, reason in answer["refusals"])
            return OpsetCandidate(opset, "blocked", release(opset), declared.name, blockers=tuple(_grouped(found)))
        changes = _changes(self.operators, answer["operators"])
        return OpsetCandidate(opset, "converted", release(opset), declared.name, changes)

    def _infer(self) -> None:
        """Infer types and shapes before the forks, because results of inference in a fork are lost."""
        node = next((node for node in self.graph.nodes() if node.outputs), None)
        if node is not None:
            self.graph.facts.of(node.outputs[0].ir)


def _refusals(found: Iterable[Refused]) -> list[list[str]]:
    return [[one.anchor, one.reason] for one in found]


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    names = sorted({*before, *after})
    return {op: (before.get(op, 0), after.get(op, 0)) for op in names if before.get(op) != after.get(op)}


def _grouped(found: Iterable[tuple[str, str, str]]) -> Iterator[Blocker]:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for op, reason, anchor in found:
        groups[op, reason] += [anchor] if anchor else []
    for (op, reason), nodes in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield Blocker(op, reason, tuple(nodes))


def _obstacles(floors: Mapping[Node, Floor | None], least: int) -> Iterator[Obstacle]:
    """Group the reasons that keep nodes of the default domain above the opset `least`, highest floor first."""
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for node, found in floors.items():
        if found is not None and not node.ir.domain and found.version > least:
            groups[found.version, node.ir.op_type, found.reason].append(node.label)
    for (version, op, reason), nodes in sorted(groups.items(), key=lambda item: (-item[0][0], -len(item[1]))):
        yield Obstacle(version, op, reason, tuple(nodes))


def _domains(graph: Graph, floors: Mapping[Node, Floor | None]) -> Iterator[ImportedDomain]:
    """Yield the domains other than the default one, with the lowest version that their nodes need."""
    local = {function.domain for function in graph.ir.functions.values()}
    counts = Counter(node.ir.domain for node in floors)
    for name, version in graph.ir.opset_imports.items():
        if name:
            known = [f.version for node, f in floors.items() if f is not None and node.ir.domain == name]
            lowest = max(known) if known and len(known) == counts[name] else None
            yield ImportedDomain(name, version, _kind(name, local), counts[name], lowest)


def _kind(name: str, local: set[str]) -> Literal["ONNX", "ONNX Runtime", "functions of the model", "unknown"]:
    if name in local:
        return "functions of the model"
    if name.startswith("ai.onnx."):
        return "ONNX"
    return "ONNX Runtime" if name in CONTRIB else "unknown"


CONTRIB: Sequence[str] = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "com.microsoft.experimental")
"""Domains of operators that ONNX Runtime provides."""
