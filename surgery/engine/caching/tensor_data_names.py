"""Skeletons that do not depend on where the weights are stored: tensors are named by content."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import onnx

from surgery.base.errors import SurgeryError
from surgery.engine.caching.cache_folder import CacheFolder, Damaged
from surgery.model.storage import Reference, all_tensors, external_reference, is_external
from surgery.model.wire.stored_lists import stored_lists

if TYPE_CHECKING:
    from surgery.model.wire.weights import Weights

_FILE: Final = "file:"
_NEW: Final = "new:"


class MissingTensorError(Exception):
    """The data of a tensor is missing: it was pruned or damaged, or belongs to a file that this run does not have."""


class TensorDataNames:
    """The names of tensor data in one run, by content: of the files of the model, and of new tensors by passes.

    Two places with the same content have different names, because code that compares references treats them as
    different tensors.
    """

    def __init__(self, weights: Weights, folder: CacheFolder) -> None:
        self._weights = weights
        self._folder = folder
        self._lock = threading.RLock()
        self._files: dict[str, str] = {}
        self._locations: dict[str, str] = {}
        self._names: dict[Reference, str] = {}
        self._places: dict[str, Reference] = {}
        self._same: Counter[str] = Counter()
        for source in weights.files():
            self._name_of_file(source.location)

    def portable(self, model: onnx.ModelProto) -> bytes:
        """Return a model with references by content, and store new tensors. Raises MissingTensorError."""
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        with self._lock:
            for tensor in _references(copy):
                if is_external(tensor):
                    reference = external_reference(tensor)
                    if self._weights.is_scratch(reference.location):
                        _refer(tensor, self._name_of_new(reference), 0)
                    else:
                        _refer(tensor, self._name_of_file(reference.location), reference.offset)
        return bytes(copy.SerializeToString(deterministic=True))

    def restored(self, data: bytes) -> onnx.ModelProto:
        """Return the model of a portable form, with its new tensors in the scratch file.

        Raises MissingTensorError, and ValueError if `data` is not a model.
        """
        try:
            model: onnx.ModelProto = onnx.ModelProto.FromString(data)
        except Exception as error:  # the type depends on the implementation of protobuf
            raise ValueError(str(error)) from error
        with self._lock:
            for tensor in _references(model):
                if is_external(tensor):
                    name = external_reference(tensor).location
                    if name.startswith(_NEW):
                        place = self._places.get(name) or self._restore(name)
                        _refer(tensor, place.location, place.offset)
                    elif name in self._locations:
                        _refer(tensor, self._locations[name])
                    else:
                        raise MissingTensorError(name)
        return model

    def _name_of_file(self, location: str) -> str:
        name = self._files.get(location)
        if name is None:
            try:
                digest = self._folder.digest_of(self._weights.source(location))
            except (Damaged, OSError, SurgeryError) as error:
                raise MissingTensorError(str(error)) from error
            self._same[_FILE + digest] += 1
            name = self._files[location] = f"{_FILE}{digest}.{self._same[_FILE + digest]}"
            self._locations[name] = location
        return name

    def _name_of_new(self, reference: Reference) -> str:
        name = self._names.get(reference)
        if name is None:
            try:
                source = self._weights.source(reference.location)
                digest = self._folder.store(source, reference.offset, reference.length)
            except (Damaged, OSError, SurgeryError) as error:
                raise MissingTensorError(str(error)) from error
            self._same[_NEW + digest] += 1
            name = f"{_NEW}{digest}.{self._same[_NEW + digest]}"
            self._names[reference], self._places[name] = name, reference
        return name

    def _restore(self, name: str) -> Reference:
        """Copy a tensor from the cache to the scratch file, so that later pruning does not matter."""
        digest = name.removeprefix(_NEW).partition(".")[0]
        try:
            reference = self._weights.spill(self._folder.tensor(digest))
        except (Damaged, OSError, SurgeryError) as error:
            raise MissingTensorError(name) from error
        self._same[_NEW + digest] = max(self._same[_NEW + digest], int(name.rpartition(".")[2]))
        self._names[reference], self._places[name] = name, reference
        return reference


def _references(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a skeleton, and those that stand for lists."""
    yield from all_tensors(model)
    yield from (attribute.t for attribute in stored_lists(model))


def digest(data: bytes) -> str:
    """Return the digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def _refer(tensor: onnx.TensorProto, location: str, offset: int | None = None) -> None:
    """Change the location that a tensor refers to, and keep the order of the entries."""
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = location
        elif entry.key == "offset" and offset is not None:
            entry.value = str(offset)
