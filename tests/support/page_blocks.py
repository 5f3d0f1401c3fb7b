"""What the fenced blocks of a page hold, and its commands, run as a reader would."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex

from surgery.interface import commands as cli


def fenced(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def file_name(body: str) -> str | None:
    """Return the name of the file that a block shows."""
    found = re.match(r"# ([\w./-]+\.\w+)\n", body)
    return found.group(1) if found else None


def run(command: str) -> tuple[int, str]:
    """Run a command in the current folder; return its exit code and all that it printed."""
    program, *arguments = shlex.split(command, comments=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        if program == "python":
            runpy.run_path(arguments[0])
            return 0, out.getvalue()
        assert program == "surgery", command
        try:
            return cli.main(arguments), out.getvalue()
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()


def expected_code(command: str) -> int:
    """Return the exit code that a page states after a command."""
    found = re.search(r"# exit code (\d)$", command)
    return int(found.group(1)) if found else 0
