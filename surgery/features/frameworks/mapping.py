"""The mapping file of `import-weights`, from initializers to tensors of a checkpoint.

    key: state_dict                                   # of a .pt file with several dicts
    tensors:                                          # initializer: tensor of the checkpoint
      "model.*": "*"
      onnx::MatMul_593: encoder.layer.0.attention.self.query.weight
      blocks.{i}.qkv.weight: {concat: [h.{i}.q.weight, h.{i}.k.weight, h.{i}.v.weight], axis: 0}
      blocks.{i}.q.weight: {from: h.{i}.c_attn.weight, axis: 1, split: 3, part: 0, transpose: false}
      onnx::LSTM_110: {from: lstm.weights, gates: torch}
    keep: [position_ids]                              # initializers that stay as they are
    ignore: ["*.attn.masked_bias"]                    # tensors that no initializer is missing
    rotary: {heads: 32, kv_heads: 8, checkpoint: pairs, model: halves}   # the order of rows of Q and K

A full name has precedence over a pattern, and an earlier pattern over a later one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from surgery.base.errors import UsageError
from surgery.engine.recipe.draft import Draft, TakesError
from surgery.engine.recipe.fields import Flag, OneOrMore, Section, Whole, Word, needed, reads, text
from surgery.engine.recipe.fields import key as may
from surgery.engine.recipe.section_file import read_section
from surgery.engine.yaml.yaml_nodes import Scalar, Table, YamlNode, key_text, plain
from surgery.features.frameworks import name_patterns
from surgery.features.frameworks.rotary import RotarySpec
from surgery.features.frameworks.row_orders import Rotation


@dataclass(frozen=True)
class TensorPart:
    """One piece of a tensor that is split along an axis: into equal parts, or into parts of these sizes."""

    part: int
    sizes: int | tuple[int, ...]


@dataclass(frozen=True)
class TensorSource:
    """The source of an initializer: tensors joined along `axis`, then a part along it, then transposed, reshaped.

    `transpose`: whether to transpose, or the order of the axes; None decides by the shapes and the consumers.
    `reshape`: accept other dims with the same number of elements. `gates`: the order of the gates of a recurrent layer
    in the checkpoint; None decides by names and format.
    """

    tensors: tuple[str, ...]
    axis: int = 0
    part: TensorPart | None = None
    transpose: bool | tuple[int, ...] | None = None
    reshape: bool = False
    gates: Literal["torch", "onnx"] | None = None

    def named(self, pattern: str, match: re.Match[str] | None) -> TensorSource:
        """Return this source with the matched parts of a pattern filled into its names."""
        if match is None:
            return self
        tensors = tuple(name_patterns.filled(template, match, pattern) for template in self.tensors)
        return replace(self, tensors=tensors)


@dataclass(frozen=True)
class NameMapping:
    """The content of a mapping file."""

    tensors: Mapping[str, TensorSource]
    keep: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    key: str | None = None
    rotary: RotarySpec = field(default_factory=RotarySpec)

    def source(self, initializer: str) -> TensorSource | None:
        """Return the source of an initializer; None if the mapping has none."""
        whole = self.tensors.get(initializer)
        if whole is not None:
            return whole
        for pattern, source in self.tensors.items():
            if name_patterns.is_pattern(pattern) and (match := name_patterns.fit(pattern, initializer)) is not None:
                return source.named(pattern, match)
        return None


class _JoinedSource(Section):
    """The long form of a source."""

    wanted = "the name of a tensor, or a mapping such as {concat: [q, k, v], axis: 0}"

    source: Annotated[str, text("the name of a tensor")] = may("The tensor.", alias="from")
    concat: Annotated[tuple[Annotated[str, text("the name of a tensor")], ...], OneOrMore()] = may("Tensors to join.")
    axis: Whole = may("The axis to join or split along (default: 0).")
    split: Annotated[Any, reads(lambda node, _: _sizes(node))] = may("How many equal parts there are, or their sizes.")
    part: Whole = may("Which part to take, from 0.")
    transpose: Annotated[Any, reads(lambda node, _: _order(node))] = may("Whether to transpose, or the order of axes.")
    reshape: Flag = may("Take other dims with as many elements.")
    gates: Annotated[Literal["torch", "onnx"], Word] = may("The order of the gates in the checkpoint.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Create the source."""
        if ("source" in given) == ("concat" in given):
            draft.problem(node, "name one tensor with 'from', or several with 'concat'")
            return None
        if ("split" in given) != ("part" in given):
            draft.problem(node, "'split' and 'part' go together: how many parts, and which one")
            return None
        part = TensorPart(given["part"], given["split"]) if "split" in given else None
        if part is not None and part.part >= (part.sizes if isinstance(part.sizes, int) else len(part.sizes)):
            draft.problem(node, f"there is no part {part.part}; they count from 0")
        tensors = given["concat"] if "concat" in given else (given["source"],)
        how = {name: given[name] for name in ("axis", "transpose", "reshape", "gates") if name in given}
        return TensorSource(tensors, part=part, **how)


def _sizes(node: YamlNode) -> int | tuple[int, ...]:
    found = plain(node)
    if type(found) is int and found > 0:
        return found
    if isinstance(found, list) and found and all(type(size) is int and size > 0 for size in found):
        return tuple(found)
    raise TakesError("a number of parts, or a list of their sizes")


def _order(node: YamlNode) -> bool | tuple[int, ...]:
    found = plain(node)
    if isinstance(found, bool):
        return found
    if isinstance(found, list) and all(type(axis) is int for axis in found) and sorted(found) == [*range(len(found))]:
        return tuple(found)
    raise TakesError("true, false, or the order of all axes such as [1, 0]")


def _source(node: YamlNode, draft: Draft) -> TensorSource | None:
    if isinstance(node, Table):
        found: TensorSource | None = draft.read(_JoinedSource, node, "tensors")
        return found
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, str) or not value.strip():
        raise TakesError(_JoinedSource.wanted)
    return TensorSource((value,))


def _tensors(node: YamlNode, draft: Draft) -> dict[str, TensorSource]:
    """Read the mapping of initializers to sources, and check its patterns."""
    if not isinstance(node, Table):
        raise TakesError("a mapping of initializers to tensors of the checkpoint")
    found: dict[str, TensorSource] = {}
    for at, value in node.pairs:
        name = draft.key(at)
        if name is None:
            continue
        source = draft.read(Annotated[Any, reads(_source)], value, key_text(at) or "")
        if source is None:
            continue
        try:
            for tensor in source.tensors:
                if name_patterns.is_pattern(name):
                    name_patterns.check(name, tensor)
            found[name] = source
        except ValueError as error:
            draft.problem(at, str(error))
    return found


class _Rotary(Section):
    """The section `rotary`."""

    makes = RotarySpec
    wanted = "a mapping such as {heads: 32, kv_heads: 8}"

    heads: Whole = may("The number of heads of Q.")
    kv_heads: Whole = may("The number of heads of K (default: as Q).")
    checkpoint: Annotated[Rotation, Word] = may("Which elements are rotated in the checkpoint.")
    model: Annotated[Rotation, Word] = may("Which elements are rotated in the model.")


class _MappingFile(Section):
    """The whole file."""

    wanted: ClassVar[str] = "a mapping such as {tensors: {'model.*': '*'}}"

    key: Annotated[str, text("a key of the checkpoint")] = may("The key of the dict with the weights.")
    tensors: Annotated[Any, reads(_tensors)] = needed("Initializers and their sources.")
    keep: Annotated[tuple[Annotated[str, text("a name or glob")], ...], OneOrMore()] = may("Initializers to keep.")
    ignore: Annotated[tuple[Annotated[str, text("a name or glob")], ...], OneOrMore()] = may("Tensors to ignore.")
    rotary: _Rotary = may("The order of the rows of Q and K under rotary position embeddings.")

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        """Create the mapping."""
        keep, ignore = (tuple(given.get(name, ())) for name in ("keep", "ignore"))
        rotary = given.get("rotary", RotarySpec())
        return NameMapping(given.get("tensors") or {}, keep, ignore, given.get("key"), rotary)


def load(path: Path) -> NameMapping:
    """Read a mapping file. Raises UsageError if it cannot be read, and RecipeError with all errors in it."""
    mapping: NameMapping = read_section(path, _MappingFile, "the mapping", "tensors")
    return mapping


def of_flags(pairs: Sequence[str]) -> dict[str, TensorSource]:
    """Parse `INITIALIZER=TENSOR` arguments of the command line."""
    found: dict[str, TensorSource] = {}
    for pair in pairs:
        name, equals, tensor = pair.partition("=")
        if not equals or not name or not tensor:
            raise UsageError(f"'{pair}' is not of the form INITIALIZER=TENSOR", todo="for example 'model.*=*'")
        try:
            if name_patterns.is_pattern(name):
                name_patterns.check(name, tensor)
        except ValueError as error:
            raise UsageError(str(error)) from error
        found[name] = TensorSource((tensor,))
    return found
