"""The figures of ARCHITECTURE.md are those of a run, and the files and names of its tasks exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import imports, walks

PAGE = (imports.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TASKS = PAGE.partition("## Where to change what")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ", 1) for line in TASKS.splitlines() if line.startswith("| ")][1:]


def files(row: str) -> Iterator[tuple[str, list[Path]]]:
    """Yield the paths that a row names, each with the files and folders there: in the tree, or next to the last one."""
    around = [imports.ROOT, imports.ROOT / "surgery"]
    for name in re.findall(r"`([\w./*-]+(?:/|\.(?:py|js|jinja|yaml|md)))`", row):
        found = [path for folder in around for path in folder.glob(name.replace("THEME/", "*/"))]
        yield name, found
        around = around[:2] + [path if path.is_dir() else path.parent for path in found]


@pytest.mark.parametrize(("task", "touched"), ROWS, ids=[task for task, _ in ROWS])
def test_what_a_task_touches_exists(task: str, touched: str) -> None:
    found = dict(files(touched))
    assert [name for name, paths in found.items() if not paths] == []
    read = "".join(path.read_text(encoding="utf-8") for paths in found.values() for path in paths if path.is_file())
    names = re.findall(r"`(_?[A-Z]\w+)`", touched)
    assert [name for name in names if read and not re.search(rf"\b{name}\b", read)] == []


def test_the_table_of_tasks_is_read() -> None:
    assert len(ROWS) > 30 and sum(bool([*files(touched)]) for _, touched in ROWS) > 30


@pytest.mark.slow
def test_calls_are_as_deep_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(imports.ROOT)
    page = " ".join(PAGE.split())
    said = re.search(
        r"recipe these are (\d+) calls .* model (\d+) calls across (\d+) files in (\d+) folders, and none", page
    )
    assert said is not None
    found = walks.figures("recipes/bert.yaml")
    whole = found["whole model"]
    calls = len(found["pass"].calls), len(whole.calls), len({path for path, _ in whole.calls}), len(set(whole.rooms))
    assert calls == tuple(map(int, said.groups()))
    assert (found["pass"].climbs, whole.climbs) == (0, 0)


def test_a_callback_is_a_climb() -> None:
    inner = imports.ROOT / "surgery" / "model" / "runtime" / "engine.py"
    outer = imports.ROOT / "surgery" / "engine" / "pipeline" / "runner.py"
    there_and_back = walks.Walk(((outer, "run"), (inner, "run"), (outer, "note")))
    assert there_and_back.climbs == 1 and len(there_and_back.rooms) == 3
