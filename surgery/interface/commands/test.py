"""Run the case files of a project: tests of passes in ONNX text.

Each file `cases/PASS/SITUATION.onnxtxt`, or below `tests/cases`, is one test. The result of the pass is validated,
compared with the expected graph and with the original in ONNX Runtime, and the pass must not change it again. Every
pass of the project needs a case in which it fires, and every reason for a refusal needs a case that shows it.

Passes come from --plugin, from the .py files next to the folder of cases, and from installed packages. The Python files
of a folder named here are imported. Each pass runs in a separate process: a crash or a hang fails only its case.

Exit codes: 1 if a case fails or is missing, 2 if a case file or an argument is invalid, 3 if a pass raises, crashes or
hangs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _output, _verification

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from surgery.features.testing import CaseResult, Report
    from surgery.features.testing.project import Status
    from surgery.interface.report.formats.outcome import Level, Outcome

_STYLES = {"blessed": "yellow", "failed": "red", "malformed": "magenta", "crashed": "bold red"}
_LEVELS: Mapping[Status, Level] = {
    "passed": "passed",
    "blessed": "remark",
    "failed": "failed",
    "malformed": "failed",
    "crashed": "broken",
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `test`."""
    parser.add_argument(
        "places",
        metavar="DIR",
        nargs="*",
        help="a project, a folder of cases, or a case file (default: .)",
    )
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        action="append",
        default=[],
        help="load passes from a module or a .py file; may be repeated",
    )
    parser.add_argument("--bless", action="store_true", help="update the expected result of failing cases")
    parser.add_argument(
        "-k", metavar="WORD", dest="word", default="", help="run only the cases with WORD in their name"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="time limit of a single run of a pass (default: 60)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run case files."""
    _verification.start()
    from surgery.features import testing

    if not arguments.timeout > 0:
        raise UsageError(f"--timeout {arguments.timeout:g}: expected a positive number of seconds")
    project = testing.find_project([Path(place) for place in arguments.places], arguments.plugin)
    with _progress(len(project.files)) as done:
        report = testing.run_cases(
            project, word=arguments.word, rewrite=arguments.bless, timeout=arguments.timeout, done=done
        )
    if arguments.format == "json":
        _output.write_json(report.to_json())
    elif arguments.format not in _output.PLAIN:
        _formats.write(arguments, _outcome(report))
    else:
        shown = _summary(report) if arguments.quiet else _account(report, verbose=arguments.verbose > 0)
        _output.write(shown, wrap=False)
    return report.exit_code


def _outcome(report: Report) -> Outcome:
    """Return the outcome for the formats of other tools: a check for each case, and for each that is missing."""
    from surgery.interface.report.formats.outcome import Check, Outcome

    checks = [
        Check(
            "case",
            result.case.name if result.case is not None else str(result.path),
            _LEVELS[result.status],
            "; ".join(finding.what for finding in result.findings),
            str(result.path),
            1,
            seconds=result.seconds,
            about="Whether a pass does what a case file expects.",
        )
        for result in report.results
    ]
    about = "Whether a case shows each pass and each reason for a refusal."
    checks += [Check("incomplete", what, "failed", what, about=about) for what in report.incomplete]
    headline = _summary(report).plain
    return Outcome("test", "cases", headline, report.exit_code, tuple(checks), seconds=report.seconds)


@contextmanager
def _progress(count: int) -> Iterator[Callable[[CaseResult], None]]:
    """Show the progress on a terminal."""
    from rich.progress import Progress

    console = _output.messages()
    if not _output.is_interactive():
        # Before rich 15, a disabled bar still writes a line.
        yield lambda result: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cases", total=count)
        yield lambda result: progress.advance(task)


def _account(report: Report, *, verbose: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    shown = [result for result in report.results if verbose or result.status != "passed"]
    parts: list[RenderableType] = [line for result in shown for line in _lines(result)]
    parts += [Text.assemble(("incomplete ", "red"), what) for what in report.incomplete]
    return Group(*parts, _summary(report))


def _lines(result: CaseResult) -> Iterator[Text]:
    """Yield a line for each finding of a case, with the difference below it."""
    from rich.text import Text

    head = Text.assemble((result.status, _STYLES.get(result.status, "green")), f" {result.path}")
    if not result.findings:
        yield head
    for finding in result.findings:
        yield Text.assemble(head, f": {finding.what}")
        for line in finding.diff.splitlines():
            yield Text(f"    {line}", style=_DIFF_STYLES.get(line[:1], ""))


def _summary(report: Report) -> Text:
    from rich.text import Text

    counts = [f"{count} {status}" for status, count in report.counts.items() if count]
    counts += [f"{len(report.incomplete)} incomplete"] if report.incomplete else []
    return Text(f"{', '.join(counts)} in {report.seconds:.1f} s", style="green" if report.exit_code == 0 else "red")
