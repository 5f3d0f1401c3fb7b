"""Forty everyday tasks: the command of surgery next to the way of the best other tool, with lines and seconds.

    python benchmarks/everyday.py [--docs] [--only TASK...]

The tasks are the first guesses that the tests try. Each command and script runs in a process of its own, in a new
folder with the same files, one after the other. `--docs` writes the page.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from suite.everyday_peers import PEERS, Peer  # noqa: E402
from support.first_guesses import GUESSES, Guess, write_workplace  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "everyday-tasks.md"
TOOLS = ("onnx", "onnxruntime", "onnxsim", "onnxslim", "onnxoptimizer", "onnx-graphsurgeon")


class Row(NamedTuple):
    """A task with the seconds of both, None for one that does not do it."""

    guess: Guess
    peer: Peer
    ours: float | None
    theirs: float | None


def seconds(command: list[str], folder: Path, expected: tuple[int, ...] = (0,)) -> float | None:
    """Run a command in a folder, and return its seconds; None if it fails."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - begin
    if done.returncode not in expected:
        print(f"{shlex.join(command)[:80]}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return took


def measured(guess: Guess, files: Path) -> Row:
    """Run a task both ways, each in its own copy of the files."""
    peer = PEERS[guess.task]
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = Path(name, "ours"), Path(name, "theirs")
        for folder in (ours, theirs):
            shutil.copytree(files, folder)
        for written in re.findall(r"-o (\S+\.onnx)", guess.command):
            (ours / written).unlink(missing_ok=True)
        (theirs / "script.py").write_text(peer.text)
        other = None
        if peer.lines:
            other = seconds(shlex.split(peer.text) if peer.is_command else [sys.executable, "script.py"], theirs)
        mine = seconds(shlex.split(guess.command), ours, (0, 1))
        return Row(guess, peer, mine, other)


def page(rows: list[Row]) -> str:
    """Return the page."""
    both = [row.ours / row.theirs for row in rows if row.ours is not None and row.theirs is not None]
    typical = math.exp(sum(map(math.log, both)) / len(both))
    counts = sum(row.ours is not None for row in rows), sum(row.peer.lines for row in rows)
    alone = [row for row in rows if row.peer.tool == "none" and row.ours is not None]
    versions = ", ".join(f"{name} {version(name)}" for name in TOOLS)
    lines = [
        "# Everyday tasks next to other tools",
        "",
        "<!-- Written by benchmarks/everyday.py --docs. -->",
        "",
        "Forty everyday tasks: the command of surgery as someone types it who read only `surgery --help`, and the way",
        "of the best other tool that is installed, with the number of lines to type and the seconds of one run.",
        "surgery verifies what it does, which is most of its time; the others verify nothing.",
        "`python benchmarks/everyday.py --docs` runs all of them and writes this page.",
        "",
        f"Measured in one run, one after the other, on {os.cpu_count()} cores that other work shared: Python "
        f"{platform.python_version()},",
        f"{versions}.",
        "",
        f"surgery does {counts[0]} of {len(rows)} tasks in one line each. None of the others does {len(alone)} of "
        "them; for the rest,",
        f"these need {counts[1]} lines. Where both ran, surgery took {typical:.1f} times as long (geometric mean).",
        "",
        "| Task | surgery | s | Other tool | Lines | s | Remark |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    for row in rows:
        mine = f"`{row.guess.command}`" if row.ours is not None else "none"
        theirs = row.peer.tool if row.theirs is not None or not row.peer.lines else f"{row.peer.tool}, which fails"
        count = str(row.peer.lines) if row.peer.lines else ""
        cells = (row.guess.task, mine, _shown(row.ours), theirs, count, _shown(row.theirs), row.peer.remark)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## The scripts", ""]
    for row in rows:
        if row.peer.lines:
            kind = "sh" if row.peer.is_command else "py"
            lines += [f"### {row.guess.task}", "", f"```{kind}", row.peer.text.strip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _shown(took: float | None) -> str:
    return "" if took is None else f"{took:.1f}"


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--only", nargs="+", metavar="TASK", help="measure these tasks only")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        write_workplace(Path(name, "files"))
        for guess in GUESSES:
            if arguments.only is None or guess.task in arguments.only:
                rows.append(measured(guess, Path(name, "files")))
                print(guess.task, _shown(rows[-1].ours), _shown(rows[-1].theirs), sep="\t", flush=True)
    if arguments.docs:
        PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
