"""Compare two runs of surgery batch: which models changed in nodes, bytes, verdict and time, and which broke.

BEFORE and AFTER are output folders of batches, their ledgers, or files that --results wrote. Models are paired by the
names of their results. A model got worse if it broke or is missing, or if its result has more nodes or bytes, a weaker
verdict, or took longer.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _output

FORMATS = (*_output.PLAIN, "markdown")

_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corpus`."""
    parser.add_argument("before", metavar="BEFORE", help="an output folder, a ledger, or a file of results")
    parser.add_argument("after", metavar="AFTER", help="the same, of the later run")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if any model got worse")
    group = parser.add_argument_group("thresholds", "changes up to this share are not listed: '5 %'")
    for name, default in (("nodes", "0 %"), ("bytes", "0 %"), ("seconds", "50 %"), ("tolerance", "100 %")):
        what = "the share of the tolerance that was needed" if name == "tolerance" else f"{name} of a model"
        shown = default.replace("%", "%%")
        group.add_argument(f"--{name}", metavar="SHARE", default=default, help=f"{what} (default: {shown})")


def main(arguments: argparse.Namespace) -> int:
    """Compare two runs; return 1 with --exit-code if any model got worse."""
    from surgery.engine.batching import corpus_comparison, results

    allowed = corpus_comparison.Thresholds(
        **{name: _share(name, getattr(arguments, name)) for name in ("nodes", "bytes", "seconds", "tolerance")}
    )
    found = corpus_comparison.compare(
        results.read(Path(arguments.before)), results.read(Path(arguments.after)), allowed
    )
    code = 1 if arguments.exit_code and found.worse else 0
    if arguments.format == "json":
        _output.write_json(found.to_json())
        return code
    from surgery.interface.report import corpus as report

    if arguments.format == "markdown":
        _formats.write(arguments, report.outcome(found, f"{arguments.before}, {arguments.after}", code))
    elif arguments.quiet:
        _output.write_text(f"{report.headline(found)}\n")
    else:
        _output.write(report.comparison(found, every=arguments.verbose > 0))
    return code


def _share(name: str, text: str) -> float:
    found = _SHARE.fullmatch(text)
    if found is None:
        raise UsageError(f"--{name} '{text}': expected a share such as '5 %'")
    return float(found[1]) / 100
