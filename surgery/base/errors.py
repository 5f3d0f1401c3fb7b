"""All errors that users see, with what happened, where, a remedy, and a stable code.

Each error is one line of text without a traceback. `exit_code` is the exit code of the command line: 1 for a negative
verdict, 2 if the caller must fix something, 3 if something broke.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


class SurgeryError(Exception):
    """An error with a place and a remedy, which its text contains."""

    code: ClassVar[str] = "error"
    """A stable name of the kind of error."""
    exit_code: ClassVar[int] = 2
    """The exit code of the command line: 1 for a negative verdict, 2 for invalid input, 3 if something broke."""
    printed: str = ""
    """What the user's code printed before it raised the error in another process."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        """What happened."""
        self.where = where
        """The file, step or node."""
        self.todo = todo
        """The remedy."""

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


class TransferError(SurgeryError):
    """A connection to a URL broke, or its server failed."""

    code = "transfer"
    exit_code = 3


class MachineError(SurgeryError):
    """The machine has no disk space, memory or processes left. This ends a run, and is held against no pass."""

    code = "machine"
    exit_code = 3


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
    source: str = field(default="", compare=False)
    """The line itself, shown with a caret at the column, if it adds information to the position."""

    def __str__(self) -> str:
        shown = f"\n{caret(self.source, self.column)}" if self.source else ""
        return f"{self.path}:{self.line}:{self.column}: {self.message}{shown}"


class RecipeError(SurgeryError):
    """A recipe has mistakes; all are reported at once, each with line and column."""

    code = "recipe"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: list[Problem] = sorted(problems)
        """The mistakes in the order of the text: each with `path`, `line`, `column` and `message`."""
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PlanError(SurgeryError):
    """A plan cannot be applied, because something differs from it."""

    code = "plan"

    def __init__(
        self, what: str, reasons: Sequence[str] = (), *, where: str | None = None, todo: str | None = None
    ) -> None:
        super().__init__(what, where=where, todo=todo)
        self.reasons: tuple[str, ...] = tuple(reasons)
        """What differs, one line each."""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {reason}" for reason in self.reasons)])


class PatternError(SurgeryError):
    """A pattern text is invalid; the message shows the line with a caret.

    `what` describes the mistake; `line` and `column` are its position, from 1, and `source` is the line that is shown,
    which is empty if the text is invalid as a whole. `subject` is the kind of text.
    """

    code = "pattern"

    def __init__(
        self, what: str, *, line: int = 1, column: int = 1, source: str = "", subject: str = "pattern"
    ) -> None:
        super().__init__(what)
        self.line = line
        self.column = column
        self.source = source
        self.subject = subject

    def __str__(self) -> str:
        if not self.source:
            return self.what
        return f"line {self.line} of the {self.subject}: {self.what}\n{caret(self.source, self.column)}"


def caret(source: str, column: int) -> str:
    """Return a line of text, indented, with a caret under a column."""
    return f"    {source}\n    {' ' * (column - 1)}^"


class ExpectationError(SurgeryError):
    """A verdict, an expectation or a comparison is negative."""

    code = "expectation"
    exit_code = 1


class BlockedError(SurgeryError):
    """A pass cannot make the requested change on this model; the refusals give the reasons."""

    code = "blocked"
    exit_code = 1


class PassError(SurgeryError):
    """A pass raised an exception, did not terminate, or left the graph in an invalid state."""

    code = "pass"
    exit_code = 3


class RaisedError(PassError):
    """A standard pass raised an exception outside of a site, while it was working on the node with the label `at`."""

    def __init__(self, what: str, at: str) -> None:
        super().__init__(what)
        self.at = at


class WorkerError(SurgeryError):
    """Native code in a worker process raised, crashed, or ran out of time or memory.

    `stage` is the call that was running, and `signal` the signal that ended it, if any. `killed` says that the process
    was killed by another one, or that its end is unknown.
    """

    code = "worker"
    exit_code = 3
    START: ClassVar[str] = "start"
    """The stage of a process that could not be started."""

    def __init__(
        self,
        what: str,
        *,
        stage: str,
        signal: str | None = None,
        where: str | None = None,
        todo: str | None = None,
        killed: bool = False,
    ) -> None:
        super().__init__(what, where=where, todo=todo)
        self.stage = stage
        self.signal = signal
        self.killed = killed


_SPACE = "free some space, or name another folder in TMPDIR"
_MEMORY = "free some memory, or pass smaller sizes with --dims"
_EXHAUSTED = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: "end some processes",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "end some processes",
}
"""What helps if the operating system refuses something for lack of a resource, by error number."""


def machine_failure(error: BaseException | None) -> MachineError | None:
    """Return the failure of the machine that an exception or one of its causes reports, or None."""
    while error is not None:
        if isinstance(error, MachineError):
            return error
        if isinstance(error, MemoryError):
            what = " ".join(str(error).split())
            return MachineError(f"not enough memory{f': {what}' if what else ''}", todo=_MEMORY)
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            where = str(error.filename) if error.filename else None
            return MachineError(os.strerror(error.errno), where=where, todo=_EXHAUSTED[error.errno])
        if isinstance(error, WorkerError) and error.stage == WorkerError.START:
            return MachineError(str(error), todo="free some memory, or end some processes")
        if isinstance(error, WorkerError) and error.killed:
            return MachineError(f"another process killed '{error.stage}': the machine has no memory left", todo=_MEMORY)
        error = error.__cause__
    return None


def require_machine(error: BaseException) -> None:
    """Raise the failure of the machine that an exception reports, if it reports one."""
    failure = machine_failure(error)
    if failure is not None:
        raise failure from error


def internal(error: Exception) -> str:
    """Return a one-line description of an exception, with its location unless it is an error of surgery."""
    return str(error) if isinstance(error, SurgeryError) else f"internal error: {raised(error)}"


def raised(error: BaseException, home: str = "") -> str:
    """Return the type and message of an exception on one line, with the file and line that raised it."""
    text = " ".join(str(error).split())
    place = "" if isinstance(error, SyntaxError) else place_of(error, home)  # its text has the place
    return f"{type(error).__name__}{f': {text}' if text else ''}{f' ({place})' if place else ''}"


def place_of(error: BaseException, home: str = "") -> str:
    """Return the file name and line at which an exception was raised; empty if unknown, or if an import found no file.

    Code may raise in a library that it calls. With `home`, a file of that code, the place is the innermost line in the
    folder of this file, if there is one.
    """
    import traceback  # only after a failure

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if home and Path(frame.filename).parent == Path(home).parent]
    imports = [place for place, frame in enumerate(frames, 1) if "importlib" in frame.filename]
    found = own or frames[max(imports, default=0) :]
    return f"{Path(found[-1].filename).name}:{found[-1].lineno}" if found else ""


def pack_error(error: SurgeryError) -> dict[str, str | None]:
    """Return an error as plain data, for another process; see `unpack_error`."""
    kind = type(error).code
    if kind in _PLAIN:
        return {"kind": kind, "what": error.what, "where": error.where, "todo": error.todo}
    return {"kind": (PassError if error.exit_code == PassError.exit_code else UsageError).code, "what": str(error)}


def unpack_error(data: Mapping[str, Any]) -> SurgeryError:
    """Return the error that `pack_error` described: one with the same text and the same exit code."""
    return _PLAIN[data["kind"]](data["what"], where=data.get("where"), todo=data.get("todo"))


_PLAIN: Mapping[str, type[SurgeryError]] = {
    kind.code: kind
    for kind in (
        *(ModelFileError, OutputError, TransferError, MachineError, UsageError),
        *(ExpectationError, BlockedError, PassError),
    )
}
"""The errors that consist of a text, a place and a remedy."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to this one, ignoring case, or None."""
    import difflib  # only for a mistake

    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 step", "2 steps"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def first_few(things: Iterable[object], most: int, mark: str = ",") -> str:
    """Format the first items, and the number of further ones."""
    texts = [str(thing) for thing in things]
    more = f"{'' if mark == ',' else mark} and {len(texts) - most} more" if len(texts) > most else ""
    return f"{mark} ".join(texts[:most]) + more
