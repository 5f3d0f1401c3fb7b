"""The case files of a project: where they are, which passes they are about, one run over all of them.

A project is a folder that holds `cases` or `tests/cases`. Its passes are those of the `.py` files at its top and of the
files that the caller names, and those that its own distribution installs.
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

from surgery.errors import PassError, SurgeryError, UsageError, WorkerError
from surgery.registry.catalog import catalog
from surgery.registry.passes import Pass, suggestion
from surgery.testing.case import SUFFIX, Case, CaseError, case_files, read_case
from surgery.testing.harness import TIMEOUT, Finding, bless, findings
from surgery.testing.reasons import unshown, without_firing

Status = Literal["passed", "blessed", "failed", "malformed", "crashed"]
STATUSES: tuple[Status, ...] = get_args(Status)

HOMES = ("cases", "tests/cases")
"""Where a project keeps its case files."""

_DECLARES = ("graph_pass", "pattern_pass", "add_pass")
_NO_PLUGINS = ("test_*.py", "conftest.py", "setup.py")
_FEW = 8
"""So many cases are not worth another process."""


@dataclass(frozen=True)
class Project:
    """Case files, and the passes that they must be complete for."""

    files: tuple[Path, ...]
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class Result:
    """What came of one case file; `case` is None when it cannot be read."""

    path: Path
    status: Status
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    case: Case | None = None

    @property
    def ok(self) -> bool:
        """Whether the pass does what the case says."""
        return self.status in ("passed", "blessed")

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {
            "path": str(self.path),
            "case": self.case.name if self.case is not None else None,
            "status": self.status,
            "findings": [{"what": finding.what, "diff": finding.diff} for finding in self.findings],
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Report:
    """What came of all cases; `incomplete` says what no case shows."""

    results: tuple[Result, ...]
    incomplete: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """3 when a pass broke, 2 for a case file that asks for what does not exist, 1 for any other finding."""
        worst = {"crashed": 3, "malformed": 2, "failed": 1}
        return max([int(bool(self.incomplete)), *(worst.get(result.status, 0) for result in self.results)])

    @property
    def counts(self) -> dict[Status, int]:
        """The number of cases of each status."""
        return {status: sum(result.status == status for result in self.results) for status in STATUSES}

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        return {
            "ok": self.exit_code == 0,
            "counts": self.counts,
            "incomplete": list(self.incomplete),
            "seconds": round(self.seconds, 3),
            "cases": [result.to_json() for result in self.results],
        }


def find_project(places: Sequence[Path] = (), plugins: Sequence[str] = ()) -> Project:
    """Find case files and load the passes that they are about, which runs the Python next to them.

    A place is a case file, the folder of one pass, a folder of such folders, or a project; without one it is the
    current folder. `plugins` names modules and `.py` files with passes. UsageError when there are no cases.
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
    """Name the passes of which all cases are run; None when those of all passes are."""
    folders = [place for place in places if place.is_dir()]
    single = [place for place in folders if any(place.glob(f"*{SUFFIX}"))]
    return None if len(single) < len(folders) or not places else {place.absolute().name for place in single}


def _files(place: Path) -> list[Path]:
    """List the case files of a place; UsageError when it has none."""
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
    """Return the project of a case file: what holds its `cases` or `tests/cases`, else the folder of its passes."""
    cases = file.absolute().parent.parent
    if cases.name != "cases":
        return cases
    return cases.parent.parent if cases.parent.name == "tests" else cases.parent


def _plugins(home: Path) -> Iterator[Path]:
    """Yield the files at the top of a project that declare passes, without running any."""
    for file in sorted(home.glob("*.py")):
        if not any(file.match(pattern) for pattern in _NO_PLUGINS) and _declares(file):
            yield file


def _declares(file: Path) -> bool:
    """Return whether a file calls what declares a pass, or would but for a mistake in it."""
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
    """Return whether a pass that is known already is a project's own: named, in its folder, or of its distribution."""
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
    """Return the name of the distribution that a project makes."""
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
    done: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Run the case files of a project, those whose name has `word` in it, and tell of each when it is `done`.

    With `rewrite` the expected half of each case that fails is written anew. What no case shows is only told where all
    cases ran. UsageError when no case has the word.
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


def _run(files: Sequence[Path], rewrite: bool, timeout: float) -> Iterator[Result]:
    """Run cases in order, in as many processes as there are processors: most of the time goes into waiting."""
    processes = min(len(os.sched_getaffinity(0)), len(files) // _FEW)
    if processes <= 1:
        yield from (_test(file, rewrite, timeout) for file in files)
        return
    with ProcessPoolExecutor(processes, get_context("fork"), _Turn.begin) as pool:
        count = len(files)
        try:
            yield from pool.map(_Turn.take, files, [rewrite] * count, [timeout] * count, chunksize=_FEW)
        except BaseException:
            # A terminal interrupts all of them; who ends this process in another way does not.
            for child in active_children():
                if child.pid is not None:
                    os.kill(child.pid, signal.SIGINT)
            raise


class _Turn:
    """What a process of the pool is at. An interrupt ends the case that it runs, and all that would follow."""

    running = stopped = False

    @classmethod
    def begin(cls) -> None:
        """Be ready for an interrupt, in a process that begins."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, cls.stop)

    @classmethod
    def stop(cls, *_: object) -> None:
        """Take an interrupt. The process that waits for this one tells of it."""
        cls.stopped = True
        if cls.running:
            raise KeyboardInterrupt

    @classmethod
    def take(cls, file: Path, rewrite: bool, timeout: float) -> Result:
        """Run a case, unless there was an interrupt."""
        if cls.stopped:
            raise KeyboardInterrupt
        cls.running = True
        try:
            return _test(file, rewrite, timeout)
        finally:
            cls.running = False


def _test(file: Path, rewrite: bool, timeout: float) -> Result:
    started = time.perf_counter()
    case = None
    status: Status = "passed"
    found: list[Finding] = []
    try:
        case = read_case(file, finished=not rewrite)
        _require_pass(case)
        found = findings(case, timeout=timeout) if case.is_finished else [Finding("it has no expected result")]
        if found and rewrite:
            case = bless(case)
            found = findings(case, timeout=timeout)
            status = "blessed"
        status = "failed" if found else status
    except SurgeryError as error:
        status = "crashed" if isinstance(error, PassError | WorkerError) else "malformed"
        found = [Finding(str(error).removeprefix(f"{file}: "))]
    return Result(file, status, tuple(found), time.perf_counter() - started, case)


def _require_pass(case: Case) -> None:
    known = catalog.passes()
    if case.pass_name not in known:
        what = f"no pass '{case.pass_name}', which is the name of the folder"
        raise CaseError(what + suggestion(case.pass_name, known), todo="pass the file that defines it with --plugin")
