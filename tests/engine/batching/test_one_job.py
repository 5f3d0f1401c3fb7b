"""One model of a batch, run in this process: the stages on the way, and the columns of its row at the end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from support import batches

from surgery.base import workers
from surgery.base.errors import WorkerError
from surgery.engine.batching import job, ledger
from surgery.engine.batching.ledger import LedgerRow
from surgery.engine.batching.model_entry import Entry, Settings
from surgery.engine.batching.output_folder import OutputFolder
from surgery.engine.batching.schedule import job_of


def run(folder: Path, recipe: str) -> dict[str, Any]:
    """Run a recipe on a Relu with an Identity after it; return the columns of its row."""
    model, path = folder / "m.onnx", folder / "r.yaml"
    onnx.save(batches.model(), model)
    path.write_text(recipe, encoding="utf-8")
    entry, row = Entry("m.onnx", str(model), str(path)), LedgerRow("m.onnx", str(model), str(path))
    return job.run(job_of(entry, row, OutputFolder(str(folder / "out")), Settings()))


def columns(row: dict[str, Any], names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names.split())


def test_each_stage_is_reported_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []
    monkeypatch.setattr(workers, "stage", stages.append)
    row = run(tmp_path, batches.RECIPE)
    assert (stages[0], stages[-1]) == ("reading", "output")
    assert "drop-identity: pass" in stages
    assert columns(row, "state stage reason nodes_before nodes_after refused verdict") == (
        "done",
        "",
        "",
        2,
        1,
        0,
        "equal",
    )
    assert 0 < row["bytes_after"] < row["bytes_before"] and 0 <= row["seconds"] < 60
    size = (tmp_path / "out" / "m.onnx").stat().st_size
    assert row["output_files"] == [["m.onnx", size]] and len(row["output_sha256"]) == 64


@pytest.mark.parametrize(
    ("recipe", "stage", "kind", "reason"),
    [
        ("expect: {ops: {Relu: 0}}\nsteps: [drop-identity]", "(expect)", "expectation", "Relu: == 0 (found 1)"),
        ("steps: [{pass: drop-identity, expect: {sites: '>= 9'}}]", "drop-identity", "verdict", "expected sites"),
        ("steps: [no-such-pass]", "reading", "recipe", "no-such-pass"),
    ],
)
def test_a_model_fails_at_a_stage_for_a_reason(recipe: str, stage: str, kind: str, reason: str, tmp_path: Path) -> None:
    row = run(tmp_path, f"recipe: t\n{recipe}\n")
    assert columns(row, "state stage kind") == ("failed", stage, kind), row
    assert reason in row["reason"] and "\n" not in row["reason"]
    assert not (tmp_path / "out" / "m.onnx").exists() and len(row["input_sha256"]) == 64


def test_settings_come_before_those_of_the_recipe(tmp_path: Path) -> None:
    onnx.save(batches.model(), tmp_path / "m.onnx")
    path = batches.recipe(tmp_path)
    with_verify = batches.RECIPE.replace("steps", "target: standard\nverify: {unverified: refuse}\nsteps")
    path.write_text(with_verify, encoding="utf-8")
    entry, row = Entry("m.onnx", "", str(path), ("given.npz",)), LedgerRow("m.onnx", "", str(path))
    out = OutputFolder(str(tmp_path))
    plain = job._recipe(str(path), job_of(entry, row, out, Settings()))
    assert (plain.target, plain.verify.unverified, plain.verify.providers) == ("standard", "refuse", ())
    assert [data.path for data in plain.inputs.data] == [Path("given.npz")]
    settings = Settings(
        target="ort-cpu", unverified="accept", providers=("CPUExecutionProvider",), custom_op_libraries=("a.so",)
    )
    given = job._recipe(str(path), job_of(entry, row, out, settings))
    assert (given.target, given.verify.unverified) == ("ort-cpu", "accept")
    assert given.verify.providers == ("CPUExecutionProvider",)
    assert given.verify.custom_op_library == (Path("a.so"),)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerError("took more than 1 s", stage="parity", signal=workers.TIMEOUT), "time"),
        (WorkerError("out of memory", stage="parity", signal=workers.OUT_OF_MEMORY), "memory"),
        (WorkerError("crashed", stage="parity", signal="SIGSEGV"), "worker"),
        (ValueError("no\nreason"), "internal"),
    ],
)
def test_an_error_is_a_failure_of_the_model(error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any, stages: job._Stages) -> dict[str, Any]:
        stages.stage("drop-identity", "parity")
        raise error

    monkeypatch.setattr(job, "_run", fails)
    row = job.run({})
    assert columns(row, "state stage kind") == ("failed", "drop-identity: parity", kind)
    assert "\n" not in row["reason"]
    monkeypatch.setattr(job, "_run", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        job.run({})


def test_the_verdict_is_that_of_the_weakest_step() -> None:
    def step(status: str, verdict: str | None) -> SimpleNamespace:
        return SimpleNamespace(
            status=status, verdict=verdict and SimpleNamespace(status=SimpleNamespace(value=verdict))
        )

    steps = [step("committed", "equal"), step("committed", "close"), step("rolled_back", "different")]
    result: Any = SimpleNamespace(end=None, steps=[*steps, step("committed", None)])
    assert job._verdict(result) is steps[1].verdict
    result.end = "at the end"
    assert job._verdict(result) == "at the end"
    result.end, result.steps = None, []
    assert job._verdict(result) is None


def negative(**parts: Any) -> dict[str, Any]:
    result: Any = SimpleNamespace(**parts)
    return job._negative(result)


def test_a_result_that_is_not_ok_has_the_first_reason() -> None:
    undone = SimpleNamespace(name="cut", message="", status="rolled_back", exit_code=1)
    broken = SimpleNamespace(name="fold", message="no memory", status="failed", exit_code=3)
    missed, met = SimpleNamespace(what="Relu: 0", ok=False), SimpleNamespace(what="Neg: 1", ok=True)
    parts: dict[str, Any] = {
        "failure": None,
        "unverifiable": "",
        "expectations": [met],
        "unmet": [],
        "refused": [undone],
    }
    assert negative(**parts) == {
        "stage": "cut",
        "kind": "strict",
        "reason": "a step was undone: rolled_back",
    }
    parts["unmet"], parts["loss"], parts["broken"] = [SimpleNamespace(words="no node was fused")], None, [broken]
    unmet = {"stage": "(end)", "reason": "no node was fused; no memory"}
    assert negative(**parts, exit_code=1) == {**unmet, "kind": "purpose"}
    assert negative(**parts, exit_code=3) == {**unmet, "kind": ledger.BROKE}
    parts["expectations"] = [missed, met, missed]
    expected = {"stage": "(expect)", "kind": "expectation", "reason": "Relu: 0; Relu: 0"}
    assert negative(**parts) == expected
    parts["unverifiable"] = "no kernel"
    assert negative(**parts)["kind"] == "unverified"
    parts["failure"] = undone
    assert negative(**parts) == {"stage": "cut", "kind": "verdict", "reason": "rolled_back"}
    parts["failure"] = broken
    assert negative(**parts) == {"stage": "fold", "kind": "pass", "reason": "no memory"}
