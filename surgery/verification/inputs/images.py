"""Folders of images as sets of inputs.

The input that takes them shows the layout, the number of channels and mostly the size. A model with a fixed batch gets
as many images at once, any other one image for each set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from surgery.base.operators.dtypes import Array, is_float
from surgery.verification.inputs.given_values import MisfitError, natural
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import ImageSpec

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_MODES: Final = {1: "L", 3: "RGB"}
"""Pillow's modes by the number of channels."""

_AXES: Final = {"NCHW": (1, 2, 3), "NHWC": (3, 1, 2)}
"""The axes of channels, height and width."""


def is_image(path: Path) -> bool:
    """Return whether a file is an image, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def image_files(path: Path) -> list[Path]:
    """Return the images in a folder and in folders below it, such as one for each class; or the file itself."""
    if not path.is_dir():
        return [path] if is_image(path) else []
    found = [one for one in path.rglob("*") if is_image(one) and one.is_file()]
    return sorted(found, key=lambda one: (str(one.parent), natural(one)))


@dataclass(frozen=True)
class ImageReader:
    """Reads images for the only input of a model, as its declared type, layout and size require."""

    spec: ImageSpec
    port: InputPort
    layout: str
    count: int
    """The number of channels."""

    size: tuple[int, int]
    batch: int

    @classmethod
    def of(cls, spec: ImageSpec | None, ports: Sequence[InputPort]) -> ImageReader:
        """Return the reader for a model with these inputs; raise MisfitError if it takes no images of this kind."""
        _require_pillow()
        spec = spec or ImageSpec()
        port = _image_port(ports)
        layout = spec.layout or _layout(port)
        channels, height, width = _AXES[layout]
        count = port.dims[channels]
        if count not in _MODES:
            known = count if isinstance(count, int) else f"'{count}'"
            raise MisfitError(f"'{port.name}' has {known} channels in {layout}, and images have 1 or 3")
        _check_numbers(spec, int(count), port)
        batch = port.dims[0]
        size = _size(spec, port, (port.dims[height], port.dims[width]))
        return cls(spec, port, layout, int(count), size, batch if isinstance(batch, int) else 1)

    def sets(self, files: Sequence[Path]) -> list[list[Path]]:
        """Choose the images, spread evenly, and group them by the batch; the last group is filled with the first."""
        if not files:
            raise MisfitError("no images in this folder", f"it takes {', '.join(SUFFIXES)}")
        most = max(self.spec.limit, self.batch)
        chosen = [files[number * len(files) // most] for number in range(most)] if len(files) > most else [*files]
        groups = [chosen[first : first + self.batch] for first in range(0, len(chosen), self.batch)]
        return [[group[number % len(group)] for number in range(self.batch)] for group in groups]

    def check(self, files: Sequence[Path]) -> None:
        """Raise MisfitError if one of the images cannot be opened. Their pixels are not read, which takes time."""
        from PIL import Image

        broken = []
        for file in files:
            try:
                Image.open(file).close()
            except Exception:
                broken.append(file.name)
        if broken:
            more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
            raise MisfitError(f"no readable image: {', '.join(broken[:3])}{more}", "remove or replace what is damaged")

    def read(self, files: Sequence[Path]) -> Array:
        """Return a batch of images as the input of the model."""
        pixels = np.stack([self._pixels(file) for file in files])
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2) if self.layout == "NCHW" else pixels)

    def _pixels(self, file: Path) -> Array:
        """Return one image as height, width and channels, in the type of the input."""
        from PIL import Image

        try:
            with Image.open(file) as opened:
                image = self._fitted(opened.convert(_MODES[self.count]))
        except Exception as error:
            raise MisfitError(f"{file.name} cannot be read as an image: {' '.join(str(error).split())}") from error
        pixels = np.asarray(image).reshape(*self.size, self.count)
        if self.spec.channels == "BGR":
            pixels = pixels[..., ::-1]
        assert self.port.dtype is not None
        if not is_float(self.port.dtype):
            return pixels.astype(self.port.dtype)
        mean, std = np.array(self.spec.mean), np.array(self.spec.std)
        return np.asarray(((pixels * _scale(self.spec) - mean) / std).astype(self.port.dtype))

    def _fitted(self, image: Image.Image) -> Image.Image:
        """Return an image of the size of the input."""
        from PIL import Image

        height, width = self.size
        filters = {
            "nearest": Image.Resampling.NEAREST,
            "bilinear": Image.Resampling.BILINEAR,
            "bicubic": Image.Resampling.BICUBIC,
        }
        resample = filters[self.spec.interpolation]
        fit = self.spec.fit or ("crop" if self.spec.resize is not None else "stretch")
        if fit == "stretch":
            return image if image.size == (width, height) else image.resize((width, height), resample)
        ratios = width / image.width, height / image.height
        ratio = min(ratios) if fit == "pad" else max(ratios)
        if fit == "crop" and self.spec.resize is not None:
            ratio = max(ratio, self.spec.resize / min(image.size))
        scaled = image.resize((max(1, round(image.width * ratio)), max(1, round(image.height * ratio))), resample)
        # A box that begins outside of the image is filled with black.
        left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
        return scaled.crop((left, top, left + width, top + height))


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MisfitError("images need Pillow, which is not installed", "pip install 'onnx-surgery[images]'") from error


def _image_port(ports: Sequence[InputPort]) -> InputPort:
    """Return the only input, which has to have 4 dims of numbers."""
    if len(ports) != 1:
        names = ", ".join(port.name for port in ports) or "none"
        raise MisfitError(
            f"images feed a model with one input, and this one has {len(ports)}: {names}",
            "give .npz files, or a function FILE.py:FUNCTION",
        )
    port = ports[0]
    if port.dtype is None or port.dtype.kind in "OSUb" or port.kind != "tensor" or len(port.dims) != 4:
        shape = ", ".join(map(str, port.dims))
        raise MisfitError(f"the input '{port.name}' [{shape}] takes no images, which have 4 dims of numbers")
    return port


def _layout(port: InputPort) -> str:
    """Return the layout in which the channels have an extent that images have; raise MisfitError if both have."""
    fitting = [layout for layout, (axis, _, _) in _AXES.items() if port.dims[axis] in _MODES]
    if len(fitting) == 1:
        return fitting[0]
    shape = ", ".join(map(str, port.dims))
    raise MisfitError(
        f"the input '{port.name}' [{shape}] does not show its layout", "give the layout, such as --image layout=NHWC"
    )


def _size(spec: ImageSpec, port: InputPort, dims: tuple[Any, Any]) -> tuple[int, int]:
    """Return height and width: of the input where they are fixed, else as given."""
    fixed = tuple(one if isinstance(one, int) else None for one in dims)
    if spec.size is None:
        if None in fixed:
            names = " and ".join(str(one) for one in dims if not isinstance(one, int))
            raise MisfitError(
                f"the size of '{port.name}' is dynamic: {names}", "give the size, such as --image size=224x224"
            )
        return int(dims[0]), int(dims[1])
    if any(known not in (None, one) for known, one in zip(fixed, spec.size)):
        raise MisfitError(
            f"size {spec.size[0]}x{spec.size[1]} is not that of '{port.name}', {dims[0]}x{dims[1]}", "leave it out"
        )
    return spec.size


def _check_numbers(spec: ImageSpec, count: int, port: InputPort) -> None:
    """Raise MisfitError for numbers that cannot apply to the channels of the input."""
    for name, numbers in (("mean", spec.mean), ("std", spec.std)):
        if len(numbers) not in (1, count):
            raise MisfitError(f"{name} has {len(numbers)} numbers, and '{port.name}' has {count} channels")
    if not all(spec.std) or not all(map(math.isfinite, (*spec.mean, *spec.std, _scale(spec)))):
        raise MisfitError("std has a 0, or a number is not finite")
    assert port.dtype is not None
    usual = ImageSpec()
    if not is_float(port.dtype) and (spec.mean, spec.std, spec.scale) != (usual.mean, usual.std, usual.scale):
        raise MisfitError(
            f"'{port.name}' is {port.dtype.name} and takes the pixels as they are", "leave out mean, std and scale"
        )
    if spec.limit < 1 or min(spec.size or (1,)) < 1 or (spec.resize or 1) < 1:
        raise MisfitError("size, resize and limit are at least 1")


def _scale(spec: ImageSpec) -> float:
    if spec.scale is not None:
        return spec.scale
    return 1.0 if max(*spec.mean, *spec.std) > 1 else 1 / 255
