"""Inputs of one's own choice: files and images of the opened folder, numbers of tokens, and mistakes in one line."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import surgery
from surgery.base.errors import SurgeryError, UsageError
from surgery.features.workbench.chosen_inputs import candidates, from_file, from_tokens
from surgery.model.graph import text

MODEL = """g (float[n, 3] x) => (float[n, 3] y) {
    [drop] d = Dropout(x)
    [neg] y = Neg(d)
}"""
PICTURE = """g (float[1, 3, 4, 6] image) => (float[1, 3, 4, 6] y) {
    [same] y = Identity(image)
}"""
WORDS = """g (int64[b, s] input_ids, int64[b, s] attention_mask, int64[b, s] token_type_ids) => (int64[b, s] y) {
    [masked] m = Mul(input_ids, attention_mask)
    [typed] y = Add(m, token_type_ids)
}"""


def opened(folder: Path, model: str) -> surgery.Session:
    onnx.save(text.parse(model), folder / "m.onnx")
    return surgery.Session.open(folder / "m.onnx", fresh=True, within=folder)


def test_values_are_looked_at_on_the_arrays_of_a_file(tmp_path: Path) -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.savez(tmp_path / "mine.npz", x=rows)
    with opened(tmp_path, MODEL) as session:
        chosen = from_file(session.snapshot, tmp_path, "mine.npz")
        found = session.tensor_values.tensor(session.snapshot, "y", None, chosen.spec)
        assert found.before is not None and found.before[0].tolist() == (-rows).tolist() and len(found.sets) == 1
        np.savez(tmp_path / "mine.npz", x=rows + 1)
        session.tensor_values.forget()
        found = session.tensor_values.tensor(session.snapshot, "y", None, chosen.spec)
        assert found.before is not None and found.before[0][0].tolist() == [-2, -3, -4]


def test_an_image_is_read_as_the_options_say(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (6, 4), (255, 0, 51)).save(tmp_path / "photo.png")
    with opened(tmp_path, PICTURE) as session:
        chosen = from_file(session.snapshot, tmp_path, "photo.png", {"mean": [0.5], "std": [0.5]})
        found = session.tensor_values.tensor(session.snapshot, "y", None, chosen.spec)
        assert found.before is not None
        assert found.before[0][0, :, 0, 0] == pytest.approx([1.0, -1.0, -0.6], abs=1e-6)


def test_tokens_are_numbers_and_the_mask_is_one(tmp_path: Path) -> None:
    with opened(tmp_path, WORDS) as session:
        chosen = from_tokens(session.snapshot, "[101, 7592 102]")
        found = session.tensor_values.tensor(session.snapshot, "y", None, chosen.spec)
        assert found.before is not None and found.before[0].tolist() == [[101, 7592, 102]]
        again = from_tokens(session.snapshot, "101 5 102")
        found = session.tensor_values.tensor(session.snapshot, "y", None, again.spec)
        assert found.before is not None and found.before[0].tolist() == [[101, 5, 102]]


MISTAKES = {
    "missing.npz": "there is no file or folder",
    "other.npz": "'x'",
    "text.txt": "text.txt",
    "../outside.npz": "outside of the opened folder",
    "link.npz": "outside of the opened folder",
    "code.py:sets": "there is no file or folder",
    "code.py": "code.py",
    "photo.png": "takes no images",
    "broken.npz": "broken.npz",
}


@pytest.mark.parametrize("path", MISTAKES)
def test_a_wrong_file_is_one_line(tmp_path: Path, path: str) -> None:
    if path == "photo.png":
        pytest.importorskip("PIL.Image").new("RGB", (6, 4)).save(tmp_path / path)
    folder = tmp_path / "opened" if path != "photo.png" else tmp_path
    folder.mkdir(exist_ok=True)
    np.savez(tmp_path / "outside.npz", x=np.zeros((1, 3), np.float32))
    np.savez(folder / "other.npz", q=np.zeros((1, 3), np.float32))
    (folder / "text.txt").write_text("words")
    (folder / "broken.npz").write_bytes(b"PK nothing")
    (folder / "code.py").write_text("raise SystemExit('it was run')")
    (folder / "link.npz").symlink_to(tmp_path / "outside.npz")
    with opened(folder, MODEL) as session:
        with pytest.raises(SurgeryError) as caught:
            from_file(session.snapshot, folder, path)
        assert MISTAKES[path] in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("words", ["hello world", "1.5 2", "", "1" * 40])
def test_words_are_no_tokens(tmp_path: Path, words: str) -> None:
    with opened(tmp_path, WORDS) as session, pytest.raises(UsageError, match="tokens are whole numbers"):
        from_tokens(session.snapshot, words)


def test_a_model_of_numbers_takes_no_tokens(tmp_path: Path) -> None:
    with opened(tmp_path, MODEL) as session, pytest.raises(UsageError, match="takes no tokens"):
        from_tokens(session.snapshot, "1 2 3")


def test_they_become_the_inputs_of_the_recipe(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.array([[1, 2, 3]], np.float32))
    with opened(tmp_path, MODEL) as session:
        chosen = from_file(session.snapshot, tmp_path, "mine.npz")
        with pytest.raises(UsageError, match="has no step"):
            chosen.written_into(session.snapshot)
        session.add("# a remark\n- drop-dropout")
        assert session.write(chosen.written_into(session.snapshot)).ok
        assert "data: mine.npz" in session.recipe_yaml() or "data: [mine.npz]" in session.recipe_yaml()
        assert "# a remark" in session.recipe_yaml()
        made = [one.path.name for one in session.snapshot.recipe.inputs.data]
        assert made == ["mine.npz"]
        with pytest.raises(UsageError, match="has a section 'inputs' already"):
            chosen.written_into(session.snapshot)
        with pytest.raises(UsageError, match="takes no tokens"):
            from_tokens(session.snapshot, "1").written_into(session.snapshot)


def test_files_that_may_be_inputs_are_listed(tmp_path: Path) -> None:
    for name in ("b.npz", "a.png", "m.onnx", "notes.txt", ".hidden.npz"):
        (tmp_path / name).write_bytes(b"")
    for name in ("test_data_set_0/input_0.pb", "photos/1.jpg", "words/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert candidates(tmp_path) == ["a.png", "b.npz", "photos", "test_data_set_0"]
