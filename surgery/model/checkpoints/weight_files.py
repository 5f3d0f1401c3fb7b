"""Export of the weights of a model to a tensor file, safetensors (optionally sharded) or npz, without loading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError, counted
from surgery.base.json_record import Record
from surgery.base.operators.message_tensors import from_array
from surgery.base.operators.subgraphs import graphs
from surgery.base.views import view
from surgery.model import storage
from surgery.model.checkpoints.checkpoints import write_checkpoint
from surgery.model.checkpoints.named_tensors import Named
from surgery.model.wire.globs import Globs, did_you_mean

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class ExportedWeights(Record):
    """The result of an export: the files, the number of tensors, and their total bytes."""

    files: tuple[Path, ...]
    tensors: int
    bytes: int

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        count = counted(self.tensors, "tensor")
        return f"<ExportedWeights: {count}, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(str(path),) for path in self.files]
        return view("listed")(repr(self)[1:-1], "ok", (), ("File",), rows, "files")


def export_weights(
    model: str | Path | onnx.ModelProto,
    path: str | Path,
    *,
    names: Sequence[str] = (),
    shard_size: int | None = None,
    force: bool = False,
) -> ExportedWeights:
    """Write the initializers of a model, including subgraphs, under their names; `names` are globs that select some.

    Sparse initializers are written as dense tensors.
    The suffix of `path` determines the format, .safetensors or .npz; with `shard_size` (bytes), .safetensors is split
    into files with an index.

    Raises UsageError for a type that the format does not support, a name that two initializers have, and a glob without
    matches, ModelFileError if the model cannot be read, and OutputError if a file exists and is not to be replaced by
    `force`.
    """
    stored = storage.opened(model)
    tensors = _picked(list(_initializers(stored)), names)
    found: dict[str, Named] = {}
    for tensor in tensors:
        if tensor.name in found:
            raise UsageError(
                f"two initializers of different subgraphs have the name '{tensor.name}'",
                todo="exclude them with --names",
            )
        found[tensor.name] = _named(tensor)
    files = write_checkpoint(Path(path), list(found.values()), stored.weights, shard_size=shard_size, force=force)
    return ExportedWeights(tuple(files), len(found), sum(tensor.length for tensor in found.values()))


def _initializers(stored: storage.StoredModel) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of a model and of its subgraphs, sparse ones as dense tensors."""
    from surgery.model.storage.ir_tensors import dense

    for scope in graphs(stored.proto.graph):
        yield from (tensor for tensor in scope.initializer if tensor.name)
        for sparse in scope.sparse_initializer:
            if sparse.values.name:
                yield from_array(dense(sparse, stored.weights), sparse.values.name)


def _picked(tensors: list[onnx.TensorProto], names: Sequence[str]) -> list[onnx.TensorProto]:
    if not tensors:
        raise UsageError("the model has no weights")
    for text in names:
        if not any(Globs((text,)).fit(tensor.name) for tensor in tensors):
            hint = did_you_mean(text, (tensor.name for tensor in tensors))
            raise UsageError(f"no initializer has the name '{text}'", todo=hint or None)
    globs = Globs(tuple(names))
    return [tensor for tensor in tensors if not names or globs.fit(tensor.name)]


def _named(tensor: onnx.TensorProto) -> Named:
    import onnx_ir as ir

    dtype, dims = ir.DataType(tensor.data_type), tuple(tensor.dims)
    if storage.is_external(tensor):
        return Named(tensor.name, dtype, dims, storage.external_reference(tensor))
    if dtype == ir.DataType.STRING:
        return Named(tensor.name, dtype, dims, b"")
    return Named(tensor.name, dtype, dims, ir.serde.deserialize_tensor(tensor).tobytes())
