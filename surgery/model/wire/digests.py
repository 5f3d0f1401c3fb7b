"""SHA-256 digests of files and of the elements of tensors, in hexadecimal digits. Memory use is constant."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from surgery.model.wire.same_elements import bytes_of
from surgery.model.wire.tensors import STRING, external_reference, is_external

if TYPE_CHECKING:
    import onnx

    from surgery.model.wire.weights import Weights
    from surgery.model.wire.wire import Reference

STATEMENT_KEY: Final = "surgery.provenance"
"""The metadata key of the provenance statement of a model, which is excluded from digests."""


def file_digest(path: Path) -> str:
    """Return the digest of the bytes of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def elements_digest(tensor: onnx.TensorProto, weights: Weights) -> str:
    """Return the digest of the elements of a tensor in the form of `raw_data`: little-endian, narrow types packed.

    It does not depend on the field or file in which they are stored. Each range of a file is read only once. Raises
    ModelFileError if the file no longer exists.
    """
    if not is_external(tensor):
        return hashlib.sha256(_raw(tensor)).hexdigest()
    reference = external_reference(tensor)
    if reference not in weights.digests:
        weights.digests[reference] = _digest(weights, reference)
    return weights.digests[reference]


def digest_all(tensors: Iterable[onnx.TensorProto], weights: Weights) -> None:
    """Compute the digests of all external tensors in advance, on all processors. Raises ModelFileError."""
    wanted = {external_reference(tensor) for tensor in tensors if is_external(tensor)} - weights.digests.keys()
    largest_first = sorted(wanted, key=lambda reference: reference.length, reverse=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        weights.digests.update(zip(largest_first, pool.map(partial(_digest, weights), largest_first)))


def _digest(weights: Weights, reference: Reference) -> str:
    digest = hashlib.sha256()
    for piece in weights.source(reference.location).pieces(reference.offset, reference.length):
        digest.update(piece)
    return digest.hexdigest()


def _raw(tensor: onnx.TensorProto) -> bytes:
    """Return the elements of a tensor that is stored in its message."""
    if tensor.data_type == STRING or tensor.HasField("raw_data"):
        return bytes_of(tensor)
    from onnx_ir import serde

    try:
        return bytes(serde.deserialize_tensor(tensor).tobytes())
    except (TypeError, ValueError):
        # An invalid tensor, with fewer elements than its dims require, must still differ from others.
        return bytes(tensor.SerializeToString(deterministic=True))
