"""Standard input and output and URLs in place of files."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

import surgery
from surgery.base.errors import OutputError, UsageError
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text


def weighted() -> onnx.ModelProto:
    model = text.parse("g (float[n, 512] x) => (float[n, 512] y) { i = Identity(x) y = Add(i, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.arange(512, dtype=np.float32), "w"))
    return model


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(weighted(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run_apart(*arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
    done = subprocess.run([sys.executable, "-m", "surgery", *arguments], input=given, capture_output=True)
    return done.returncode, done.stdout, done.stderr.decode()


Run = Callable[..., tuple[int, bytes, str]]
"""Runs a command that is `given` bytes; returns its exit code, what it writes to standard output, and what it says."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run commands in this process, with a pipe for standard input."""

    def in_this_process(*arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
        ours, theirs = os.pipe()
        with os.fdopen(theirs, "wb") as sink:
            sink.write(given)  # less than a pipe holds
        with os.fdopen(ours) as source, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", source)
            code = cli.main([*arguments])
        out, said = capfdbinary.readouterr()
        return code, out, said.decode()

    return in_this_process


def test_a_model_is_read_and_written_through_a_pipe(model: Path) -> None:
    code, out, said = run_apart("apply", "tidy", "-", "-o", "-", "--no-provenance", given=model.read_bytes())
    assert code == 0 and "wrote stdout" in said and "drop-identity" in said
    found = onnx.ModelProto.FromString(out)
    assert [node.op_type for node in found.graph.node] == ["Add"]
    assert found.graph.initializer[0].raw_data == weighted().graph.initializer[0].raw_data
    code, out, said = run_apart("diff", "-", "m.onnx", "--format", "json", given=out)
    assert (code, said, json.loads(out)["before"]["path"]) == (0, "", "stdin")


def test_a_recipe_is_read_from_a_pipe(model: Path, run: Run) -> None:
    code, out, _ = run("apply", "-", "m.onnx", "-q", given=b"steps: [drop-identity]\n")
    assert code == 0 and out.startswith(b"ok")
    code, out, said = run("apply", "-", "m.onnx", given=b"steps: [drop-identit]\n")
    assert (code, out) == (2, b"")
    assert said.startswith("stdin:1:9: no pass 'drop-identit'; did you mean 'drop-identity'?")


@pytest.mark.parametrize(
    ("arguments", "begins"),
    sampled(
        [
            (["lock", "tidy", "-o", "-"], b"# Made by `surgery lock`"),
            (["schema", "-o", "-"], b'{\n  "$schema"'),
            (["view", "m.onnx", "-o", "-"], b"<!doctype html>"),
            (["apply", "tidy", "m.onnx", "--report", "-"], b"<!doctype html>"),
            (["diff", "m.onnx", "m.onnx", "--html", "-"], b"<!doctype html>"),
        ],
        5,
    ),
)
def test_a_text_is_written_to_standard_output(model: Path, run: Run, arguments: list[str], begins: bytes) -> None:
    code, out, _ = run(*arguments)
    assert (code, out[: len(begins)]) == (0, begins)
    assert list(Path().iterdir()) == [Path("m.onnx")]


def test_a_plan_is_applied_through_a_pipe(model: Path, run: Run) -> None:
    code, plan, said = run("plan", "tidy", "m.onnx", "-o", "-")
    assert code == 0 and json.loads(plan)["basis"]["model"]["path"] == "m.onnx" and "wrote stdout" in said
    code, _, said = run("apply", "-", "-o", "out.onnx", given=plan)
    assert code == 0 and "as planned: 1 site" in said and Path("out.onnx").exists()
    code, _, said = run("plan", "-", "m.onnx", "-o", "plan.json", given=b"steps: [drop-identity]\n")
    assert (code, said) == (
        2,
        "surgery: a plan cannot refer to a recipe on standard input; name the file of the recipe\n",
    )


def test_a_device_is_refused(model: Path, run: Run) -> None:
    # What pytest captures in this process is a regular file.
    for name, todo, runs in (
        ("/dev/stdout", "use - for standard output", run_apart),
        ("/dev/null", "name a file to write", run),
    ):
        said = f"surgery: {name}: this is not a regular file; {todo}\n"
        assert runs("apply", "tidy", "m.onnx", "-o", name) == (2, b"", said)


def test_a_recipe_cannot_write_to_standard_output(model: Path, run: Run) -> None:
    Path("r.yaml").write_text("steps: [drop-identity]\noutput: '-'\n", encoding="utf-8")
    assert run("apply", "r.yaml", "m.onnx") == (2, b"", "surgery: '-' cannot be standard output here; name a file\n")


def test_weights_are_imported_to_standard_output(model: Path, run: Run) -> None:
    np.savez("w.npz", w=np.ones(512, np.float32))
    code, out, _ = run("import-weights", "m.onnx", "w.npz", "-o", "-")
    assert code == 0
    found = numpy_helper.to_array(onnx.ModelProto.FromString(out).graph.initializer[0])
    assert np.array_equal(found, np.ones(512))


def test_external_data_cannot_be_read_from_a_pipe(model: Path, run: Run) -> None:
    onnx.save(weighted(), "e.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    code, out, said = run("inspect", "-", given=Path("e.onnx").read_bytes())
    assert (code, out) == (2, b"")
    assert said == (
        "surgery: standard input: its weights are external, in 'w.bin', which standard input does not include; "
        "name the file instead, or make it one file with 'surgery embed'\n"
    )


def test_standard_input_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "-", "-"]) == 2
    assert capsys.readouterr().err == (
        "surgery: standard input can be read once, and two arguments are '-'; name a file for one\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embed", "m.onnx", "-o", "-"], "a model is binary, and standard output is a terminal; redirect it, or name"),
        (["inspect", "-"], "'-' reads standard input, which is a terminal; pipe or redirect a file into it"),
    ],
)
def test_terminals_are_refused(model: Path, arguments: list[str], message: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "surgery", *arguments]
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and done.stderr.startswith(f"surgery: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["externalize", "m.onnx", "-o", "-"], "standard output takes one file, and this command writes several"),
        (["split", "m.onnx", "--parts", "2", "-o", "-"], "standard output takes one file, and this command writes"),
        (["export-weights", "m.onnx", "-o", "-"], "standard output takes one file, and this command writes several"),
        (["apply", "tidy", "m.onnx", "-o", "-", "--report", "-"], "standard output takes one file, and two arguments"),
        (["apply", "tidy", "m.onnx", "-o", "x.onnx", "--provenance", "-"], "'-' cannot be standard output here; name"),
        (["run", "drop-identity", "m.onnx", "--save-recipe", "-"], "'-' cannot be standard output here; name a file"),
        (["inspect", "m.onnx", "--log-file", "-"], "standard output is for results, not for the log; name a file"),
        (["lock", "tidy", "-o", "-", "--check"], "a lock on standard output cannot be checked; name the lock file"),
        (
            ["apply", "tidy", "m.onnx", "-o", "-", "--layout", "external"],
            "standard output takes one file, and --layout",
        ),
        (["split", "m.onnx", "--parts", "2", "-o", "https://b/x"], "https://b/x: 'https' is read-only; write to s3"),
        (["lock", "nowhere://b/r.yaml"], "nowhere://b/r.yaml: unknown protocol 'nowhere'; use one that"),
        (["inspect", "nowhere://b/m.onnx"], "nowhere://b/m.onnx: unknown protocol 'nowhere'; use one that"),
        (["inspect", "https://u:p@[/m.onnx?key=secret"], "https://[/m.onnx: "),
    ],
)
def test_unsupported_places_are_reported_in_one_line(
    model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) in (2, 3)
    said = capsys.readouterr().err
    assert said.startswith(f"surgery: {message}") and said.count("\n") == 1 and "secret" not in said


@pytest.mark.parametrize("command", sampled(["apply tidy m.onnx", "apply r.yaml", "apply m.onnx", "embed m.onnx"], 2))
def test_the_fields_in_the_name_of_an_output_are_those_of_a_recipe(
    model: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r.yaml").write_text("model: m.onnx\nsteps: [drop-identity]\n", encoding="utf-8")
    assert cli.main([*command.split(), "-o", "{stem}-{sha256:12}.onnx", "-q"]) == 0
    (written,) = Path().glob("m-*.onnx")
    assert written.stem.removeprefix("m-") == hashlib.sha256(written.read_bytes()).hexdigest()[:12]
    assert cli.main([*command.split(), "-o", f"{model.parent.as_uri()}/{{stem}}.new.onnx", "-q"]) == 0
    assert Path("m.new.onnx").exists()
    capsys.readouterr()
    for name, problem in {
        "{foo}.onnx": "'{foo}.onnx' knows no '{foo}'; did you mean '{stem}'?",
        "{sha256:x}.onnx": "'{sha256:x}.onnx' has '{sha256:x}'; a digest has 8 to 64 digits, such as '{sha256:12}'",
    }.items():
        with pytest.raises(SystemExit):
            cli.main([*command.split(), "-o", name])
        assert capsys.readouterr().err == f"surgery {command.split()[0]}: argument -o/--output: {problem}\n"


def test_a_file_url_is_a_path(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["embed", model.as_uri(), "-o", f"file://{model.parent}/out.onnx"]) == 0
    assert onnx.load("out.onnx") == weighted()


def test_a_model_in_a_zip_is_read(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("models.zip", "w") as archive:
        archive.write("m.onnx", "bert/m.onnx")
    url = f"zip://bert/m.onnx::{model.parent}/models.zip"
    assert cli.main(["inspect", url, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == url


def test_a_checkpoint_at_a_url_is_imported(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = storage.load(model)
    surgery.save(stored.proto, "memory://import/m.onnx", stored.weights)
    np.savez("w.npz", w=np.full(512, 3, np.float32))
    with zipfile.ZipFile("weights.zip", "w") as archive:
        archive.write("w.npz", "w.npz")
    checkpoint = f"zip://w.npz::{model.parent}/weights.zip"
    assert cli.main(["import-weights", "memory://import/m.onnx", checkpoint, "-o", "memory://import/out.onnx"]) == 0
    found = surgery.load("memory://import/out.onnx")
    (weight,) = storage.resolve(found.proto, found.weights).graph.initializer
    assert numpy_helper.to_array(weight).tolist() == [3.0] * 512


@pytest.fixture
def bucket(model: Path) -> str:
    """A folder in memory with the model, next to its weights, and a recipe."""
    url = f"memory://{model.parent.name}"
    stored = storage.load(model)
    surgery.save(stored.proto, f"{url}/m.onnx", stored.weights, layout="external")
    fsspec.filesystem("memory").pipe(f"/{model.parent.name}/r.yaml", b"steps: [drop-identity]\n")
    return url


def names(url: str) -> set[str]:
    return {name.rpartition("/")[2] for name in fsspec.filesystem("memory").ls(url.removeprefix("memory:/"), False)}


def read(url: str) -> bytes:
    found: bytes = fsspec.filesystem("memory").cat(url.removeprefix("memory:/"))
    return found


def test_a_plan_is_made_and_applied_at_urls(model: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It refers to its recipe and model by their URLs, and gives the bytes of a plain apply."""
    assert cli.main(["apply", f"{bucket}/r.yaml", f"{bucket}/m.onnx", "-o", "plain.onnx", "--layout", "single"]) == 0
    capsys.readouterr()
    assert cli.main(["plan", f"{bucket}/r.yaml", f"{bucket}/m.onnx", "-o", f"{bucket}/plan.json"]) == 0
    said = capsys.readouterr()
    assert f"wrote {bucket}/plan.json" in said.err
    plan = json.loads(read(f"{bucket}/plan.json"))
    assert plan["basis"]["recipe"] == f"{bucket}/r.yaml" and plan["basis"]["model"]["path"] == f"{bucket}/m.onnx"
    assert cli.main(["apply", f"{bucket}/plan.json", "-o", "planned.onnx", "--layout", "single"]) == 0
    assert Path("planned.onnx").read_bytes() == Path("plain.onnx").read_bytes()
    # A plan in a local file may refer to URLs, too.
    assert cli.main(["plan", f"{bucket}/r.yaml", f"{bucket}/m.onnx", "-o", "local.json"]) == 0
    assert cli.main(["apply", "local.json", "-o", f"{bucket}/out.onnx", "--layout", "single"]) == 0
    assert read(f"{bucket}/out.onnx") == Path("plain.onnx").read_bytes()
    assert cli.main(["plan", "tidy", "m.onnx", "-o", f"{bucket}/plan.json"]) == 2
    assert f"{bucket}/plan.json: the object exists" in capsys.readouterr().err


def test_the_files_of_a_plan_at_a_url(model: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths of an uploaded plan are relative to its URL; a new plan at a URL has no local paths."""
    Path("r.yaml").write_text("steps: [drop-identity]\n")
    assert cli.main(["plan", "r.yaml", "m.onnx", "-o", "plan.json"]) == 0
    fsspec.filesystem("memory").put("plan.json", f"/{model.parent.name}/moved.json")
    Path("r.yaml").unlink()
    Path("m.onnx").rename("n.onnx")
    assert cli.main(["apply", f"{bucket}/moved.json", "-o", "out.onnx"]) == 0
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Add"]
    capsys.readouterr()
    Path("r.yaml").write_text("steps: [drop-identity]\n")
    assert cli.main(["plan", "r.yaml", "n.onnx", "-o", f"{bucket}/new.json"]) == 2
    assert "a plan at a URL cannot refer to 'r.yaml', a local file" in capsys.readouterr().err
    assert "new.json" not in names(bucket)
    # Without the model, which it cannot refer to, the plan asks for it.
    assert cli.main(["plan", "tidy", "n.onnx", "-o", f"{bucket}/new.json"]) == 0
    capsys.readouterr()
    assert cli.main(["apply", f"{bucket}/new.json"]) == 2
    assert "names no model" in capsys.readouterr().err
    assert cli.main(["apply", f"{bucket}/new.json", "n.onnx", "-o", "again.onnx"]) == 0


def test_a_lock_is_next_to_its_recipe_at_a_url(model: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lock", f"{bucket}/r.yaml", "--check"]) == 2
    assert f"{bucket}/r.lock: there is no lock" in capsys.readouterr().err
    assert cli.main(["lock", f"{bucket}/r.yaml"]) == 0
    assert f"wrote {bucket}/r.lock" in capsys.readouterr().err
    assert "drop-identity" in read(f"{bucket}/r.lock").decode()
    assert cli.main(["lock", f"{bucket}/r.yaml", "--check"]) == 0
    run = ["apply", f"{bucket}/r.yaml", "m.onnx", "--force", "-o", "out.onnx"]
    assert cli.main([*run, "--locked"]) == 0
    assert cli.main(["lock", f"{bucket}/r.yaml", "-o", f"{bucket}/other.lock"]) == 0
    assert read(f"{bucket}/other.lock") == read(f"{bucket}/r.lock")
    fsspec.filesystem("memory").pipe(f"/{model.parent.name}/r.yaml", b"steps: [drop-identity, drop-dropout]\n")
    capsys.readouterr()
    for more in (["--locked"], ["--lock", f"{bucket}/other.lock"]):
        assert cli.main([*run, *more]) == 2
        assert "r.yaml" in capsys.readouterr().err
    assert cli.main(["lock", f"{bucket}/r.yaml", "--check"]) == 1
    assert "source of pass 'drop-dropout': nothing ->" in capsys.readouterr().out
    assert cli.main(["lock", f"{bucket}/r.yaml"]) == 0
    assert f"updated {bucket}/r.lock" in capsys.readouterr().err


def test_pieces_and_repros_go_to_folders_at_urls(model: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["split", f"{bucket}/m.onnx", "--at", "i", "-o", f"{bucket}/pieces"]
    assert cli.main(command) == 0
    assert f"files into {bucket}/pieces" in capsys.readouterr().err
    assert names(f"{bucket}/pieces") == {"m.1.onnx", "m.2.onnx", "m.2.onnx.data", "m.pieces.json"}
    second = surgery.load(f"{bucket}/pieces/m.2.onnx")
    assert numpy_helper.to_array(storage.resolve(second.proto, second.weights).graph.initializer[0])[7] == 7
    assert cli.main(command) == 2
    assert f"{bucket}/pieces: the folder exists; name another one, or use --force" in capsys.readouterr().err
    assert cli.main([*command, "--force"]) == 0
    Path("wrong.py").write_text(
        "from surgery import Parity, graph_pass\n\n\n"
        "@graph_pass('make-wrong', parity=Parity.EXACT)\n"
        'def make_wrong(graph):\n    """Subtract instead."""\n'
        "    for node in graph.nodes('Add'):\n        with graph.site() as new:\n"
        "            new.replace(node.outputs[0], new.node('Sub', *node.inputs))\n"
    )
    Path("wrong.yaml").write_text("plugins: [wrong.py]\nsteps: [make-wrong]\n")
    code = cli.main(["bisect", "wrong.yaml", f"{bucket}/m.onnx", "--trust", "-o", f"{bucket}/repro"])
    said = capsys.readouterr()
    assert code == 1, said
    assert {"original.onnx", "changed.onnx", "repro.py", "report.json"} <= names(f"{bucket}/repro")
    assert b"/tmp" not in read(f"{bucket}/repro/report.json")


def test_python_functions_accept_urls(model: Path) -> None:
    stored = storage.load(model)
    assert surgery.save(stored.proto, "memory://zoo/m.onnx", stored.weights, layout="external") == []
    again = surgery.load("memory://zoo/m.onnx")
    assert storage.resolve(again.proto, again.weights) == weighted()
    result = surgery.apply("memory://zoo/m.onnx", "tidy", output="memory://zoo/out.onnx")
    assert result.ok and result.to_json()["output"]["path"] == "memory://zoo/out.onnx"
    assert surgery.inspect("memory://zoo/out.onnx").nodes == 1
    with pytest.raises(OutputError, match="the object exists; name another one"):
        surgery.save(stored.proto, "memory://zoo/m.onnx", stored.weights)


@pytest.mark.parametrize(
    ("module", "url", "message"),
    [
        ("fsspec.core", "s3://b/m.onnx", "URLs need the package fsspec; pip install 'onnx-surgery[remote]'"),
        ("gcsfs", "gs://b/m.onnx", "'gs' needs the package gcsfs, which is not installed; pip install 'onnx-surgery"),
    ],
)
def test_a_missing_package_is_named(module: str, url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        surgery.load(url)
    assert message in str(caught.value)
