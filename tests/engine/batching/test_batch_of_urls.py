"""Batches from object storage and to it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import onnx
import pytest
from support import batches
from support import object_storage as servers

from surgery.base.errors import ModelFileError, TransferError
from surgery.engine.batching import ledger, model_selection
from surgery.engine.batching.ledger import NAME, LedgerRow
from surgery.engine.batching.output_folder import local_copies

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage() -> Iterator[servers.Service]:
    with servers.service() as service:
        yield service


def batch(folder: Path, port: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "surgery", "batch", *map(str, arguments), "--jobs", "1"],
        env=servers.environment(temporary, port),
        capture_output=True,
        text=True,
        cwd=folder,
    )


def rows(folder: Path) -> dict[str, LedgerRow]:
    return {row.name: row for row in ledger.read(folder / NAME)}


def test_a_batch_reads_models_from_one_bucket_and_writes_to_another(storage: servers.Service, tmp_path: Path) -> None:
    for bucket in ("zoo", "done"):
        storage.put(bucket)
    for number, name in enumerate(("a.onnx", "deep/b.onnx"), 1):
        storage.put(f"zoo/v1/{name}", batches.model(number).SerializeToString())
    storage.put("zoo/v1/broken.onnx", b"\x08\x0a no model")
    storage.put("zoo/v1/notes.md", b"no model")
    asked = (batches.recipe(tmp_path), "s3://zoo/v1/", "--out", "s3://done/v1", "--ledger", "kept")
    done = batch(tmp_path, storage.port, *asked)
    assert done.returncode == 1, done.stderr
    assert "failed: 1 of 3 models, 2 done; 5 -> 2 nodes (-60 %)" in done.stdout
    found = rows(tmp_path / "kept")
    assert {name: (row.state, row.model) for name, row in found.items()} == {
        "a.onnx": ("done", "s3://zoo/v1/a.onnx"),
        "broken.onnx": ("failed", "s3://zoo/v1/broken.onnx"),
        "deep/b.onnx": ("done", "s3://zoo/v1/deep/b.onnx"),
    }
    assert found["broken.onnx"].reason.startswith("s3://zoo/v1/broken.onnx: ")
    assert storage.keys("done") == ["v1/a.onnx", "v1/deep/b.onnx"]
    written = onnx.load_from_string(storage.get("done/v1/deep/b.onnx"))
    assert [node.op_type for node in written.graph.node] == ["Relu"]
    assert list((tmp_path / "tmp").iterdir()) == []
    # The second time, only what changed runs: one model is another one, and one result is gone.
    storage.put("zoo/v1/broken.onnx", batches.model(3).SerializeToString())
    again = batch(tmp_path, storage.port, *asked)
    assert again.returncode == 0, again.stderr
    assert "2 were finished before" in again.stdout
    assert storage.keys("done") == ["v1/a.onnx", "v1/broken.onnx", "v1/deep/b.onnx"]


def test_recipes_at_urls(storage: servers.Service, tmp_path: Path) -> None:
    storage.put("recipes")
    storage.put("recipes/quick.yaml", batches.RECIPE.encode())
    batches.write(tmp_path, "a.onnx", "b.onnx")
    asked = ("s3://recipes/quick.yaml", "a.onnx", "b.onnx", "--out", "out")
    done = batch(tmp_path, storage.port, *asked)
    assert done.returncode == 0, done.stderr
    assert {row.recipe for row in rows(tmp_path / "out").values()} == {"s3://recipes/quick.yaml"}
    assert list((tmp_path / "tmp").iterdir()) == []
    # The statement in the result has the digest of the file, as after a run with a local recipe.
    assert batch(tmp_path, storage.port, batches.recipe(tmp_path), *asked[1:3], "--out", "local").returncode == 0
    assert (tmp_path / "out/b.onnx").read_bytes() == (tmp_path / "local/b.onnx").read_bytes()
    assert "2 were finished before" in batch(tmp_path, storage.port, *asked).stdout
    storage.put("recipes/quick.yaml", b"recipe: quick\nsteps: [drop-identity, drop-dead]\n")
    assert "finished before" not in batch(tmp_path, storage.port, *asked).stdout
    # A manifest names them as well.
    storage.put("recipes/wrong.yaml", b"recipe: quick\nsteps: [drop-nothing-at-all]\n")
    for name, problem in {
        "wrong": "s3://recipes/wrong.yaml:2:9: no pass 'drop-nothing-at-all'",
        "gone": "s3://recipes/gone.yaml: there is no such object; check the URL",
    }.items():
        (tmp_path / "list.jsonl").write_text(f'{{"model": "a.onnx", "recipe": "s3://recipes/{name}.yaml"}}\n')
        failed = batch(tmp_path, storage.port, "default", "list.jsonl", "--out", "listed")
        assert failed.returncode == 2
        assert problem in failed.stderr


def test_a_broken_connection_is_not_blamed_on_a_model(storage: servers.Service, tmp_path: Path) -> None:
    storage.put("far")
    storage.put("far/a.onnx", batches.model().SerializeToString())
    asked = (batches.recipe(tmp_path), "s3://far/a.onnx", "--out", "out")
    with servers.breaking(storage, lambda method, path: method == "GET" and path.endswith("/a.onnx")) as port:
        broken = batch(tmp_path, port, *asked)
    assert broken.returncode == 1, broken.stderr
    row = rows(tmp_path / "out")["a.onnx"]
    assert (row.state, row.kind) == ("failed", "transfer")
    assert not (tmp_path / "out/a.onnx").exists()
    assert batch(tmp_path, storage.port, *asked).returncode == 0
    assert rows(tmp_path / "out")["a.onnx"].state == "done"


class Refusing(BaseHTTPRequestHandler):
    """Answers with the status that is the path."""

    def do_GET(self) -> None:
        self.send_error(int(self.path.strip("/").removesuffix(".onnx")))

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def refusing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [
        ("404.onnx", ModelFileError, "there is no such object; check the URL"),
        ("403.onnx", ModelFileError, "access is denied; check the credentials and their permissions"),
        ("503.onnx", TransferError, "cannot be listed: "),
    ],
)
def test_what_a_web_server_answers_is_reported(
    refusing: str, tmp_path: Path, name: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        model_selection.entries([f"{refusing}/{name}"], model_selection.ModelSelection("default", tmp_path))


def test_a_web_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"cannot be listed: .*ClientConnectorError"):
        model_selection.entries(["http://127.0.0.1:1/a.onnx"], model_selection.ModelSelection("default", tmp_path))


def test_a_ledger_needs_a_folder(tmp_path: Path) -> None:
    batches.write(tmp_path, "a.onnx")
    done = batch(tmp_path, 9, batches.recipe(tmp_path), "a.onnx", "--out", "s3://done/v1")
    assert done.returncode == 2
    assert "the ledger must be a local file, but --out is a URL; name a folder for it: --ledger DIR" in done.stderr


def test_a_result_for_a_url_is_written_to_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with local_copies("m.onnx", "s3://bucket/results/m.onnx") as (source, target):
        assert source == Path("m.onnx") and target.name == "m.onnx"
        target.write_bytes(b"the result")
    assert not target.exists() and not any(tmp_path.iterdir())
