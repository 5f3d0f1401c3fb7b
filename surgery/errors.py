"""Every error a user can meet: what happened, where, what to do, and a stable code.

Each error is one line of text without a traceback. `exit_code` is what the command line returns: 1 for a
negative verdict, 2 when the caller must fix something, 3 when something broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class SurgeryError(Exception):
    """An error with a place and a remedy.

    `what` says what happened, `where` names the file, step or node, `todo` says what to do about it.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"; {self.todo}" if self.todo else ""
        return f"{place}{self.what}{remedy}"


class ModelFileError(SurgeryError):
    """A model file is missing, truncated, not a model, or points outside its folder."""

    code = "model-file"


class OutputError(SurgeryError):
    """An output cannot be written: it exists, its folder is missing, the disk is full."""

    code = "output"


class UsageError(SurgeryError):
    """The caller asked for something that does not exist: a pass, an option, a value."""

    code = "usage"


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a text file. `line` and `column` count from 1."""

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message}"


class RecipeError(SurgeryError):
    """A recipe with mistakes; all of them at once, each with line and column."""

    code = "recipe"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PatternError(SurgeryError):
    """A pattern text that cannot be understood; the message shows the line with a caret."""

    code = "pattern"


class ExpectationError(SurgeryError):
    """A verdict, an expectation or a comparison is negative."""

    code = "expectation"
    exit_code = 1


class PassError(SurgeryError):
    """A pass raised, looped without end or left the graph broken."""

    code = "pass"
    exit_code = 3


class WorkerError(SurgeryError):
    """Native code in a worker process raised, crashed, ran out of time or out of memory.

    `stage` names the call that was running; `signal` the signal that ended it, if one did.
    """

    code = "worker"
    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        stage: str,
        signal: str | None = None,
        where: str | None = None,
        todo: str | None = None,
    ) -> None:
        super().__init__(what, where=where, todo=todo)
        self.stage = stage
        self.signal = signal
