"""Nodes as plain values, so that a drawing does not keep protobuf messages alive.

A protobuf message keeps the whole model alive that it is part of. A history covers many states of a model, so it copies
the necessary values, and only of new or changed nodes.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from surgery.base.operators.forms import plain_domain
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage
from surgery.model.proto.lineage_entries import GRAPHS
from surgery.model.storage import is_external, payload_bytes
from surgery.model.wire.stored_lists import digest as list_digest
from surgery.model.wire.stored_lists import is_stored, with_list
from surgery.model.wire.wire import LENGTH, encode_tag, encode_varint

if TYPE_CHECKING:
    import onnx

SMALL = 16
"""Maximum number of elements of a constant that are included."""

_LIST = 32
"""Maximum number of items of an attribute that are included."""
_TEXT = 400
"""Maximum number of characters of a text attribute that are included."""

_ATTRIBUTES = 2048
"""Maximum number of bytes of the attributes of a node that are included as a message."""
_TAG = encode_tag(5, LENGTH)
"""The tag of an attribute in the message of a node."""

_SCOPES = "pkg.torch.onnx.name_scopes"
_NAMESPACE = "namespace"
_TRACE = "pkg.torch.onnx.stack_trace"
_HOOK = "_empty_nn_module_stack_from_metadata_hook"
"""The name that PyTorch writes if it does not know the module."""


@dataclass(frozen=True, slots=True)
class ConstantData:
    """A tensor of the model. `values` are its elements if there are at most `SMALL`, else None."""

    dims: tuple[int, ...]
    type: str
    nbytes: int
    values: tuple[Any, ...] | None = None
    packed: bytes = b""
    """The tensor as a protobuf message without a name, if `values` are known."""

    @property
    def text(self) -> str:
        """The tensor on one line: "int64[2] {1, 2}"."""
        head = f"{self.type}[{','.join(map(str, self.dims))}]" if self.dims else self.type
        if self.values is None:
            return head
        values = ", ".join(map(str, self.values))
        return f"{head} {{{values}}}" if self.dims else f"{head} {values}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values that JSON can express."""
        found: dict[str, Any] = {"dims": [*self.dims], "type": self.type, "bytes": self.nbytes}
        if self.values is None:
            return found
        return {**found, "values": [*self.values], "packed": base64.b64encode(self.packed).decode()}


@dataclass(frozen=True, slots=True)
class NodeData:
    """A node without its subgraphs.

    `attributes` are texts by name, `path` has the modules or scopes around the node, None if unknown, `source` is the
    line of the exported program, and `constant` the tensor of a Constant.
    """

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    doc: str = ""
    lineage: Lineage | None = None
    path: tuple[str, ...] | None = None
    source: str = ""
    constant: ConstantData | None = None
    signature: bytes = b""
    """A digest of the attributes, equal for equal attributes."""
    packed: bytes | None = None
    """The attributes as they are in a protobuf message of a node; None if a page cannot hold them all."""

    @property
    def kind(self) -> tuple[str, str]:
        """The operator with its domain."""
        return self.domain, self.op

    @property
    def label(self) -> str:
        """The label of the node in reports: its name, or its operator and outputs."""
        return self.name or f"{self.op} -> {', '.join(self.outputs)}"


def digest(node: onnx.NodeProto, *, has_bodies: bool) -> bytes:
    """Return a digest that identifies a node, without its subgraphs."""
    if not has_bodies:
        return _hash(node.SerializeToString(deterministic=True))
    parts = [node.op_type, node.domain, node.name, *node.input, "", *node.output]
    return _hash(b"".join([*(text.encode("utf-8", "surrogatepass") + b"\0" for text in parts), *own_attributes(node)]))


def own_attributes(node: onnx.NodeProto) -> list[bytes]:
    """Return the attributes of a node as bytes, without its subgraphs."""
    return [_own_bytes(one) for one in node.attribute if one.type not in GRAPHS]


def _own_bytes(attribute: onnx.AttributeProto) -> bytes:
    """Return an attribute as bytes, with a digest of a list that is outside the skeleton."""
    if is_stored(attribute):
        return attribute.name.encode() + list_digest(attribute)
    return bytes(attribute.SerializeToString(deterministic=True))


def digest_of(tensor: onnx.TensorProto | onnx.SparseTensorProto) -> bytes:
    """Return a digest that identifies a tensor; a large one is identified by the location of its elements."""
    return _hash(tensor.SerializeToString(deterministic=True))


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def plain(node: onnx.NodeProto) -> NodeData:
    """Copy the values of a node that a drawing uses."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    constant = next((constant_of(one.t) for one in node.attribute if one.name == "value" and one.HasField("t")), None)
    is_constant = node.op_type == "Constant" and constant is not None
    attributes = own_attributes(node)
    return NodeData(
        node.op_type,
        plain_domain(node.domain),
        node.name,
        tuple(node.input),
        tuple(node.output),
        tuple((one.name, attribute_text(one)) for one in node.attribute if one.type not in GRAPHS),
        node.doc_string,
        lineage.read(metadata) if metadata else None,
        path_of(node, metadata),
        _source(metadata),
        constant if is_constant else None,
        _hash(b"".join(attributes)),
        _packed(node, attributes),
    )


def _packed(node: onnx.NodeProto, attributes: list[bytes]) -> bytes | None:
    """Return the attributes as they are in the message of a node; None for subgraphs, parameters and large tensors."""
    if sum(map(len, attributes)) > _ATTRIBUTES or len(attributes) < len(node.attribute):
        return None
    if any(one.ref_attr_name or (one.HasField("t") and is_external(one.t)) for one in node.attribute):
        return None
    return b"".join(_TAG + encode_varint(len(one)) + one for one in attributes)


# Attributes and constants


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Format the value of an attribute on one line, shortened if it is long."""
    import onnx

    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    try:
        value = onnx.helper.get_attribute_value(with_list(attribute))
    except ValueError:  # a type unknown to this version of onnx
        return "?"
    if isinstance(value, onnx.TensorProto | onnx.SparseTensorProto):
        return constant_of(value).text
    if isinstance(value, bytes | int | float | str):
        return _item_text(value)
    if isinstance(value, onnx.TypeProto):
        return " ".join(str(value).split())[:_TEXT]
    shown = ", ".join(_item_text(item) for item in value[:_LIST])
    more = f", … {len(value)} in all" if len(value) > _LIST else ""
    return f"[{shown}{more}]"


def _item_text(item: Any) -> str:
    if isinstance(item, bytes):
        text = item.decode("utf-8", "replace")
        return text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text)} characters)"
    return f"{item:.9g}" if isinstance(item, float) else str(item) if isinstance(item, int | str) else "…"


def constant_of(tensor: onnx.TensorProto | onnx.SparseTensorProto) -> ConstantData:
    """Copy the description of a tensor. Elements are read only for small tensors, which are in the message itself."""
    if not hasattr(tensor, "data_type"):
        size = payload_bytes(tensor.values) + payload_bytes(tensor.indices)
        return ConstantData(tuple(tensor.dims), f"sparse {type_name(tensor.values.data_type)}", size)
    dims = tuple(tensor.dims)
    values, packed = None, b""
    if not is_external(tensor) and math.prod(dims) <= SMALL:
        values, packed = tuple(_values(tensor)), _nameless(tensor)
    return ConstantData(dims, type_name(tensor.data_type), payload_bytes(tensor), values, packed)


def _nameless(tensor: onnx.TensorProto) -> bytes:
    """Return a tensor as a protobuf message, without its name and documentation."""
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    for field in ("name", "doc_string", "metadata_props"):
        copy.ClearField(field)
    return bytes(copy.SerializeToString(deterministic=True))


def _values(tensor: onnx.TensorProto) -> Iterator[Any]:
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):  # damaged, or of a type that this version of onnx cannot read
        return
    for item in array.reshape(-1):
        value = item.item() if hasattr(item, "item") else item
        if isinstance(value, bytes):
            yield value.decode("utf-8", "replace")
        elif isinstance(value, bool | int | str):
            yield value
        elif isinstance(value, complex):
            yield str(value)
        else:
            number = float(value)
            yield number if math.isfinite(number) else str(number)


@lru_cache(maxsize=64)
def type_name(data_type: int) -> str:
    """Return the name of an element type by its number."""
    import onnx

    try:
        return str(onnx.TensorProto.DataType.Name(data_type).lower())
    except ValueError:
        return f"type {data_type}"


# The location of a node in the exported program


def path_of(node: onnx.NodeProto, metadata: dict[str, str]) -> tuple[str, ...] | None:
    """Return the modules or name scopes that contain a node, outermost first; None if unknown.

    The metadata of PyTorch comes first, then the name of the node or of its first result, if that is a path.
    """
    if _SCOPES in metadata:
        return _modules(metadata[_SCOPES])
    if _NAMESPACE in metadata:
        return _namespace(metadata[_NAMESPACE])
    named = split_path(node.name)
    return named if named is not None or not node.output else split_path(node.output[0])


def split_path(name: str) -> tuple[str, ...] | None:
    """Return the folders of a name that is a path: ("a", "b") for "/a/b/Add"; None if it is not a path."""
    return tuple(part for part in name.split("/")[:-1] if part) if "/" in name else None


@lru_cache(maxsize=4096)
def _modules(text: str) -> tuple[str, ...] | None:
    """Parse a list such as "['', 'encoder', 'encoder.layer.0', 'linear']", whose last item is the call itself."""
    try:
        listed = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return _relative(names[:-1])


@lru_cache(maxsize=4096)
def _namespace(text: str) -> tuple[str, ...] | None:
    """Parse ": models.Tokens/model: transformers.BertModel/model.embeddings: .../expand: aten.expand"."""
    return _relative([part.partition(": ")[0].strip() for part in text.split("/")][:-1])


def _relative(names: list[str]) -> tuple[str, ...] | None:
    """Return the name of each module relative to the enclosing one."""
    if _HOOK in names:
        return None
    found, around = [], ""
    for name in filter(None, names):
        found.append(name.removeprefix(f"{around}.") if around else name)
        around = name
    return tuple(found)


def _source(metadata: dict[str, str]) -> str:
    lines = (line.strip() for line in metadata.get(_TRACE, "").splitlines())
    frames = [line for line in lines if line.startswith("File ")]
    return frames[-1] if frames else ""
