"""The kernels of builds that crash when they list them."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as native

from surgery.model.targets import kernel_table, kernels

_CUDA = "CUDAExecutionProvider"


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let the installed runtime look like a build with a provider in a shared library."""
    kernels.lists_kernels.cache_clear()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [_CUDA, "CPUExecutionProvider"])
    yield monkeypatch
    kernels.lists_kernels.cache_clear()


def _as_set(rows: list[list[Any]]) -> set[str]:
    return {
        json.dumps([domain, op, list(versions), {name: sorted(of) for name, of in types.items()}], sort_keys=True)
        for domain, op, versions, types in rows
    }


def test_the_table_has_the_kernels_of_the_installed_release() -> None:
    installed = onnxruntime.__version__
    if installed not in kernel_table.releases() or not kernels.lists_kernels():
        pytest.skip(f"the table does not have ONNX Runtime {installed}, or this build cannot list its kernels")
    assert _as_set(kernel_table.rows(installed)) == _as_set(kernels.registered())


def test_a_release_between_two_has_the_kernels_of_the_older_one() -> None:
    assert kernel_table.rows("1.20.0") == kernel_table.rows("1.20.1")
    assert kernel_table.rows("1.24.0") == kernel_table.rows("1.24.4") != kernel_table.rows("1.23.2")
    assert kernel_table.rows("99.0") == kernel_table.rows(kernel_table.releases()[-1])


def test_an_older_release_lacks_later_kernels() -> None:
    def has(release: str, op: str) -> bool:
        return any(row[:2] == ["", op] for row in kernel_table.rows(release))

    # Its documentation of kernels has RotaryEmbedding of opset 23 from release 1.23 on.
    assert not has("1.22.1", "RotaryEmbedding")
    assert has("1.23.2", "RotaryEmbedding")


def _crash() -> None:
    # pytest writes a traceback to a copy of stderr, which is not the code under test.
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_build_that_crashes_has_the_kernels_of_its_release(with_cuda: pytest.MonkeyPatch) -> None:
    with_cuda.setattr(native, "get_all_opkernel_def", _crash)
    assert not kernels.lists_kernels()
    assert kernels.registered() == kernel_table.rows(onnxruntime.__version__)
    assert kernels.registered(_CUDA) == []


def test_a_build_that_can_list_its_kernels_is_asked(with_cuda: pytest.MonkeyPatch) -> None:
    with_cuda.setattr(native, "get_all_opkernel_def", list)
    assert kernels.lists_kernels()
    assert kernels.registered() == []
