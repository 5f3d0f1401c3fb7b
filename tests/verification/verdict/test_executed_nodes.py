"""The nodes that a runtime executes for a model; the run is given by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.errors import UsageError
from surgery.model.graph import text
from surgery.model.runtime.executed import Executed
from surgery.verification.verdict import executed_nodes as module
from surgery.verification.verdict.executed_nodes import ExecutedNodes, executed_nodes

MODEL = text.parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Abs(b) }")


@pytest.mark.parametrize(
    ("problem", "note", "runs", "message"),
    [
        (None, "", True, ""),
        ("it fails", "", True, "it fails"),
        (None, "it is not installed", True, "it is not installed"),
        ("it fails", "it is not installed", True, "it is not installed"),
        (None, "", False, "None"),
    ],
)
def test_nodes_are_counted_where_the_model_runs(
    monkeypatch: pytest.MonkeyPatch, problem: str | None, note: str, runs: bool, message: str
) -> None:
    executed = Executed.of([("Neg", "CPU", 1)])
    asked: list[Any] = []

    class Verifier:
        def __init__(self, skeleton: bytes, *_: Any) -> None:
            self.original = SimpleNamespace(prepare=lambda: asked.append("prepared"), problem=problem)

        def deployment(self, target: str) -> Any:
            asked.append(target)
            return SimpleNamespace(original=executed if runs else None, note=note)

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(module, "Verifier", Verifier)
    stored: Any = SimpleNamespace(proto=MODEL)
    if message:
        with pytest.raises(UsageError, match=f"the executed nodes are not known: {message}"):
            executed_nodes(stored, target="somewhere")
    else:
        found = executed_nodes(stored, target="somewhere")
        assert found == ExecutedNodes({"Neg": 2, "Abs": 1}, executed) and found.nodes == 3
    assert asked == ["prepared", "somewhere", "closed"]
