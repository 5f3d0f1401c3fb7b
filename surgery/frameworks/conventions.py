"""Conventions of a checkpoint that dims do not show: the order of gates, and of rows under rotary embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from surgery.frameworks import recurrent, rotary
from surgery.frameworks.mapping import Source
from surgery.frameworks.recurrent import Recurrent
from surgery.frameworks.rotary import UnclearError
from surgery.frameworks.rows import Gates, Rotation, Rows
from surgery.frameworks.targets import Target
from surgery.storage import Checkpoint
from surgery.storage.named_tensors import Entry


@dataclass(frozen=True)
class Conventions:
    """The files of a checkpoint by tensor, what the model rotates, and the section `rotary` of the mapping."""

    homes: Mapping[str, Checkpoint]
    rotation: Rotation | None
    spec: rotary.RotarySpec

    def rows(self, target: Target, source: Source, entries: Sequence[Entry], is_torch: bool) -> tuple[Rows | None, ...]:
        """Return how the rows of each tensor of an initializer must be reordered. Raises `UnclearError`."""
        reader = target.recurrent
        if reader is not None:
            return (_gates(reader, target, source, entries, is_torch),) * len(entries)
        if source.gates is not None:
            raise UnclearError("'gates' is for the weights of LSTM, GRU and RNN nodes, and no such node reads it")
        pairs = zip(source.tensors, entries)
        return tuple(
            rotary.reordered(name, self.homes[name], entry.dims[0], self.rotation, self.spec) if entry.dims else None
            for name, entry in pairs
        )


def _gates(reader: Recurrent, target: Target, source: Source, entries: Sequence[Entry], is_torch: bool) -> Gates | None:
    """Return the gates to reorder; None if they are in the order of ONNX."""
    is_flat = all(len(entry.dims) == len(target.dims) - 1 for entry in entries)
    is_named = all(recurrent.is_of_torch(name) for name in source.tensors)
    order = source.gates or ("torch" if is_named or (is_torch and is_flat) else None if is_flat else "onnx")
    if order is None:
        what = f"whether the gates of '{source.tensors[0]}' have the order of PyTorch or of ONNX is not known"
        raise UnclearError(f"{what}; add 'gates: torch' or 'gates: onnx' to its entry in the mapping")
    wrong = recurrent.wrong_order(reader, source.tensors) if is_named else ""
    if wrong:
        raise UnclearError(wrong)
    if order == "onnx":
        return None
    if reader.resets_first:
        raise UnclearError(
            "the GRU applies its reset gate before the product with R (linear_before_reset is 0), and PyTorch after it"
        )
    found = Gates(reader.operator)
    return found if all(entry.dims and found.fits(entry.dims[0]) for entry in entries) else None


def is_stacked(target: Target, dims: tuple[int, ...]) -> bool:
    """Return whether joined tensors of a recurrent layer only lack the axis of directions."""
    if target.recurrent is None or len(target.dims) < 2:
        return False
    directions, rows, *rest = target.dims
    return dims == (directions * rows, *rest)
