"""Equal weights stored once."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from surgery import Graph, Parity, Value, graph_pass

CHUNK = 1 << 22
SAMPLES = 16
SAMPLE_BYTES = 256

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@graph_pass("dedupe-initializers", parity=Parity.EXACT)
def dedupe_initializers(graph: Graph) -> None:
    """Replace equal initializers by the first of them.

    Right because tensors with equal type, dims and bytes are interchangeable: 0.0 and -0.0 differ, and a NaN equals
    only a NaN with the same bits. The remaining initializer must be visible to all consumers, so it is in the same
    scope or in an enclosing one. Overridable initializers stay, and so do initializers that are graph outputs, because
    of their names.

    Example:
        g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}>
        {
            a = Mul(x, v)
            y = Add(a, w)
        }
    """
    around = {scope: holder.scope for scope, holder in graph.holders().items()}
    found = [Value(graph, value) for scope in graph.scopes for value in scope.initializers.values()]
    used = [value for value in found if value.is_used and value.held is not None]
    for equal in _equal(used):
        kept: dict[Any, Value] = {}
        for value in equal:
            scope = value.scope
            first = next((kept[outer] for outer in _outwards(scope, around) if outer in kept), None)
            if first is None:
                if not value.is_overridable:
                    kept[scope] = value
                continue
            with graph.site(next(iter(value.consumers), None)) as new:
                new.require(not value.is_overridable, "a caller can override the initializer")
                new.require(not value.is_output, "the initializer is an output of its graph")
                new.replace(value, first)


def _outwards(scope: Any, around: dict[Any, Any]) -> Iterator[Any]:
    """Yield a scope and those around it, from the inside out."""
    while scope is not None:
        yield scope
        scope = around.get(scope)


def _equal(values: list[Value]) -> Iterable[list[Value]]:
    """Group values by their bits. Weights are read only where type, dims and a sample of the bytes agree."""
    groups = [values]
    keys: list[Callable[[Value], Hashable]] = [_kind, _sample, _digest]
    for key in keys:
        parts: list[list[Value]] = []
        for group in groups:
            split: dict[Hashable, list[Value]] = defaultdict(list)
            for value in group:
                split[key(value)].append(value)
            parts += [part for part in split.values() if len(part) > 1]
        groups = parts
    # A digest is no proof.
    return [[group[0], *(value for value in group[1:] if _same(group[0], value))] for group in groups]


def _kind(value: Value) -> Hashable:
    tensor = value.held
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape))


def _sample(value: Value) -> Hashable:
    """Return some bytes from all over the tensor."""
    data = _bytes(value)
    if data.size <= SAMPLES * SAMPLE_BYTES:
        return data.tobytes()
    starts = np.linspace(0, data.size - SAMPLE_BYTES, SAMPLES, dtype=np.int64)
    return b"".join(data[start : start + SAMPLE_BYTES].tobytes() for start in starts)


def _digest(value: Value) -> Hashable:
    digest = hashlib.sha256()
    for chunk in _chunks(_bytes(value)):
        digest.update(chunk.data)
    return digest.digest()


def _same(one: Value, other: Value) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(_chunks(_bytes(one)), _chunks(_bytes(other)), strict=True))


def _chunks(data: Bytes) -> Iterator[Bytes]:
    for start in range(0, data.size, CHUNK):
        yield data[start : start + CHUNK]


def _bytes(value: Value) -> Bytes:
    """Return the bytes of a tensor, over the mapped file where it lies in one."""
    tensor = value.held
    array = np.asarray(tensor.numpy() if tensor is not None else 0)
    if array.dtype == object:
        # The lengths keep texts apart that are the same when joined.
        texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
        return np.frombuffer(b"".join(b"%d:%s" % (len(text), text) for text in texts), dtype=np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
