"""Check that run time grows linearly with the number of nodes, on chains of residual blocks of increasing length.

    python benchmarks/chain.py [--nodes 5000 20000 100000] [--recipe NAME] [--tools NAME...]

Prints the seconds of the whole command, the time per node, its growth from the first length to each other one, and the
remaining nodes compared with those that must stay. Exit code 1 if surgery's time per node grows by more than a factor
of 1.3, if it needs more than 20 s for 20,000 nodes, or if it leaves a removable node.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from rich import box
from rich.console import Console
from rich.table import Table
from suite import chain, facts, process, tools
from suite.tools import Tool

_MOST_GROWTH = 1.3
_MOST_SECONDS = {20_000: 20.0}


@dataclass
class Length:
    """The result of one tool on one chain."""

    tool: str
    nodes: int
    seconds: float
    cpu: float
    private: int
    growth: float
    left: dict[str, int]
    over: dict[str, int]
    failure: str

    @property
    def faults(self) -> list[str]:
        """The problems found."""
        found = [self.failure] if self.failure else []
        if self.growth > _MOST_GROWTH:
            found.append(f"seconds per node grow by {self.growth:.2f}")
        if self.seconds > (limit := _MOST_SECONDS.get(self.nodes, float("inf"))):
            found.append(f"over {limit:.0f} s")
        if self.over:
            found.append("could go: " + ", ".join(f"{count} {name}" for name, count in self.over.items()))
        return found


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", nargs="+", type=int, default=[5_000, 20_000, 100_000])
    p.add_argument("--recipe", default="default", help="a recipe of surgery; NAME:end verifies once at the end")
    p.add_argument("--tools", nargs="*", default=[], metavar="NAME", help="peers to run as well")
    p.add_argument("--most", type=int, default=20_000, help="the longest chain for a peer (default: 20000)")
    p.add_argument("--timeout", type=float, default=900.0, help="seconds for one run (default: 900)")
    p.add_argument("--format", choices=["text", "json"], default="text")
    return p


def measure(tool: Tool, nodes: int, timeout: float, first: float | None) -> Length:
    """Build a chain, run the tool and count; `first` is the tool's seconds per node on the shortest chain."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "chain.onnx"), Path(folder, "out.onnx")
        blocks = chain.build(nodes, source)
        ran = process.run(tool.command(source, target), timeout=timeout, folder=Path(folder))
        failure = ran.failure or ("" if target.is_file() else "wrote no model")
        left = Counter(operators(target)) if not failure else Counter[str]()
    stay = Counter({name: count * blocks for name, count in chain.LEFT.items()})
    growth = ran.seconds / nodes / first if first else 1.0
    # A MatMul and its Add may become a Gemm, with a Reshape at either end of the chain.
    fused = Counter({"Gemm": stay["MatMul"], "Reshape": 2, "Shape": 1})
    over = {name: count for name, count in (left - stay - fused).items() if name != "Constant"}
    return Length(tool.name, nodes, ran.seconds, ran.cpu, ran.private, growth, dict(left), over, failure)


def operators(path: Path) -> dict[str, int]:
    """Count the nodes by operator."""
    return {name: count for (_, name), count in facts.operators(onnx.load(path)).most_common()}


def main() -> int:
    """Measure and print."""
    arguments = parser().parse_args()
    peers = [tool for tool in tools.PEERS if tool.name in arguments.tools and tool.version]
    lengths = []
    for tool in (tools.surgery(arguments.recipe), *peers):
        first: float | None = None
        for nodes in sorted(arguments.nodes):
            if tool.is_peer and nodes > arguments.most:
                continue
            length = measure(tool, nodes, arguments.timeout, first)
            first = first or length.seconds / nodes
            lengths.append(length)
            print(f"{tool.name}: {nodes} nodes in {length.seconds:.1f} s", file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps([{**asdict(length), "faults": length.faults} for length in lengths], indent=1))
    else:
        show(lengths)
    return 1 if any(length.faults for length in lengths if length.tool.startswith("surgery")) else 0


def show(lengths: list[Length]) -> None:
    """Print a table."""
    titles = ("tool", "nodes", "seconds", "cpu", "us/node", "growth", "MiB", "left", "faults")
    table = Table(*titles, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for length in lengths:
        times = (f"{length.seconds:.2f}", f"{length.cpu:.2f}", f"{length.seconds / length.nodes * 1e6:.0f}")
        left = ", ".join(f"{count} {name}" for name, count in length.left.items())
        memory = f"{length.private / 2**20:.0f}"
        table.add_row(
            length.tool, f"{length.nodes:,}", *times, f"{length.growth:.2f}", memory, left, "; ".join(length.faults)
        )
    Console(emoji=False, highlight=False, markup=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
