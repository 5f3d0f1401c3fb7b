"""The table of int8 in the guide to quantization: the numbers are those of the bundled models."""

from __future__ import annotations

import re

import pytest
from support import ROOT, calibrated, quantized

GUIDE = ROOT / "docs" / "how-to" / "quantize-a-model.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| ([\d.]+) dB \| ([\d.]+) dB \|$", re.MULTILINE)
ROWS = {name: (float(narrow), float(wide)) for name, narrow, wide in ROW.findall(GUIDE.read_text(encoding="utf-8"))}

NEAR = 2.0
"""dB by which a number may differ: kernels of other CPUs add in another order."""


def measured(name: str) -> tuple[float, float]:
    model = quantized.bundled(name)
    feeds, others = calibrated.drawn(model), calibrated.drawn(model, seed=1)
    exact = calibrated.outputs(model, others, optimized=False)
    found = []
    for kind in ("uint8", "uint16"):
        options = {"activation_type": kind, "reduce_range": False, "margin": 1.1}
        made, _ = calibrated.run_passes(model, ("fuse-conv-bn", {}), ("quantize-static", options), feeds=feeds)
        found.append(calibrated.snr(exact, calibrated.outputs(made, others, optimized=False)))
    return found[0], found[1]


def test_the_table_has_rows() -> None:
    assert len(ROWS) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_guide_has_the_measured_ratio(name: str) -> None:
    assert measured(name) == pytest.approx(ROWS[name], abs=NEAR)
