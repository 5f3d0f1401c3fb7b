"""The model of a session next to another one of its folder: whether they agree, and which files may be opened."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import surgery
from surgery.base.errors import ModelFileError, UsageError
from surgery.features.workbench import chosen_inputs, second_model
from surgery.model.graph import text

FIRST = """g (float[n, 2] x) => (float[n, 2] y) {
    [drop] d = Dropout(x)
    [abs] y = Abs(d)
}"""
SECOND = """g (float[n, 2] x) => (float[n, 2] y) {
    [same] y = Identity(x)
}"""


def test_models_agree_on_some_inputs_and_not_on_others(tmp_path: Path) -> None:
    for name, model in (("first", FIRST), ("second", SECOND)):
        onnx.save(text.parse(model), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "positive.npz", x=np.array([[1, 2]], np.float32))
    with surgery.Session.open(tmp_path / "first.onnx", fresh=True) as session:
        other = second_model.opened(tmp_path, "second.onnx")
        found = second_model.agreement(session.moment, other, None)
        assert not found.ok and found.verdict.is_different
        inputs = chosen_inputs.from_file(session.moment, tmp_path, "positive.npz").spec
        assert second_model.agreement(session.moment, other, inputs).verdict.status == "equal"
        session.add({"replace-op": {"nodes": "abs", "op": "Identity", "keeps": "nothing"}})
        assert second_model.agreement(session.moment, other, None).ok


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
