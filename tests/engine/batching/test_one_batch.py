"""A batch from its sources to its result, with an executor whose outcomes are scripted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.batches import RECIPE, Watching, recipe, row, write

from surgery.base.errors import OutputError, RecipeError, UsageError
from surgery.engine.batching import batch as module
from surgery.engine.batching.batch import Batch, BatchResult, batch
from surgery.engine.batching.events import Event
from surgery.engine.batching.input_digests import digest_of_files
from surgery.engine.batching.ledger import Ledger
from surgery.engine.batching.model_entry import BatchLimits, Settings
from surgery.engine.batching.output_folder import sizes
from surgery.engine.batching.schedule import Rules

DONE = {"state": "done", "nodes_before": 3, "nodes_after": 2, "bytes_before": 30, "bytes_after": 20}


class Scripted:
    """An executor that writes the output of each job, and ends it with an outcome by name."""

    def __init__(self, outcomes: Mapping[str, Any]) -> None:
        self.outcomes = outcomes
        self.capacity = 1
        self.jobs: list[tuple[str, Mapping[str, Any]]] = []
        self.made: list[tuple[int, BatchLimits]] = []
        self._running: list[str] = []

    def __call__(self, jobs: int, limits: BatchLimits) -> Scripted:
        self.made.append((jobs, limits))
        return self

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        self.jobs.append((name, job))
        self._running.append(name)
        output = Path(job["output"])
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(b"model")

    def next(self, timeout: float) -> Event | None:
        name = self._running.pop()
        job = dict(self.jobs)[name]
        path, model = Path(job["output"]), [Path(job["model"])]
        files = {"output_files": [[path.name, path.stat().st_size]], "output_sha256": "s"}
        files |= {"input_files": sizes(model), "input_sha256": digest_of_files(model)}
        return Event("ended", name, outcome={**DONE, **files, **self.outcomes.get(name, {})})

    def close(self) -> None:
        pass


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return write(tmp_path / "zoo", "a.onnx", "b.onnx", "sub/c.onnx")


class Runs:
    """Batches over the same folder, into the same folder."""

    def __init__(self, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zoo = zoo
        self.recipe = str(recipe(zoo.parent))
        self.out = zoo.parent / "out"
        self.executor = Scripted({})
        self.watching = Watching()
        monkeypatch.setattr(module, "maker", lambda name: self.executor)

    def run(self, outcomes: Mapping[str, Any] | None = None, **more: Any) -> BatchResult:
        self.executor, self.watching = Scripted(outcomes or {}), Watching()
        given = {"recipe": self.recipe, "sources": (str(self.zoo),), "output": str(self.out), **more}
        return batch(Batch(**given), self.watching)

    @property
    def ran(self) -> list[str]:
        return [name for name, _ in self.executor.jobs]


@pytest.fixture
def runs(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(zoo, monkeypatch)


def test_all_models_of_a_folder_run_once(runs: Runs) -> None:
    found = runs.run()
    assert runs.ran == ["a.onnx", "b.onnx", "sub/c.onnx"] == list(found.fresh)
    assert [one.name for one in found.rows] == runs.ran and found.ok and found.exit_code == 0 and found.seconds > 0
    assert found.counts == {"done": 3} and found.failures == ()
    assert found.totals == {"nodes_before": 9, "nodes_after": 6, "bytes_before": 90, "bytes_after": 60}
    assert found.ledger.parent == runs.out and (runs.watching.total, runs.watching.finished) == (3, [])
    document = found.to_json()
    assert (document["format_version"], document["ok"], document["counts"], document["run"]) == (
        1,
        True,
        {"done": 3},
        3,
    )
    job = runs.executor.jobs[0][1]
    assert job["recipe"] == runs.recipe and job["recipe_content"] is None and job["output"] == str(runs.out / "a.onnx")
    # A second run has nothing to do.
    found = runs.run()
    assert (runs.ran, found.fresh, found.counts) == ([], (), {"done": 3}) and runs.executor.made == []
    assert (runs.watching.total, runs.watching.finished) == (3, ["a.onnx", "b.onnx", "sub/c.onnx"])
    assert runs.run(force=True).fresh == ("a.onnx", "b.onnx", "sub/c.onnx")


def test_what_has_changed_runs_again(runs: Runs) -> None:
    runs.run()
    write(runs.zoo, "z", "y", "b.onnx")
    assert runs.run().fresh == ("b.onnx",) and runs.watching.finished == ["a.onnx", "sub/c.onnx"]
    (runs.out / "a.onnx").unlink()
    assert runs.run(exclude=("sub/*",)).fresh == ("a.onnx",)
    assert runs.run(settings=Settings(strict=True)).fresh == ("a.onnx", "b.onnx", "sub/c.onnx")
    Path(runs.recipe).write_text(RECIPE.replace("identity", "dropout"))
    assert runs.run(settings=Settings(strict=True), include=("a*",)).fresh == ("a.onnx",)


def test_failed_models_run_again_if_asked_for(runs: Runs) -> None:
    failure = {"state": "failed", "kind": "crash", "reason": "it died", "nodes_after": None, "bytes_after": None}
    found = runs.run({"b.onnx": failure})
    assert (found.ok, found.exit_code, found.counts) == (False, 1, {"done": 2, "failed": 1})
    assert [one.name for one in runs.watching.done_rows] == ["a.onnx", "b.onnx", "sub/c.onnx"]
    assert found.totals["nodes_before"] == 6 and len(found.failures) == 1
    found = runs.run()
    assert runs.ran == [] and not found.ok and found.counts == {"done": 2, "failed": 1}
    found = runs.run(retry_failed=True)
    assert runs.ran == ["b.onnx"] and found.ok
    # A purpose that is not met is no success.
    found = runs.run({"a.onnx": {"kind": "purpose"}}, force=True)
    assert found.counts == {"done": 3} and not found.ok and len(found.failures) == 1


def test_rows_without_figures_count_as_nothing() -> None:
    rows = (row("a"), row("b", bytes_after=None), row("c", state="failed"), row("d", state="skipped"))
    found = BatchResult(rows, (), Path("ledger"), 1.0)
    assert found.totals == {"nodes_before": 18, "nodes_after": 10, "bytes_before": 0, "bytes_after": 100}
    assert found.counts == {"done": 2, "failed": 1, "skipped": 1}


@pytest.mark.parametrize(("jobs", "expected"), [(3, 3), (None, 7)])
def test_as_many_jobs_as_processors(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, jobs: int | None, expected: int
) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: 7)
    limits = BatchLimits(timeout=3.0)
    runs.run(jobs=jobs, limits=limits)
    assert runs.executor.made == [(expected, limits)]


def test_rules_and_the_executor_of_a_batch(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module, "maker", lambda name: asked.append(name) or runs.executor)
    failure = {"state": "failed", "kind": "crash"}
    found = runs.run({"a.onnx": failure, "b.onnx": failure}, rules=Rules(most_failures=1), executor="own:x")
    assert asked == ["own:x"] and found.counts == {"failed": 1, "queued": 2} and runs.ran == ["a.onnx"]
    # What was left is done by the next one.
    assert runs.run().fresh == ("b.onnx", "sub/c.onnx")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a.onnx"], "the file exists, but is not in the ledger; name another folder, or use --force"),
        (["a.onnx", "sub/c.onnx"], "the file and 1 more of the outputs exist, but is not in the ledger; name another"),
    ],
)
def test_files_of_others_are_spared(runs: Runs, names: list[str], words: str) -> None:
    write(runs.out, *names)
    with pytest.raises(OutputError, match=words) as error:
        runs.run()
    assert error.value.where == str(runs.out / "a.onnx") and runs.ran == []
    assert runs.run(force=True).ok and len(runs.ran) == 3
    assert runs.run().fresh == ()


def test_a_ledger_of_its_own(runs: Runs, tmp_path: Path) -> None:
    found = runs.run(ledger=tmp_path / "deep" / "ledger")
    assert found.ledger.parent == tmp_path / "deep" / "ledger" and not list(runs.out.glob("*ledger*"))
    with pytest.raises(UsageError, match=r"the ledger must be a local file, but --out is a URL; name a folder for it"):
        runs.run(output="memory://out")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="the folder cannot be created: ") as error:
        runs.run(ledger=tmp_path / "file" / "ledger")
    assert error.value.where == str(tmp_path / "file" / "ledger")


def test_what_was_interrupted_runs_again(runs: Runs) -> None:
    runs.run()
    with Ledger(runs.out) as ledger:
        ledger.update("b.onnx", state="running")
    assert runs.run().fresh == ("b.onnx",) and runs.run().fresh == ()


MANIFEST = '{{"model": "zoo/a.onnx", "recipe": "{}", "inputs": {}}}\n{{"model": "zoo/b.onnx"}}\n'


def test_recipes_and_inputs_are_read_before_anything_runs(runs: Runs, tmp_path: Path) -> None:
    manifest = tmp_path / "models.jsonl"
    (tmp_path / "set.npz").write_bytes(b"1")
    manifest.write_text(MANIFEST.format("quick.yaml", '["set.npz"]'))
    found = runs.run(sources=(str(manifest),))
    assert found.ok and runs.executor.jobs[0][1]["inputs"] == [str(tmp_path / "set.npz")]
    assert runs.run(sources=(str(manifest),)).fresh == ()
    (tmp_path / "set.npz").write_bytes(b"2")
    assert len(runs.run(sources=(str(manifest),)).fresh) == 1
    manifest.write_text(MANIFEST.format("quick.yaml", '["none.npz"]'))
    with pytest.raises(UsageError, match=r"none\.npz") as error:
        runs.run(sources=(str(manifest),))
    assert error.value.where == f"{manifest}:1" and runs.ran == []
    manifest.write_text(MANIFEST.format("none.yaml", "[]"))
    with pytest.raises(UsageError, match=r"none\.yaml"):
        runs.run(sources=(str(manifest),))
    (tmp_path / "wrong.yaml").write_text("steps: [no-such-pass]\n")
    with pytest.raises(RecipeError, match="no-such-pass"):
        runs.run(recipe=str(tmp_path / "wrong.yaml"))
    assert runs.ran == []
