"""Given sets of inputs: from a recipe, the caller, or a test set next to the model.

Given sets come before drawn ones. A set that a user asked for must fit the model and run; one that was found next to
the model is left out, with a remark, if it does not. Expected outputs are compared with the original's, because only
the original can be blamed if they are not reproduced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.verification.inputs.dims import free_names
from surgery.verification.inputs.feed_plan import Binding, read_defaults, read_ports
from surgery.verification.inputs.generator import sets_of
from surgery.verification.inputs.given_values import (
    FileValues,
    MisfitError,
    is_set,
    natural,
    read_set,
    read_tensors,
    sets_in,
    shape_of,
    split,
)
from surgery.verification.inputs.images import ImageReader, image_files, is_image
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
        known = ModelPorts.of(model)
        read_tensors(inputs, known.ports, known.defaults)
        found = [(item, self._sets_of(item, known)) for item in inputs.data]
        names = _names([one.path for _, sets in found for one in sets])
        for item, sets in found:
            self._read(item, sets, names, known.ports)
        covered = inputs.generator is not None or all(port.name in inputs.tensors for port in known.ports)
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

    def _sets_of(self, item: DataSpec, known: ModelPorts) -> list[DataSet]:
        try:
            return data_sets(item, known, labelled=self._labelled)
        except (MisfitError, OSError) as raised:
            self._leave_out(item, item.path, Path(item.title).name, raised)
            return []

    def _read(
        self, item: DataSpec, sets: Sequence[DataSet], names: Mapping[Path, str], ports: Sequence[InputPort]
    ) -> None:
        for one in sets:
            try:
                values = one.read()
            except (MisfitError, OSError) as raised:
                self._leave_out(item, one.path, names[one.path], raised)
                return
            self.sets.append(
                GivenBinding(
                    bind(ports, values.inputs),
                    names[one.path],
                    feed=values.inputs,
                    expected=values.outputs,
                    others=values.others,
                    found=item.found,
                    place=item.place,
                    path=one.path,
                )
            )

    def _leave_out(self, item: DataSpec, path: Path, name: str, raised: MisfitError | OSError) -> None:
        """Record that a found set does not fit; for one that was asked for, raise the error."""
        error = raised if isinstance(raised, MisfitError) else MisfitError(f"cannot be read: {raised.strerror}")
        if not item.found:
            error.complain(item.place, str(path) if path != item.path else item.title)
        self.left_out.append((GivenBinding({}, name, found=True), str(error)))


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name paths by their last part, with the folder where several share it."""
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


@dataclass(frozen=True)
class ModelPorts:
    """What the sets for a model have to fit: its inputs, those with defaults, and its graph."""

    ports: Sequence[InputPort]
    defaults: Sequence[InputPort]
    graph: onnx.GraphProto

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ModelPorts:
        """Return those of a model."""
        return cls(read_ports(model), read_defaults(model), model.graph)


@dataclass(frozen=True)
class DataSet:
    """One set of inputs under the name of its file; `read` may raise MisfitError or OSError."""

    path: Path
    read: Callable[[], FileValues]


def data_sets(item: DataSpec, model: ModelPorts, *, labelled: bool = False) -> list[DataSet]:
    """Return the sets of a specification, which are not read yet; raise MisfitError if there are none."""
    if item.arrays is not None:
        return [DataSet(item.path, partial(_split, item.arrays, model, labelled))]
    if item.function:
        found = sets_of(item.path, item.function)
        titles = [Path(f"{item.title} {number}") for number in range(1, len(found) + 1)]
        return [DataSet(title, partial(_split, arrays, model, labelled)) for title, arrays in zip(titles, found)]
    if has_images(item):
        reader, groups = _images(item, model)
        return [DataSet(group[0], partial(_read_images, reader, group)) for group in groups]
    more = {"labelled": labelled}
    return [
        DataSet(path, partial(read_set, path, model.ports, model.defaults, model.graph, **more))
        for path in sets_in(item.path)
    ]


def check(skeleton: bytes, items: Iterable[DataSpec]) -> None:
    """Raise RecipeError or UsageError for data that does not fit a model, before a run needs it.

    The first set of each item is read, and all images are opened.
    """
    import onnx

    ports = ModelPorts.of(onnx.load_model_from_string(skeleton))
    for item in items:
        with _complaining(item):
            if has_images(item):
                reader, groups = _images(item, ports)
                reader.check([file for group in groups for file in group])
        _first(item, ports, 1)


def first_sets(skeleton: bytes, items: Sequence[DataSpec], most: int) -> tuple[DataSpec, ...]:
    """Return up to `most` sets as arrays, without those after them being read; raise RecipeError or UsageError."""
    import onnx

    ports = ModelPorts.of(onnx.load_model_from_string(skeleton))
    found: list[DataSpec] = []
    for item in items:
        found += _first(item, ports, most - len(found))
    return tuple(found)


def _first(item: DataSpec, ports: ModelPorts, most: int) -> list[DataSpec]:
    with _complaining(item):
        sets = data_sets(item, ports, labelled=True)[:most]
    found = []
    for one in sets:
        with _complaining(item, one.path):
            found.append(DataSpec(one.path, one.read().inputs))
    return found


@contextmanager
def _complaining(item: DataSpec, path: Path | None = None) -> Iterator[None]:
    """Raise problems with an item, or with the set at a path, as errors for the user."""
    try:
        yield
    except (MisfitError, OSError) as raised:
        error = raised if isinstance(raised, MisfitError) else MisfitError(f"cannot be read: {raised.strerror}")
        error.complain(item.place, str(path or item.title))


def has_images(item: DataSpec) -> bool:
    """Return whether an item is an image or a folder of images: declared as such, or without sets of other formats."""
    if item.arrays is not None or item.function:
        return False
    if item.images is not None or is_image(item.path):
        return True
    if not item.path.is_dir() or is_set(item.path):
        return False
    return not any(one.suffix == ".npz" or is_set(one) for one in item.path.iterdir()) and bool(image_files(item.path))


def _images(item: DataSpec, model: ModelPorts) -> tuple[ImageReader, list[list[Path]]]:
    """Return the reader of images, and the images of each set."""
    if not item.path.exists():
        raise MisfitError("no such file or folder")
    reader = ImageReader.of(item.images, model.ports)
    return reader, reader.sets(image_files(item.path))


def _read_images(reader: ImageReader, files: Sequence[Path]) -> FileValues:
    return FileValues({reader.port.name: reader.read(files)})


def _split(arrays: Mapping[str, Any], model: ModelPorts, labelled: bool) -> FileValues:
    return split(arrays, model.ports, model.defaults, model.graph, labelled=labelled)
