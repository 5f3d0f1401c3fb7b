"""The second model of a session: which files of its folder may be opened."""

from pathlib import Path

import onnx
import pytest

from surgery.base.errors import ModelFileError, UsageError
from surgery.features.workbench import second_model
from surgery.model.graph import text

FIRST = """g (float[n, 2] x) => (float[n, 2] y) {
    [drop] d = Dropout(x)
    [abs] y = Abs(d)
}"""


def test_only_models_of_the_folder_are_opened(tmp_path: Path) -> None:
    folder = tmp_path / "opened"
    (folder / "inner").mkdir(parents=True)
    onnx.save(text.parse(FIRST), tmp_path / "outside.onnx")
    onnx.save(text.parse(FIRST), folder / "inner" / "a.onnx")
    onnx.save(text.parse(FIRST), folder / "b.onnx")
    (folder / "link.onnx").symlink_to(tmp_path / "outside.onnx")
    (folder / "words.onnx").write_text("words")
    for path in ("../outside.onnx", "link.onnx", str(tmp_path / "outside.onnx")):
        with pytest.raises(UsageError, match="outside of the opened folder"):
            second_model.opened(folder, path)
    with pytest.raises(ModelFileError):
        second_model.opened(folder, "words.onnx")
    assert second_model.candidates(folder)[:2] == ["b.onnx", "inner/a.onnx"]
