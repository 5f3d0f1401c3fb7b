"""The versions that results depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from surgery.engine.provenance import packages


@pytest.mark.parametrize(
    ("installed", "builds", "version"),
    [
        ({}, {}, packages.MISSING),
        ({"onnxruntime": "1.20.0"}, {"onnxruntime": "1.20.0"}, "1.20.0"),
        ({"ort-nightly": "1.21.0.dev1"}, {"ort-nightly": "1.21.0.dev1"}, "1.21.0.dev1 (ort-nightly)"),
        (
            {"onnxruntime-gpu": "1.19.0", "onnxruntime": "1.20.0", "onnx": "1.17.0"},
            {"onnxruntime": "1.20.0", "onnxruntime-gpu": "1.19.0"},
            "1.20.0",
        ),
    ],
)
def test_any_build_of_the_runtime_counts(
    installed: dict[str, str], builds: dict[str, str], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version_of(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(packages, "version", version_of)
    assert packages.builds() == builds
    assert packages.version_of("onnxruntime") == version
    assert packages.version_of("onnx") == installed.get("onnx", "not installed")
    found = packages.packages(["zz", "aa"])
    assert [*found] == sorted({*packages.PACKAGES, "zz", "aa"}) and found["onnxruntime"] == version


def test_the_processor_is_named_with_what_its_kernels_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "processor\t: 0\nflags\t\t: fpu avx2 sse4_1 ht\nprocessor\t: 1\nflags\t\t: avx512f\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: listed)
    assert packages.processor.__wrapped__() == f"{platform.machine()} avx2 sse4_1"

    def fails(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", fails)
    assert packages.processor.__wrapped__() == platform.machine()
