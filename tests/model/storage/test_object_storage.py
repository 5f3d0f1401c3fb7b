"""Models in object storage and on web servers, with connections that break."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import object_storage as servers

from surgery.model.graph import text

pytestmark = pytest.mark.slow

SMALL = "g (float[n] x) => (float[n] y) { r = Relu(x) y = Identity(r) }"
PART = 5 << 20


def model_with(elements: int) -> onnx.ModelProto:
    model = text.parse("g (float[n] x) => (float[n] y) { y = Identity(x) }")
    values = np.random.default_rng(1).random(elements, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    return model


def surgery(folder: Path, port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "surgery", *arguments],
        env=servers.environment(temporary, port),
        capture_output=True,
        text=True,
        cwd=folder,
    )


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "tmp").iterdir())


@pytest.fixture(scope="module")
def storage() -> Iterator[servers.Service]:
    with servers.service() as service:
        yield service


@pytest.fixture
def bucket(storage: servers.Service, request: pytest.FixtureRequest) -> str:
    name = f"bucket-{abs(hash(request.node.name)) % 10**12}"
    storage.put(name)
    return name


def test_a_model_with_weights_is_read_and_written(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    original = model_with(1000)
    storage.put(f"{bucket}/in/m.onnx", original.SerializeToString())
    out = f"s3://{bucket}/out/m.onnx"
    done = surgery(tmp_path, storage.port, "externalize", f"s3://{bucket}/in/m.onnx", "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith(f"{out}  ")
    assert storage.keys(bucket) == ["in/m.onnx", "out/m.onnx", "out/m.onnx.data"]
    assert storage.get(f"{bucket}/out/m.onnx.data") == original.graph.initializer[0].raw_data
    back = surgery(tmp_path, storage.port, "embed", out, "-o", "back.onnx")
    assert (back.returncode, back.stderr) == (0, "")
    assert onnx.load(tmp_path / "back.onnx") == original
    assert left_over(tmp_path) == []


def test_existing_objects_are_not_overwritten(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    onnx.save(text.parse(SMALL), tmp_path / "m.onnx")
    storage.put(f"{bucket}/m.onnx", b"old")
    out = f"s3://{bucket}/m.onnx"
    done = surgery(tmp_path, storage.port, "embed", "m.onnx", "-o", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"surgery: {out}: the object exists; name another one, or use --force\n"
    assert storage.get(f"{bucket}/m.onnx") == b"old"


def test_a_missing_object_is_named(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    done = surgery(tmp_path, storage.port, "inspect", f"s3://{bucket}/m.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"surgery: s3://{bucket}/m.onnx: there is no such object; check the URL\n"


def test_a_download_that_fails_once_is_retried(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    original = model_with(100_000)
    storage.put(f"{bucket}/m.onnx", original.SerializeToString())
    broken: list[str] = []

    def rule(method: str, path: str) -> bool:
        if method == "GET" and path.endswith("/m.onnx") and not broken:
            broken.append(path)
            return True
        return False

    with servers.breaking(storage, rule) as port:
        done = surgery(tmp_path, port, "embed", f"s3://{bucket}/m.onnx", "-o", "out.onnx")
    assert (done.returncode, done.stderr, len(broken)) == (0, "", 1)
    assert onnx.load(tmp_path / "out.onnx") == original


def test_a_download_that_always_fails_leaves_no_file(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    storage.put(f"{bucket}/m.onnx", model_with(1000).SerializeToString())
    with servers.breaking(storage, lambda method, path: method == "GET" and path.endswith("/m.onnx")) as port:
        done = surgery(tmp_path, port, "embed", f"s3://{bucket}/m.onnx", "-o", "out.onnx")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"surgery: s3://{bucket}/m.onnx: cannot be read: ")
    assert done.stderr.endswith("; try again\n") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out.onnx").exists()
    assert left_over(tmp_path) == []


def test_a_failed_upload_changes_no_object_and_keeps_the_result(
    storage: servers.Service, bucket: str, tmp_path: Path
) -> None:
    original = model_with(3 * PART // 4)
    onnx.save(original, tmp_path / "m.onnx")
    storage.put(f"{bucket}/m.onnx", b"old")
    storage.put(f"{bucket}/m.onnx.data", b"old data")
    with servers.breaking(storage, lambda method, path: "partNumber=2" in path) as port:
        done = surgery(tmp_path, port, "externalize", "m.onnx", "-o", f"s3://{bucket}/m.onnx", "--force")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"surgery: s3://{bucket}/m.onnx: cannot be written: ")
    assert done.stderr.count("\n") == 1
    assert storage.get(f"{bucket}/m.onnx") == b"old"
    assert storage.get(f"{bucket}/m.onnx.data") == b"old data"
    assert storage.uploads(bucket) == []
    kept = Path(done.stderr.rpartition("; the result is in ")[2].strip())
    weights = [numpy_helper.to_array(one.graph.initializer[0]) for one in (onnx.load(kept), original)]
    assert np.array_equal(*weights)
    assert left_over(tmp_path) == [kept.parent.name]


def test_plans_locks_and_pieces_go_in_and_out(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    """A plan at a URL is applied; a lock is next to its recipe; pieces are in a folder that lists them."""
    at = f"s3://{bucket}"
    storage.put(f"{bucket}/m.onnx", text.parse(SMALL).SerializeToString())
    storage.put(f"{bucket}/r.yaml", b"steps: [drop-identity]\n")
    for command in (
        ["plan", f"{at}/r.yaml", f"{at}/m.onnx", "-o", f"{at}/plan.json"],
        ["apply", f"{at}/plan.json", "-o", f"{at}/planned.onnx"],
        ["apply", f"{at}/r.yaml", f"{at}/m.onnx", "-o", f"{at}/plain.onnx"],
        ["lock", f"{at}/r.yaml"],
        ["apply", f"{at}/r.yaml", f"{at}/m.onnx", "--locked", "-o", f"{at}/locked.onnx"],
        ["split", f"{at}/m.onnx", "--at", "r", "-o", f"{at}/pieces"],
    ):
        done = surgery(tmp_path, storage.port, *command)
        assert done.returncode == 0, done.stderr
    made = {storage.get(f"{bucket}/{name}.onnx") for name in ("planned", "plain", "locked")}
    assert len(made) == 1
    assert [key for key in storage.keys(bucket) if key.startswith("pieces")] == [
        "pieces/m.1.onnx",
        "pieces/m.2.onnx",
        "pieces/m.pieces.json",
    ]
    assert left_over(tmp_path) == []


def test_pieces_that_cannot_all_be_sent_are_not_listed(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    storage.put(f"{bucket}/m.onnx", text.parse(SMALL).SerializeToString())
    with servers.breaking(storage, lambda method, path: "pieces.json" in path and method == "PUT") as port:
        done = surgery(tmp_path, port, "split", f"s3://{bucket}/m.onnx", "--at", "r", "-o", f"s3://{bucket}/pieces")
    assert done.returncode == 3 and "; the result is in " in done.stderr
    kept = Path(done.stderr.rpartition("the result is in ")[2].strip())
    assert sorted(path.name for path in kept.iterdir()) == ["m.1.onnx", "m.2.onnx", "m.pieces.json"]
    assert "pieces/m.pieces.json" not in storage.keys(bucket)


def test_a_large_upload_is_whole(storage: servers.Service, bucket: str, tmp_path: Path) -> None:
    original = model_with(3 * PART // 4)
    onnx.save(original, tmp_path / "m.onnx")
    done = surgery(tmp_path, storage.port, "embed", "m.onnx", "-o", f"s3://{bucket}/m.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert onnx.ModelProto.FromString(storage.get(f"{bucket}/m.onnx")) == original
    assert storage.uploads(bucket) == []


class Web(servers.Files):
    def do_GET(self) -> None:  # noqa: N802
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "/models/m.onnx")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/short"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
        elif self.path.startswith("/denied"):
            self.send_error(403)
        elif self.path.startswith("/slow"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.wfile.flush()
            time.sleep(60)
        else:
            super().do_GET()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[int]:
    onnx.save(model_with(1000), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    Web.contents = {
        "/models/m.onnx": (tmp_path / "m.onnx").read_bytes(),
        "/models/w.bin": (tmp_path / "w.bin").read_bytes(),
        "/page": b"<!DOCTYPE html><html><body>models</body></html>",
    }
    with servers.running(Web) as port:
        yield port


def test_a_web_server_has_models_and_their_weights(web: int, tmp_path: Path) -> None:
    url = f"http://user:password@127.0.0.1:{web}/models/m.onnx?token=secret"
    done = surgery(tmp_path, 9, "embed", url, "-o", "out.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert onnx.load(tmp_path / "out.onnx") == model_with(1000)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("absent.onnx", 2, "there is no such object; check the URL"),
        ("denied.onnx", 2, "access is denied; check the credentials and their permissions"),
        ("moved.onnx", 2, "there is no such object; check the URL"),  # the weights are not next to the link
        ("page", 2, "this is an HTML page, not a model; use the link that downloads the file: with /resolve/ or /raw/"),
        ("short.onnx", 3, "cannot be read: "),
    ],
)
def test_a_web_server_that_has_no_model(web: int, tmp_path: Path, path: str, code: int, message: str) -> None:
    place = f"127.0.0.1:{web}/{path}"
    done = surgery(tmp_path, 9, "embed", f"http://user:password@{place}?token=secret", "-o", "out.onnx")
    assert (done.returncode, done.stdout) == (code, "")
    place = place.replace("moved.onnx", "w.bin")
    assert done.stderr.startswith(f"surgery: http://{place}: {message}")
    assert done.stderr.count("\n") == 1 and "secret" not in done.stderr and "password" not in done.stderr
    assert left_over(tmp_path) == [] and not (tmp_path / "out.onnx").exists()


def test_http_urls_are_read_only(web: int, tmp_path: Path) -> None:
    done = surgery(tmp_path, 9, "embed", "m.onnx", "-o", f"http://127.0.0.1:{web}/out.onnx")
    assert done.returncode == 2
    assert done.stderr.endswith("out.onnx: 'http' is read-only; write to s3, gs, az or a file\n")


def test_a_signal_during_a_download_leaves_no_file(web: int, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "surgery", "inspect", f"http://127.0.0.1:{web}/slow.onnx"]
    with subprocess.Popen(
        command, env=servers.environment(temporary), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(temporary.rglob("*.part")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert (process.returncode, said) == (128 + signal.SIGTERM, "surgery: ended by SIGTERM; nothing was written\n")
    assert left_over(tmp_path) == []
