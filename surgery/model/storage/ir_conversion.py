"""Lossless conversion between skeletons and `onnx_ir.Model`, without reading weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Final

import onnx
import onnx_ir as ir
from onnx_ir import serde

from surgery.base.errors import ModelFileError
from surgery.model.storage.attach import Attacher
from surgery.model.storage.ir_import import Adapter
from surgery.model.storage.ir_to_proto import Exporter
from surgery.model.storage.skeleton import INLINE_LIMIT
from surgery.model.storage.spill import rewrite_tensors, spill_large_tensors
from surgery.model.wire.garbage_collection import collection_paused
from surgery.model.wire.weights import Weights

# Exceptions of onnx_ir and protobuf for models that they cannot represent; SerdeError is a RuntimeError.
_ERRORS: Final = (RuntimeError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def ir_from_proto(proto: onnx.ModelProto, weights: Weights | None = None) -> ir.Model:
    """Return the IR of a skeleton; `proto` is not modified.

    Large tensors are external tensors that map their file when they are read. Parts that the IR cannot represent are
    kept in the `meta` of the objects that they belong to, and are restored by `proto_from_ir`. With `weights`, tensors
    are read through its open files, even if a file was replaced since.

    Raises ModelFileError with the reason if the graph cannot be represented: a name that is produced twice, or text
    that is not UTF-8.
    """
    copy = deepcopy(proto)
    adapter = Adapter()
    with _quiet(), collection_paused(), _named_errors("the graph cannot be edited"):
        adapter.before(copy)
        model = serde.deserialize_model(copy)
        rewrite_tensors(model, lambda tensor: adapter.tensor(tensor, weights), adapter.attribute)
        exporter = Exporter(model.ir_version, restore=False)
        Attacher(exporter).model(proto, exporter.model(model), model)
    return model


def proto_from_ir(model: ir.Model, weights: Weights, *, limit: int = INLINE_LIMIT) -> onnx.ModelProto:
    """Return the skeleton of a model, and move its large tensors out of memory.

    Tensors in memory of at least `limit` bytes are written to the scratch file of `weights` and replaced in `model`, so
    that each is written only once. Raises OutputError if the disk is full, and ModelFileError if the model cannot be
    written as ONNX.
    """
    spill_large_tensors(model, weights, limit)
    with _quiet(), collection_paused(), _named_errors("the model cannot be written as ONNX"):
        return Exporter(model.ir_version).model(model)


@contextmanager
def _named_errors(what: str) -> Iterator[None]:
    """Convert exceptions of onnx_ir and protobuf to a ModelFileError with the reason."""
    try:
        yield
    except _ERRORS as error:
        raise ModelFileError(f"{what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the message of the first error in a chain, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())[:300]
    if isinstance(error, UnicodeDecodeError) or "'bytes'" in text or "got bytes" in text:
        # protobuf returns bytes for text that it cannot decode, and onnx_ir requires names to be str.
        return f"a name or another text in it is not UTF-8 ({text})"
    return text or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of onnx_ir about invalid graphs: the checker reports them."""
    logger = logging.getLogger("onnx_ir.serde")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
