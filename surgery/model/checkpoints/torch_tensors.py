"""Tensors of PyTorch checkpoints: from their descriptions in a pickle to ranges of a file.

A tensor is a view of a storage: an element type, and an offset, dims and strides in elements. A contiguous, aligned,
little-endian tensor has the ONNX layout in the file; any other is copied to the scratch file on demand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from surgery.base.errors import ModelFileError, UsageError, first_few
from surgery.model.checkpoints.named_tensors import Checkpoint, TensorEntry, broken
from surgery.model.checkpoints.pickle_reader import (
    TENSORS,
    Called,
    Global,
    Persistent,
    PickleError,
    UnsafePickleError,
    nested,
)
from surgery.model.wire.reordering import rows_of
from surgery.model.wire.weights import Weights
from surgery.model.wire.wire import Reference

_Type = ir.DataType
STORAGES: Final = {
    "DoubleStorage": _Type.DOUBLE,
    "FloatStorage": _Type.FLOAT,
    "HalfStorage": _Type.FLOAT16,
    "BFloat16Storage": _Type.BFLOAT16,
    "LongStorage": _Type.INT64,
    "IntStorage": _Type.INT32,
    "ShortStorage": _Type.INT16,
    "CharStorage": _Type.INT8,
    "ByteStorage": _Type.UINT8,
    "BoolStorage": _Type.BOOL,
    "ComplexDoubleStorage": _Type.COMPLEX128,
    "ComplexFloatStorage": _Type.COMPLEX64,
    "UntypedStorage": _Type.UINT8,
}
_DTYPES: Final = {
    **dict.fromkeys(("float64", "double"), _Type.DOUBLE),
    **dict.fromkeys(("float32", "float"), _Type.FLOAT),
    **dict.fromkeys(("float16", "half"), _Type.FLOAT16),
    "bfloat16": _Type.BFLOAT16,
    **dict.fromkeys(("int64", "long"), _Type.INT64),
    **dict.fromkeys(("int32", "int"), _Type.INT32),
    **dict.fromkeys(("int16", "short"), _Type.INT16),
    "int8": _Type.INT8,
    "uint8": _Type.UINT8,
    "uint16": _Type.UINT16,
    "uint32": _Type.UINT32,
    "uint64": _Type.UINT64,
    "bool": _Type.BOOL,
    "complex64": _Type.COMPLEX64,
    "complex128": _Type.COMPLEX128,
    "float8_e4m3fn": _Type.FLOAT8E4M3FN,
    "float8_e4m3fnuz": _Type.FLOAT8E4M3FNUZ,
    "float8_e5m2": _Type.FLOAT8E5M2,
    "float8_e5m2fnuz": _Type.FLOAT8E5M2FNUZ,
    "float8_e8m0fnu": _Type.FLOAT8E8M0,
}
KEYS: Final = ("state_dict", "model_state_dict", "model", "module", "params", "net", "network", "weights")
"""Keys under which training scripts save the weights.

The first one that exists is used, unless another dict has tensors of the same names.
"""
EXPANDED: Final = 64 << 20
"""Maximum bytes of a tensor beyond the size of its storage, if it repeats elements of the storage."""
_TODO: Final = "do not load it with torch.load either, unless you trust its source"
_MOST_RANK: Final = 64
_MOST_KEYS: Final = 8


@dataclass(frozen=True)
class StorageData:
    """The location of a storage in a file, and whether it is big-endian."""

    reference: Reference
    big: bool = False


Storages = Callable[[str, int], StorageData]
"""Finds a storage by its key; the second argument is its minimum size in bytes."""


@dataclass(frozen=True)
class _TensorView:
    """The description of a tensor in a pickle."""

    key: str
    dtype: ir.DataType
    start: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    elements: int
    """The number of elements of the whole storage, in its own type."""
    storage_dtype: ir.DataType

    @property
    def reach(self) -> int:
        """The number of elements of the storage up to the last one of the tensor."""
        if not math.prod(self.dims):
            return 0
        return self.start + 1 + sum((dim - 1) * stride for dim, stride in zip(self.dims, self.strides))

    @property
    def is_contiguous(self) -> bool:
        expected = 1
        for dim, stride in zip(reversed(self.dims), reversed(self.strides)):
            if dim != 1 and stride != expected:
                return False
            expected *= dim
        return True


def checkpoint(path: Path, value: Any, storages: Storages, weights: Weights, key: str | None) -> Checkpoint:
    """Return the tensors of an unpickled checkpoint, those of nested dicts named by all keys joined with dots.

    `key` selects the dict with the weights; without it, the outermost dict with tensors of its own is used, or the dict
    under a usual name, unless another one, such as moving averages, has tensors of the same names. Raises UsageError if
    the choice is ambiguous, and ModelFileError for invalid tensors.
    """
    found, shared = {}, {}
    for name, called in _named(path, _chosen(path, value, key)).items():
        view = _view(path, name, called)
        if view is not None:
            found[name] = _entry(path, name, view, storages, weights)
            shared[name] = (view.key, view.start, view.dims, view.strides)
    if not found:
        raise ModelFileError("it has no tensors", where=str(path), todo="save model.state_dict()")
    return Checkpoint(path, found, weights, _aliases(shared))


def refusal(path: Path, error: PickleError) -> ModelFileError:
    """Return the error for a refused pickle."""
    if isinstance(error, UnsafePickleError):
        todo = _TODO
        if "would make" in str(error) or "would import" in str(error):
            todo = f"if it is a whole module, save its state_dict() instead; else {_TODO}"
        return ModelFileError(f"refused: {error}", where=str(path), todo=todo)
    return broken(path, str(error))


def _chosen(path: Path, value: Any, key: str | None) -> Any:
    """Return the dict with the weights."""
    if key is not None:
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise UsageError(f"'{path.name}' has no key '{key}'", todo=_other_keys(value))
            value = value[part]
        return value
    if isinstance(value, Called) or not isinstance(value, dict):
        return value
    return _likely(path, value, "")


def _other_keys(value: Any) -> str:
    """Return a remedy for a key that does not exist."""
    if isinstance(value, dict) and _dicts(value):
        return f"keys there: {first_few([str(name) for name in value], most=_MOST_KEYS, mark=',')}"
    return "no dicts with tensors are there; omit --key"


def _dicts(value: dict[Any, Any]) -> dict[Any, Any]:
    """Return the dicts with tensors in a dict."""
    return {name: item for name, item in value.items() if isinstance(item, dict) and _holds_tensors(item)}


def _likely(path: Path, value: dict[Any, Any], where: str) -> Any:
    """Return the dict with the weights: `value` if it has tensors of its own, else a dict in it at `where`.

    Raises UsageError if there are several, such as the weights and their moving averages.
    """
    inner = _dicts(value)
    if not inner or any(_is_tensor(item) for item in value.values()):
        return value
    usual = [name for name in KEYS if name in inner]
    if not usual and len(inner) > 1:
        raise _ambiguous(path, inner, where)
    chosen = usual[0] if usual else next(iter(inner))
    found = _likely(path, inner[chosen], f"{where}{chosen}.")
    names = {name for name, item in found.items() if _is_tensor(item)}
    rivals = [name for name, item in inner.items() if item is not inner[chosen] and _has_any(item, names)]
    if rivals:
        raise _ambiguous(path, [chosen, *rivals], where)
    return found


def _has_any(value: Any, names: set[Any]) -> bool:
    """Return whether a dict, at any depth, has a tensor of one of the names; the state of an optimizer has none."""
    dicts = (one for one in nested(value) if isinstance(one, dict))
    return any(_is_tensor(one[name]) for one in dicts for name in names & one.keys())


def _ambiguous(path: Path, keys: Iterable[Any], where: str) -> UsageError:
    names = first_few((f"'{where}{name}'" for name in keys), _MOST_KEYS)
    return UsageError(f"'{path.name}' has tensors under {names}", todo="choose one with --key")


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(item, Called) and _is_tensor(item) for item in nested(value))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Called) and str(value.function) in TENSORS


def _named(path: Path, value: Any) -> dict[str, Called]:
    """Return tensors by name, built from the keys of dicts and the positions in lists.

    Raises ModelFileError if two tensors get the same name, as in {"a.b": x, "a": {"b": y}}.
    """
    found: dict[str, Called] = {}
    on_the_way: set[int] = set()

    def walk(here: Any, name: str) -> None:
        if _is_tensor(here):
            label = name or "tensor"
            if label in found:
                todo = "rename one of them, or save one dict of tensors"
                raise ModelFileError(f"two of its tensors are called '{label}'", where=str(path), todo=todo)
            found[label] = here
        elif isinstance(here, dict | list | tuple) and id(here) not in on_the_way:
            # Each container is visited once, because references may be cyclic.
            on_the_way.add(id(here))
            items = here.items() if isinstance(here, dict) else enumerate(here)
            for key, item in items:
                walk(item, f"{name}.{key}" if name else str(key))

    try:
        walk(value, "")
    except RecursionError as error:
        raise UsageError("the checkpoint nests too deeply", todo="save model.state_dict()") from error
    return found


def _aliases(shared: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of tensors with the same elements as an earlier tensor, mapped to the earlier name."""
    first: dict[Any, str] = {}
    found = {name: first.setdefault(place, name) for name, place in shared.items()}
    return {name: other for name, other in found.items() if name != other}


def _view(path: Path, name: str, called: Called) -> _TensorView | None:
    """Read the arguments of a call that constructs a tensor; raise ModelFileError for tensors that are not dense."""
    function, arguments = called.function.name, called.arguments
    try:
        if function in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
            return _view(path, name, arguments[0])
        if function == "_rebuild_from_type_v2":
            inner = Called(arguments[0], arguments[2])
            if not _is_tensor(inner):
                raise PickleError(f"it would call {arguments[0]}")
            return _view(path, name, inner)
        if function in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            _require_plain(path, name, arguments[7 if function.endswith("v3") else 6 :])
            return _strided(arguments, function.endswith("v3"))
    except PickleError as error:
        raise broken(path, f"'{name}': {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise broken(path, f"its entry for '{name}' is not recognized") from error
    kind = function.removeprefix("_rebuild_").replace("_", " ")
    raise ModelFileError(
        f"'{name}' is a {kind}, which a model cannot contain", where=str(path), todo="save it as a dense tensor"
    )


def _require_plain(path: Path, name: str, metadata: tuple[Any, ...]) -> None:
    """Raise ModelFileError for a view whose elements are not those of its storage: negated or conjugated."""
    flags = metadata[0] if metadata and metadata[0] is not None else {}
    marks = ", ".join(str(flag) for flag, is_set in flags.items() if is_set)
    if not marks:
        return
    what = f"'{name}' is a view with other elements than its storage ({marks})"
    raise ModelFileError(what, where=str(path), todo="save it with .resolve_conj().resolve_neg()")


def _strided(arguments: tuple[Any, ...], typed: bool) -> _TensorView:
    storage, start, dims, strides = arguments[:4]
    if isinstance(dims, Called):
        dims = dims.arguments[0]
    key, storage_dtype, elements = _storage(storage)
    dtype = _DTYPES[arguments[6].name] if typed else storage_dtype
    numbers = [start, elements, *dims, *strides]
    if any(type(number) is not int or not 0 <= number < 2**62 for number in numbers) or len(dims) != len(strides):
        raise ValueError
    if len(dims) > _MOST_RANK:
        raise ValueError
    return _TensorView(key, dtype, start, tuple(dims), tuple(strides), elements, storage_dtype)


def _storage(found: Any) -> tuple[str, ir.DataType, int]:
    """Read ("storage", torch.FloatStorage, key, device, elements); old files append the view of the storage."""
    if not isinstance(found, Persistent) or not isinstance(found.value, tuple) or found.value[0] != "storage":
        raise PickleError("its elements are not in a storage of the file")
    _, kind, key, _, elements, *_ = found.value
    if not isinstance(kind, Global) or kind.name not in STORAGES or not isinstance(key, str):
        raise PickleError(f"its storage has the type {kind}, which ONNX does not support")
    return key, STORAGES[kind.name], elements


def _entry(path: Path, name: str, view: _TensorView, storages: Storages, weights: Weights) -> TensorEntry:
    size = view.dtype.bitwidth // 8
    data = storages(view.key, view.elements * (view.storage_dtype.bitwidth // 8))
    if view.reach * size > data.reference.length:
        raise broken(path, f"'{name}' needs {view.reach * size:,} bytes of a storage of {data.reference.length:,}")
    length = math.prod(view.dims) * size
    if length > data.reference.length + EXPANDED:
        what = f"'{name}' repeats the elements of its storage to {length:,} bytes"
        raise ModelFileError(what, where=str(path), todo="save it with .contiguous()")
    return TensorEntry(view.dtype, view.dims, lambda: _place(view, data, length, weights))


def _place(view: _TensorView, data: StorageData, length: int, weights: Weights) -> Reference:
    """Return the location of the elements in ONNX layout, aligned: in the file, or else in a copy."""
    size = view.dtype.bitwidth // 8
    there = Reference(data.reference.location, data.reference.offset + view.start * size, length)
    swapped = data.big and size > 1
    if view.is_contiguous and not swapped:
        return there if there.offset % size == 0 or not length else weights.spill(weights.view(there))
    if not length:
        return there._replace(offset=data.reference.offset)
    complex_parts = 2 if view.dtype in (_Type.COMPLEX64, _Type.COMPLEX128) else 1
    plain = np.dtype(f"{'>' if swapped else '<'}u{size // complex_parts}")
    raw = weights.view(data.reference)
    flat = np.frombuffer(raw[: len(raw) // size * size], plain)
    dims, steps = view.dims, view.strides
    if complex_parts == 2:
        dims, steps = (*dims, 2), (*(2 * step for step in steps), 1)
    strides = tuple(step * plain.itemsize for step in steps)
    start = flat[view.start * complex_parts :]
    elements = np.lib.stride_tricks.as_strided(start, dims, strides, writeable=False)
    if swapped:
        return weights.spill(piece.astype(plain.newbyteorder("<")) for piece in rows_of(elements))
    return weights.spill(rows_of(elements))
