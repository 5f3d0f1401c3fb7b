"""Small images on disk, for tests of data that is given as images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_photo(path: Path, pixels: object) -> Path:
    """Write an image of rows of pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(pixels, np.uint8)).save(path)
    return path


def write_photos(folder: Path, count: int, height: int = 80, width: int = 96) -> Path:
    """Write different images of noise."""
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
        write_photo(folder / f"{number}.png", pixels)
    return folder
