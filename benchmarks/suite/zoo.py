"""The models to compare on: full-size exports of the zoo, or any file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

NAMES = (
    "mobilenet.dy",
    "resnet50.ts",
    "whisper-enc.dy",
    "yolos.ts",
    "segformer.dy",
    "llama.dy",
    "llama.ts",
    "swin.ts",
    "t5-enc.ts",
    "convnext.ts",
    "bert.dy",
    "bert.ts",
    "vit.ts",
    "gpt2.dy",
)

_STEMS = {"bert": "bert-base"}
"""File names that differ from the name of the architecture."""


class MissingModel(Exception):  # noqa: N818 - a state of the zoo, reported as a line
    """A model does not exist and could not be built."""


@dataclass(frozen=True)
class Model:
    """One model to run the tools on."""

    name: str
    path: Path

    def digest(self) -> str:
        """Return the SHA-256 of the file."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def find(name: str) -> Model:
    """Return the model with this name, built if it is not in the cache yet, or the one at this path."""
    if name not in NAMES:
        path = Path(name)
        if not path.is_file():
            raise MissingModel(f"no model '{name}': give a path, or one of {', '.join(NAMES)}")
        return Model(path.stem, path.resolve())
    architecture, _, exporter = name.rpartition(".")
    path = _folder() / f"{_STEMS.get(architecture, architecture)}.{exporter}.onnx"
    if not path.is_file():
        _build(architecture, exporter)
    if not path.is_file():
        raise MissingModel(f"{path} could not be built; it needs: pip install -e '.[zoo]'")
    return Model(name, path)


def _folder() -> Path:
    configured = os.environ.get("SURGERY_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "surgery" / "models"


def _build(architecture: str, exporter: str) -> None:
    command = [sys.executable, "-m", "models.build", architecture, "--exporter", exporter, "--size", "full"]
    subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
