"""The models to measure: files or models in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.model import storage
from surgery.model.remote import urls
from surgery.model.storage.summary import data_files
from surgery.verification.comparing.ports import by_name, mismatch

if TYPE_CHECKING:
    import onnx

Model = "str | Path | onnx.ModelProto | storage.StoredModel | Subject"
"""A file, a ModelProto, or a stored model with separate weights."""


@dataclass(frozen=True)
class Subject:
    """A model to measure.

    `path` is the file that ONNX Runtime opens, as a user would; None for a model in memory, for which ONNX Runtime
    receives the `skeleton`, whose weights are ranges of files. `weights` is the size of the weights in bytes, `size`
    that of the files.
    """

    name: str
    proto: onnx.ModelProto = field(repr=False)
    path: Path | None
    weights: int
    size: int | None = None
    stored: storage.StoredModel | None = field(default=None, repr=False)
    """Keeps the scratch file of a model in memory."""

    def skeleton(self) -> bytes:
        """Return the model without weights, as bytes."""
        data: bytes = storage.without_alias(self.proto).SerializeToString(deterministic=True)
        return data

    def message(self) -> dict[str, Any]:
        """Return the values that a worker needs to open the model."""
        source = {"skeleton": self.skeleton()} if self.path is None else {"path": str(self.path.absolute())}
        return {"name": self.name, **source}


def subject(model: Any, name: str | None = None) -> Subject:
    """Return the subject for a file, a ModelProto, or a stored model. Raises ModelFileError.

    A stored model is treated as one in memory, since its message may have been changed.
    """
    if isinstance(model, Subject):
        return model
    if isinstance(model, str | Path):
        stored = storage.load(model)
        path = stored.path if stored.path is not None and storage.opens_in_runtime(stored.path) else None
        size = sum(file.stat().st_size for file in data_files(stored))
        return Subject(name or _shown(model), stored.proto, path, storage.weight_bytes(stored.proto), size, stored)
    stored = model if isinstance(model, storage.StoredModel) else storage.from_proto(model)
    return Subject(
        name or str(stored.path or "in memory"), stored.proto, None, storage.weight_bytes(stored.proto), None, stored
    )


def _shown(model: str | Path) -> str:
    return urls.shown(model) if isinstance(model, str) and urls.is_url(model) else str(model)


def require_same_inputs(subjects: Sequence[Subject]) -> None:
    """Raise UsageError for a model that does not accept the inputs of the first one."""
    first = subjects[0]
    for other in subjects[1:]:
        wrong = mismatch(first.proto, other.proto, by_name(first.proto, other.proto))
        if wrong is not None:
            what = f"does not accept the inputs of the baseline: {wrong}"
            raise UsageError(f"{what} (A is {first.name}, B is {other.name})", where=other.name)


def fed(subject: Subject, feed: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs in a feed that a model has."""
    names = {value.name for value in subject.proto.graph.input}
    return {name: value for name, value in feed.items() if name in names}
