"""Compare surgery with the other tools that make ONNX models smaller.

    python benchmarks/peers.py [--models NAME...] [--tools NAME...] [--recipes NAME...] [--no-latency]

Every tool runs on every model in a separate process. The nodes of its result are counted, and the result is compared
with the original in plain ONNX Runtime under two bindings of the dynamic dims, and timed. A tool that fails, hangs or
is wrong gets a row too. Results of the other tools are cached by version and model; surgery's are measured anew unless
--reuse is given.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from suite import table, tools, zoo
from suite.goals import Comparison
from suite.measure import Bench
from suite.records import Folder, Record
from suite.tools import Tool

_CACHE = Path.home() / ".cache" / "surgery" / "peers"


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    peers = [tool.name for tool in tools.PEERS]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", metavar="NAME", default=list(zoo.NAMES), help="names of the zoo, or files")
    p.add_argument("--tools", nargs="*", metavar="NAME", default=peers, help=f"peers to run (all: {' '.join(peers)})")
    p.add_argument(
        "--recipes",
        nargs="*",
        metavar="NAME",
        default=["default", "default:end", "modern"],
        help="recipes of surgery; NAME:end verifies once at the end (default: default default:end modern)",
    )
    p.add_argument("--no-latency", action="store_true", help="do not time the models")
    p.add_argument("--threads", type=int, default=1, help="threads of a timed model (default: 1)")
    p.add_argument("--seconds", type=float, default=10.0, help="how long a pair of models takes turns (default: 10)")
    p.add_argument("--timeout", type=float, default=900.0, help="seconds for one tool on one model (default: 900)")
    p.add_argument("--cache", type=Path, default=_CACHE, metavar="FOLDER", help=f"what is kept (default: {_CACHE})")
    p.add_argument("--keep", action="store_true", help="keep the models, so that they can be timed later")
    again = p.add_mutually_exclusive_group()
    again.add_argument("--reuse", action="store_true", help="take surgery's results from the cache too")
    again.add_argument("--again", action="store_true", help="measure the other tools anew as well")
    p.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    p.add_argument("--out", type=Path, metavar="FILE", help="write the table there as well")
    return p


def chosen(arguments: argparse.Namespace) -> tuple[list[Tool], list[str]]:
    """Return the tools to run, surgery first, and the names of the peers that are not installed."""
    known = {tool.name: tool for tool in tools.PEERS}
    unknown = [name for name in arguments.tools if name not in known]
    if unknown:
        raise SystemExit(f"no tool {', '.join(unknown)}; there are: {', '.join(known)}")
    peers = [known[name] for name in arguments.tools]
    missing = [tool.name for tool in peers if not tool.version]
    return [*map(tools.surgery, arguments.recipes), *(tool for tool in peers if tool.version)], missing


def measured(bench: Bench, tool: Tool, arguments: argparse.Namespace) -> Record:
    """Return the row of a tool, from the cache if that is allowed and the cached row is complete."""
    allowed = arguments.reuse or (tool.is_peer and not arguments.again)
    kept = bench.kept.load(bench.model.name, tool.name, bench.key(tool)) if allowed else None
    if kept and kept.failure and not tool.is_peer:
        kept = None  # surgery's code changes more often than its version
    wanted = not arguments.no_latency
    if kept and (not wanted or kept.latency or kept.failure or kept.wrong):
        return kept
    if kept and bench.kept.model(kept.model, kept.tool).is_file():
        record = kept
    else:
        record = bench.run(tool)
        bench.kept.save(record)
    if wanted:
        bench.time(record, arguments.threads, arguments.seconds)
        bench.kept.save(record)
    if not arguments.keep or record.failure:
        bench.forget(record)
    return record


def compare(arguments: argparse.Namespace, messages: Console) -> tuple[Comparison, list[str]]:
    """Run all tools model by model and print progress; return the rows, and the peers that are not installed."""
    chosen_tools, missing = chosen(arguments)
    kept, records = Folder(arguments.cache), []
    for name in arguments.models:
        try:
            model = zoo.find(name)
        except zoo.MissingModel as problem:
            messages.print(str(problem), markup=False)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            bench = Bench(model, kept, Path(scratch), arguments.timeout)
            records.append(bench.original())
            for tool in chosen_tools:
                messages.print(f"{model.name}: {tool.name}", end=" ", markup=False, highlight=False)
                record = measured(bench, tool, arguments)
                records.append(record)
                told = record.notes or f"{record.nodes} nodes"
                messages.print(f"{record.seconds or 0:.1f} s, {told}", markup=False, highlight=False, soft_wrap=True)
    return Comparison(records, [tool.name for tool in tools.PEERS]), missing


def compile_modules() -> None:
    """Compile surgery's modules, as an installer does for the other tools; a working tree may lack the bytecode."""
    for package in ("surgery", "surgery.passes"):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or []:
            compileall.compile_dir(folder, quiet=2)


def main() -> int:
    """Compare and write the table; return 1 if a goal is not met."""
    arguments = parser().parse_args()
    compile_modules()
    comparison, missing = compare(arguments, Console(stderr=True))
    if arguments.format == "text":
        table.terminal(comparison, missing)
    else:
        text = table.to_json if arguments.format == "json" else table.markdown
        print(text(comparison, missing))
    if arguments.out:
        text = table.to_json if arguments.out.suffix == ".json" else table.markdown
        arguments.out.write_text(text(comparison, missing))
    return 1 if any(goal.met is False for goal in comparison.goals()) else 0


if __name__ == "__main__":
    sys.exit(main())
