"""How deep calls go: the functions of surgery between the command and what it is for, counted in a run.

    python tests/support/walks.py [RECIPE [MODEL]]

A walk is the stack of calls at one place: where a pass starts to edit, where a worker is asked to run a region or a
whole model. A climb is a call from a room into one that stands after it in the order of imports, as a callback does.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from support import imports
from surgery.base.workers import Worker
from surgery.engine.bridges import run_pass
from surgery.interface.commands import main

PACKAGE = imports.ROOT / "surgery"
RUNS = ("surgery.model.runtime.sessions:run", "surgery.model.runtime.sessions:run_each")


@dataclass(frozen=True)
class Walk:
    """The calls from the command to a place, as files and names of functions, outermost first."""

    calls: tuple[tuple[Path, str], ...]

    @property
    def rooms(self) -> list[str]:
        """The rooms that are entered, in order."""
        found: list[str] = []
        for path, _ in self.calls:
            room = ".".join(("surgery", *path.relative_to(PACKAGE).parent.parts))
            if not found or found[-1] != room:
                found.append(room)
        return found

    @property
    def climbs(self) -> int:
        """How often a room calls into one that may import it."""
        ranks = [rank for rank in map(imports.rank, self.rooms) if rank is not None]
        return sum(after > before for before, after in itertools.pairwise(ranks))

    def __str__(self) -> str:
        """Return the figures in a line."""
        files = len({path for path, _ in self.calls})
        return f"{len(self.calls)} calls across {files} files, {len(set(self.rooms))} rooms, {self.climbs} climbs"


def walk(frame: FrameType | None) -> Walk:
    """Return the walk that ends at a frame."""
    found: list[tuple[Path, str]] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and not frame.f_code.co_name.startswith("<"):
            found.append((path, frame.f_code.co_name))
        frame = frame.f_back
    return Walk(tuple(reversed(found)))


@contextlib.contextmanager
def noted() -> Iterator[dict[str, list[Walk]]]:
    """Note the walks of what runs in the block: to passes, and to the workers that run models."""
    found: dict[str, list[Walk]] = {"pass": [], "session": []}
    call, work = Worker.call, run_pass.work

    def noted_call(self: Worker, function: str, /, **arguments: object) -> Any:
        if function in RUNS:
            found["session"].append(walk(sys._getframe(1)))
        return call(self, function, **arguments)

    def noted_work(*given: Any) -> Any:
        found["pass"].append(walk(sys._getframe(1)))
        return work(*given)

    Worker.call, run_pass.work = noted_call, noted_work  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Worker.call, run_pass.work = call, work  # type: ignore[method-assign]


def figures(recipe: str, *models: str) -> dict[str, Walk]:
    """Return the longest walks of `surgery apply`: to a pass, to a session for a region, and for the whole model."""
    with noted() as found, contextlib.redirect_stdout(io.StringIO()):
        code = main(["apply", recipe, *models, "-q"])
    assert code == 0, code
    regions = [one for one in found["session"] if any("regions" in path.parts for path, _ in one.calls)]
    whole = [one for one in found["session"] if any(name == "verify_whole" for _, name in one.calls)]
    return {
        name: max(walks, key=lambda one: len(one.calls))
        for name, walks in (("pass", found["pass"]), ("region", regions), ("whole model", whole))
        if walks
    }


if __name__ == "__main__":
    for name, longest in figures(*(sys.argv[1:] or ["recipes/bert.yaml"])).items():
        sys.stdout.write(f"{name}: {longest}\n")
        for path, function in longest.calls:
            sys.stdout.write(f"    {path.relative_to(PACKAGE)}  {function}\n")
