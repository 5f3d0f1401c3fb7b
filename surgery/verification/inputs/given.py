"""Given sets of inputs: from a recipe, the caller, or a test set next to the model.

Given sets come before drawn ones. A set that a user asked for must fit the model and run; one that was found next to
the model is left out, with a remark, if it does not. Expected outputs are compared with the original's, because only
the original can be blamed if they are not reproduced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.verification.inputs.dims import free_names
from surgery.verification.inputs.feed_plan import Binding, read_defaults, read_ports
from surgery.verification.inputs.given_values import (
    MisfitError,
    is_set,
    natural,
    read_set,
    read_tensors,
    sets_in,
    shape_of,
    split,
)
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import DataSpec, InputsSpec, Place

if TYPE_CHECKING:
    import onnx

_MOST_FOUND = 10
"""Maximum number of test sets next to a model that are used without being asked for."""


@dataclass(frozen=True)
class GivenBinding(Binding):
    """A given set of inputs. `expected` are the outputs that came with it, `others` further arrays.

    `outcome` says how these outputs compare: "reproduced" by the original, or where it differs. `dims` are those of the
    arrays, `character` the name of the file or folder.
    """

    feed: Mapping[str, Any] = field(default_factory=dict, compare=False)
    expected: Mapping[str, Any] = field(default_factory=dict, compare=False)
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    outcome: str | None = None
    found: bool = False
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=Path(), compare=False)

    def as_json(self, refused: str | None = None) -> dict[str, Any]:
        """Return the set for a report; nothing was drawn, so there is no seed."""
        entry = {**super().as_json(refused), "seed": None}
        return entry if self.outcome is None else {**entry, "expected_outputs": self.outcome}


def found_sets(model: Path) -> tuple[DataSpec, ...]:
    """Return the ONNX test sets next to a model file."""
    try:
        folders = [path for path in model.parent.glob("test_data_set_*") if is_set(path)]
    except OSError:
        return ()
    return tuple(DataSpec(path, found=True) for path in sorted(folders, key=natural)[:_MOST_FOUND])


def with_found_sets(inputs: InputsSpec, model: Path | None) -> InputsSpec:
    """Add the test sets next to a model file to the given ones."""
    if model is None:
        return inputs
    asked = {item.path.resolve() for item in inputs.data}
    found = tuple(item for item in found_sets(model) if not {item.path.resolve(), item.path.parent.resolve()} & asked)
    return replace(inputs, data=inputs.data + found)


def without_given_sets(inputs: InputsSpec) -> InputsSpec | None:
    """Return the settings for a model whose defaults were removed, because sets that leave them out do not fit it.

    None if only given sets may be fed, because then no inputs are left.
    """
    return None if inputs.only_given else replace(inputs, data=())


class Given:
    """The sets of inputs that are given for a model.

    `sets` are those that fit it, `accepted` those of them that it ran on, `left_out` those that were found but do not
    fit or do not run, with the reason. A set that was asked for and does not fit raises RecipeError or UsageError. If
    `labelled`, sets may hold arrays that are neither inputs nor outputs.
    """

    def __init__(self, skeleton: bytes, inputs: InputsSpec, *, labelled: bool = False) -> None:
        self._labelled = labelled
        self.sets: list[GivenBinding] = []
        self.accepted: list[GivenBinding] = []
        self.left_out: list[tuple[Binding, str]] = []
        if not (inputs.tensors or inputs.data or inputs.only_given):
            return
        import onnx

        model = onnx.load_model_from_string(skeleton)
        ports = read_ports(model)
        defaults = read_defaults(model)
        read_tensors(inputs, ports, defaults)
        names = _names(inputs.data)
        for item in inputs.data:
            self._read(item, names, model.graph, ports, defaults)
        covered = inputs.generator is not None or all(port.name in inputs.tensors for port in ports)
        if inputs.only_given and not self.sets and not covered:
            raise UsageError("only_given: no input set is given", todo="list some under data, or remove only_given")

    def as_specs(self) -> tuple[DataSpec, ...]:
        """Return the sets as arrays by name, with their outputs."""
        arrays = [
            {name: array for name, array in {**one.expected, **one.feed}.items() if array is not None}
            for one in self.sets
        ]
        return tuple(DataSpec(one.path, found, one.found, one.place) for one, found in zip(self.sets, arrays))

    def accept(self, binding: GivenBinding, refusal: str | None) -> None:
        """Record a set that the original has run on, or has rejected."""
        if refusal is None:
            self.accepted.append(binding)
            return
        if not binding.found:
            MisfitError(f"the original rejects these inputs: {refusal}").complain(binding.place, str(binding.path))
        self.left_out.append((binding, refusal))

    def _read(
        self,
        item: DataSpec,
        names: Mapping[Path, str],
        graph: onnx.GraphProto,
        ports: Sequence[InputPort],
        defaults: Sequence[InputPort],
    ) -> None:
        path = item.path
        try:
            for path in [item.path] if item.arrays is not None else sets_in(item.path):
                if item.arrays is not None:
                    values = split(item.arrays, ports, defaults, graph, labelled=self._labelled)
                else:
                    values = read_set(path, ports, defaults, graph, labelled=self._labelled)
                self.sets.append(
                    GivenBinding(
                        bind(ports, values.inputs),
                        names[path],
                        feed=values.inputs,
                        expected=values.outputs,
                        others=values.others,
                        found=item.found,
                        place=item.place,
                        path=path,
                    )
                )
        except (MisfitError, OSError) as raised:
            error = raised if isinstance(raised, MisfitError) else MisfitError(f"cannot be read: {raised.strerror}")
            if not item.found:
                error.complain(item.place, str(path))
            self.left_out.append((GivenBinding({}, names.get(path, path.name), found=True), str(error)))


def _names(data: Sequence[DataSpec]) -> dict[Path, str]:
    """Name paths by their last part, with the folder where several share it."""
    paths: list[Path] = []
    for item in data:
        try:
            paths += [item.path] if item.arrays is not None else sets_in(item.path)
        except (MisfitError, OSError):
            continue
    counts = Counter(path.name for path in paths)
    return {path: path.name if counts[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in paths}


def bind(ports: Sequence[InputPort], feed: Mapping[str, Any]) -> dict[str, int]:
    """Read the extents of the free dims from arrays: the first if two disagree, 0 if there is no tensor."""
    point: dict[str, int] = {}
    names = free_names(extent for port in ports for extent in port.dims)
    for port in ports:
        shape = shape_of(feed.get(port.name))
        for extent, actual in zip(port.dims, shape or ()):
            if extent in names:
                point.setdefault(str(extent), actual)
    return {name: point.get(name, 0) for name in names}
