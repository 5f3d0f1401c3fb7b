"""Weights in another order are written while other work continues, and whoever reads them finds them whole."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from support.breadth import sampled

from surgery.base.errors import MachineError, WorkerError
from surgery.base.workers import Worker
from surgery.base.workers.fork import call_in_fork
from surgery.model.storage.spill import spill_tensor
from surgery.model.wire import reordering
from surgery.model.wire.reordering import Moved
from surgery.model.wire.weights import Weights

Array = np.ndarray[Any, Any]
SIDE = 600  # of a matrix that a worker is told of


@pytest.fixture
def weights() -> Iterator[Weights]:
    with Weights() as opened:
        yield opened


def mapped(weights: Weights, path: Path, array: Array) -> Array:
    """Store an array in a file of the model, after other bytes, and return the view of it."""
    path.write_bytes(bytes(64) + array.tobytes() + bytes(8))
    view = weights.open(path).view(64, array.nbytes)
    return np.frombuffer(view, array.dtype).reshape(array.shape)


def random(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    drawn = np.random.default_rng(7).integers(-99, 99, shape)
    return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", sampled(["int8", "float16", "float32", "float64", "complex128"], 2))
@pytest.mark.parametrize(
    ("shape", "order"),
    sampled(
        [
            ((SIDE, SIDE), (1, 0)),
            ((65, 4099), (1, 0)),
            ((4099, 65), (1, 0)),
            ((40_001, 70), (1, 0)),
            ((70, 30, 200), (2, 0, 1)),
            ((70, 30, 200), (1, 0, 2)),
            ((9, 8, 70, 80), (3, 2, 1, 0)),
            ((1, SIDE, SIDE), (0, 2, 1)),
        ],
        2,
    ),
)
def test_the_elements_are_in_their_new_order(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: str, weights: Weights, tmp_path: Path
) -> None:
    array = random(shape, dtype)
    turned = mapped(weights, tmp_path / "weights", array).transpose(order)
    reference = weights.spill_moved(turned)
    assert bytes(weights.view(reference)) == np.ascontiguousarray(array.transpose(order)).tobytes()


def test_a_part_of_a_weight_is_found_at_its_place(weights: Weights, tmp_path: Path) -> None:
    array = random((SIDE, 2 * SIDE))
    part = mapped(weights, tmp_path / "weights", array)[5:, 3::2].T
    assert Moved.of(part, [source.mapped for source in weights._sources.values()]) is not None
    assert bytes(weights.view(weights.spill_moved(part))) == array[5:, 3::2].T.tobytes()


@pytest.mark.parametrize("reason", ["small", "in memory", "backwards", "too wide"])
def test_views_a_worker_cannot_write_are_written_immediately(reason: str, weights: Weights, tmp_path: Path) -> None:
    array = random((SIDE, SIDE), "complex128" if reason == "too wide" else "float32")
    view = array.T if reason == "in memory" else mapped(weights, tmp_path / "weights", array).T
    view = view[:9] if reason == "small" else view[::-1] if reason == "backwards" else view
    reference = weights.spill_moved(view)
    assert weights.open_scratch().source.writing is None
    assert bytes(weights.view(reference)) == view.tobytes()


def test_many_tensors_are_written_in_sequence(weights: Weights, tmp_path: Path) -> None:
    arrays = [random((SIDE, SIDE)) + number for number in range(12)]
    views = [mapped(weights, tmp_path / f"weights-{number}", array) for number, array in enumerate(arrays)]
    references = []
    for number, view in enumerate(views):
        references.append(weights.spill_moved(view.T))
        references.append(weights.spill(bytes([number]) * 100))
    for number in reversed(range(12)):
        assert bytes(weights.view(references[2 * number])) == arrays[number].T.tobytes()
        assert bytes(weights.view(references[2 * number + 1])) == bytes([number]) * 100


def test_a_worker_waits_for_complete_tensors(weights: Weights, tmp_path: Path) -> None:
    array = random((SIDE, SIDE)) + 100
    view = mapped(weights, tmp_path / "weights", array)
    graph = ir.Graph([], [], nodes=[], initializers=[], name="g", opset_imports={"": 17})
    stored: Any = spill_tensor(ir.Tensor(view.T, name="w"), weights, 1024)
    value = ir.Value(name="w", shape=ir.Shape([SIDE, SIDE]), type=ir.TensorType(ir.DataType.FLOAT), const_value=stored)
    graph.initializers["w"] = value
    graph.outputs.append(value)
    skeleton = ir.to_proto(ir.Model(graph, ir_version=9)).SerializeToString()
    with Worker() as worker:
        worker.call("surgery.base.workers.drill:echo", value={"models": [skeleton]})
    path = weights.open_scratch().source.path
    assert path.read_bytes()[: array.nbytes] == array.T.tobytes()


def test_a_fork_waits_for_complete_tensors(weights: Weights, tmp_path: Path) -> None:
    array = random((SIDE, SIDE))
    reference = weights.spill_moved(mapped(weights, tmp_path / "weights", array).T)
    found, _ = call_in_fork(lambda: bytes(weights.view(reference)), stage="look", timeout=60, memory=None)
    assert found == array.T.tobytes()


def test_a_fork_writes_its_own_tensors(weights: Weights, tmp_path: Path) -> None:
    array = random((SIDE, SIDE))
    view = mapped(weights, tmp_path / "weights", array)
    weights.open_scratch()

    def spilled() -> bytes:
        reference = weights.spill_moved(view.T)
        assert weights.open_scratch().source.writing is None
        return bytes(weights.view(reference))

    assert call_in_fork(spilled, stage="spill", timeout=60, memory=None)[0] == array.T.tobytes()


def test_writes_of_a_lost_worker_are_finished_in_this_process(
    weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = random((SIDE, SIDE))
    view = mapped(weights, tmp_path / "weights", array)
    monkeypatch.setattr(Worker, "call", _die)
    reference = weights.spill_moved(view.T)
    assert bytes(weights.view(reference)) == array.T.tobytes()


def test_a_replaced_source_file_is_read_through_its_open_handle(weights: Weights, tmp_path: Path) -> None:
    array, path = random((SIDE, SIDE)), tmp_path / "weights"
    view = mapped(weights, path, array)
    other = tmp_path / "other"
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)
    reference = weights.spill_moved(view.T)
    assert weights.open_scratch().source.writing is not None
    assert bytes(weights.view(reference)) == array.T.tobytes()


def _die(self: Worker, function: str, /, **arguments: object) -> Any:
    raise WorkerError("the worker is gone", stage=function)


def test_a_full_disk_is_reported_to_readers(weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = mapped(weights, tmp_path / "weights", random((SIDE, SIDE)))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Worker, "call", _die)
    monkeypatch.setattr(reordering, "_pour", full)
    reference = weights.spill_moved(view.T)
    with pytest.raises(MachineError, match="No space left"):
        weights.view(reference)


def test_closing_leaves_no_folder(tmp_path: Path) -> None:
    with Weights() as weights:
        for number in range(20):
            view = mapped(weights, tmp_path / f"weights-{number}", random((SIDE, SIDE)))
            weights.spill_moved(view.T)
        folder = weights.open_scratch().folder
        assert folder.exists()
    assert not folder.exists()


def test_only_calls_that_use_the_file_wait() -> None:
    name = b"tmp/surgery-x/weights.bin"
    model = onnx.ModelProto(producer_name=name.decode()).SerializeToString()
    assert reordering._names({"skeleton": model, "runs": []}, name)
    assert reordering._names({"models": [{"a": model}]}, name)
    assert not reordering._names({"skeleton": model[:-3], "runs": [np.zeros(3)], "seed": 5}, name)
