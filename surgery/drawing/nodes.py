"""Nodes as plain values, so that a drawing does not keep protobuf messages alive.

A message of the protobuf runtime keeps the whole model alive that it is a part of. A history goes over many states of a
model, so it copies what it needs of the nodes that are new or changed, and of nothing else.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from surgery.graph import lineage
from surgery.graph.entries import GRAPHS
from surgery.graph.lineage import Lineage
from surgery.operators.forms import plain_domain
from surgery.storage import is_external, payload_bytes

if TYPE_CHECKING:
    import onnx

SMALL = 16
"""Elements up to which a constant is written out."""

_LIST = 32
"""Items of an attribute that are written."""
_TEXT = 400
"""Characters of a text attribute that are written."""

_SCOPES = "pkg.torch.onnx.name_scopes"
_NAMESPACE = "namespace"
_TRACE = "pkg.torch.onnx.stack_trace"
_HOOK = "_empty_nn_module_stack_from_metadata_hook"
"""What PyTorch writes where it does not know the module."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that the model holds. `values` are its elements if there are at most `SMALL` of them, else None."""

    dims: tuple[int, ...]
    type: str
    bytes: int
    values: tuple[Any, ...] | None = None

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
        found: dict[str, Any] = {"dims": [*self.dims], "type": self.type, "bytes": self.bytes}
        return found if self.values is None else {**found, "values": [*self.values]}


@dataclass(frozen=True, slots=True)
class Plain:
    """A node without its subgraphs. `attributes` are texts by name, and `path` the modules or scopes around it, None
    where nothing tells them.

    `source` is the line of the program that the exporter took it from, `constant` the tensor of a Constant.
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
    constant: Constant | None = None
    signature: bytes = b""
    """Equal for equal attributes."""

    @property
    def kind(self) -> tuple[str, str]:
        """The operator with its domain."""
        return self.domain, self.op

    @property
    def label(self) -> str:
        """How reports call the node: its name, or what it computes."""
        return self.name or f"{self.op} -> {', '.join(self.outputs)}"


def digest(node: onnx.NodeProto, *, has_bodies: bool) -> bytes:
    """Return what tells a node from any other, its subgraphs left out."""
    if not has_bodies:
        return _hash(node.SerializeToString(deterministic=True))
    parts = [node.op_type, node.domain, node.name, *node.input, "", *node.output]
    return _hash(b"".join([*(text.encode("utf-8", "surrogatepass") + b"\0" for text in parts), *own_attributes(node)]))


def own_attributes(node: onnx.NodeProto) -> list[bytes]:
    """Return the attributes of a node as bytes, its subgraphs left out."""
    return [one.SerializeToString(deterministic=True) for one in node.attribute if one.type not in GRAPHS]


def digest_of(tensor: onnx.TensorProto | onnx.SparseTensorProto) -> bytes:
    """Return what tells a tensor from any other; a large one by where its elements lie."""
    return _hash(tensor.SerializeToString(deterministic=True))


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def plain(node: onnx.NodeProto) -> Plain:
    """Copy what a drawing tells of a node."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    constant = next((constant_of(one.t) for one in node.attribute if one.name == "value" and one.HasField("t")), None)
    is_constant = node.op_type == "Constant" and constant is not None
    return Plain(
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
        _hash(b"".join(own_attributes(node))),
    )


# Attributes and constants


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Write the value of an attribute on one line, shortened where it is long."""
    import onnx

    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    try:
        value = onnx.helper.get_attribute_value(attribute)
    except ValueError:  # no type that this onnx knows
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


def constant_of(tensor: onnx.TensorProto | onnx.SparseTensorProto) -> Constant:
    """Copy the description of a tensor. Only the elements of a small one are read, which are in the message itself."""
    if not hasattr(tensor, "data_type"):
        size = payload_bytes(tensor.values) + payload_bytes(tensor.indices)
        return Constant(tuple(tensor.dims), f"sparse {type_name(tensor.values.data_type)}", size)
    dims = tuple(tensor.dims)
    values = None
    if not is_external(tensor) and math.prod(dims) <= SMALL:
        values = tuple(_values(tensor))
    return Constant(dims, type_name(tensor.data_type), payload_bytes(tensor), values)


def _values(tensor: onnx.TensorProto) -> Iterator[Any]:
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):  # damaged, or of a type that this onnx cannot read
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


# Where a node is in the program that was exported


def path_of(node: onnx.NodeProto, metadata: dict[str, str]) -> tuple[str, ...] | None:
    """Return the modules or name scopes that a node is in, from the outermost in; None where nothing says so.

    What PyTorch noted counts first; then the name of the node, and that of its first result, where these are paths.
    """
    if _SCOPES in metadata:
        return _modules(metadata[_SCOPES])
    if _NAMESPACE in metadata:
        return _namespace(metadata[_NAMESPACE])
    named = split_path(node.name)
    return named if named is not None or not node.output else split_path(node.output[0])


def split_path(name: str) -> tuple[str, ...] | None:
    """Return the folders of a name that is a path, without the last part: "/a/b/Add" is in ("a", "b")."""
    return tuple(part for part in name.split("/")[:-1] if part) if "/" in name else None


@lru_cache(maxsize=4096)
def _modules(text: str) -> tuple[str, ...] | None:
    """Read a list such as "['', 'encoder', 'encoder.layer.0', 'linear']", whose last item is the call itself."""
    try:
        listed = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return _relative(names[:-1])


@lru_cache(maxsize=4096)
def _namespace(text: str) -> tuple[str, ...] | None:
    """Read ": models.Tokens/model: transformers.BertModel/model.embeddings: .../expand: aten.expand"."""
    return _relative([part.partition(": ")[0].strip() for part in text.split("/")][:-1])


def _relative(names: list[str]) -> tuple[str, ...] | None:
    """Name each module within the one around it."""
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
