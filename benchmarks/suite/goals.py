"""Summarize the rows: geometric means against the peers, and whether each goal is met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from suite.records import ORIGINAL, Record

DEFAULT, MODERN, END, SLIM = "surgery default", "surgery modern", "surgery default:end", "onnxslim"

_MIB = 1 << 20
_LARGE = 300e6
_MEMORY = "private memory at most 0.3 x file + 300 MiB, files over 300 MB"


@dataclass(frozen=True)
class Figure:
    """One mean over `models` models; `value` is None if there is nothing to compare."""

    what: str
    value: float | None
    models: int


@dataclass(frozen=True)
class Goal:
    """A requirement; `met` is None if it was not measured."""

    what: str
    met: bool | None
    detail: str


def _clock(row: Record) -> float | None:
    return row.seconds


def _cpu(row: Record) -> float | None:
    return row.cpu


class Comparison:
    """All rows, by model and tool."""

    def __init__(self, records: Iterable[Record], peers: Iterable[str]) -> None:
        self.rows = {(record.model, record.tool): record for record in records}
        self.models = list(dict.fromkeys(model for model, _ in self.rows))
        self.tools = list(dict.fromkeys(tool for _, tool in self.rows if tool != ORIGINAL))
        self.peers = [peer for peer in peers if peer in self.tools]
        self.ours = [tool for tool in self.tools if tool not in self.peers]

    def row(self, model: str, tool: str) -> Record | None:
        """Return the row of a tool on a model; None if it was not run."""
        return self.rows.get((model, tool))

    def best(self, model: str) -> Record | None:
        """Return the row of the valid peer that leaves the fewest nodes."""
        rows = [self.rows[model, peer] for peer in self.peers if (model, peer) in self.rows]
        valid = [row for row in rows if row.valid]
        return min(valid, key=lambda row: row.nodes or 0, default=None)

    def mean(self, what: str, ratio: Callable[[str], float | None]) -> Figure:
        """Return the geometric mean of a ratio over the models that have one."""
        ratios = [found for found in map(ratio, self.models) if found]
        return Figure(what, statistics.geometric_mean(ratios) if ratios else None, len(ratios))

    def figures(self) -> list[Figure]:
        """Return all means."""
        others = [tool for tool in self.tools if tool != SLIM]
        pairs = [(tool, peer) for tool in self.ours for peer in self.peers]
        return [
            *(self.mean(f"nodes: {tool} / best valid peer", self._nodes(tool)) for tool in self.tools),
            *(self.mean(f"seconds: {tool} / {SLIM}", self._seconds(tool)) for tool in others),
            *(self.mean(f"seconds cpu: {tool} / {SLIM}", self._seconds(tool, _cpu)) for tool in others),
            *(self.mean(f"latency: {tool} / original", self._latency(tool, ORIGINAL)) for tool in self.tools),
            *(self.mean(f"latency: {tool} / {peer}", self._latency(tool, peer)) for tool, peer in pairs),
        ]

    def goals(self) -> list[Goal]:
        """Evaluate each goal on the rows."""
        return [
            self._each("default: no more nodes than the best valid peer", DEFAULT, self._more_nodes),
            _below("default: nodes, mean", self.mean("", self._nodes(DEFAULT)), 0.85),
            _below("modern: nodes, mean", self.mean("", self._nodes(MODERN)), 0.65),
            *(self._each(f"{tool[8:]}: right under every binding", tool, _not_right) for tool in self.ours),
            *(self._each(f"{tool[8:]}: no file over 1 % larger", tool, self._larger) for tool in self.ours),
            self._latency_goal(),
            self._each("default: no model over 3 % slower than its original", DEFAULT, _slower, lambda r: r.latency),
            _below(f"default: seconds against {SLIM}, mean", self.mean("", self._seconds(DEFAULT)), 1.5),
            _below(f"default:end: seconds against {SLIM}, mean", self.mean("", self._seconds(END)), 0.5),
            *(self._each(f"{tool[8:]}: {_MEMORY}", tool, self._memory, self._is_large) for tool in (DEFAULT, END)),
        ]

    def _nodes(self, tool: str) -> Callable[[str], float | None]:
        def ratio(model: str) -> float | None:
            row, best = self.row(model, tool), self.best(model)
            return row.nodes / best.nodes if row and best and row.right and row.nodes and best.nodes else None

        return ratio

    def _seconds(self, tool: str, of: Callable[[Record], float | None] = _clock) -> Callable[[str], float | None]:
        def ratio(model: str) -> float | None:
            rows = [row for name in (tool, SLIM) if (row := self.row(model, name)) and not row.failure]
            times = [time for time in map(of, rows) if time]
            return times[0] / times[1] if len(times) == 2 else None

        return ratio

    def _latency(self, tool: str, other: str) -> Callable[[str], float | None]:
        def of(model: str, tool: str) -> float | None:
            if tool == ORIGINAL:
                return 1.0
            row = self.row(model, tool)
            return row.latency.get("minimum") if row and row.right else None

        def ratio(model: str) -> float | None:
            ours, theirs = of(model, tool), of(model, other)
            return ours / theirs if ours and theirs else None

        return ratio

    def _latency_goal(self) -> Goal:
        found = {peer: self.mean("", self._latency(DEFAULT, peer)) for peer in self.peers}
        values = {peer: figure.value for peer, figure in found.items() if figure.value is not None}
        if not values:
            return Goal("default: latency, mean against the best peer", None, "not measured")
        peer = max(values, key=lambda name: values[name])
        what = "default: latency, mean against the best peer, at most 1"
        return Goal(what, values[peer] <= 1.0, f"{values[peer]:.3f} ({peer}, {found[peer].models} models)")

    def _each(
        self,
        what: str,
        tool: str,
        fault: Callable[[Record], str],
        measured: Callable[[Record], object] = lambda row: True,
    ) -> Goal:
        """Evaluate a requirement that must hold on each model."""
        rows = [row for model in self.models if (row := self.row(model, tool)) and measured(row)]
        faults = [f"{row.model}: {said}" for row in rows if (said := fault(row))]
        if not rows:
            return Goal(what, None, "not measured")
        return Goal(what, not faults, "; ".join(faults) or f"{len(rows)} models")

    def _more_nodes(self, row: Record) -> str:
        best = self.best(row.model)
        if row.nodes is None:
            return "no model"
        return f"{row.nodes} > {best.nodes} ({best.tool})" if best and best.nodes and row.nodes > best.nodes else ""

    def _larger(self, row: Record) -> str:
        original = self.rows[row.model, ORIGINAL].bytes
        if row.bytes is None or not original:
            return "no model"
        return f"{row.bytes / original - 1:+.1%}" if row.bytes > 1.01 * original else ""

    def _memory(self, row: Record) -> str:
        limit = 0.3 * (self.rows[row.model, ORIGINAL].bytes or 0) + 300 * _MIB
        return f"{row.private / _MIB:.0f} > {limit / _MIB:.0f} MiB" if row.private and row.private > limit else ""

    def _is_large(self, row: Record) -> bool:
        return (self.rows[row.model, ORIGINAL].bytes or 0) > _LARGE


def _below(what: str, figure: Figure, limit: float) -> Goal:
    if figure.value is None:
        return Goal(f"{what}, at most {limit}", None, "not measured")
    return Goal(f"{what}, at most {limit}", figure.value <= limit, f"{figure.value:.3f} ({figure.models} models)")


def _not_right(row: Record) -> str:
    return "" if row.right else row.notes or "not compared"


def _slower(row: Record) -> str:
    ratio = row.latency.get("minimum")
    return f"{ratio - 1:+.1%}" if ratio and ratio > 1.03 else ""
