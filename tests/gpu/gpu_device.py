"""The GPU that the tests in this folder run on, or the CPU in its place for a trial: `SURGERY_GPU_DRY_RUN=1`."""

from __future__ import annotations

import os
from contextlib import closing
from functools import cache

from surgery.base.errors import SurgeryError
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine
from surgery.model.runtime.setup import SessionSetup

DRY = bool(os.environ.get("SURGERY_GPU_DRY_RUN"))
PROVIDER, TARGET = ("CPUExecutionProvider", "ort-cpu") if DRY else ("CUDAExecutionProvider", "ort-cuda")


@cache
def missing() -> str:
    """Return why CUDA does not start; an empty string if it does."""
    model = text.parse('<ir_version: 10, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Neg(x) }')
    setup = SessionSetup(providers=(PROVIDER,))
    try:
        with closing(Engine("onnxruntime", 120, None, 0, setup)) as engine:
            return engine.run(model.SerializeToString(), []).failure or ""
    except SurgeryError as error:
        return error.what
