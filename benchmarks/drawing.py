"""Measure the drawing of graphs: total time, time by phase, and quality compared with a plain drawing.

    python benchmarks/drawing.py [--nodes 1000 10000 50000 100000] [--shapes NAME...] [--format json]

The plain drawing is made with networkx: `topological_generations` gives the rows, `multipartite_layout` the positions
within them. Both are judged by the lines between box centres, relative to the plain drawing: `crossings` among sampled
pairs of edges, and the mean edge length `across` in px and `down` in rows. `growth` is the time per node relative to
that of the smallest graph; `plain` is the time of networkx divided by that of `layered`. `blocks` is the time to group
the graph by structure, divided by the time to draw all of it, and `room` is the largest number of boxes in a group.

Exit code 1 if the time per node grows by more than a factor of 3, a drawing of a model-like shape has more crossings
than the plain one, or a group holds more than 60 boxes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from suite.graphs import SHAPES, Graph, Ints

from surgery.interface.layout import layered as steps
from surgery.interface.layout.structure_groups import Blocks, blocks, repeats

_MODELS = {"transformer", "resnet", "chain"}
_MOST_GROWTH = 3.0
_MOST_BOXES = 60
_DRAWN = 2_000_000
_PHASES = {
    "layers": "rows",
    "rows": "lanes",
    "ordered": "crossings",
    "Alignment": "columns",
    "coordinates": "x",
    "_packed": "packing",
}


@dataclass
class Drawn:
    """The figures of one graph."""

    shape: str
    nodes: int
    seconds: float
    phases: dict[str, float]
    rows: int
    width: int
    plain: float
    crossings: float
    across: float
    down: float
    blocks: float
    room: int
    growth: float = 1.0

    @property
    def faults(self) -> list[str]:
        """The problems found."""
        found = []
        if self.growth > _MOST_GROWTH:
            found.append(f"time per node grows by {self.growth:.1f}")
        if self.shape in _MODELS and self.crossings > 1:
            found.append("more crossings than the plain drawing")
        if self.room > _MOST_BOXES:
            found.append(f"a room of {self.room} boxes")
        return found


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    p.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    p.add_argument("--format", choices=("text", "json"), default="text")
    return p


def main() -> int:
    """Draw each shape at each size."""
    options = parser().parse_args()
    steps.layered([60], [24], [])  # imports happen at the first call
    found = []
    for shape in options.shapes:
        sizes = [draw(shape, nodes) for nodes in sorted(options.nodes)]
        for one in sizes:
            one.growth = one.seconds / one.nodes / (sizes[0].seconds / sizes[0].nodes)
        found += sizes
    if options.format == "json":
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 180).print(table(found))
    for one in found:
        for fault in one.faults:
            print(f"{one.shape}, {one.nodes} nodes: {fault}", file=sys.stderr)
    return int(any(one.faults for one in found))


def draw(shape: str, nodes: int) -> Drawn:
    """Draw one graph in both ways and group it; return the figures."""
    graph = SHAPES[shape](nodes)
    count, pairs = len(graph.kinds), graph.pairs
    widths = np.full(count, 60)
    phases: dict[str, float] = {}
    begin = time.process_time()
    with_phases(phases, lambda: steps.layered(widths, np.full(count, 24), pairs))
    seconds = time.process_time() - begin
    layout = steps.layered(widths, np.full(count, 24), pairs)
    begin = time.process_time()
    row, x = plain(count, pairs)
    slower = (time.process_time() - begin) / seconds
    begin = time.process_time()
    grouped = blocks(graph.kinds, graph.edges)
    share = (time.process_time() - begin) / seconds
    span = np.abs(np.diff(layout.layer[pairs], axis=1)).mean() / np.abs(np.diff(row[pairs], axis=1)).mean()
    across = np.abs(np.diff(layout.x[pairs], axis=1)).mean() / max(np.abs(np.diff(x[pairs], axis=1)).mean(), 1)
    ours, theirs = crossing(layout.layer, layout.x, pairs), crossing(row, x, pairs)
    return Drawn(
        shape,
        count,
        seconds,
        {name: took / seconds for name, took in phases.items()},
        int(layout.layer.max()) + 1,
        layout.width,
        slower,
        ours / theirs if theirs else float(ours > 0),
        float(across),
        float(span),
        share,
        largest(graph, grouped),
    )


def with_phases(phases: dict[str, float], run: Callable[[], object]) -> None:
    """Run a layout and store the seconds of each of its steps in `phases`."""
    originals = {name: getattr(steps, name) for name in _PHASES}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*arguments)
            finally:
                phases[_PHASES[name]] = time.process_time() - begin

        return call

    for name, function in originals.items():
        setattr(steps, name, timed(name, function))
    try:
        run()
    finally:
        for name, function in originals.items():
            setattr(steps, name, function)


def plain(count: int, pairs: Ints) -> tuple[Ints, Ints]:
    """Draw with networkx; return the row of each node, and its x in px."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(pairs.tolist())
    row = np.zeros(count, np.int64)
    for at, members in enumerate(nx.topological_generations(graph)):
        row[list(members)] = at
    nx.set_node_attributes(graph, dict(enumerate(row.tolist())), "row")
    places = nx.multipartite_layout(graph, subset_key="row", align="horizontal")
    x = np.array([places[node][0] for node in range(count)])
    # networkx scales positions to -1 to 1; the widest row has boxes of 60 px with gaps of 16.
    widest = int(np.bincount(row).max())
    return row, np.round((x - x.min()) / max(float(np.ptp(x)), 1e-9) * (widest - 1) * 76).astype(np.int64)


def crossing(row: Ints, x: Ints, pairs: Ints) -> int:
    """Count crossings among sampled pairs of edges; in half of the pairs, both edges begin in nearby rows."""
    rng = np.random.default_rng(0)
    begins = row[pairs[:, 0]]
    order = np.argsort(begins, kind="stable")
    first = rng.integers(0, len(pairs), _DRAWN)
    near = np.clip(first + rng.integers(1, 65, _DRAWN), 0, len(pairs) - 1)
    second = np.where(np.arange(_DRAWN) % 2 == 0, near, rng.integers(0, len(pairs), _DRAWN))
    one, other = pairs[order[first]], pairs[order[second]]
    apart = (one[:, :, None] != other[:, None, :]).all(axis=(1, 2))
    return int((apart & _sides(row, x, one, other) & _sides(row, x, other, one)).sum())


def _sides(row: Ints, x: Ints, line: Ints, other: Ints) -> Any:
    """Return whether the ends of `other` are on different sides of each line."""
    low, high = line[:, 0], line[:, 1]
    sides = [
        np.sign((x[high] - x[low]) * (row[end] - row[low]) - (row[high] - row[low]) * (x[end] - x[low]))
        for end in (other[:, 0], other[:, 1])
    ]
    return sides[0] * sides[1] < 0


def largest(graph: Graph, grouped: Blocks) -> int:
    """Return the largest number of boxes in a group, with consecutive repeats of a block counted once."""
    found = repeats(graph.kinds, graph.edges, grouped.group, grouped.parent)
    hidden = {int(one) for repeat in found for one in repeat.roots[1:].ravel()}
    parents = (parent for one, parent in enumerate(grouped.parent.tolist()) if one not in hidden)
    return max(Counter(chain(grouped.group.tolist(), parents)).values())


def table(found: list[Drawn]) -> Table:
    """Build the table of figures; all times and qualities are ratios."""
    names = list(_PHASES.values())
    made = Table(box=box.SIMPLE)
    headings = (
        "rows",
        "growth",
        *(f"% {name}" for name in names),
        "plain",
        "crossings",
        "across",
        "down",
        "blocks",
        "room",
    )
    for name in ("shape", "nodes", *headings):
        made.add_column(name, justify="left" if name == "shape" else "right")
    for one in found:
        shares = [f"{100 * one.phases[name]:.0f}" for name in names]
        ratios = [f"{value:.2f}" for value in (one.plain, one.crossings, one.across, one.down, one.blocks)]
        made.add_row(one.shape, f"{one.nodes:,}", f"{one.rows:,}", f"{one.growth:.2f}", *shares, *ratios, str(one.room))
    return made


if __name__ == "__main__":
    sys.exit(main())
