"""Whether sums of integer products saturate is asked of ONNX Runtime itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surgery.model.runtime.integer_products import saturates


def _flags() -> str:
    """Return the instruction sets of this CPU, as far as the system lists them."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("flags")), "")


FLAGS = _flags()


@pytest.mark.parametrize(("data", "weight"), [("uint8", "uint8"), ("int8", "int8")])
def test_other_types_do_not_saturate(data: str, weight: str) -> None:
    assert not saturates(data, weight)


def test_types_without_a_product_do_not_saturate() -> None:
    assert not saturates("uint16", "int8")


@pytest.mark.skipif("avx2" not in FLAGS, reason="the flags of this CPU do not say")
def test_uint8_int8_products_saturate_without_vnni() -> None:
    assert saturates("uint8", "int8") == ("vnni" not in FLAGS and "amx" not in FLAGS)


def test_the_runtime_stays_out_of_this_process() -> None:
    code = "from surgery import saturates; saturates('uint8', 'int8'); import sys; print('onnxruntime' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
