"""Load and save every model of the onnx package, with and without the IR in between."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import onnx
import pytest
from support import corpus, lacking
from support.breadth import sampled
from support.corpus import same

from surgery.model import storage

# More than there are now would be fine, fewer would mean that some were not found.
MODELS = 2033


def through_the_ir(stored: storage.StoredModel, limit: int = storage.INLINE_LIMIT) -> onnx.ModelProto:
    return storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights, limit=limit)


@pytest.mark.parametrize("step", sampled((20, 1), 2))
def test_every_model_round_trips(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Thousands of files are written; whether they have reached the disk is not what is tested here.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    untouched, edited, count = [], [], 0
    for name, model in islice(corpus.models(), None, None, step):
        path = model if isinstance(model, Path) else source
        if isinstance(model, bytes):
            source.write_bytes(model)
        stored = storage.load(path)
        storage.save(stored.proto, target, stored.weights, force=True)
        if not same(onnx.load(target), onnx.load(path)):
            untouched.append(name)
        # Equal skeletons are saved equally.
        if not same(through_the_ir(stored), stored.proto):
            edited.append(name)
        count += 1
    assert count >= (0 if lacking.are_old() else MODELS // step)  # an older onnx brings fewer models
    assert not untouched
    assert not edited


@pytest.mark.parametrize("step", sampled((20, 1), 2))
def test_every_model_survives_the_path_of_large_tensors(step: int) -> None:
    """A limit of 0 makes a reference of all tensors that have any data."""
    untouched, edited, references = [], [], 0
    for name, model in islice(corpus.models(), None, None, step):
        original = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        stored = storage.from_proto(original, limit=0)
        own = sum(tensor.data_location == 1 for tensor in storage.all_tensors(stored.proto))
        references += own
        if not same(storage.resolve(stored.proto, stored.weights), original):
            untouched.append(name)
        if own and not same(through_the_ir(stored, 0), stored.proto):
            edited.append(name)
        stored.weights.close()
    assert not untouched
    assert not edited
    assert references > 1000 // step
