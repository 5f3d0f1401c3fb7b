"""Check that `surgery bench` finds real differences and no others: `python benchmarks/itself.py [MODEL] [--runs N]`

Measures a model against itself repeatedly and prints how many of the 95 % intervals contain 1, which should be at least
95 of 100. Then measures it against a copy that executes one Conv twice, and prints how often the copy is found to be
slower. Exit code 1 if fewer than 95 % of the intervals contain 1, or the copy is found slower in fewer than half of the
runs.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from surgery.model.shapes.declarations import declare
from surgery.verification.benchmarking.bench import legal_feeds
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.paired_runs import compare
from surgery.verification.benchmarking.subjects import subject
from surgery.verification.inputs.spec import InputsSpec

ROOT = Path(__file__).resolve().parent.parent
DIMS = {"batch": (1,), "height": (64,), "width": (64,)}


def doubled(model: onnx.ModelProto, feed: Mapping[str, Any]) -> tuple[onnx.ModelProto, str]:
    """Return a copy that executes its most expensive Conv twice, with half the weights each, and the name of that Conv.

    The results of both are added, so neither can be eliminated; the halves differ slightly, so they cannot be merged as
    duplicates.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    known = declare(model.SerializeToString(), {name: list(value.shape) for name, value in feed.items()})
    convs = [node for node in graph.node if node.op_type == "Conv" and node.input[1] in weights]

    def cost(node: onnx.NodeProto) -> int:
        return math.prod(weights[node.input[1]].dims) * math.prod(known[node.output[0]][1][2:])

    conv = max(convs, key=cost)
    share = cost(conv) / sum(map(cost, convs))
    weight = numpy_helper.to_array(weights[conv.input[1]])
    parts = []
    for number, part_of_it in enumerate((0.499, 0.501)):
        part = onnx.NodeProto()
        part.CopyFrom(conv)
        part.name, part.output[0] = f"{conv.name}_{number}", f"{conv.output[0]}_{number}"
        part.input[1] = f"{conv.input[1]}_{number}"
        # A bias is added once.
        del part.input[2 if number else 3 :]
        graph.initializer.append(numpy_helper.from_array(weight * np.float32(part_of_it), part.input[1]))
        parts.append(part)
    total = onnx.helper.make_node("Add", [part.output[0] for part in parts], [conv.output[0]])
    place = next(index for index, node in enumerate(graph.node) if node.output[0] == conv.output[0])
    nodes = [*graph.node[:place], *parts, total, *graph.node[place + 1 :]]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(copy, full_check=True)
    return copy, f"{conv.name or conv.output[0]} ({share:.1%} of the products of Conv)"


def main() -> int:
    """Run all measurements; print a line for each self-comparison whose interval misses 1, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "models" / "resnet-tiny.onnx")
    parser.add_argument("--runs", type=int, default=100, help="measurements against itself (default: 100)")
    parser.add_argument("--doubled", type=int, default=20, help="measurements against the slower copy (default: 20)")
    parser.add_argument("--seconds", type=float, default=8.0, help="time for a measurement (default: 8)")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    model = onnx.load(arguments.model)
    dims = {value.dim_param for port in model.graph.input for value in port.type.tensor_type.shape.dim}
    spec = BenchSpec(seconds=arguments.seconds, threads=arguments.threads)
    feeds, _ = legal_feeds(
        subject(arguments.model), InputsSpec(dims={k: v for k, v in DIMS.items() if k in dims}), spec
    )
    holds, slower = 0, 0
    widths: list[float] = []
    sessions: list[int] = []
    for seed in range(arguments.runs):
        found = compare([arguments.model] * 2, feeds, BenchSpec(**{**vars(spec), "seed": seed}))
        widths.append(found.speed.half_width)
        sessions.append(found.sessions)
        holds += not found.speed.excludes(1.0)
        if found.speed.excludes(1.0):
            print(f"seed {seed}: {found.speed}, {found.sessions} sessions, {found.rounds} rounds", flush=True)
    if arguments.runs:
        middle = np.median(widths)
        print(
            f"itself: {holds} of {arguments.runs} intervals contain 1; half their width is {middle:.2%} in the median"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "doubled.onnx"
        copy, name = doubled(model, feeds[0])
        onnx.save(copy, path)
        ratios = []
        for seed in range(arguments.doubled):
            found = compare([arguments.model, path], feeds, BenchSpec(**{**vars(spec), "seed": seed}))
            ratios.append(found.speed.ratio)
            slower += found.speed.high < 1.0
    if arguments.doubled:
        speed = np.median(ratios)
        print(f"{name} doubled: found slower in {slower} of {arguments.doubled}; speed {speed:.3f} in the median")
    return int(holds < 0.95 * arguments.runs or 2 * slower < arguments.doubled)


if __name__ == "__main__":
    sys.exit(main())
