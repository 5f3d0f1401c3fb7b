"""Each architecture of the zoo: names that are not taken twice, inputs that belong to arguments. Needs torch."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

pytest.importorskip("transformers")

from suite import heads

from models import catalog, feeds

HEADLESS = ("resnet50", "mobilenet", "convnext")


def test_file_names_are_not_taken_twice():
    names = [
        spec.file_name(exporter, size)
        for spec in catalog.ALL.values()
        for exporter in ("dy", "ts")
        for size in ("full", "small")
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("name", [name for name in catalog.ALL if name not in HEADLESS])
def test_heads_divide_the_width(name):
    count, width = heads.of(ROOT / catalog.ALL[name].file_name("ts", "full"))
    assert count and width % count == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.ALL)
@pytest.mark.parametrize("exporter", ["dy", "ts"])
def test_a_built_model_takes_its_declared_inputs(name, exporter):
    import torch

    built = catalog.ALL[name].build("small", exporter)
    assert len(built.args) == len(built.inputs)
    for tensor, axes in zip(built.args, built.inputs.values()):
        assert set(axes) <= set(range(tensor.dim()))
        assert len(set(axes.values())) == len(axes)
    with torch.no_grad():
        results = built.module(*built.args)
    outputs = [results] if isinstance(results, torch.Tensor) else list(results)
    assert len(outputs) == len(built.outputs)
    sizes = {
        dim: tensor.shape[axis] for tensor, axes in zip(built.args, built.inputs.values()) for axis, dim in axes.items()
    }
    for tensor, axes in zip(outputs, built.outputs.values()):
        assert tensor.isfinite().all()
        assert {axis: tensor.shape[axis] for axis in axes} == {
            axis: feeds.size(dim, sizes) for axis, dim in axes.items()
        }
