"""Files named by their content."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import OutputError, UsageError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.model import storage
from surgery.model.graph import text

WEIGHTS = np.arange(4096, dtype=np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> storage.StoredModel:
    model = text.parse("g (float[4096] x) => (float[4096] y) { s = Add(x, w) i = Identity(s) y = Add(i, x) }")
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return storage.load(tmp_path / "m.onnx")


def save(stored: storage.StoredModel, path: Path, layout: storage.Layout = "keep") -> list[Path]:
    return storage.save(stored.proto, path, stored.weights, layout=layout)


def test_the_name_of_a_single_file_is_its_digest(stored: storage.StoredModel, tmp_path: Path) -> None:
    (short,) = save(stored, tmp_path / "m-{sha256:12}.onnx")
    (whole,) = save(stored, tmp_path / "{sha256}.onnx")
    digest = hashlib.sha256(short.read_bytes()).hexdigest()
    assert (short.name, whole.name) == (f"m-{digest[:12]}.onnx", f"{digest}.onnx")
    assert whole.read_bytes() == short.read_bytes()


def test_the_digest_covers_external_data_and_no_names(stored: storage.StoredModel, tmp_path: Path) -> None:
    model, data = save(stored, tmp_path / "m-{sha256:12}.onnx", "external")
    other, _ = save(stored, tmp_path / "other-{sha256:12}.onnx", "external")
    digest = model.stem.removeprefix("m-")
    assert data.name == f"{model.name}.data" and other.stem.removeprefix("other-") == digest
    # By definition: the model as it is with its data called `data`, and the data.
    storage.save(stored.proto, tmp_path / "named.onnx", stored.weights, layout=storage.External(data="data"))
    parts = (tmp_path / "named.onnx").read_bytes() + (tmp_path / "data").read_bytes()
    assert hashlib.sha256(parts).hexdigest().startswith(digest)
    assert onnx.load(model).graph.initializer[0].raw_data == WEIGHTS.tobytes()


def test_other_weights_have_another_name(stored: storage.StoredModel, tmp_path: Path) -> None:
    first = save(stored, tmp_path / "m-{sha256:12}.onnx", "external")[0]
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHTS + 1, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    second = save(storage.load(tmp_path / "m.onnx"), tmp_path / "m-{sha256:12}.onnx", "external")[0]
    assert first != second and first.is_file()


@pytest.mark.parametrize("layout", ["single", "external"])
def test_existing_content_is_not_rewritten(stored: storage.StoredModel, tmp_path: Path, layout: storage.Layout) -> None:
    first = save(stored, tmp_path / "m-{sha256:12}.onnx", layout)
    inodes = [path.stat().st_ino for path in first]
    assert save(stored, tmp_path / "m-{sha256:12}.onnx", layout) == first
    assert [path.stat().st_ino for path in first] == inodes
    first[-1].write_bytes(b"something else")
    with pytest.raises(OutputError, match="exists"):
        save(stored, tmp_path / "m-{sha256:12}.onnx", layout)


@pytest.mark.parametrize("name", ["m-{sha256:7}.onnx", "m-{sha256:65}.onnx", "{sha256:12}/m.onnx"])
def test_a_field_that_is_wrong_is_refused(stored: storage.StoredModel, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"use \{sha256:12\}"):
        save(stored, tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_a_recipe_names_its_output_by_content(stored: storage.StoredModel, tmp_path: Path) -> None:
    recipe = recipes.parse("recipe: r\noutput: '{stem}-{sha256:12}.onnx'\nsteps: [drop-identity]\n")
    assert recipe.output == "{stem}-{sha256:12}.onnx"
    result = runner.apply(tmp_path / "m.onnx", recipe, output=tmp_path / "m-{sha256:12}.onnx")
    path = result.output.path
    assert path is not None and path.stem == f"m-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    assert result.output.bytes == path.stat().st_size
    again = runner.apply(tmp_path / "m.onnx", recipe, output=tmp_path / "m-{sha256:12}.onnx")
    assert again.output.path == path
