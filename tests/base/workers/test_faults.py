"""Exceptions of optional analyses: the run goes on, and the warning names them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surgery.base.errors import WorkerError
from surgery.base.workers import OUT_OF_MEMORY, TIMEOUT, WorkerRaised, faults
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine
from surgery.model.shapes.declarations import declare_by_names, element_types

LINE = "it failed and was skipped: IndexError: list index out of range"


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the faults of a test from its neighbours, and from the handler that fails a test with one."""
    monkeypatch.setattr(faults._LOG, "handlers", [])
    monkeypatch.setattr(faults, "_seen", {})
    yield


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WorkerRaised("IndexError", "list index\n out of range", stage="s"), [LINE]),
        (WorkerRaised("KeyError", "", stage="s"), ["it failed and was skipped: KeyError"]),
        (WorkerRaised("InferenceError", "an invalid model", stage="s"), []),
        (WorkerRaised("ModelFileError", "the graph cannot be edited", stage="s"), []),
        (WorkerRaised("RaisedError", "an error below another", stage="s"), []),
        (WorkerRaised("MemoryError", "", stage="s"), []),
        (WorkerError("killed", stage="s", signal=TIMEOUT), []),
        (WorkerError("ended", stage="s", signal=OUT_OF_MEMORY), []),
        (WorkerError("ended", stage="s"), []),
    ],
)
def test_an_exception_that_is_not_about_the_model_is_a_fault(error: WorkerError, expected: list[str]) -> None:
    faults.found("it", error)
    faults.found("it", error)
    assert faults.seen() == expected


def test_an_analysis_that_raises_is_left_out_and_named() -> None:
    skeleton = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=17).SerializeToString()
    wrong: dict[str, list[object]] = {"x": [None]}
    engine = Engine("onnxruntime", 60, None, 0)
    try:
        assert engine.analyse(element_types, skeleton=skeleton) == {"x": 1, "y": 1}
        assert faults.seen() == []
        assert engine.analyse(declare_by_names, skeleton=skeleton, dims=wrong) is None
    finally:
        engine.close()
    assert [line.split(": ")[0] for line in faults.seen()] == ["the analysis 'declare_by_names' failed and was skipped"]


def test_a_command_warns(capsys: pytest.CaptureFixture[str]) -> None:
    faults.found("it", WorkerRaised("IndexError", "list index out of range", stage="s"))
    assert cli.main(["passes", "drop-identity"]) == 0
    assert f"surgery: warning: {LINE}\n" in capsys.readouterr().err
    assert cli.main(["passes", "drop-identity", "--quiet"]) == 0
    assert "warning" not in capsys.readouterr().err
