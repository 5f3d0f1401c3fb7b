"""Output in the formats of other tools: annotations, test reports, alerts, summaries."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output

if TYPE_CHECKING:
    from surgery.interface.report.formats.outcome import Outcome

_SUMMARY = "GITHUB_STEP_SUMMARY"
_MOST_BYTES = 1024 * 1024
"""The maximum size of a step summary on GitHub."""


def write(arguments: argparse.Namespace, outcome: Outcome) -> None:
    """Write the outcome of a command in the requested format."""
    _WRITERS[arguments.format](outcome)


def write_error(arguments: argparse.Namespace, error: Exception) -> None:
    """Write the error that ended a command, for tools that display reports."""
    from surgery.interface.report.outcomes import of_error

    write(arguments, of_error(command(arguments), error))


def command(arguments: argparse.Namespace) -> str:
    """Return the name of the command."""
    name: str = arguments.command.__module__
    return name.rpartition(".")[2].replace("_", "-")


def _summarize(outcome: Outcome) -> None:
    """Append the summary to the step summary of GitHub Actions, if there is one. Errors do not end the command."""
    from surgery.interface.report.formats.markdown import markdown

    named = os.environ.get(_SUMMARY)
    if not named:
        return
    text = f"{markdown(outcome)}\n".encode(errors="backslashreplace")
    path = Path(named)
    try:
        if (path.stat().st_size if path.exists() else 0) + len(text) > _MOST_BYTES:
            _output.say(f"surgery: warning: the summary of the step is full; nothing was added to {named}")
            return
        with path.open("ab") as file:
            file.write(text)
    except OSError as error:
        _output.say(f"surgery: warning: {_SUMMARY}: {named} cannot be written: {error.strerror or error}")


def _github(outcome: Outcome) -> None:
    from surgery.interface.report.formats.github import github

    _output.write_text(github(outcome))
    _summarize(outcome)


def _junit(outcome: Outcome) -> None:
    from surgery.interface.report.formats.junit import junit

    _output.write_text(junit(outcome))


def _sarif(outcome: Outcome) -> None:
    from surgery import __version__
    from surgery.interface.report.formats.sarif import sarif

    _output.write_document(sarif(outcome, __version__))


def _markdown(outcome: Outcome) -> None:
    from surgery.interface.report.formats.markdown import markdown

    _output.write_text(markdown(outcome))


_WRITERS: dict[str, Callable[[Outcome], None]] = {
    "github": _github,
    "junit": _junit,
    "sarif": _sarif,
    "markdown": _markdown,
}

REPORTS = (*_output.PLAIN, *_WRITERS)
"""The formats of a command whose results other tools can display; its module has `FORMATS` with this value."""
