"""Batches on a cluster of dask, also when it loses workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from support import batches
from support.batches import Watching

from surgery.engine.batching import ledger
from surgery.engine.batching.batch import Batch, batch
from surgery.engine.batching.ledger import NAME, LedgerRow
from surgery.engine.batching.model_entry import BatchLimits, Entry, Settings
from surgery.engine.batching.on_dask import DaskExecutor
from surgery.engine.batching.output_folder import OutputFolder
from surgery.engine.batching.schedule import job_of
from surgery.interface import commands as cli

# It is not imported here: that takes time and memory in each process that collects the tests.
WITHOUT_DASK = pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed")
pytestmark = [pytest.mark.slow, WITHOUT_DASK]

CLUSTER = """
import sys, time
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        while sys.stdin.readline():
            print(*(nanny.pid for nanny in cluster.workers.values()), flush=True)
"""


class Cluster:
    """A cluster of two workers in separate processes; dask replaces those that end."""

    def __init__(self, folder: Path) -> None:
        (folder / "cluster.py").write_text(CLUSTER)
        with (folder / "log").open("w") as log:
            self._run = subprocess.Popen(
                [sys.executable, str(folder / "cluster.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
            )
        assert self._run.stdout is not None and self._run.stdin is not None
        self.address = self._run.stdout.readline().strip()

    def workers(self) -> list[int]:
        """Return the processes of the workers."""
        assert self._run.stdout is not None and self._run.stdin is not None
        self._run.stdin.write("\n")
        self._run.stdin.flush()
        return [int(text) for text in re.findall(r"\d+", self._run.stdout.readline())]

    def close(self) -> None:
        self._run.communicate(timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield found
    finally:
        found.close()


def rows(folder: Path) -> dict[str, LedgerRow]:
    return {row.name: row for row in ledger.read(folder / NAME)}


def outcome(row: LedgerRow) -> dict[str, object]:
    """Return what of a row does not depend on the time it took."""
    return {name: value for name, value in row.to_json().items() if name not in ("seconds", "attempts")}


def test_a_cluster_gives_the_same_results_as_the_local_executor(cluster: Cluster, tmp_path: Path) -> None:
    recipe = batches.recipe(tmp_path)
    zoo = batches.write(tmp_path / "zoo", *(f"m{number}.onnx" for number in range(12)))
    (zoo / "broken.onnx").write_bytes(b"\x08\x0a no model")
    here, there = tmp_path / "here", tmp_path / "there"
    assert cli.main(["batch", str(recipe), str(zoo), "--out", str(here), "--jobs", "2", "-q"]) == 1

    class Killing(Watching):
        """Kills a worker when a few models have ended."""

        def done(self, row: LedgerRow) -> None:
            super().done(row)
            if len(self.done_rows) == 4:
                os.kill(cluster.workers()[0], signal.SIGKILL)

    watching = Killing()
    found = batch(Batch(str(recipe), (str(zoo),), str(there), executor=f"dask:{cluster.address}"), watching)
    assert found.counts == {"done": 12, "failed": 1}
    first, second = rows(here), rows(there)
    assert {name: outcome(row) for name, row in first.items()} == {name: outcome(row) for name, row in second.items()}
    assert all(
        (here / f"m{number}.onnx").read_bytes() == (there / f"m{number}.onnx").read_bytes() for number in range(12)
    )
    # With two workers, two models at most can have been running there.
    assert sum(row.attempts - 1 for row in second.values()) <= 2


def test_a_crash_of_a_model_does_not_end_the_worker(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import os\nfrom surgery import Graph, Parity, graph_pass\n\n\n"
        '@graph_pass("own-abort", parity=Parity.EXACT)\n'
        'def own(graph: Graph) -> None:\n    """Abort."""\n    os.abort()\n'
    )
    (tmp_path / "own.yaml").write_text("recipe: own\nplugins: [own.py]\nsteps: [own-abort]\n")
    zoo = batches.write(tmp_path / "zoo", "a.onnx")
    before = set(cluster.workers())
    arguments = ["batch", str(tmp_path / "own.yaml"), str(zoo), "--out", str(tmp_path / "out"), "--trust", "-q"]
    assert cli.main([*arguments, "--executor", f"dask:{cluster.address}"]) == 1
    assert rows(tmp_path / "out")["a.onnx"].reason == "pass 'own-abort' crashed with SIGABRT"
    assert set(cluster.workers()) == before


def test_two_batches_on_one_cluster_have_their_own_tasks(cluster: Cluster, tmp_path: Path) -> None:
    recipe = str(batches.recipe(tmp_path))
    executors: list[DaskExecutor] = []
    found = []
    try:
        for number in (1, 5):
            path = tmp_path / str(number) / "a.onnx"
            path.parent.mkdir()
            onnx.save(batches.model(number), path)
            given = job_of(
                Entry("a.onnx", str(path), recipe),
                LedgerRow("a.onnx", str(path), recipe, recipe_sha256="r"),
                OutputFolder(str(tmp_path / f"out{number}")),
                Settings(),
            )
            executors.append(DaskExecutor(cluster.address, 1, BatchLimits()))
            # The task of the first batch is still known to the scheduler when the second one submits its own.
            executors[-1].submit("a.onnx", given)
        for executor in executors:
            events = iter(lambda executor=executor: executor.next(60), None)
            found.append(next(event.outcome for event in events if event.kind == "ended"))
    finally:
        for executor in executors:
            executor.close()
    assert [outcome and outcome["nodes_before"] for outcome in found] == [2, 6]
    assert (tmp_path / "out1/a.onnx").is_file() and (tmp_path / "out5/a.onnx").is_file()


def test_no_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.engine.batching import on_dask

    monkeypatch.setattr(on_dask, "_CONNECT", "1 s")
    recipe, zoo = batches.recipe(tmp_path), batches.write(tmp_path / "zoo", "a.onnx")
    arguments = ["batch", str(recipe), str(zoo), "--out", str(tmp_path / "out"), "--executor"]
    assert cli.main([*arguments, "dask:tcp://127.0.0.1:9"]) == 2
    assert "no dask scheduler answers at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
    assert cli.main([*arguments, "dask:tcp://127.0.0.1:9", "--total-memory", "1GB"]) == 2
    assert "--total-memory is for the executor local; use --memory" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main([*arguments, "dask:tcp://127.0.0.1:9"]) == 2
    assert "pip install 'onnx-surgery[batch]'" in capsys.readouterr().err


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a scheduler without workers."""
    script = "from distributed import LocalCluster\n"
    script += "cluster = LocalCluster(n_workers=0, processes=False, protocol='tcp', dashboard_address=None)\n"
    script += "print(cluster.scheduler_address, flush=True)\ninput()\n"
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert run.stdout is not None
    try:
        yield run.stdout.readline().strip()
    finally:
        run.communicate("\n", timeout=60)


def test_a_scheduler_without_workers(
    lonely: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgery.engine.batching import on_dask

    recipe, zoo = batches.recipe(tmp_path), batches.write(tmp_path / "zoo", "a.onnx")
    arguments = ["batch", str(recipe), str(zoo), "--out", str(tmp_path / "out"), "--executor", f"dask:{lonely}"]
    monkeypatch.setattr(on_dask, "_FIRST_WORKER", 1.0)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count(f"no worker is connected to the scheduler; start one: dask worker {lonely}") == 1
    assert f"the scheduler at '{lonely}' has no workers; start some: dask worker {lonely}" in said


def test_a_scheduler_that_loses_its_workers(lonely: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.engine.batching import on_dask

    monkeypatch.setattr(on_dask, "_LOOK_EVERY", 0.0)
    executor = DaskExecutor(lonely, 1, BatchLimits())
    try:
        assert executor.capacity == 0
        executor._is_checked = True
        found = [executor.next(0.01) for _ in range(3)]
    finally:
        executor.close()
    assert [event and event.kind for event in found] == ["waiting", None, None]


@pytest.mark.parametrize(("threads", "jobs"), [((3, 4), 14), ((1,), 2), ((), 1)])
def test_a_cluster_gets_two_jobs_for_each_thread(
    lonely: str, monkeypatch: pytest.MonkeyPatch, threads: tuple[int, ...], jobs: int
) -> None:
    executor = DaskExecutor(lonely, 1, BatchLimits())
    workers = {f"tcp://{number}": {"nthreads": count} for number, count in enumerate(threads)}
    monkeypatch.setattr(executor._client, "scheduler_info", lambda n_workers: {"workers": workers})
    executor._is_checked = True
    try:
        assert executor.capacity == jobs
    finally:
        executor.close()


def test_another_version_on_a_worker_is_named(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgery.engine.batching import input_digests, on_dask

    monkeypatch.setattr(on_dask, "environment", lambda: {**input_digests.environment(), "onnx": "0.1"})
    recipe, zoo = batches.recipe(tmp_path), batches.write(tmp_path / "zoo", "a.onnx")
    arguments = ["batch", str(recipe), str(zoo), "--out", str(tmp_path / "out")]
    assert cli.main([*arguments, "--executor", f"dask:{cluster.address}"]) == 2
    assert re.search(
        r"the worker tcp://\S+ has onnx [\d.]+, not 0\.1; install the same versions", capsys.readouterr().err
    )
