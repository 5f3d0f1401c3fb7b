"""New names for values, nodes and dims of a model, all assigned at once, so that names can be swapped.

Data that refers to a value by name is updated too: quantization annotations, and the order of declarations in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage
from surgery.model.storage import QUANTIZATION, residue_of
from surgery.model.storage.ir_scopes import scopes, values

_WORD = re.compile(r"[^\W\d]\w*")


def rename_values(model: ir.Model, names: Mapping[ir.Value, str]) -> None:
    """Give values new names, which no other value of their scope may have."""
    told = {value.name: name for value, name in names.items() if value.name}
    orders = [(scope, list(scope.initializers.values())) for scope in scopes(model)]
    for number, value in enumerate(names):
        value.name = f"\0{number}"
    for value, name in names.items():
        value.name = name
    for scope, initializers in orders:
        if list(scope.initializers.values()) != initializers:
            scope.initializers.clear()
            scope.initializers.update((value.name or "", value) for value in initializers)
    for value in values(scopes(model)):
        if QUANTIZATION in value.meta:
            entries = value.meta[QUANTIZATION]
            value.meta[QUANTIZATION] = {key: told.get(name, name) for key, name in entries.items()}
    owners: list[ir.Graph | ir.Function] = [*scopes(model), *model.functions.values()]
    for owner in owners:
        residue = residue_of(owner)
        if residue is not None:
            residue.rename(told)


def rename_node(node: ir.Node, name: str, by: str) -> None:
    """Give a node a new name; its lineage records the old name, and the pass `by`."""
    before = lineage.read(node.metadata_props) or Lineage(origins=(node.name,) if node.name else ())
    node.name = name
    lineage.derive([before], by).write(node.metadata_props)


def dim_names(model: ir.Model) -> dict[str, None]:
    """List the names of all declared dims, including those within expressions."""
    texts = [dim.value for _, shape in _shapes(model) for dim in shape if isinstance(dim, ir.SymbolicDim) and dim.value]
    return dict.fromkeys(name for text in texts for name in (text, *_WORD.findall(text)))


def rename_dims(model: ir.Model, names: Mapping[str, int | str]) -> None:
    """Give dims new names or sizes wherever they are declared, including within expressions such as `2*sequence`."""

    def renamed(text: str) -> int | str:
        if text in names:
            return names[text]
        changed = _WORD.sub(lambda word: str(names.get(word[0], word[0])), text)
        fixed = any(isinstance(names.get(word), int) for word in _WORD.findall(text))
        return _worked_out(changed) if fixed else changed

    for value, shape in _shapes(model):
        dims = [renamed(dim.value) if isinstance(dim, ir.SymbolicDim) and dim.value else dim for dim in shape]
        if dims != list(shape):
            value.shape = ir.Shape(dims, [shape.get_denotation(axis) for axis in range(len(dims))])


def _worked_out(text: str) -> int | str:
    """Simplify an expression in which a name was replaced by a number."""
    from surgery.model.shapes.symbols import normal  # it imports sympy

    return normal(text)


def _shapes(model: ir.Model) -> Iterator[tuple[ir.Value, ir.Shape]]:
    for value in values(scopes(model)):
        if value.shape is not None:
            yield value, value.shape
