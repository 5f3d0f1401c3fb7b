"""The environment of a run: versions, system and processor, as plain values for reports."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from surgery.engine.provenance.packages import version_of

_PACKAGES = {"surgery": "onnx-surgery", **{name: name for name in ("onnx", "onnxruntime", "onnx-ir", "numpy")}}
_CPU = re.compile(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", re.MULTILINE)


def environment() -> dict[str, str]:
    """Return everything that results may depend on: package versions, the system, the processor, its cores, memory."""
    return {
        **{name: version_of(package) for name, package in _PACKAGES.items()},
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or "?"),
        "memory": _memory(),
    }


def _processor() -> str:
    try:
        found = _CPU.search(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _memory() -> str:
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "not known"
    return f"{pages / 1e9:.1f} GB"
