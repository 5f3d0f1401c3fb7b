"""A plain installation, and a source tree in the current folder that shadows it."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support import ROOT
from support.breadth import sampled

RUN = """
import json, surgery
from surgery.base.workers import Worker
result = surgery.apply("{model}", "tidy")
with Worker() as worker:
    there = worker.call("surgery.marker:name")
print(json.dumps([surgery.__file__, result.ok, there]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A source tree, the folder that `pip install` filled from it, and a Python that has no other surgery."""
    folder = tmp_path_factory.mktemp("plain")
    source, site = folder / "source", folder / "site"
    for name in ("surgery", "passes", "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, *pip, str(source)], check=True, capture_output=True, cwd=folder)
    shutil.rmtree(source / "build", ignore_errors=True)
    for tree, text in ((source, "the source tree"), (site, "the installation")):
        (tree / "surgery" / "marker.py").write_text(f"def name():\n    return {text!r}\n")
    venv.create(folder / "python", symlinks=True)
    return source, site, folder / "python" / "bin" / "python"


def test_a_wheel_installs_one_package(installed: tuple[Path, Path, Path]) -> None:
    _, site, _ = installed
    found = {path.name for path in site.iterdir() if path.is_dir() and not path.name.endswith(".dist-info")}
    assert found == {"surgery", "bin"}


@pytest.mark.parametrize("shadowed", sampled([True, False], 2))
def test_surgery_works_inside_and_outside_of_its_source_tree(
    installed: tuple[Path, Path, Path], tmp_path: Path, shadowed: bool
) -> None:
    source, site, python = installed
    packages = [entry for entry in sys.path if entry.endswith("-packages")]  # without the .pth files in them
    ran = subprocess.run(
        [python, "-c", RUN.format(model=ROOT / "models" / "mobilenet-tiny.onnx")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *packages])},
        cwd=source if shadowed else tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    home, text = (source, "the source tree") if shadowed else (site, "the installation")
    assert json.loads(ran.stdout) == [str(home / "surgery" / "__init__.py"), True, text]
