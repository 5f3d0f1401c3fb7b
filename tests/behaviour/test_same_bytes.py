"""The same model and recipe make the same bytes, wherever and however they run."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from surgery.engine.provenance.checking import check, read
from surgery.model import storage

SURGERY = Path(sys.executable).parent / "surgery"


@dataclass(frozen=True)
class Circumstances:
    """How a run differs from a plain one."""

    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()
    cores: int | None = None
    watched: bool = False


PLAIN = Circumstances({"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"})
LOCALE = {"PYTHONHASHSEED": "4711", "TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "tr_TR.UTF-8"}
OTHERS = {
    "all at once": Circumstances({**LOCALE, "TERM": "xterm"}, ["--locked", "--report", "report.html"], 1, watched=True),
    "again": PLAIN,
    "another hash seed, time zone and locale": Circumstances(LOCALE),
    "one core": Circumstances(cores=1),
    "locked": Circumstances(flags=["--locked"]),
    "with progress": Circumstances({"TERM": "xterm"}, watched=True),
    "in this process": Circumstances(flags=["--in-process"]),
}
QUICK = ("all at once",)


def apply(folder: Path, recipe: str, model: Path, how: Circumstances) -> bytes:
    """Run a recipe in a separate folder; return the bytes of the output and of its statement."""
    folder.mkdir(parents=True)
    shutil.copy(model, folder / "in.onnx")
    command = [
        str(SURGERY),
        "apply",
        recipe,
        "in.onnx",
        "-o",
        "out.onnx",
        "--provenance",
        "out.onnx.intoto.json",
        *how.flags,
    ]
    if "--locked" in how.flags:
        subprocess.run([SURGERY, "lock", recipe], cwd=folder, check=True, capture_output=True)
    if how.cores is not None:
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: how.cores]))
        command = ["taskset", "-c", cores, *command]
    environment = {**os.environ, "CI": "", **how.environment}
    if how.watched:
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=theirs) as run:
            os.close(theirs)
            while _read(ours):
                pass
        os.close(ours)
        assert run.returncode == 0
    else:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    return (folder / "out.onnx").read_bytes() + (folder / "out.onnx.intoto.json").read_bytes()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody writes to it any more
        return b""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, short_models: Path) -> bytes:
    return apply(tmp_path_factory.mktemp("plain") / "here", "tidy", short_models / "bert-tiny.onnx", PLAIN)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]
)
def test_the_environment_does_not_change_the_bytes(name: str, plain: bytes, short_models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "another folder" / "with a longer name"
    assert apply(folder, "tidy", short_models / "bert-tiny.onnx", OTHERS[name]) == plain


PAIRS = [
    *(("default", name) for name in ("bert-tiny", "gpt2-tiny", "resnet-tiny", "whisper-enc-tiny")),
    *(("int8", "gpt2-tiny"), ("int4", "gpt2-tiny"), ("fp16", "resnet-tiny"), ("npu", "vit-tiny")),
    *(("ort", "bert-tiny"), ("modern", "llama-tiny"), ("int8-dynamic", "gpt2-tiny")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "model"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_shipped_recipes(recipe: str, model: str, short_models: Path, tmp_path: Path) -> None:
    one, other = Circumstances({"PYTHONHASHSEED": "1"}, cores=1), Circumstances({"PYTHONHASHSEED": "2"})
    path = short_models / f"{model}.onnx"
    assert apply(tmp_path / "a", recipe, path, one) == apply(tmp_path / "b", recipe, path, other)
    written = tmp_path / "a" / "out.onnx"
    found = check(storage.load(written), read(written.with_name("out.onnx.intoto.json")), source=storage.load(path))
    assert found.findings == []
