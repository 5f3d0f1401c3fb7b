"""Conventions of a checkpoint that dims do not show: the order of gates, and of rows under rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from surgery.features.frameworks import recurrent, rotary
from surgery.features.frameworks.consumers import COLUMNS, ROWS
from surgery.features.frameworks.mapping import TensorSource
from surgery.features.frameworks.recurrent import Recurrent
from surgery.features.frameworks.rotary import UnclearError
from surgery.features.frameworks.row_orders import OF_TORCH, Gates, Rotary, Rotation
from surgery.features.frameworks.target_tensors import TargetTensor
from surgery.model.checkpoints.checkpoints import Checkpoint
from surgery.model.checkpoints.named_tensors import TensorEntry


@dataclass(frozen=True)
class Conventions:
    """The files of a checkpoint by tensor, what the model rotates, and the section `rotary` of the mapping."""

    homes: Mapping[str, Checkpoint]
    rotation: Rotation | None
    spec: rotary.RotarySpec

    def rows(
        self,
        target: TargetTensor,
        source: TensorSource,
        entries: Sequence[TensorEntry],
        order: tuple[int, ...] | None,
        made: tuple[int, ...],
    ) -> tuple[Rotary | None, ...]:
        """Return how the outputs of each tensor of an initializer must be reordered before they are joined.

        `order` is the order of the axes after joining, and `made` the resulting dims. Raises `UnclearError`.
        """
        found: list[Rotary | None] = []
        for name, entry in zip(source.tensors, entries):
            one = rotary.reordered(name, self.homes[name], self.rotation, self.spec) if entry.dims else None
            if one is not None:
                axis = _output_axis(name, target, entry, order, made)
                one = replace(one, axis=axis)
                if not one.fits(entry.dims[axis]):
                    what = f"'{name}' has {entry.dims[axis]} rows, which are not {one.heads} heads with rotary pairs"
                    raise UnclearError(what)
            found.append(one)
        return tuple(found)


def _output_axis(
    name: str, target: TargetTensor, entry: TensorEntry, order: tuple[int, ...] | None, made: tuple[int, ...]
) -> int:
    """Return the axis of a tensor along which the model has the outputs. Raises `UnclearError` if it is not known."""
    rank = len(entry.dims)
    if rank == 1:
        return 0
    axis = {ROWS: rank - 1, COLUMNS: rank - 2}.get(target.reads)
    if {one.op_type for one in target.consumers} == {"Conv"}:
        axis = 0
    if axis is None or [dim for dim in made if dim != 1] != [dim for dim in target.dims if dim != 1]:
        what = f"'{name}' needs its rotary rows in another order, and the graph does not show which axis has them"
        raise UnclearError(f"{what}; reorder it first, and add 'rotary: {{checkpoint: ...}}' to the mapping")
    return axis if order is None else order[axis]


def gates(target: TargetTensor, source: TensorSource, entries: Sequence[TensorEntry], is_torch: bool) -> Gates | None:
    """Return the gates of an initializer to reorder after joining; None if they stay. Raises `UnclearError`."""
    reader = target.recurrent
    if reader is None:
        if source.gates is not None:
            raise UnclearError("'gates' is for the weights of LSTM, GRU and RNN nodes, and no such node reads it")
        return None
    ranks = {len(entry.dims) for entry in entries}
    is_named = all(recurrent.is_of_torch(name) for name in source.tensors)
    wrong = recurrent.wrong_order(reader, source.tensors) if is_named else ""
    if wrong:
        raise UnclearError(wrong)
    order = source.gates
    if order is None and ranks == {len(target.dims) - 1} and (is_named or is_torch):
        order = "torch"
    elif order is None and ranks == {len(target.dims)} and not is_named and not source.reshape:
        order = "onnx"  # only ONNX has an axis of directions
    if order is None and len(OF_TORCH[reader.operator]) > 1:
        what = f"whether the gates of '{source.tensors[0]}' have the order of PyTorch or of ONNX is not known"
        raise UnclearError(f"{what}; add 'gates: torch' or 'gates: onnx' to its entry in the mapping")
    return _to_onnx(reader, target) if order == "torch" else None


def _to_onnx(reader: Recurrent, target: TargetTensor) -> Gates:
    if reader.resets_first:
        raise UnclearError(
            "the GRU applies its reset gate before the product with R (linear_before_reset is 0), and PyTorch after it"
        )
    found = Gates(reader.operator, reader.directions * (2 if reader.role == "B" else 1))
    rank = 2 if reader.role == "B" else 3
    if len(target.dims) != rank or target.dims[0] != reader.directions or not found.fits(math.prod(target.dims[:2])):
        dims = ",".join(map(str, target.dims))
        raise UnclearError(f"the dims [{dims}] in the model are not those of {reader.role} of {reader.operator}")
    return found


def is_stacked(target: TargetTensor, dims: tuple[int, ...]) -> bool:
    """Return whether joined tensors of a recurrent layer only lack the axis of directions."""
    if target.recurrent is None or len(target.dims) < 2:
        return False
    directions, rows, *rest = target.dims
    return dims == (directions * rows, *rest)
