"""The packages and the processor that results depend on."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "ml-dtypes",
    "numpy",
    "onnx",
    "onnx-graphsurgeon",
    "onnx-ir",
    "onnx-shape-inference",
    "onnxoptimizer",
    "onnx-surgery",
    "onnxruntime",
    "onnxsim",
    "protobuf",
    "sympy",
)
"""The distributions that compute, rewrite or serialize the content of a model."""

BUILDS: Final = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-migraphx",
    "onnxruntime-rocm",
    "onnxruntime-training",
    "ort-nightly",
    "ort-nightly-gpu",
)
"""The builds of ONNX Runtime: distributions that all install the module onnxruntime."""

MISSING: Final = "not installed"

# CPU features that determine the kernels, as named in /proc/cpuinfo. The last bits of a folded constant may depend on
# the kernel.
_FEATURES: Final = frozenset(
    {
        *("sse4_1", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
        *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
        *("asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "svei8mm", "svebf16"),
    }
)
_LISTED: Final = re.compile(r"^(?:flags|Features)\s*:\s*(.+)$", re.MULTILINE)


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, or "not installed".

    For "onnxruntime", any build of ONNX Runtime counts; one with another name is named after its version.
    """
    if distribution == BUILDS[0]:
        found = next(_builds(), None)
        if found is None:
            return MISSING
        return found[1] if found[0] == distribution else f"{found[1]} ({found[0]})"
    return _version(distribution) or MISSING


def builds() -> Mapping[str, str]:
    """Return the versions of the installed builds of ONNX Runtime by distribution; usually there is one."""
    return dict(_builds())


def _builds() -> Iterator[tuple[str, str]]:
    found = ((name, _version(name)) for name in BUILDS)
    return ((name, one) for name, one in found if one is not None)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def packages(more: Iterable[str] = ()) -> Mapping[str, str]:
    """Return the versions of the packages that results depend on, and of `more`, sorted by name."""
    return {name: version_of(name) for name in sorted({*PACKAGES, *more})}


@cache
def processor() -> str:
    """Return the architecture of the processor and the features that determine the kernels, in one line."""
    try:
        found = _LISTED.search(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    listed = _FEATURES & set(found.group(1).split()) if found is not None else set()
    return " ".join([platform.machine(), *sorted(listed)])


def python() -> str:
    """Return the Python implementation and its major and minor version, such as "CPython 3.11"."""
    return f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"
