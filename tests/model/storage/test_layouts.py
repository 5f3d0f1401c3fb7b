"""Where weights lie: thresholds, shards, names, alignment; and nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import external_data_helper
from support.corpus import floats, model_of, same

from surgery.base.errors import OutputError, UsageError
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.storage import External, saving

# 16,000, 4,000, 2,000 and 40 bytes
MODEL = model_of(floats("a", 4000), floats("b", 1000, seed=1), floats("c", 500, seed=2), floats("d", 10, seed=3))


def put(path: Path, layout: Any, model: onnx.ModelProto = MODEL, **options: Any) -> list[Path]:
    stored = storage.from_proto(model)
    return storage.save(stored.proto, path, stored.weights, layout=layout, **options)


def places(path: Path) -> dict[str, tuple[str, int]]:
    """Say where each external tensor lies, as onnx reads it."""
    model = onnx.load(path, load_external_data=False)
    found = {}
    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor):
            info = external_data_helper.ExternalDataInfo(tensor)
            found[tensor.name] = (info.location, info.offset)
    return found


def intact(path: Path) -> None:
    onnx.checker.check_model(str(path), full_check=False)
    stored = storage.load(path)
    assert same(storage.resolve(stored.proto, stored.weights), MODEL)


@pytest.mark.parametrize(
    ("layout", "files"),
    [
        (External(), {"a": "m.onnx.data", "b": "m.onnx.data", "c": "m.onnx.data"}),
        (External(threshold=3000), {"a": "m.onnx.data", "b": "m.onnx.data"}),
        (External(data="weights.bin"), {"a": "weights.bin", "b": "weights.bin", "c": "weights.bin"}),
        (External(shard_size=6100), {"a": "m.onnx.data", "b": "m.onnx.data_1", "c": "m.onnx.data_1"}),
        (External(shard_size=1), {"a": "m.onnx.data", "b": "m.onnx.data_1", "c": "m.onnx.data_2"}),
        (External(data="w", shard_size=3), {"a": "w", "b": "w_1", "c": "w_2"}),
    ],
)
def test_each_layout_places_tensors_in_its_files(tmp_path: Path, layout: External, files: dict[str, str]) -> None:
    written = put(tmp_path / "m.onnx", layout)
    assert {name: place for name, (place, _) in places(tmp_path / "m.onnx").items()} == files
    assert [path.name for path in written] == ["m.onnx", *dict.fromkeys(files.values())]
    assert sorted(written) == sorted(tmp_path.iterdir())
    intact(tmp_path / "m.onnx")


def test_alignment(tmp_path: Path) -> None:
    put(tmp_path / "m.onnx", External(alignment=65536))
    assert [offset for _, offset in places(tmp_path / "m.onnx").values()] == [0, 65536, 131072]
    intact(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "a/b"}, "not a plain file name"),
        ({"data": ".."}, "not a plain file name"),
        ({"alignment": 48}, "not a power of two"),
        ({"shard_size": 0}, "at least one byte"),
    ],
)
def test_layouts_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        External(**options)


def test_the_model_is_not_a_file_of_weights(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'m\.onnx' is the model itself"):
        put(tmp_path / "m.onnx", External(data="m.onnx"))


def test_other_layouts_of_the_same_file(tmp_path: Path) -> None:
    """Over itself, with data files that the old one still names."""
    path = tmp_path / "m.onnx"
    put(path, External())
    for layout in (External(shard_size=6100), External(shard_size=1), External(), External(alignment=4096), "single"):
        stored = storage.load(path)
        storage.save(stored.proto, path, stored.weights, layout=layout, force=True)
        intact(path)
    assert not places(path)


def test_a_shard_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "m.onnx.data_1").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        put(tmp_path / "m.onnx", External(shard_size=1))
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx.data_1"]


@pytest.mark.parametrize("fails_at", range(8))
def test_a_failure_leaves_a_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    path = tmp_path / "m.onnx"
    put(path, External(shard_size=1))
    calls = 0

    def failing(original: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > fails_at:
                raise OSError(28, "No space left on device")
            original(*arguments, **options)

        return step

    for name in ("_write_data", "_write_model"):
        monkeypatch.setattr(saving, name, failing(getattr(saving, name)))
    stored = storage.load(path)
    try:
        storage.save(stored.proto, path, stored.weights, layout=External(shard_size=1, alignment=4096), force=True)
    except OutputError:
        assert fails_at < 4
        assert {file.name for file in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data", "m.onnx.data_1", "m.onnx.data_2"}
    intact(path)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(MODEL, path)
    out = tmp_path / "out.onnx"
    flags = ["--data", "w.bin", "--threshold", "3kB", "--shard-size", "10kB", "--alignment", "4KiB", "--format", "json"]
    assert cli.main(["externalize", str(path), "-o", str(out), *flags]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [Path(file["path"]).name for file in answer["files"]] == ["out.onnx", "w.bin", "w.bin_1"]
    intact(out)
    assert cli.main(["embed", str(out), "-o", str(tmp_path / "one.onnx")]) == 0
    assert (tmp_path / "one.onnx").read_bytes() == path.read_bytes()
    assert cli.main(["embed", str(out), "-o", str(path)]) == 2
    assert cli.main(["externalize", str(path), "-o", str(out), "--force", "--threshold", "x"]) == 2
    assert cli.main(["externalize", str(tmp_path / "none.onnx"), "-o", str(tmp_path / "n.onnx")]) == 2


def test_no_single_file_is_written_beyond_2_gib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[600_000_000], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="holes.bin")
    (tmp_path / "m.onnx").write_bytes(model_of(tensor).SerializeToString())
    with (tmp_path / "holes.bin").open("wb") as file:
        file.truncate(2_400_000_000)
    assert cli.main(["embed", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "one.onnx")]) == 2
    assert "below 2 GiB" in capsys.readouterr().err and not (tmp_path / "one.onnx").exists()
