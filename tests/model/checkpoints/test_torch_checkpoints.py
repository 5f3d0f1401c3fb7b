"""PyTorch checkpoints: tensors come as they were saved, in all the ways to save them; damage is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import torch_files as t

from surgery.base.errors import SurgeryError
from surgery.model import storage
from surgery.model.checkpoints.checkpoints import read_checkpoint
from surgery.model.storage.ir_tensors import StoredTensor

RNG = np.random.default_rng(0)
ARRAYS = {
    "weight": RNG.normal(size=(30, 20)).astype(np.float32),
    "half": np.array([1, -2, 3], np.float16),
    "count": np.array(7, np.int64),
    "none": np.zeros((0, 3), np.float32),
}


def read(path: Path, key: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
    found = read_checkpoint(path, storage.Weights(), key=key)
    return {name: found.tensor(name).numpy() for name in found.entries}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def refused(path: Path, key: str | None = None) -> str:
    with pytest.raises(SurgeryError) as caught:
        read(path, key)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
def test_a_state_dict(tmp_path: Path, suffix: str) -> None:
    same(read(t.saved(tmp_path / f"w{suffix}", ARRAYS)), ARRAYS)


def test_a_large_tensor_is_mapped_and_not_read(tmp_path: Path) -> None:
    path = t.saved(tmp_path / "w.pt", {"w": np.zeros(1000, np.float32)})
    found = read_checkpoint(path, storage.Weights()).tensor("w")
    assert isinstance(found, StoredTensor) and found.reference.location.endswith("w.pt")
    offset = found.reference.offset
    assert path.read_bytes()[offset : offset + 4000] == bytes(4000)


def test_a_file_from_before_1_6(tmp_path: Path) -> None:
    value, storages = t.state_dict(ARRAYS, old=True)
    sized = {key: (array.size, storages[key]) for key, array in zip(storages, ARRAYS.values())}
    same(read(t.saved_old(tmp_path / "w.pt", value, sized)), ARRAYS)
    whole = (tmp_path / "w.pt").read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 60, 10):
        (tmp_path / "w.pt").write_bytes(whole[:length])
        refused(tmp_path / "w.pt")


def test_views_of_a_storage(tmp_path: Path) -> None:
    base = RNG.normal(size=(40, 50)).astype(np.float32)
    views = {
        "turned": (t.tensor("0", [50, 40], strides=[1, 50], elements=2000), base.T),
        "part": (t.tensor("0", [3, 4], strides=[50, 2], offset=61, elements=2000), base[1:4, 11:19:2]),
        "repeated": (t.tensor("0", [5, 2], strides=[0, 1], elements=2000), np.tile(base[0, :2], (5, 1))),
        "parameter": (t.tensor("0", [40, 50], parameter=True), base),
        "one": (t.tensor("0", [1, 1], strides=[7, 9], offset=1999, elements=2000), base[-1:, -1:]),
    }
    items = {name: value for name, (value, _) in views.items()}
    path = t.archive(tmp_path / "w.pt", t.program(t.ordered(items)), {"0": base.tobytes()})
    same(read(path), {name: np.ascontiguousarray(array) for name, (_, array) in views.items()})


def test_other_types_and_byte_order(tmp_path: Path) -> None:
    untyped = b"ctorch._utils\n_rebuild_tensor_v3\n(" + t.storage("0", "UntypedStorage", 4) + t.number(0)
    untyped += t.numbers([2]) + t.numbers([1]) + b"\x89ccollections\nOrderedDict\n)Rctorch\nbfloat16\nNtR"
    brain = np.array([1.5, -2], ml_dtypes.bfloat16)
    path = t.archive(tmp_path / "w.pt", t.program(t.mapping({"b": untyped})), {"0": brain.tobytes()})
    same(read(path), {"b": brain})
    big = t.archive(
        tmp_path / "big.pt",
        t.program(t.mapping({"w": t.tensor("0", [2])})),
        {"0": np.array([1, 2], ">f4").tobytes()},
        **{"m/byteorder": "big"},
    )
    same(read(big), {"w": np.array([1, 2], np.float32)})


@pytest.mark.parametrize("flag", ["neg", "conj"])
def test_a_view_that_changes_elements_is_refused(tmp_path: Path, flag: str) -> None:
    """As `z.conj().imag` and `z.conj()`: the file has the elements of `z`, and a flag of the view."""
    view = t.tensor("0", [2])[: -len(b"tR")]

    def saved(flags: bytes) -> Path:
        return t.archive(tmp_path / "w.pt", t.program(t.mapping({"w": view + flags + b"tR"})), {"0": bytes(8)})

    said = refused(saved(t.mapping({flag: b"\x88"})))
    assert f"'w' is a view with other elements than its storage ({flag}); save it with .resolve_conj()" in said
    assert read(saved(t.mapping({flag: b"\x89"}))).keys() == read(saved(b"N")).keys() == {"w"}
    assert "not recognized" in refused(saved(t.text(flag)))


def test_two_tensors_with_the_same_joined_name_are_refused(tmp_path: Path) -> None:
    one = t.tensor("0", [2])
    items = {"a.b": one, "a": t.mapping({"b": t.tensor("1", [2])})}
    path = t.archive(tmp_path / "w.pt", t.program(t.mapping(items)), {"0": bytes(8), "1": bytes(8)})
    assert "two of its tensors are called 'a.b'; rename one of them" in refused(path)
    assert read(path, "a").keys() == {"b"}


def test_tied_tensors_are_named(tmp_path: Path) -> None:
    items = {name: t.tensor("0", [2, 2]) for name in ("a", "b")} | {"c": t.tensor("0", [2], elements=4)}
    path = t.archive(tmp_path / "w.pt", t.program(t.mapping(items)), {"0": bytes(16)})
    assert read_checkpoint(path, storage.Weights()).aliases == {"b": "a"}


def test_the_dict_with_the_weights_is_found(tmp_path: Path) -> None:
    def saved(items: dict[str, bytes]) -> Path:
        return t.archive(tmp_path / "w.pt", t.program(t.mapping(items)), {"0": bytes(8)})

    one, inner = t.tensor("0", [2]), t.mapping({"x": t.tensor("0", [2])})
    args = b"cargparse\nNamespace\n)R" + t.mapping({"lr": b"G?\xf0\x00\x00\x00\x00\x00\x00"}) + b"b"
    moments = t.mapping({"state": t.mapping({"exp_avg": t.tensor("0", [2])})})
    assert read(saved({"state_dict": inner, "optimizer": moments, "epoch": t.number(3), "args": args})).keys() == {"x"}
    assert read(saved({"generator": inner, "step": one})).keys() == {"generator.x", "step"}
    assert "has tensors under 'generator', 'critic'; choose one with --key" in refused(
        saved({"generator": inner, "critic": inner})
    )
    assert read(tmp_path / "w.pt", "critic").keys() == {"x"}
    assert "has no key 'kritic'; keys there: generator, critic" in refused(tmp_path / "w.pt", "kritic")
    assert "has no tensors" in refused(saved({"epoch": t.number(3)}))


def test_a_dict_with_a_usual_name_is_not_chosen_if_another_has_the_same_weights(tmp_path: Path) -> None:
    def saved(items: dict[str, bytes]) -> Path:
        return t.archive(tmp_path / "w.pt", t.program(t.mapping(items)), {"0": bytes(8)})

    inner = t.mapping({"x": t.tensor("0", [2])})
    assert "has tensors under 'model', 'model_ema'; choose one with --key" in refused(
        saved({"model": inner, "model_ema": inner, "other": t.mapping({"y": t.tensor("0", [2])})})
    )
    assert read(tmp_path / "w.pt", "model_ema").keys() == {"x"}
    # Deeper dicts are found, and named by all keys.
    deep = t.mapping({"model": inner, "ema": t.mapping({"module": inner})})
    assert "has tensors under 'checkpoint.model', 'checkpoint.ema'; choose" in refused(saved({"checkpoint": deep}))
    assert read(tmp_path / "w.pt", "checkpoint.model").keys() == {"x"}


def test_the_keys_of_a_checkpoint_are_listed_shortly(tmp_path: Path) -> None:
    names = {f"layer{number}.weight": t.tensor("0", [2]) for number in range(12)}
    flat = t.archive(tmp_path / "flat.pt", t.program(t.mapping(names)), {"0": bytes(8)})
    assert refused(flat, "model").endswith("has no key 'model'; no dicts with tensors are there; omit --key")
    dicts = {f"net{number}": t.mapping({"x": t.tensor("0", [2])}) for number in range(12)}
    several = t.archive(tmp_path / "several.pt", t.program(t.mapping(dicts)), {"0": bytes(8)})
    assert refused(several, "model").endswith("net6, net7 and 4 more")


def test_shards(tmp_path: Path) -> None:
    for index, name in enumerate(("weight", "half"), 1):
        t.saved(tmp_path / f"pytorch_model-{index}-of-2.bin", {name: ARRAYS[name]})
    places = {"weight": "pytorch_model-1-of-2.bin", "half": "pytorch_model-2-of-2.bin"}
    index_file = tmp_path / "pytorch_model.bin.index.json"
    index_file.write_text(json.dumps({"weight_map": places}))
    same(read(index_file), {name: ARRAYS[name] for name in places})
    index_file.write_text(json.dumps({"weight_map": {"weight": index_file.name}}))
    assert "plain file name" in refused(index_file)


def test_damage(tmp_path: Path) -> None:
    whole = t.saved(tmp_path / "w.pt", ARRAYS).read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 100, 3, 0):
        (tmp_path / "w.pt").write_bytes(whole[:length])
        refused(tmp_path / "w.pt")

    def wrong(value: bytes, storages: dict[str, bytes] | None = None) -> str:
        return refused(t.archive(tmp_path / "w.pt", t.program(t.mapping({"w": value})), storages))

    assert "storage '0' has 4 of 8 bytes" in wrong(t.tensor("0", [2]), {"0": bytes(4)})
    assert "'m/data/0' is missing" in wrong(t.tensor("0", [2]))
    assert "'w' needs 12 bytes of a storage of 8" in wrong(t.tensor("0", [3], elements=2), {"0": bytes(8)})
    assert "not recognized" in wrong(t.tensor("0", [2], strides=[-1]), {"0": bytes(8)})
    assert "QInt8Storage, which ONNX does not support" in wrong(
        t.tensor("0", [2], kind="QInt8Storage"), {"0": bytes(8)}
    )
    sparse = b"ctorch._utils\n_rebuild_sparse_tensor\n)R"
    assert "'w' is a sparse tensor, which a model cannot contain; save it as a dense tensor" in wrong(sparse)
    assert "this is a TorchScript program" in refused(
        t.archive(tmp_path / "w.pt", t.program(b"}"), **{"m/constants.pkl": t.program(b")")})
    )
    with zipfile.ZipFile(tmp_path / "p.pt", "w") as file:
        file.writestr("p/models/model.json", "{}")
    assert "without data.pkl" in refused(tmp_path / "p.pt") and "surgery export" in refused(tmp_path / "p.pt")


def test_large_tensors_stay_out_of_memory(tmp_path: Path) -> None:
    """Twice 80 MB: one tensor taken as it lies, one turned round, within 60 MB."""
    count = 20_000_000
    items = {"w": t.tensor("0", [count], elements=count), "t": t.tensor("1", [4000, 5000], strides=[1, 4000])}
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from surgery.model.checkpoints import checkpoints\n"
        "from surgery.model import storage\n"
        "def anonymous():\n"
        "    lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    return int(lines['RssAnon'].split()[0])\n"
        "checkpoints.read_checkpoint\n"
        "weights = storage.Weights()\n"
        "found = checkpoints.read_checkpoint(Path(sys.argv[1]), weights)\n"
        "before = anonymous()\n"
        "for name in found.entries:\n"
        "    assert float(found.tensor(name).numpy().reshape(-1)[-1]) == 0\n"
        "assert anonymous() - before < 60_000, anonymous() - before\n"
    )
    big = bytes(count * 4)
    t.archive(tmp_path / "w.pt", t.program(t.ordered(items)), {"0": big, "1": big})
    subprocess.run([sys.executable, "-c", code, tmp_path / "w.pt"], check=True, timeout=120)
