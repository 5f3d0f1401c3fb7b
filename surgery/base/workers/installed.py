"""ONNX Runtime, which workers run, may be missing: surgery requires no build of it, so that none is overwritten."""

from __future__ import annotations

import importlib.util
from typing import Final

from surgery.base.errors import UsageError

INSTALL: Final = "pip install 'onnx-surgery[cpu]', or [gpu], [openvino], or any other build of ONNX Runtime"
"""What to do without ONNX Runtime."""


def require_runtime() -> None:
    """Raise `UsageError` if no build of ONNX Runtime is installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise UsageError("ONNX Runtime is not installed", todo=INSTALL)
