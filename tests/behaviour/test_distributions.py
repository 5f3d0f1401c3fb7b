"""What would be published: reproducible files with complete metadata, which work where they are installed."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from support import ROOT

import surgery

_IS_CLONE = (ROOT / ".git").exists() and shutil.which("git") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _IS_CLONE, reason="distributions are built from a git clone")]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTAINERFILE = ROOT / "docs" / "how-to" / "container" / "Containerfile"
# The packages of the tests, as pip finds what is installed already; nothing comes from an index.
DEPENDENCIES = sysconfig.get_path("purelib")
OFFLINE = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    return build(tmp_path_factory.mktemp("dist"))


def build(folder: Path) -> tuple[Path, Path]:
    command = [sys.executable, str(ROOT / ".ci" / "dist.py"), str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def test_the_same_commit_gives_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path)
    assert [path.read_bytes() for path in built] == [path.read_bytes() for path in again]
    with tarfile.open(built[0]) as tar:
        members = tar.getmembers()
    assert {member.mtime for member in members} == {1700000000}
    assert {(member.uid, member.uname) for member in members} == {(0, "")}


def test_the_metadata_is_complete(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as opened:
        folder = f"onnx_surgery-{surgery.__version__}.dist-info"
        found = email.message_from_bytes(opened.read(f"{folder}/METADATA"))
        names = set(opened.namelist())
    assert found["Version"] == surgery.__version__ == PROJECT["project"]["version"]
    assert (found["License-Expression"], found.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert not [one for one in found.get_all("Classifier") if one.startswith("License ::")]
    assert f"{folder}/licenses/LICENSE" in names and "surgery/py.typed" in names
    assert {"surgery/passes/weights/fuse_conv_bn.py", "surgery/recipes/default.yaml"} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "pyproject.toml", "recipes/default.yaml"} <= packed
    assert not [name for name in packed if name.startswith("tests")]


@pytest.mark.parametrize("kind", [".whl", ".tar.gz"])
def test_a_distribution_works_in_a_fresh_environment(built: tuple[Path, Path], kind: str) -> None:
    file = next(path for path in built if path.name.endswith(kind))
    environment = {**OFFLINE, "DEPENDENCIES": DEPENDENCIES, "PIP_OPTIONS": "--no-build-isolation --no-deps"}
    command = [str(ROOT / ".ci" / "try-dist"), sys.executable, str(file)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"surgery {surgery.__version__}\n" in ran.stdout and f"{file.name} works with Python 3." in ran.stdout


def test_the_commands_of_the_containerfile(tmp_path: Path) -> None:
    lines = [line.partition(" ") for line in CONTAINERFILE.read_text(encoding="utf-8").splitlines()]
    pips = [text.removeprefix("python ") for word, _, text in lines if word == "RUN" and text.startswith("python ")]
    assert len(pips) == 3 and [text for word, _, text in lines if word == "USER"] == ["surgery"]
    home, wheels = tmp_path / "venv", tmp_path / "wheels"
    venv.create(home)
    (purelib,) = home.glob("lib/python*/site-packages")
    (purelib / "dependencies.pth").write_text(DEPENDENCIES)
    wheels.mkdir()
    shutil.copy(ROOT / "requirements.lock", wheels)
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "tests", "docs", "benchmarks", "node_modules")
    shutil.copytree(ROOT, source, ignore=ignored)
    for text in pips:
        # The editable installation of the tests is found, too: the wheel replaces it in the new environment only.
        words = text.replace("/wheels", str(wheels)).replace("/source", str(source)).split()
        extra = (
            ["--no-build-isolation"] if "wheel" in words else ["--ignore-installed"] if "onnx-surgery" in words else []
        )
        ran = subprocess.run([home / "bin" / "python", *words, *extra], env=OFFLINE, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "FROM docker.io/library/python:3." in CONTAINERFILE.read_text(encoding="utf-8")
    ran = subprocess.run(
        [home / "bin" / "surgery", "--help"], cwd=tmp_path, env=OFFLINE, capture_output=True, text=True
    )
    assert ran.returncode == 0 and "usage: surgery" in ran.stdout.lower()


def test_a_release_changes_the_version_in_all_places() -> None:
    tool = PROJECT["tool"]["bumpversion"]
    version = PROJECT["project"]["version"]
    for file in tool["files"]:
        wanted = file["search"].replace("{current_version}", version)
        assert (ROOT / file["filename"]).read_text(encoding="utf-8").count(wanted) == 1, file["filename"]
    places = [
        path for path in (ROOT / "surgery").rglob("*.py") if re.search(rf'"{re.escape(version)}"', path.read_text())
    ]
    assert [path.name for path in places] == ["__init__.py"]
