"""Digests of a model: of each part, each tensor, and the whole, regardless of how its weights are stored.

The digest of the whole is computed from the digests of its parts: each node, attribute, initializer, declaration and
field of the model. Files of the same model with different layouts (external data, another field of `TensorProto`,
another order of initializers) have the same digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from surgery.model.wire.digests import STATEMENT_KEY, elements_digest
from surgery.model.wire.stored_lists import is_stored, serialized
from surgery.model.wire.tensors import PAYLOAD_FIELDS

if TYPE_CHECKING:
    import onnx

    from surgery.model import storage

ALGORITHM: Final = "onnxContent1"
"""The name of the digest of a whole model in provenance statements; it changes with the definition of the digest."""

_LAID_OUT: Final = (*PAYLOAD_FIELDS, "string_data", "external_data", "data_location")
"""The fields of a TensorProto that define where and how its elements are stored."""

# The fields of each message whose entries are separate parts.
_OF_MODEL: Final = ("graph", "functions", "training_info")
_OF_GRAPH: Final = ("node", "initializer", "sparse_initializer", "input", "output", "value_info")
_OF_ATTRIBUTE: Final = ("t", "g", "tensors", "graphs", "sparse_tensor", "sparse_tensors")


@dataclass(frozen=True)
class ModelPart:
    """A part of a model: its place, its digest, and for a tensor the digest of its elements alone."""

    place: str
    digest: str
    elements: str | None = None


@dataclass(frozen=True)
class ModelIdentity:
    """The digests of a model. The order of `parts` depends on the model alone."""

    parts: tuple[ModelPart, ...]

    @cached_property
    def whole(self) -> str:
        """The digest of the whole model, without its provenance statement."""
        digest = hashlib.sha256(ALGORITHM.encode())
        for part in self.parts:
            digest.update(bytes.fromhex(part.digest))
        return digest.hexdigest()

    @cached_property
    def tensors(self) -> Mapping[str, str]:
        """The digest of the elements of each tensor, by place."""
        return {part.place: part.elements for part in self.parts if part.elements is not None}


def identity_of(stored: storage.StoredModel) -> ModelIdentity:
    """Return the digests of a stored model. Raises ModelFileError if its weight file no longer exists."""
    return identify(stored.proto, stored.weights)


def identify(proto: onnx.ModelProto, weights: storage.Weights) -> ModelIdentity:
    """Return the digests of a skeleton with its weights; see `identity_of`. Raises ModelFileError."""
    return ModelIdentity(tuple(_Parts(weights).model(proto)))


class _Parts:
    """A walk over the parts of a model."""

    def __init__(self, weights: storage.Weights) -> None:
        self._weights = weights

    def model(self, model: onnx.ModelProto) -> Iterator[ModelPart]:
        kept = _without(model, _OF_MODEL)
        for entry in [entry for entry in kept.metadata_props if entry.key == STATEMENT_KEY]:
            kept.metadata_props.remove(entry)
        yield from _fields("", kept)
        yield from self._graph("", model.graph)
        for function in sorted(model.functions, key=_function_name):
            name = _function_name(function)
            yield _part(f"function '{name}'", _serialized(_without(function, ("node", "attribute_proto"))))
            yield from self._nodes(f"function '{name}', ", function.node)
            for attribute in function.attribute_proto:
                yield from self._attribute(f"function '{name}', ", attribute)
        for number, training in enumerate(model.training_info):
            place = f"training {number}, "
            yield _part(f"{place}bindings", _serialized(_without(training, ("initialization", "algorithm"))))
            yield from self._graph(f"{place}initialization, ", training.initialization)
            yield from self._graph(f"{place}algorithm, ", training.algorithm)

    def _graph(self, place: str, graph: onnx.GraphProto) -> Iterator[ModelPart]:
        yield from _fields(f"{place}graph ", _without(graph, _OF_GRAPH))
        for kind in ("input", "output"):
            for value in getattr(graph, kind):
                yield _part(f"{place}{kind} '{value.name}'", _serialized(value))
        yield from self._nodes(place, graph.node)
        for tensor in sorted(graph.initializer, key=lambda tensor: tensor.name):
            yield self._tensor(f"{place}initializer '{tensor.name}'", tensor)
        for sparse in sorted(graph.sparse_initializer, key=lambda sparse: sparse.values.name):
            yield from self._sparse(f"{place}initializer '{sparse.values.name}'", sparse)
        for value in sorted(graph.value_info, key=lambda value: value.name):
            yield _part(f"{place}declaration of '{value.name}'", _serialized(value))

    def _nodes(self, place: str, nodes: Any) -> Iterator[ModelPart]:
        for position, node in enumerate(nodes):
            name = node.name or next(filter(None, node.output), f"number {position}")
            here = f"{place}{node.op_type} '{name}'"
            yield _part(here, _serialized(_without(node, ("attribute",))))
            for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
                yield from self._attribute(f"{here}, ", attribute)

    def _attribute(self, place: str, attribute: onnx.AttributeProto) -> Iterator[ModelPart]:
        here = f"{place}attribute '{attribute.name}'"
        if is_stored(attribute):
            yield _part(here, serialized(attribute))
            return
        yield _part(here, _serialized(_without(attribute, _OF_ATTRIBUTE)))
        for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
            yield self._tensor(f"{here}, tensor", tensor)
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            yield from self._graph(f"{here}, ", graph)
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for one in (*sparse, *attribute.sparse_tensors):
            yield from self._sparse(here, one)

    def _sparse(self, place: str, sparse: onnx.SparseTensorProto) -> Iterator[ModelPart]:
        yield _part(f"{place}, dims", _serialized(_without(sparse, ("values", "indices"))))
        yield self._tensor(f"{place}, values", sparse.values)
        yield self._tensor(f"{place}, indices", sparse.indices)

    def _tensor(self, place: str, tensor: onnx.TensorProto) -> ModelPart:
        elements = elements_digest(tensor, self._weights)
        head = type(tensor)()
        # Copy field by field, to avoid copying the payload of a large tensor.
        for field, value in tensor.ListFields():
            if field.name not in _LAID_OUT:
                if field.name in ("dims", "metadata_props"):
                    getattr(head, field.name).extend(value)
                elif field.name == "segment":
                    head.segment.CopyFrom(value)
                else:
                    setattr(head, field.name, value)
        return _part(place, _serialized(head), elements)


def _part(place: str, content: bytes | Sequence[bytes | memoryview], elements: str | None = None) -> ModelPart:
    """Return a part with this content, which may be given in pieces."""
    pieces = [content] if isinstance(content, bytes) else content
    digest = hashlib.sha256()
    for item in ([place.encode(errors="surrogatepass")], pieces, [bytes.fromhex(elements or "")]):
        digest.update(b"%d:" % sum(map(len, item)))
        for piece in item:
            digest.update(piece)
    return ModelPart(place, digest.hexdigest(), elements)


def _fields(place: str, message: Any) -> Iterator[ModelPart]:
    """Yield a part for each field that is set; the entries of a repeated field are sorted by their bytes."""
    for field, value in message.ListFields():
        if field.message_type is None:
            yield _part(f"{place}{field.name}", str(value).encode(errors="surrogatepass"))
        else:
            entries = sorted(map(_serialized, value if hasattr(value, "__len__") else [value]))
            yield _part(f"{place}{field.name}", b"".join(b"%d:%b" % (len(entry), entry) for entry in entries))
        message.ClearField(field.name)
    unknown = _serialized(message)
    if unknown:
        yield _part(f"{place}fields of a newer version of ONNX", unknown)


def _without(message: Any, names: tuple[str, ...]) -> Any:
    """Return a copy of a message without some of its fields."""
    copy = type(message)()
    if len(UnknownFieldSet(message)):
        copy.CopyFrom(message)
        for name in names:
            copy.ClearField(name)
        return copy
    # Field by field, so that the rest of a large message is never copied.
    for field, value in message.ListFields():
        if field.name in names:
            continue
        if field.is_repeated:
            getattr(copy, field.name).MergeFrom(value)
        elif field.message_type is not None:
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)
    return copy


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _function_name(function: onnx.FunctionProto) -> str:
    return "::".join(filter(None, (function.domain, function.name, function.overload)))
