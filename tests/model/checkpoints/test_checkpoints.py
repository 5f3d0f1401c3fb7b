"""Files of tensors: what is written is what numpy and the rules of the format say, what is read is whole or refused."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from support.corpus import floats, model_of

import surgery
from surgery.base.errors import OutputError, SurgeryError, UsageError
from surgery.engine import recipe
from surgery.engine.recipe import resolved
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.checkpoints import npz, safetensors
from surgery.model.checkpoints.checkpoints import Named, read_checkpoint, write_checkpoint
from surgery.model.checkpoints.weight_files import export_weights
from surgery.model.graph import text
from surgery.model.storage.files import NewFile

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1, -2], np.float16),
    "flag": np.array([True, False, True]),
    "scalar": np.array(7, np.int64),
    "none": np.zeros((0, 3), np.float64),
    "bytes": np.arange(2000, dtype=np.uint8),
}
WIDE = {
    "brain": np.array([1.5, -2], ml_dtypes.bfloat16),
    "e4m3": np.array([1.5, -2, 3], ml_dtypes.float8_e4m3fn),
    "e5m2": np.array([1.5], ml_dtypes.float8_e5m2fnuz),
}


def named(arrays: dict[str, np.ndarray[Any, Any]]) -> list[Named]:
    return [Named(name, ir.DataType.from_numpy(a.dtype), a.shape, a.tobytes()) for name, a in arrays.items()]


def written(path: Path, arrays: dict[str, np.ndarray[Any, Any]], **options: Any) -> list[Path]:
    return write_checkpoint(path, named(arrays), storage.Weights(), **options)


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    found = read_checkpoint(path, storage.Weights())
    return {name: found.tensor(name).numpy() for name in found.entries}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def refused(path: Path) -> str:
    with pytest.raises(SurgeryError) as caught:
        found = read_checkpoint(path, storage.Weights())
        for name in found.entries:
            found.tensor(name)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    """Write a safetensors file by hand."""
    said = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(said)) + said + data)
    return path


def entry(dims: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": dims, "data_offsets": [begin, end]}


def test_safetensors_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    assert written(path, ARRAYS | WIDE) == [path]
    same(read(path), ARRAYS | WIDE)


def test_safetensors_by_the_rules(tmp_path: Path) -> None:
    """As another reader would take it apart: the header, its padding, offsets without holes, elements aligned."""
    (path,) = written(tmp_path / "w.safetensors", ARRAYS)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for name, item in header.items():
        begin, stop = item["data_offsets"]
        array = ARRAYS[name]
        assert begin == end and begin % array.itemsize == 0
        assert data[8 + length + begin : 8 + length + stop] == array.tobytes() and item["shape"] == list(array.shape)
        end = stop
    assert 8 + length + end == len(data)


def test_npz_round_trip(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "w.npz", ARRAYS)
    with np.load(path) as found:
        same(dict(found), ARRAYS)
    same(read(path), ARRAYS)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_numpy(tmp_path: Path, save: Any) -> None:
    odd = {"turned": np.asfortranarray(ARRAYS["a"]), "big": ARRAYS["a"].astype(">f4"), **ARRAYS}
    save(tmp_path / "w.npz", **odd)
    same(read(tmp_path / "w.npz"), {"turned": ARRAYS["a"], "big": ARRAYS["a"], **ARRAYS})


def test_equal_tensors_give_equal_bytes(tmp_path: Path) -> None:
    for suffix in (".npz", ".safetensors"):
        one, other = (written(tmp_path / f"{name}{suffix}", ARRAYS)[0].read_bytes() for name in "ab")
        assert one == other


def test_shards_and_their_index(tmp_path: Path) -> None:
    files = written(tmp_path / "w.safetensors", ARRAYS, shard_size=40)
    *shards, index = files
    assert [path.name for path in shards] == [f"w-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    assert index.name == "w.safetensors.index.json"
    assert json.loads(index.read_text())["metadata"]["total_size"] == sum(a.nbytes for a in ARRAYS.values())
    same(read(index), ARRAYS)
    assert [path.name for path in written(tmp_path / "v.safetensors", ARRAYS, shard_size=10**6)] == ["v.safetensors"]


def test_an_index_never_lists_shards_of_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, index = written(tmp_path / "w.safetensors", ARRAYS, shard_size=40)
    commit = NewFile.commit

    def once(self: NewFile, target: Path) -> None:
        commit(self, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(NewFile, "commit", once)
        written(tmp_path / "w.safetensors", ARRAYS, shard_size=40, force=True)
    assert not index.exists()
    written(tmp_path / "w.safetensors", ARRAYS, shard_size=40, force=True)
    same(read(index), ARRAYS)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_types_a_format_does_not_support_are_refused(tmp_path: Path, suffix: str) -> None:
    dtype = ir.DataType.INT4 if suffix == ".safetensors" else ir.DataType.BFLOAT16
    with pytest.raises(UsageError, match=f"no type for {dtype.name.lower()}, which 'odd' is"):
        write_checkpoint(tmp_path / f"w{suffix}", [Named("odd", dtype, (2,), b"\1\2\3\4")], storage.Weights())
    assert not list(tmp_path.iterdir())


def test_every_type_is_carried_or_refused(tmp_path: Path) -> None:
    for dtype in ir.DataType:
        if dtype in safetensors.NAMES:
            assert dtype.bitwidth % 8 == 0
        if dtype in npz.DTYPES:
            assert npz.DTYPES[dtype].kind in "biufc"
    for name in ("INT4", "UINT4", "FLOAT4E2M1", "STRING"):
        assert ir.DataType[name] not in safetensors.NAMES and ir.DataType[name] not in npz.DTYPES


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        (b"", b"", "JSON"),
        (b"[]", b"", "not a JSON object"),
        (b'{"a": {}, "a": {}}', b"", "'a' twice"),
        (b"\xff\xfe{}", b"", "JSON"),
        ({"a": entry([2], 0, 8)}, b"1234", "truncated"),
        ({"a": entry([2], 0, 8)}, b"123456789", "1 bytes at the end"),
        ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"123456789012", "'b' overlaps"),
        ({"a": entry([2], 0, 8), "b": entry([1], 12, 16)}, b"1234567890123456", "'b' has a gap"),
        ({"a": entry([3], 0, 8)}, b"12345678", "8 bytes"),
        ({"a": entry([-2], 0, 8)}, b"12345678", "not recognized"),
        ({"a": {"dtype": "F32"}}, b"", "not recognized"),
        ({"a": entry([2], 0, 1, "F4")}, b"1", "type F4"),
        ({"a": [1]}, b"", "not recognized"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, header: Any, data: bytes, words: str) -> None:
    assert words in refused(raw(tmp_path / "w.safetensors", header, data))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    for suffix in (".safetensors", ".npz"):
        (path,) = written(tmp_path / f"w{suffix}", {"a": ARRAYS["a"]})
        whole = path.read_bytes()
        for length in range(0, len(whole), 7):
            path.write_bytes(whole[:length])
            refused(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_in_a_compressed_npz_is_refused(tmp_path: Path, method: int) -> None:
    path, content = tmp_path / "w.npz", io.BytesIO()
    np.save(content, np.arange(4000, dtype=np.float32) ** 2)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", content.getvalue())
    assert read(path)["a"][3] == 9
    whole = path.read_bytes()
    start = 30 + len("a.npy")
    for offset in (start, start + 1, start + 10, start + 2000):
        path.write_bytes(whole[:offset] + bytes(~one & 255 for one in whole[offset : offset + 8]) + whole[offset + 8 :])
        refused(path)


def test_an_encrypted_npz_is_refused(tmp_path: Path) -> None:
    """Bit 0 of the flags, in the list and before the data."""
    (path,) = written(tmp_path / "w.npz", {"a": ARRAYS["bytes"]})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in refused(path)


def test_a_flipped_byte_in_an_npz_is_refused(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "w.npz", {"a": ARRAYS["bytes"]})
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert "Bad CRC-32 for file 'a.npy'" in refused(path)


def test_elements_that_are_not_aligned_are_copied(tmp_path: Path) -> None:
    data = np.arange(1000, dtype=np.float32)
    header = json.dumps({"a": entry([1000], 0, 4000)}).encode()
    header += b" " * (-len(header) % 8 + 3)
    found = read(raw(tmp_path / "w.safetensors", header, data.tobytes()))
    assert found["a"].flags.aligned
    np.testing.assert_array_equal(found["a"], data)


def test_other_wrong_files(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.safetensors")
    assert "directory" in refused(tmp_path)
    (tmp_path / "w.txt").write_bytes(b"1")
    assert "has no suffix of a tensor file" in refused(tmp_path / "w.txt")
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive, pytest.warns(UserWarning):
        archive.writestr("a.npy", b"x")
        archive.writestr("a.npy", b"x")
    assert "'a' twice" in refused(tmp_path / "w.npz")
    np.savez(tmp_path / "w.npz", a=np.array(["text"]))
    assert "'a' has the type <U4" in refused(tmp_path / "w.npz")
    np.savez(tmp_path / "w.npz", a=np.array([{}], dtype=object), allow_pickle=True)
    assert "'a' has the type object" in refused(tmp_path / "w.npz")


def test_wrong_indexes(tmp_path: Path) -> None:
    *shards, index = written(tmp_path / "w.safetensors", ARRAYS, shard_size=40)
    shards[0].unlink()
    assert "is missing" in refused(index)
    for places, words in (({"a": "../w.safetensors"}, "plain file name"), ({"zz": shards[1].name}, "'zz' is not in")):
        index.write_text(json.dumps({"weight_map": places}))
        assert words in refused(index)
    index.write_text("{}")
    assert "not an index" in refused(index)


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    for suffix in (".safetensors", ".npz"):
        (path,) = written(tmp_path / f"w{suffix}", ARRAYS)
        before = path.read_bytes()
        with pytest.raises(OutputError, match="exists"):
            written(path, {"a": ARRAYS["a"]})
        assert path.read_bytes() == before
        written(path, {"a": ARRAYS["a"]}, force=True)
        assert read(path).keys() == {"a"}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_an_interruption_leaves_the_old_file(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = written(tmp_path / f"w{suffix}", ARRAYS)
    before = path.read_bytes()

    def interrupted(self: NewFile, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NewFile, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(path, {"a": ARRAYS["a"]}, force=True)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


# Of models

SOURCE = """g (float[n, 2] x) => (float[n, 3] y)
<float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {7, 8, 9}> { m = MatMul(x, w) y = Add(m, b) }"""


def test_exported_weights_are_imported_unchanged(tmp_path: Path, short_models: Path) -> None:
    model = short_models / "bert-tiny.onnx"
    whole = onnx.load(model)
    for name in ("w.safetensors", "w.npz"):
        found = surgery.export_weights(model, tmp_path / name)
        assert found.tensors == len(whole.graph.initializer)
        expected = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in whole.graph.initializer}
        same(read(tmp_path / name), expected)
        path = surgery_step(tmp_path, f"import-weights: {{file: {name}}}")
        result = surgery.apply(model, path)
        assert result.ok and result.steps[0].status == "unchanged"


def surgery_step(folder: Path, step: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(f"recipe: one\nsteps:\n  - {step}\n")
    return path


def test_paths_start_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "w.npz", {"b": np.array([1, 1, 1], np.float32)})
    path = surgery_step(tmp_path, "import-weights: {file: w.npz}")
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = surgery.apply(text.parse(SOURCE), path)
    assert result.ok and result.steps[0].verdict is not None and result.steps[0].verdict.status == "intended"
    assert storage.resolve(result.proto, result.stored.weights).graph.initializer[1].float_data[:] != [7, 8, 9]


def test_a_recipe_that_is_saved_elsewhere_finds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    onnx.save(text.parse(SOURCE), "m.onnx")
    written(Path("w.npz"), {"b": np.array([1, 1, 1], np.float32)})
    saved = Path("recipes", "one.yaml")
    assert cli.main(["run", "import-weights", "m.onnx", "--set", "file=w.npz", "--save-recipe", str(saved)]) == 0
    assert "../w.npz" in saved.read_text()
    assert surgery.apply("m.onnx", saved).ok
    shown = resolved.text(recipe.load(saved))
    assert str(tmp_path / "w.npz") in shown.replace("recipes/../", "")


def test_exports_select_tensors_by_name(tmp_path: Path) -> None:
    model = text.parse(SOURCE)
    export_weights(model, tmp_path / "w.npz", names=["b*"])
    assert read(tmp_path / "w.npz").keys() == {"b"}
    with pytest.raises(UsageError, match="no initializer has the name 'bb'; did you mean 'b'"):
        export_weights(model, tmp_path / "v.npz", names=["bb"])
    with pytest.raises(UsageError, match="no weights"):
        export_weights(text.parse("g (float x) => (float y) { y = Neg(x) }"), tmp_path / "v.npz")


def test_weights_of_subgraphs(tmp_path: Path) -> None:
    branch = "{name} () => (float[1] {out}) <float[1] {w} = {{{value}}}> {{ {out} = Identity({w}) }}"
    source = "g (bool c) => (float[1] y) {{ y = If (c) <then_branch = {}, else_branch = {}> }}"
    first = branch.format(name="a", out="p", w="w", value=1)
    apart = source.format(first, branch.format(name="b", out="q", w="v", value=2))
    export_weights(text.parse(apart), tmp_path / "w.npz")
    same(read(tmp_path / "w.npz"), {"w": np.array([1], np.float32), "v": np.array([2], np.float32)})
    with pytest.raises(UsageError, match=r"two initializers.*'w'"):
        export_weights(text.parse(source.format(first, branch.format(name="b", out="q", w="w", value=2))), "w.npz")


def test_types_without_a_place_name_the_tensor(tmp_path: Path) -> None:
    packed = helper.make_tensor("packed", TensorProto.INT4, [4], [1, -2, 3, -4])
    for name in ("w.safetensors", "w.npz"):
        with pytest.raises(UsageError, match="int4, which 'packed' is"):
            export_weights(model_of(floats("w", 4), packed), tmp_path / name)
    export_weights(model_of(floats("w", 4), packed), tmp_path / "w.npz", names=["w"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse(SOURCE), tmp_path / "m.onnx")
    out = tmp_path / "w.safetensors"
    assert cli.main(["export-weights", str(tmp_path / "m.onnx"), "-o", str(out), "--format", "json"]) == 0
    written = {"format_version": 1, "files": [str(out)], "tensors": 2, "bytes": 36}
    assert json.loads(capsys.readouterr().out) == written
    assert cli.main(["export-weights", str(tmp_path / "m.onnx"), "-o", str(out)]) == 2
    for arguments in (
        ["-o", "w.txt"],
        ["-o", "w.npz", "--shard-size", "1MB"],
        ["-o", "v.safetensors", "--shard-size", "x"],
    ):
        assert cli.main(["export-weights", str(tmp_path / "m.onnx"), *arguments]) == 2
    shown = ["run", "import-weights", str(tmp_path / "m.onnx"), "--set", f"file={out}"]
    assert cli.main(shown) == 0
    assert cli.main([*shown[:3], "--set", f"file={tmp_path / 'none.npz'}"]) == 2
    assert "no such file" in capsys.readouterr().out


def test_large_weights_stay_out_of_memory(tmp_path: Path) -> None:
    """Some 150 MB of holes, there and back, within 60 MB: neither side is ever held whole."""
    tensor = TensorProto(name="w", data_type=1, dims=[37_500_000], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="holes.bin")
    (tmp_path / "m.onnx").write_bytes(model_of(tensor).SerializeToString())
    with (tmp_path / "holes.bin").open("wb") as file:
        file.truncate(150_000_000)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from surgery.model.checkpoints import checkpoints\n"
        "from surgery.model import storage\n"
        "from surgery.model.checkpoints.weight_files import export_weights\n"
        "def anonymous():\n"
        "    lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    return int(lines['RssAnon'].split()[0])\n"
        "storage.ir_from_proto, checkpoints.write_checkpoint\n"
        "before = anonymous()\n"
        "for name in ('w.safetensors', 'w.npz'):\n"
        "    path = Path(sys.argv[1], name)\n"
        "    export_weights(Path(sys.argv[1], 'm.onnx'), path)\n"
        "    weights = storage.Weights()\n"
        "    assert checkpoints.read_checkpoint(path, weights).tensor('w').numpy()[-1] == 0\n"
        "    path.unlink()\n"
        "    assert anonymous() - before < 60_000, (name, anonymous() - before)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=120)
