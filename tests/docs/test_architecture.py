"""The figures of ARCHITECTURE.md are those of a run."""

from __future__ import annotations

import re

import pytest
from support import imports, walks


@pytest.mark.slow
def test_calls_are_as_deep_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(imports.ROOT)
    page = " ".join((imports.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())
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
