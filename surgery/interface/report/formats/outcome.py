"""The outcome of a command, from which all formats for other tools are written.

`surgery.interface.report.outcomes` creates it from the records of a command, and the modules `github`, `junit`, `sarif`
and `markdown` write it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Level = Literal["passed", "skipped", "remark", "undone", "failed", "broken"]
"""The result of a check.

`remark`: it passed, with a remark. `undone`: a step was rolled back, which does not fail the run. `broken`: it could
not be completed because of a crash.
"""

NEGATIVE: tuple[Level, ...] = ("failed", "broken")
NOTABLE: tuple[Level, ...] = ("remark", "undone", *NEGATIVE)


@dataclass(frozen=True)
class Check:
    """One check: of a step, an expectation, a model, a case, or a rule of a target.

    `rule` is the kind of check, such as the name of the pass, and is the same in all runs; `about` describes it in one
    line. `path`, `line` and `column`, from 1, are the place in a file; line 0 means the whole file. `nodes` are names
    of nodes of the model `model`.
    """

    rule: str
    name: str
    level: Level
    message: str = ""
    path: str = ""
    line: int = 0
    column: int = 0
    model: str = ""
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0
    about: str = ""

    @property
    def is_notable(self) -> bool:
        """Whether the check has to be reported."""
        return self.level in NOTABLE

    @property
    def is_negative(self) -> bool:
        """Whether it fails the command."""
        return self.level in NEGATIVE


@dataclass(frozen=True)
class SummaryTable:
    """A table of a summary; `title` is shown above it, and `is_folded` hides it until it is opened."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_folded: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command.

    `subject` is the model or recipe that the command worked on, and `headline` the result in one line. `is_complete` is
    false if the command ended early with an error.
    """

    command: str
    subject: str
    headline: str
    exit_code: int
    checks: tuple[Check, ...] = ()
    tables: tuple[SummaryTable, ...] = ()
    seconds: float = 0.0
    is_complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.exit_code == 0

    def notable(self) -> Iterator[Check]:
        """Yield the checks to report, without repetitions."""
        seen: set[tuple[object, ...]] = set()
        for check in self.checks:
            same = check.rule, check.path, check.line, check.message, check.nodes
            if check.is_notable and same not in seen:
                seen.add(same)
                yield check


@dataclass(frozen=True)
class Root:
    """The folder that paths in reports are relative to: the repository in CI, else the current folder."""

    folder: Path = field(default_factory=lambda: Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve())

    def relative(self, path: str) -> str | None:
        """Return a path below the folder in POSIX form, or None for a path elsewhere."""
        try:
            found = Path(path).resolve()
        except (OSError, ValueError):  # not a valid path
            return None
        return found.relative_to(self.folder).as_posix() if found.is_relative_to(self.folder) else None


def placed(where: str) -> tuple[str, int, int]:
    """Split `path:line:column` or `path:line` into its parts; without a line, the place is a path."""
    path, numbers = where, list[int]()
    for _ in range(2):
        head, colon, tail = path.rpartition(":")
        if not colon or not tail.isdecimal():
            break
        path, numbers = head, [int(tail), *numbers]
    line, column = [*numbers, 0, 0][:2]
    return path, line, column


def unique(names: Sequence[str]) -> list[str]:
    """Return unique names by numbering repeated ones from the second on, because CI tools identify tests by name."""
    counts: dict[str, int] = {}
    found = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        found.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return found
