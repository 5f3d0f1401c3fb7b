"""Checkpoints that would run code: none of it runs, and the refusal names what would have been called.

The pickles are proved to be what they are: a plain unpickler, in a separate process, does touch the canary.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import torch_files as t

from surgery.base.errors import SurgeryError
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.checkpoints.checkpoints import read_checkpoint

EVIL = """
import os, pathlib
CANARY = pathlib.Path(os.environ["CANARY"])
def touch(*_, **__):
    CANARY.touch()
    return {}
class Making:
    def __new__(cls, *args, **more):
        touch()
        return object.__new__(cls)
class Restored:
    def __setstate__(self, state):
        touch()
class Filled(list):
    def append(self, item):
        touch()
    def extend(self, items):
        touch()
class Items(dict):
    def __setitem__(self, key, value):
        touch()
"""


def shell(canary: Path) -> bytes:
    """The opcodes of the arguments of os.system."""
    return b"(" + t.text(f"touch {canary}") + b"t"


KINDS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "reduce": (lambda c: b"cposix\nsystem\n" + shell(c) + b"R", "it would call posix.system('touch"),
    "eval": (
        lambda c: b"cbuiltins\neval\n(" + t.text(f"open({str(c)!r}, 'w').close()") + b"tR",
        'it would call builtins.eval("open(',
    ),
    "nested": (
        lambda c: t.mapping({"a": b"](" + b"cposix\nsystem\n" + shell(c) + b"R" + b"e"}),
        "it would call posix.system('touch",
    ),
    "global": (lambda c: b"cimported_evil\nnothing\n", "it would import imported_evil.nothing"),
    "stack global": (
        lambda c: b"\x80\x04" + t.text("evil") + t.text("CANARY.touch") + b"\x93)R",
        "it would call evil.CANARY.touch()",
    ),
    "inst": (lambda c: b"(" + t.text(f"touch {c}") + b"iposix\nsystem\n", "it would make posix.system('touch"),
    "obj": (lambda c: b"(cevil\nMaking\n" + t.text("x") + b"o", "it would make evil.Making('x')"),
    "newobj": (lambda c: b"cevil\nMaking\n)\x81", "it would make evil.Making()"),
    "newobj with names": (lambda c: b"cevil\nMaking\n)}\x92", "it would make evil.Making()"),
    "build": (
        lambda c: b"ccopyreg\n_reconstructor\n(cevil\nRestored\ncbuiltins\nobject\nNtR}b",
        "it would import evil.Restored",
    ),
    "append": (lambda c: b"cevil\nFilled\n)\x81K\x01a", "it would make evil.Filled()"),
    "setitem": (lambda c: b"cevil\nItems\n)\x81K\x01K\x02s", "it would make evil.Items()"),
    "extension": (lambda c: b"\x82\x01" + shell(c) + b"R", "it would import entry 1 of the extension registry"),
    "argument": (
        lambda c: b"ccollections\nOrderedDict\n(](" + b"cposix\nsystem\n" + shell(c) + b"RetR",
        "it would call posix.system('touch",
    ),
}
"""What would be unpickled, and the words of the refusal."""


def refused(path: Path) -> str:
    with pytest.raises(SurgeryError) as caught:
        found = read_checkpoint(path, storage.Weights())
        for name in found.entries:
            found.tensor(name)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules that touch the canary, where this process would find them; the canary."""
    canary = tmp_path / "canary"
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "imported_evil.py").write_text("import evil\nevil.touch()\nnothing = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CANARY", str(canary))
    return canary


def test_these_pickles_run_code(evil: Path) -> None:
    """A plain unpickler obeys each of them."""
    code = (
        "import copyreg, json, pickle, posix, sys\nfrom pathlib import Path\n"
        "copyreg.add_extension('posix', 'system', 1)\n"
        "canary, found = Path(sys.argv[1]), {}\n"
        "for name, data in json.load(sys.stdin).items():\n"
        "    canary.unlink(missing_ok=True)\n"
        "    try:\n        pickle.loads(bytes.fromhex(data))\n"
        "    except Exception as error:\n        print(name, repr(error), file=sys.stderr)\n"
        "    found[name] = canary.exists()\n"
        "print(json.dumps(found))\n"
    )
    pickles = {name: t.program(make(evil)).hex() for name, (make, _) in KINDS.items()}
    run = subprocess.run(
        [sys.executable, "-c", code, evil], input=json.dumps(pickles), capture_output=True, text=True, cwd=evil.parent
    )
    assert json.loads(run.stdout) == dict.fromkeys(pickles, True), run.stderr
    evil.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_no_code_is_run(kind: str, evil: Path, tmp_path: Path) -> None:
    make, words = KINDS[kind]
    value = make(evil)
    good = t.tensor("0", [2])
    new = t.archive(tmp_path / "w.pt", t.program(t.mapping({"w": good, "x": value})), {"0": bytes(8)})
    old = t.saved_old(tmp_path / "old.pt", t.mapping({"w": good, "x": value}), {"0": (2, bytes(8))})
    bare = tmp_path / "bare.bin"
    bare.write_bytes(t.program(value))
    for path in (new, old, bare):
        assert words in refused(path)
    assert not evil.exists()
    assert "evil" not in sys.modules and "imported_evil" not in sys.modules


def test_the_command_refuses_in_one_line(evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = t.archive(tmp_path / "w.pt", t.program(KINDS["reduce"][0](evil)))
    model = Path(__file__).parents[3] / "models" / "resnet-tiny.onnx"
    assert cli.main(["import-weights", str(model), str(path), "-o", str(tmp_path / "out.onnx")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"refused: it would call posix.system('touch {evil}"[:60] in said
    assert not evil.exists() and not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    "value",
    [
        b"(" + t.text("module") + b"cposix\nsystem\n" + t.text("x") + b"tQ",
        b"P0\n",
        b"(" + t.text("storage") + b"cposix\nsystem\n" + t.text("0") + t.text("cpu") + t.number(2) + b"tQ",
    ],
    ids=["another kind", "as text", "another type of storage"],
)
def test_persistent_ids_must_be_storages(value: bytes, tmp_path: Path) -> None:
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + value + t.number(0) + t.numbers([2]) + t.numbers([1]) + b"\x89NtR"
    message = refused(t.archive(tmp_path / "w.pt", t.program(t.mapping({"w": made})), {"0": bytes(8)}))
    assert "not in a storage of the file" in message or "would import posix.system" in message


def test_tensor_functions_call_no_other_functions(evil: Path, tmp_path: Path) -> None:
    called = b"ctorch._tensor\n_rebuild_from_type_v2\n(cposix\nsystem\nctorch\nTensor\n" + shell(evil) + b"}tR"
    path = t.archive(tmp_path / "w.pt", t.program(t.mapping({"w": called})))
    assert "it would import posix.system" in refused(path) and not evil.exists()
    made = b"ccollections\ndefaultdict\n(cposix\nsystem\ntR"
    assert "it would import posix.system" in refused(t.archive(tmp_path / "w.pt", t.program(made)))


def test_a_second_pickle(evil: Path, tmp_path: Path) -> None:
    """Another reader might take the other one."""
    value, storages = t.program(t.mapping({"w": t.tensor("0", [2])})), {"0": bytes(8)}
    other = t.program(KINDS["reduce"][0](evil))
    assert "it has several pickles" in refused(t.archive(tmp_path / "w.pt", value, storages, **{"n/data.pkl": other}))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "w.pt", "w") as file:
        file.writestr("m/data.pkl", value)
        file.writestr("m/data.pkl", other)
    assert "it lists 'm/data.pkl' twice" in refused(tmp_path / "w.pt")
    path = t.archive(tmp_path / "w.pt", value, storages)
    path.write_bytes(path.read_bytes().replace(b"m/data.pkl", b"m/evil.pkl", 1))
    assert "the member has the name 'm/evil.pkl'" in refused(path)
    assert not evil.exists()


@pytest.mark.parametrize("name", ["../evil", "m/../../evil", "/etc/evil", "m\\..\\..\\evil"])
def test_names_outside_the_archive_are_refused(name: str, tmp_path: Path) -> None:
    path = t.archive(tmp_path / "w.pt", t.program(b"}"), **{name: "x"})
    assert "points outside of the archive" in refused(path)
    assert not (tmp_path.parent / "evil").exists()


def test_a_storage_key_outside_the_archive_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(8))
    items = t.mapping({"w": t.tensor("../../secret", [2])})
    assert "'m/data/../../secret' is missing" in refused(t.archive(tmp_path / "w.pt", t.program(items)))


def test_bombs(tmp_path: Path) -> None:
    """What would fill the memory or the disk, or never end, is refused."""
    zipped = t.archive(tmp_path / "a.pt", bytes(300 << 20), compressed=("m/data.pkl",))
    assert zipped.stat().st_size < 1 << 20 and "is compressed or encrypted" in refused(zipped)
    huge = t.tensor("0", [1 << 20, 1 << 20], strides=[0, 0], elements=1)
    path = t.archive(tmp_path / "b.pt", t.program(t.mapping({"w": huge})), {"0": bytes(4)})
    assert "repeats the elements of its storage to 4,398,046,511,104 bytes" in refused(path)
    long = b"\x8b" + (1 << 30).to_bytes(4, "little")  # LONG4 of a gigabyte that is not there
    assert "damaged" in refused(t.archive(tmp_path / "c.pt", t.program(long)))
    text = b"\x8d" + (1 << 60).to_bytes(8, "little")
    assert "damaged" in refused(t.archive(tmp_path / "d.pt", t.program(text)))
    # Each list holds the one before it ten times: 10 to the power of 60 references.
    laughs = b"]" + b"".join(b"q" + bytes([n]) + b"0](" + (b"h" + bytes([n])) * 10 + b"e" for n in range(60))
    assert "has no tensors" in refused(t.archive(tmp_path / "e.pt", t.program(laughs)))
    deep = b"](" * 100_000 + b"e" * 100_000
    assert refused(t.archive(tmp_path / "f.pt", t.program(deep)))
    circle = b"]q\x00h\x00a"
    assert "has no tensors" in refused(t.archive(tmp_path / "g.pt", t.program(circle)))


def test_other_pickles_are_not_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(pickle.dumps([1, 2, 3]))
    assert "this file was not written by torch.save" in refused(tmp_path / "w.bin")
    (tmp_path / "w.bin").write_bytes(b"\x00\x01binary")
    assert "this file was not written by torch.save" in refused(tmp_path / "w.bin")
