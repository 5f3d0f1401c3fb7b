"""The case files of a project: finding them and their passes, and running all of them.

A project is a folder with `cases` or `tests/cases`. Its passes are those of the `.py` files at its top, of the files
that the caller names, and of its own installed distribution.
"""

from __future__ import annotations

import ast
import os
import signal
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, Literal, get_args

from surgery.base.errors import PassError, SurgeryError, UsageError, WorkerError
from surgery.base.json_record import Record
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass, suggestion
from surgery.features.testing.case import SUFFIX, Case, CaseError, case_files, read_case
from surgery.features.testing.harness import TIMEOUT, CaseProblem, bless, findings
from surgery.features.testing.reasons import unshown, without_firing

Status = Literal["passed", "blessed", "failed", "malformed", "crashed"]
STATUSES: tuple[Status, ...] = get_args(Status)

HOMES = ("cases", "tests/cases")
"""The folders of case files in a project."""

_DECLARES = ("graph_pass", "pattern_pass", "add_pass")
_NO_PLUGINS = ("test_*.py", "conftest.py", "setup.py")
_FEW = 8
"""The number of cases per additional process."""


@dataclass(frozen=True)
class Project:
    """Case files, and the passes that they must cover completely."""

    files: tuple[Path, ...]
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class CaseResult(Record, keys="path case=case.name status findings seconds:3"):
    """The result of one case file; `case` is None if it cannot be read."""

    path: Path
    status: Status
    findings: tuple[CaseProblem, ...] = ()
    seconds: float = 0.0
    case: Case | None = None

    @property
    def ok(self) -> bool:
        """Whether the pass does what the case expects."""
        return self.status in ("passed", "blessed")


@dataclass(frozen=True)
class Report(Record, keys="counts incomplete seconds:3 cases=results"):
    """The results of all cases; `incomplete` lists the behaviours that no case covers."""

    results: tuple[CaseResult, ...]
    incomplete: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code: 3 if a pass broke, 2 for a case that refers to something missing, 1 for any other finding."""
        worst = {"crashed": 3, "malformed": 2, "failed": 1}
        return max([int(bool(self.incomplete)), *(worst.get(result.status, 0) for result in self.results)])

    @property
    def counts(self) -> dict[Status, int]:
        """The number of cases of each status."""
        return {status: sum(result.status == status for result in self.results) for status in STATUSES}

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {"ok": self.exit_code == 0, **super().to_json()}


def find_project(places: Sequence[Path] = (), plugins: Sequence[str] = ()) -> Project:
    """Find case files and load their passes, which runs the Python files next to them.

    A place is a case file, the folder of one pass, a folder of such folders, or a project; the default is the current
    folder. `plugins` has names of modules and `.py` files with passes. UsageError if there are no cases.
    """
    found: dict[Path, None] = {}
    homes: dict[Path, None] = {}
    for place in places or [Path()]:
        files = _files(place)
        found.update(dict.fromkeys(files))
        homes.update(dict.fromkeys(_home(file) for file in files))
    before = catalog.passes()
    for plugin in plugins:
        catalog.load_plugin(plugin)
    for home in homes:
        for file in _plugins(home):
            catalog.load_plugin(os.path.relpath(file))
    known = catalog.passes()
    named = {str(Path(plugin).resolve()) for plugin in plugins if plugin.endswith(".py")}
    own = [one for name, one in known.items() if name not in before or _belongs(one, homes, named)]
    whole = _covered(places)
    return Project(tuple(found), tuple(one for one in own if whole is None or one.name in whole))


def _covered(places: Sequence[Path]) -> set[str] | None:
    """Return the names of the passes whose cases all run; None if those of all passes do."""
    folders = [place for place in places if place.is_dir()]
    single = [place for place in folders if any(place.glob(f"*{SUFFIX}"))]
    return None if len(single) < len(folders) or not places else {place.absolute().name for place in single}


def _files(place: Path) -> list[Path]:
    """List the case files of a place; UsageError if it has none."""
    if place.is_file() and place.suffix == SUFFIX:
        return [place]
    if not place.is_dir():
        raise UsageError("no such folder" if not place.exists() else "this is not a case file", where=str(place))
    looked = [place, *(place / home for home in HOMES)]
    for folder in looked:
        files = sorted(folder.glob(f"*{SUFFIX}")) + case_files(folder)
        if files:
            return files
    where = ", ".join(f"{folder}/<pass>/*{SUFFIX}" for folder in looked)
    raise UsageError(f"no case files: looked for {where}", todo="name a folder, or run 'surgery new pass NAME'")


def _home(file: Path) -> Path:
    """Return the project of a case file: the folder with `cases` or `tests/cases`, else the folder of its passes."""
    cases = file.absolute().parent.parent
    if cases.name != "cases":
        return cases
    return cases.parent.parent if cases.parent.name == "tests" else cases.parent


def _plugins(home: Path) -> Iterator[Path]:
    """Yield the files at the top of a project that declare passes, without running them."""
    for file in sorted(home.glob("*.py")):
        if not any(file.match(pattern) for pattern in _NO_PLUGINS) and _declares(file):
            yield file


def _declares(file: Path) -> bool:
    """Return whether a file calls a function that declares a pass, or mentions one and has a syntax error."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if not any(name in source for name in _DECLARES):
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return True
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any((isinstance(f, ast.Attribute) and f.attr in _DECLARES) or _named(f) in _DECLARES for f in called)


def _named(expression: ast.expr) -> str:
    return expression.id if isinstance(expression, ast.Name) else ""


def _belongs(declared: Pass, homes: Iterable[Path], named: set[str]) -> bool:
    """Return whether a known pass belongs to a project: it is named, in its folder, or of its distribution."""
    file = declared.place.rpartition(":")[0]
    if file in named:
        return True
    distribution = declared.origin.partition(" ")[0]
    for home in homes:
        installed = "site-packages" in Path(file).parts
        if (Path(file).is_relative_to(home) and not installed) or distribution == _distribution(home):
            return True
    return False


def _distribution(home: Path) -> str | None:
    """Return the name of the distribution of a project."""
    try:
        project = tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return str(project["name"])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None


def run_cases(
    project: Project,
    *,
    word: str = "",
    rewrite: bool = False,
    timeout: float = TIMEOUT,
    done: Callable[[CaseResult], None] = lambda result: None,
) -> Report:
    """Run the case files of a project whose names contain `word`, and pass each result to `done`.

    With `rewrite`, the expected result of each failing case is rewritten. Uncovered behaviours are reported only if all
    cases run. UsageError if no case matches the word.
    """
    started = time.perf_counter()
    files = [file for file in project.files if word in f"{file.absolute().parent.name}/{file.stem}"]
    if not files:
        raise UsageError(f"none of {len(project.files)} cases has '{word}' in its name")
    results = []
    for result in _run(files, rewrite, timeout):
        results.append(result)
        done(result)
    cases = [result.case for result in results if result.case is not None]
    incomplete = () if word else tuple(_incomplete(cases, project.passes))
    return Report(tuple(results), incomplete, time.perf_counter() - started)


def _incomplete(cases: Sequence[Case], passes: Sequence[Pass]) -> Iterator[str]:
    for name in without_firing(cases, passes):
        yield f"{name}: no case in which it fires"
    for name, reason in unshown(cases, passes):
        yield f"{name}: no case in which it is refused because '{reason}'"


def _run(files: Sequence[Path], rewrite: bool, timeout: float) -> Iterator[CaseResult]:
    """Run cases in order, in at most one process per processor, because most of the time is spent waiting."""
    processes = min(len(os.sched_getaffinity(0)), len(files) // _FEW)
    if processes <= 1:
        yield from (_test(file, rewrite, timeout) for file in files)
        return
    with ProcessPoolExecutor(processes, get_context("fork"), _Turn.begin) as pool:
        count = len(files)
        try:
            yield from pool.map(_Turn.take, files, [rewrite] * count, [timeout] * count, chunksize=_FEW)
        except BaseException:
            # A terminal interrupts all processes; other ways to end this process do not.
            for child in active_children():
                if child.pid is not None:
                    os.kill(child.pid, signal.SIGINT)
            raise


class _Turn:
    """The state of a process of the pool. An interrupt ends the running case and all following ones."""

    running = stopped = False

    @classmethod
    def begin(cls) -> None:
        """Install the signal handlers in a new process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, cls.stop)

    @classmethod
    def stop(cls, *_: object) -> None:
        """Handle an interrupt. The parent process reports it."""
        cls.stopped = True
        if cls.running:
            raise KeyboardInterrupt

    @classmethod
    def take(cls, file: Path, rewrite: bool, timeout: float) -> CaseResult:
        """Run a case, unless there was an interrupt."""
        if cls.stopped:
            raise KeyboardInterrupt
        cls.running = True
        try:
            return _test(file, rewrite, timeout)
        finally:
            cls.running = False


def _test(file: Path, rewrite: bool, timeout: float) -> CaseResult:
    started = time.perf_counter()
    case = None
    status: Status = "passed"
    found: list[CaseProblem] = []
    try:
        case = read_case(file, finished=not rewrite)
        _require_pass(case)
        found = findings(case, timeout=timeout) if case.is_finished else [CaseProblem("it has no expected result")]
        if found and rewrite:
            case = bless(case)
            found = findings(case, timeout=timeout)
            status = "blessed"
        status = "failed" if found else status
    except SurgeryError as error:
        status = "crashed" if isinstance(error, PassError | WorkerError) else "malformed"
        found = [CaseProblem(str(error).removeprefix(f"{file}: "))]
    return CaseResult(file, status, tuple(found), time.perf_counter() - started, case)


def _require_pass(case: Case) -> None:
    known = catalog.passes()
    if case.pass_name not in known:
        what = f"no pass '{case.pass_name}', which is the name of the folder"
        raise CaseError(what + suggestion(case.pass_name, known), todo="pass the file that defines it with --plugin")
