"""Images as inputs: the arithmetic of pixels by hand, what the model shows about them, and a line for each mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from support.photos import write_photo, write_photos

from surgery.base.errors import RecipeError, UsageError
from surgery.engine.recipe import data_files
from surgery.model.graph import text
from surgery.verification.inputs.given import Given, check, has_images
from surgery.verification.inputs.spec import DataSpec, ImageSpec, InputsSpec, Place

# Two rows: red, black; (10, 20, 30), white.
PIXELS = [[[255, 0, 0], [0, 0, 0]], [[10, 20, 30], [255, 255, 255]]]


def _model(dims: str = "batch, 3, 2, 2", kind: str = "float", others: str = "") -> bytes:
    found = text.parse(f"g ({kind}[{dims}] x{others}) => ({kind}[{dims}] y) {{ y = Identity(x) }}")
    return found.SerializeToString()


def _sets(model: bytes, path: Path, **options: Any) -> list[np.ndarray]:
    given = Given(model, InputsSpec(data=(DataSpec(path, images=ImageSpec(**options)),)))
    return [one.feed["x"] for one in given.sets]


def _one(model: bytes, path: Path, **options: Any) -> np.ndarray:
    (found,) = _sets(model, path, **options)
    return found


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    return write_photo(tmp_path / "photos" / "a.png", PIXELS).parent


# Pixels


def test_pixels_are_scaled_to_one_in_the_layout_of_the_input(photo: Path) -> None:
    by_channel = np.array(PIXELS).transpose(2, 0, 1)[None]
    assert _one(_model(), photo).dtype == np.float32
    np.testing.assert_allclose(_one(_model(), photo), by_channel / 255, rtol=1e-6)
    np.testing.assert_allclose(_one(_model("batch, 2, 2, 3"), photo), np.array(PIXELS)[None] / 255, rtol=1e-6)


def test_mean_and_std_apply_to_each_channel(photo: Path) -> None:
    found = _one(_model(), photo, mean=(0.5, 0.25, 0.0), std=(0.5, 0.1, 0.8))
    assert found[0, :, 1, 0] == pytest.approx([(10 / 255 - 0.5) / 0.5, (20 / 255 - 0.25) / 0.1, 30 / 255 / 0.8])


def test_a_mean_above_one_is_in_units_of_pixels(photo: Path) -> None:
    found = _one(_model(), photo, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    assert found[0, :, 0, 0] == pytest.approx([(255 - 123.675) / 58.395, -116.28 / 57.12, -103.53 / 57.375])
    assert _one(_model(), photo, std=(255.0,)).max() == 1
    assert _one(_model(), photo, std=(2.0,), scale=1 / 255).max() == 0.5


def test_integers_are_pixels_as_they_are(photo: Path) -> None:
    found = _one(_model("batch, 2, 2, 3", "uint8"), photo)
    assert (found.dtype, found.tolist()) == (np.uint8, [PIXELS])


def test_channels_may_be_reversed_or_one(photo: Path) -> None:
    assert _one(_model(), photo, channels="BGR")[0, :, 1, 0] == pytest.approx([30 / 255, 20 / 255, 10 / 255])
    gray = _one(_model("batch, 1, 2, 2"), photo)
    # Luma of ITU-R 601: 0.299 red, 0.587 green, 0.114 blue.
    assert gray[0, 0, 0] == pytest.approx([0.299, 0], abs=1 / 255)


def test_images_are_stretched_cropped_in_the_center_or_padded(tmp_path: Path) -> None:
    row = [[[value] * 3 for value in (0, 60, 120, 180)]] * 2  # 2 high, 4 wide
    folder = write_photo(tmp_path / "photos" / "wide.png", row).parent

    def rows(**options: Any) -> list[list[float]]:
        found = _one(_model(), folder, scale=1.0, interpolation="nearest", **options)
        return found[0, 0].tolist()

    assert rows(fit="crop") == [[60, 120]] * 2
    assert rows(resize=2) == [[60, 120]] * 2
    assert rows(fit="pad")[0] == [0, 0] or rows(fit="pad")[1] == [0, 0]
    stretched = rows()
    assert stretched[0] == stretched[1] and stretched[0][0] in (0, 60) and stretched[0][1] in (120, 180)


def test_a_crop_is_taken_from_the_resized_image(tmp_path: Path) -> None:
    frame = np.zeros((8, 8, 3))
    frame[2:6, 2:6] = 200
    folder = write_photo(tmp_path / "photos" / "frame.png", frame).parent
    assert _one(_model(), folder, scale=1.0, resize=4, interpolation="nearest").min() == 200
    assert _one(_model("b, 3, 4, 4"), folder, scale=1.0, interpolation="nearest").min() == 0


# Sets


def test_each_image_is_a_set_and_folders_below_count(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos" / "cat", 2, 2, 2)
    write_photos(tmp_path / "photos" / "dog", 1, 2, 2)
    given = Given(_model(), InputsSpec(data=(DataSpec(tmp_path / "photos"),)))
    assert [one.character for one in given.sets] == ["cat/0.png", "1.png", "dog/0.png"]
    assert {one.dims["batch"] for one in given.sets} == {1}


def test_a_fixed_batch_takes_as_many_images_at_once(tmp_path: Path) -> None:
    found = _sets(_model("3, 3, 2, 2"), write_photos(tmp_path, 4, 2, 2))
    assert [one.shape[0] for one in found] == [3, 3]
    assert np.array_equal(found[1][0], found[1][1]) and not np.array_equal(found[0][0], found[0][1])


def test_the_limit_spreads_over_the_folder(tmp_path: Path) -> None:
    data = (DataSpec(write_photos(tmp_path, 12, 2, 2), images=ImageSpec(limit=3)),)
    assert [one.character for one in Given(_model(), InputsSpec(data=data)).sets] == ["0.png", "4.png", "8.png"]


def test_a_folder_with_sets_of_arrays_is_no_folder_of_images(photo: Path) -> None:
    np.savez(photo / "set.npz", x=np.zeros((1, 3, 2, 2), np.float32))
    assert [one.character for one in Given(_model(), InputsSpec(data=(DataSpec(photo),))).sets] == ["set.npz"]


# Mistakes


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (_model("b, 3, h, w"), {}, "the size of 'x' is dynamic: h and w; give the size, such as --image size=224x224"),
        (_model("b, c, h, w"), {}, "the input 'x' [b, c, h, w] does not show its layout; give the layout"),
        (_model("b, 3, 2, 3"), {}, "the input 'x' [b, 3, 2, 3] does not show its layout"),
        (_model("b, 5, 2, 2"), {"layout": "NCHW"}, "'x' has 5 channels in NCHW, and images have 1 or 3"),
        (_model(), {"size": (4, 4)}, "size 4x4 is not that of 'x', 2x2; leave it out"),
        (_model(), {"mean": (1.0, 2.0)}, "mean has 2 numbers, and 'x' has 3 channels"),
        (_model(), {"std": (1.0, 0.0, 1.0)}, "std has a 0, or a number is not finite"),
        (_model(), {"limit": 0}, "size, resize and limit are at least 1"),
        (_model(kind="uint8"), {"mean": (1.0,)}, "'x' is uint8 and takes the pixels as they are; leave out mean"),
        (_model("b, 4"), {}, "the input 'x' [b, 4] takes no images, which have 4 dims of numbers"),
        (_model(others=", float[2] z"), {}, "images feed a model with one input, and this one has 2: x, z"),
    ],
)
def test_each_mistake_is_one_line(model: bytes, options: dict[str, Any], message: str, photo: Path) -> None:
    item = DataSpec(photo, images=ImageSpec(**options))
    with pytest.raises(UsageError) as caught:
        check(model, [item])
    assert str(caught.value).startswith(f"{photo}: {message}")


def test_a_mistake_has_its_place_in_the_recipe(photo: Path) -> None:
    with pytest.raises(RecipeError, match=r"r\.yaml:4:9: .*photos: the size of 'x' is dynamic"):
        check(_model("b, 3, h, w"), [DataSpec(photo, place=Place("r.yaml", 4, 9))])


def test_damaged_images_are_found_before_they_are_needed(photo: Path) -> None:
    for number in range(5):
        (photo / f"{number}.jpg").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"photos: no readable image: 0.jpg, 1.jpg, 2.jpg and 2 more; remove or"):
        check(_model(), [DataSpec(photo)])


def test_an_image_that_ends_early_is_named(photo: Path) -> None:
    write_photos(photo, 1, 40, 40)
    whole = (photo / "0.png").read_bytes()
    (photo / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"0\.png.* cannot be read as an image: "):
        Given(_model(), InputsSpec(data=(DataSpec(photo),)))


def test_an_empty_folder_and_a_missing_one(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "no images in this folder"), (tmp_path / "none", "no such file or folder")):
        with pytest.raises(UsageError, match=message):
            check(_model(), [DataSpec(path, images=ImageSpec())])


def test_the_keys_of_recipes_are_the_options() -> None:
    keys = {name: field.annotation for name, field in data_files.Images.model_fields.items()}
    assert [*keys] == ["images", *(one.name for one in fields(ImageSpec))]
    hints = get_type_hints(ImageSpec)
    for name in ("layout", "fit", "channels", "interpolation"):
        assert _words(keys[name]) == _words(hints[name]) != []


def _words(kind: Any) -> Sequence[str]:
    return [word for one in get_args(kind) for word in ([one] if isinstance(one, str) else _words(one))]


@pytest.mark.parametrize(
    ("files", "images"),
    [
        (["a.png"], True),
        (["cats/a.png", "notes.txt"], True),
        (["notes.txt"], False),
        (["a.png", "b.npz"], False),
        (["a.png", "set/input_0.pb"], False),
        (["a.png", "input_0.pb"], False),
        ([], False),
    ],
)
def test_a_folder_is_of_images_without_sets_of_other_formats(files: list[str], images: bool, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    assert has_images(DataSpec(tmp_path)) is images
    assert has_images(DataSpec(tmp_path, images=ImageSpec()))
    assert has_images(DataSpec(tmp_path / "no" / "photo.JPG"))
    for none in (
        DataSpec(tmp_path / "a.npz"),
        DataSpec(tmp_path / "a.png", {}),
        DataSpec(tmp_path / "a.png", function="f"),
    ):
        assert not has_images(none)
