"""The recipe keys for sets of inputs, which files, folders of images and functions hold; see `verification`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from surgery.engine.recipe.draft import Draft, TakesError
from surgery.engine.recipe.fields import OneOrMore, Section, Word, key, needed, read_text, reads, takes, value_of
from surgery.engine.recipe.plugins import read_local
from surgery.engine.recipe.recipe_paths import below, is_file, mode
from surgery.engine.yaml.yaml_nodes import Listing, Table, YamlNode, plain, quoted
from surgery.verification.inputs.spec import DataSpec, ImageSpec, Place

TENSOR_FILES = (".npy", ".npz", ".pb")
SETS = (
    "the paths of .npz files and of folders with input_0.pb or images in them, functions such as data.py:batches, and "
    "mappings such as {images: FOLDER, mean: 0.5}"
)
PYTHON = r"\.py:[^\W\d]\w*$"
_PER_CHANNEL = "a number, or a list with one for each channel"
_SCALE = "a number such as 0.0039, or 1/255"
_SIZE = "a whole number, or height and width such as [224, 320]"


def place_of(draft: Draft, node: YamlNode) -> Place:
    """Return the place of a value."""
    return Place(draft.path, node.line, node.column)


def function_of(node: YamlNode, draft: Draft, wanted: str) -> tuple[Path, str]:
    """Read a function of a Python file, which needs the caller's trust."""
    file, colon, function = read_text(node, wanted).rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise TakesError(wanted)
    return read_local(node, draft, file, "run"), function


def _data(node: YamlNode, draft: Draft) -> Any:
    name = read_text(node, SETS)
    if DataSpec.of(name).function:
        file, function = function_of(node, draft, SETS)
        return DataSpec(file, function=function, place=place_of(draft, node))
    path = _existing(name, draft)
    if is_file(path) and path.suffix not in TENSOR_FILES:
        raise TakesError(SETS)
    return DataSpec(path, place=place_of(draft, node))


def _existing(name: str, draft: Draft) -> Path:
    path = below(draft.folder, name)
    if not mode(path):
        raise ValueError(f"no file or folder {quoted(name)} in the recipe's folder")
    return path


def _folder(node: YamlNode, draft: Draft) -> Path:
    return _existing(read_text(node, "the path of a folder of images"), draft)


def _channels(node: YamlNode, _: Draft) -> tuple[float, ...]:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else [value_of(node)]
    numbers = tuple(float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool))
    if not numbers or len(numbers) != len(values) or not all(map(math.isfinite, numbers)):
        raise TakesError(_PER_CHANNEL)
    return numbers


def _scale(node: YamlNode, _: Draft) -> float:
    value = value_of(node)
    try:
        dividend, *rest = str(value).split("/", 1)
        found = float(dividend) / float(rest[0] if rest else 1)
    except (ValueError, ZeroDivisionError):
        found = math.nan
    if isinstance(value, bool) or not math.isfinite(found):
        raise TakesError(_SCALE)
    return found


def _size(node: YamlNode, _: Draft) -> tuple[int, int]:
    values = [plain(item) for item in node.items] if isinstance(node, Listing) else [value_of(node)] * 2
    if len(values) != 2 or not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in values):
        raise TakesError(_SIZE)
    return values[0], values[1]


_NUMBERS = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1}]}
_EXTENT = {"type": "integer", "minimum": 1}
_SIZES = {"anyOf": [_EXTENT, {"type": "array", "items": _EXTENT, "minItems": 2, "maxItems": 2}]}
_SCALES = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*/\s*[0-9.eE+-]+\s*$"}]}
_Positive = Annotated[int, Field(ge=1), takes("a whole number of at least 1", int)]


class Images(Section):
    """A folder of images, and what turns a pixel into an element of the input: `(pixel * scale - mean) / std`."""

    makes: ClassVar[Any] = ImageSpec
    wanted = "a mapping such as {images: FOLDER, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"
    needs: ClassVar = {"images": "a mapping under 'data' needs 'images', a folder of images"}

    images: Annotated[Any, reads(_folder), WithJsonSchema({"type": "string", "pattern": r"\S"})] = needed(
        "A folder of .png, .jpg, .bmp or .webp files, also in folders below it. It needs Pillow: `pip install "
        "'onnx-surgery[images]'`."
    )
    mean: Annotated[Any, reads(_channels), WithJsonSchema(_NUMBERS)] = key(
        "The mean, one number or one per channel. The default is 0."
    )
    std: Annotated[Any, reads(_channels), WithJsonSchema(_NUMBERS)] = key("The divisor, likewise. The default is 1.")
    scale: Annotated[Any, reads(_scale), WithJsonSchema(_SCALES)] = key(
        "The factor of pixels. The default is 1/255, or 1 if `mean` or `std` exceed 1, which are then in units of "
        "pixels."
    )
    layout: Annotated[Literal["NCHW", "NHWC"], Word] = key(
        "The layout of the input, where its declared shape does not show it."
    )
    size: Annotated[Any, reads(_size), WithJsonSchema(_SIZES)] = key(
        "Height and width, where they are dynamic in the model."
    )
    fit: Annotated[Literal["stretch", "crop", "pad"], Word] = key(
        "What happens to images of another shape: `stretch` (the default), `crop` in the center, or `pad` with black."
    )
    resize: _Positive = key("The length of the shorter side before a crop in the center, such as 256 before 224.")
    channels: Annotated[Literal["RGB", "BGR"], Word] = key("The order of the channels. The default is `RGB`.")
    interpolation: Annotated[Literal["nearest", "bilinear", "bicubic"], Word] = key(
        "How images are resized. The default is `bilinear`."
    )
    limit: _Positive = key("The number of images that are used, spread evenly over the folder. The default is 128.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> DataSpec:
        """Make the specification of the data."""
        return DataSpec(given.pop("images"), place=place_of(draft, node), images=ImageSpec(**given))


_Path = Annotated[Any, reads(_data), WithJsonSchema({"type": "string", "pattern": r"\S"})]
_Item = Annotated[
    Annotated[Images, Tag("<images>")] | Annotated[_Path, Tag("<path>")],
    Discriminator(lambda node: "<images>" if isinstance(node, Table) else "<path>"),
]
DataSets = Annotated[tuple[_Item, ...], OneOrMore()]
"""Sets of inputs: one item, or a list."""
