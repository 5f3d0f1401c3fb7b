"""The request of `surgery export`: the target, its inputs, and the names of dynamic dims.

The inputs are described in a YAML file, or given as arrays in a .npz file:

    inputs:
      - {name: input_ids, dtype: int64, dims: [batch, sequence], range: [0, 299]}
      - {name: attention_mask, dtype: int64, dims: [batch, sequence], range: [0, 1]}
    dims: {batch: [2, 1, 3], sequence: [7, 12]}      # sizes to export and to compare with; the first is the example
    outputs: [last_hidden_state]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from surgery.engine.recipe.draft import Draft, TakesError
from surgery.engine.recipe.fields import OneOrMore, Section, entries, needed, reads, text
from surgery.engine.recipe.fields import key as may
from surgery.engine.recipe.section_file import read_section
from surgery.engine.yaml.yaml_nodes import YamlNode, plain
from surgery.model.checkpoints.checkpoints import read_checkpoint

Exporter = Literal["auto", "dynamo", "torchscript"]


@dataclass(frozen=True)
class ModuleInput:
    """One input: names in `dims` are dynamic dims, numbers are fixed ones; `range` is inclusive."""

    name: str
    dims: tuple[int | str, ...]
    dtype: str = "float32"
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class ModuleInputs:
    """All inputs, the sizes of dynamic dims to try, the names of outputs, and arrays, if any."""

    inputs: tuple[ModuleInput, ...] = ()
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> list[dict[str, Any]]:
        """Return the inputs as plain values for the worker, with the sizes of example inputs."""
        return [
            {
                "name": one.name,
                "dtype": one.dtype,
                "range": None if one.range is None else list(one.range),
                "sizes": [extent if isinstance(extent, int) else self.size(extent) for extent in one.dims],
            }
            for one in self.inputs
        ]

    def size(self, dim: str) -> int:
        """Return the size of a dynamic dim in the example; the default is not 1, which exporters treat as fixed."""
        return self.dims[dim][0] if self.dims.get(dim) else 2 + sorted(self.named()).index(dim)

    def named(self) -> set[str]:
        """Return the names of all dynamic dims."""
        return {extent for one in self.inputs for extent in one.dims if isinstance(extent, str)}

    def axes(self) -> dict[str, dict[str, str]]:
        """Return the names of dynamic dims by input and axis; keys are strings, as required in messages to workers."""
        found = {
            one.name: {str(axis): extent for axis, extent in enumerate(one.dims) if isinstance(extent, str)}
            for one in self.inputs
        }
        return {name: of for name, of in found.items() if of}


def _extents(node: YamlNode) -> tuple[int | str, ...]:
    found = plain(node)
    if isinstance(found, list) and all(
        (type(one) is int and one >= 0) or (isinstance(one, str) and one.isidentifier()) for one in found
    ):
        return tuple(found)
    raise TakesError("a list of sizes and names such as [batch, 3, 224, 224]")


def _range(node: YamlNode) -> tuple[float, float]:
    found = plain(node)
    if isinstance(found, list) and len(found) == 2 and all(type(one) in (int, float) for one in found):
        low, high = found
        if low <= high:
            return low, high
    raise TakesError("the least and the greatest value, such as [0, 299]")


def _sizes(node: YamlNode) -> tuple[int, ...]:
    found = plain(node)
    listed = found if isinstance(found, list) else [found]
    if listed and all(type(one) is int and one > 0 for one in listed):
        return tuple(listed)
    raise TakesError("one or more sizes such as [2, 1, 3]")


class _Input(Section):
    makes = ModuleInput
    wanted = "a mapping such as {name: x, dims: [batch, 3]}"
    needs: ClassVar = {"name": "an input needs a 'name'", "dims": "an input needs 'dims'"}

    name: Annotated[str, text("the name of an input")] = needed("The name.")
    dims: Annotated[Any, reads(lambda node, _: _extents(node))] = needed("Sizes, and names of dynamic dims.")
    dtype: Annotated[str, text("a type such as float32 or int64")] = may("The type of the elements.")
    range: Annotated[Any, reads(lambda node, _: _range(node))] = may("The least and the greatest value.")


class _RequestFile(Section):
    wanted = "a mapping such as {inputs: [{name: x, dims: [batch, 3]}]}"
    needs: ClassVar = {"inputs": "the file needs 'inputs'"}

    inputs: Annotated[tuple[_Input, ...], OneOrMore()] = needed("The inputs, in their order.")
    dims: Annotated[dict[str, Annotated[Any, reads(lambda node, _: _sizes(node))]], entries("sizes by name")] = may(
        "Sizes of dynamic dims to try; the first is used for the example."
    )
    outputs: Annotated[tuple[Annotated[str, text("the name of an output")], ...], OneOrMore()] = may("Their names.")

    def made(self, draft: Draft, node: Any, given: dict[str, Any]) -> Any:
        """Create the inputs, and check that names are consistent."""
        inputs, dims = given.get("inputs", ()), dict(given.get("dims") or {})
        found = ModuleInputs(tuple(inputs), dims, tuple(given.get("outputs", ())))
        for name in sorted(dims.keys() - found.named()):
            draft.problem(
                node, f"no input has the dim '{name}'; there are: {', '.join(sorted(found.named())) or 'none'}"
            )
        names = [one.name for one in inputs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            draft.problem(node, f"two inputs are called '{name}'")
        return found


def load(path: Path) -> ModuleInputs:
    """Read a YAML file, or the arrays of a .npz file. Raises UsageError and RecipeError for errors in it."""
    if path.suffix == ".npz":
        return _arrays(path)
    inputs: ModuleInputs = read_section(path, _RequestFile, "the file", "inputs")
    return inputs


def _arrays(path: Path) -> ModuleInputs:
    from surgery.model import storage

    found = read_checkpoint(path, storage.Weights())
    arrays = {name: found.tensor(name).numpy().copy() for name in found.entries}
    inputs = tuple(ModuleInput(name, array.shape, str(array.dtype)) for name, array in arrays.items())
    return ModuleInputs(inputs, arrays=arrays)
