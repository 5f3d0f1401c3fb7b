"""Names of outputs, spellings, and paths of recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe.fields import Section, Whole, key
from surgery.engine.recipe.output_names import field_problem, with_stem
from surgery.engine.recipe.recipe_paths import below, configuration_folder, is_file, mode
from surgery.engine.recipe.section_file import read_section
from surgery.engine.yaml.spelling import meant, nearest


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("out.onnx", ""),
        ("{stem}.onnx", ""),
        ("{stem}-{sha256}.onnx", ""),
        ("{sha256:8}.onnx", ""),
        ("{sha256:12}.onnx", ""),
        ("{sha256:64}.onnx", ""),
        ("{sha256:7}.onnx", "has '{sha256:7}'; a digest has 8 to 64 digits, such as '{sha256:12}'"),
        ("{sha256:65}.onnx", "has '{sha256:65}'; a digest has 8 to 64 digits, such as '{sha256:12}'"),
        ("{stm}.onnx", "knows no '{stm}'; did you mean '{stem}'?"),
        ("{sha26}.onnx", "knows no '{sha26}'; did you mean '{sha256:12}'?"),
        ("{zzzzz}.onnx", "knows no '{zzzzz}'; did you mean '{stem}'?"),
        ("{}.onnx", "knows no '{}'; did you mean '{stem}'?"),
        ("{stem}/{sha256:12}.onnx", ""),
        ("{sha256:12}/out.onnx", "has a digest in the folder; '{sha256:12}' is allowed in the file name only"),
        ("{sha256}\\out.onnx", "has a digest in the folder; '{sha256:12}' is allowed in the file name only"),
        ("a/{sha256}/b/c.onnx", "has a digest in the folder; '{sha256:12}' is allowed in the file name only"),
    ],
)
def test_fields_of_the_name_of_an_output(name: str, problem: str) -> None:
    assert field_problem(name) == problem


def test_the_stem_is_that_of_the_model() -> None:
    assert with_stem("{stem}/{stem}-{sha256}.onnx", Path("folder/a.b.onnx")) == "a.b/a.b-{sha256}.onnx"


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("stpes", ["steps", "recipe"], "steps"),
        ("pipeline", ["steps", "recipe"], "steps"),
        ("pipeline", ["recipe"], None),
        ("name", ["recipe"], "recipe"),
        ("passes", ["pass"], "pass"),
        ("MAX-GROWTH", ["max_growth"], "max_growth"),
        ("Drop_Dropout", ["drop-dropout"], "drop-dropout"),
        ("zzz", ["steps"], None),
    ],
)
def test_the_nearest_name(name: str, known: list[str], near: str | None) -> None:
    assert nearest(name, iter(known)) == near
    assert meant(name, known) == (f"; did you mean '{near}'?" if near else "")
    assert meant(5, known) == ""


def test_paths_are_shortened_unless_a_link_makes_that_wrong(tmp_path: Path) -> None:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "f").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "deep")
    assert below(tmp_path, "a/../f") == tmp_path / "f" and below(tmp_path, "./f") == tmp_path / "f"
    # `link/..` is the folder `a`.
    assert below(tmp_path, "link/../f") == tmp_path / "link" / ".." / "f"
    assert below(tmp_path, "/abs/../x") == Path("/x") and below(tmp_path, "nul\0l") == tmp_path / "nul\0l"
    assert is_file(tmp_path / "f") and not is_file(tmp_path / "a") and not is_file(tmp_path / "none")
    assert mode(tmp_path / "a") and mode(tmp_path / "none") == 0 == mode(tmp_path / "nul\0l")


@pytest.mark.parametrize(
    ("given", "folder"), [("/config", "/config/surgery"), ("config", "~/.config/surgery"), ("", "~/.config/surgery")]
)
def test_the_folder_of_the_configuration(monkeypatch: pytest.MonkeyPatch, given: str, folder: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", given)
    assert configuration_folder() == Path(folder).expanduser()


class Sizes(Section):
    wanted = "a mapping such as {size: 1}"

    size: Whole = key("A size.")


def test_a_file_with_one_section(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("size: 3\n")
    assert read_section(path, Sizes, "the sizes", "size") == {"size": 3}
    for written, problems in (
        ("", [f"{path}:1:1: the file is empty; it needs 'size'"]),
        ("~\n", [f"{path}:1:1: the file is empty; it needs 'size'"]),
        ("[1]\n", [f"{path}:1:1: 'the sizes' takes a mapping such as {{size: 1}}, not a list"]),
        (
            "size: -1\nsze: 1\n",
            [f"{path}:2:1: no key 'sze'; did you mean 'size'?", f"{path}:1:7: 'size' is at least 0, not -1"],
        ),
        (
            "size: [1\n",
            [f"{path}:1:7: this '[' is never closed", f"{path}:1:7: 'size' takes a whole number, not a list"],
        ),
    ):
        path.write_text(written)
        with pytest.raises(RecipeError) as error:
            read_section(path, Sizes, "the sizes", "size")
        assert sorted(map(str, error.value.problems)) == sorted(problems)
    path.write_bytes(b"size: \xff\n")
    with pytest.raises(RecipeError, match="byte 0xff is not UTF-8"):
        read_section(path, Sizes, "the sizes", "size")
    with pytest.raises(UsageError, match="cannot be read: ") as missing:
        read_section(tmp_path / "none", Sizes, "the sizes", "size")
    assert missing.value.where == str(tmp_path / "none")
