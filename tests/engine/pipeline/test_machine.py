"""A failure of the machine ends the run: it says nothing about a pass, which would be refused for it."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import MachineError, WorkerError, machine_failure
from surgery.base.workers import Worker
from surgery.base.workers.client import ForkServer
from surgery.engine.pipeline import runner
from surgery.engine.recipe import parse
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.wire import weights
from surgery.model.wire.weights import Weights
from surgery.verification.signature.tracker import SignatureTracker

SIDE = 200


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """A model with a weight that `fold-constants` writes anew."""
    model = text.parse("g (float[n, 200] x) => (float[n, 200] y) { t = Transpose<perm=[1, 0]>(w) y = MatMul(x, t) }")
    values = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("on_failure", ["rollback", "bisect", "abort"])
def test_a_full_disk_for_temporary_files_ends_the_run(
    folded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on_failure: str
) -> None:
    # Whether the pass writes itself or a worker does so later.
    monkeypatch.setattr(weights, "_write", full)
    monkeypatch.setattr("surgery.model.wire.reordering._pour", full)
    monkeypatch.setattr("surgery.model.wire.reordering.Worker.call", lost_worker(Worker.call))
    out = folded.with_name("out.onnx")
    command = ["apply", "default", str(folded), "-o", str(out), "--no-cache", "--on-failure", on_failure]
    assert cli.main(command) == 3
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and "No space left on device" in error[0] and "TMPDIR" in error[0]
    assert not out.exists()


def lost_worker(call: Any) -> Any:
    def choose(self: Worker, function: str, /, **arguments: object) -> Any:
        if function.startswith("surgery.model.wire.reordering:"):
            raise WorkerError("the worker is gone", stage="write")
        return call(self, function, **arguments)

    return choose


def test_a_write_that_fails_without_an_error_is_noticed() -> None:
    class Lost:
        """As NumPy writes a small array: through a buffer that it empties without looking."""

        def tofile(self, file: Any) -> None:
            file.seek(2048, os.SEEK_CUR)

    with Weights() as some:
        some.spill(np.ones(8, np.float32))
        with pytest.raises(MachineError, match="No space left"):
            some.spill(Lost())  # type: ignore[arg-type]
        reference = some.spill(np.full(8, 2, np.float32))
        assert np.frombuffer(some.view(reference), np.float32).tolist() == [2.0] * 8


def test_sizes_given_by_the_user_that_take_too_much_memory_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) a = Exp(i) b = Neg(i) y = Mul(a, b) }")
    onnx.save(model, tmp_path / "m.onnx")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("on_failure: rollback\nverify: {memory: 250MB}\nsteps: [drop-identity]\n")
    command = ["apply", str(recipe), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--dims"]
    assert cli.main([*command, "n=20000000"]) == 2
    error = capsys.readouterr().err
    assert "--dims: a run of the model with n=20000000 takes too much memory; pass smaller sizes" in error
    assert error.count("\n") == 1 and not (tmp_path / "o.onnx").exists()
    # All sets of inputs together may take too much where a few do not.
    assert cli.main([*command, "n=2000000"]) == 0
    assert "Same results, bit for bit, on 2 inputs." in capsys.readouterr().out.replace("\n", " ")


def test_a_process_that_cannot_be_started_ends_the_run(folded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise WorkerError("no worker process can be started: Resource temporarily unavailable", stage="start")

    monkeypatch.setattr(ForkServer, "fork", none)
    with pytest.raises(MachineError, match="no worker process can be started"):
        runner.apply(folded, parse("on_failure: rollback\nsteps: [fold-constants]"))


def test_a_pass_that_finds_no_memory_ends_the_run(folded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError("Unable to allocate 3.6 TiB")

    monkeypatch.setattr("surgery.model.storage.spill._written", none)
    with pytest.raises(MachineError, match="not enough memory: Unable to allocate 3"):
        runner.apply(folded, parse("on_failure: rollback\nsteps: [fold-constants]"))


def test_a_full_disk_during_the_verification_of_a_step_ends_the_run(
    folded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SignatureTracker, "verify", full)
    with pytest.raises(MachineError, match="No space left"):
        runner.apply(folded, parse("on_failure: rollback\nsteps: [fold-constants]"))


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (MemoryError(), True),
        (WorkerError("gone", stage="run", killed=True), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/tmp/x"), False),
        (WorkerError("run ran out of memory", stage="run", signal="out of memory"), False),
        (ValueError("wrong"), False),
    ],
)
def test_what_a_failure_of_the_machine_is(error: Exception, is_one: bool) -> None:
    wrapped = RuntimeError("something failed")
    wrapped.__cause__ = error
    for one in (error, wrapped):
        assert (machine_failure(one) is not None) is is_one
