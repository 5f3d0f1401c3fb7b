"""The specification of a verification, as immutable values: what to feed, and how strictly to compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from surgery.base.errors import UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.model.runtime.setup import SessionSetup

Mode = Literal["each", "end", "off"]


Compare = Literal["region", "whole", "both"]


Deployment = Literal["end", "each", "off"]


Unverified = Literal["refuse", "accept"]


Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Place:
    """A position in a recipe; line and column count from 1."""

    path: str
    line: int
    column: int


@dataclass(frozen=True)
class TensorSpec:
    """How to fill one input: exactly one of `values`, `range` and `file` is given.

    `values` lists the values to choose from, `range` the smallest and the largest value (both included for integers),
    `file` a `.npy`, `.npz` or `.pb` (a protobuf as in ONNX test sets), resolved against the recipe's folder.
    """

    values: tuple[int | float | bool | str, ...] | None = None
    range: tuple[float, float] | None = None
    file: Path | None = None
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ImageSpec:
    """How images become the input of a model: `(pixel * scale - mean) / std`, at the size of the input.

    `mean` and `std` have one number, or one per channel. Without `scale`, it is 1/255, or 1 if `mean` or `std` exceed 1
    and so are in units of pixels. `layout` and `size` (height and width) are needed only where the model's input does
    not show them. `fit` says what happens to images of another shape: they are stretched, cropped in the center, or
    padded with black; `resize` is the length of the shorter side before a crop, such as 256 before a crop to 224.
    `limit` is the number of images that are used, spread evenly over the folder.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float | None = None
    layout: Literal["NCHW", "NHWC"] | None = None
    size: tuple[int, int] | None = None
    fit: Literal["stretch", "crop", "pad"] | None = None
    resize: int | None = None
    channels: Literal["RGB", "BGR"] = "RGB"
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    limit: int = 128

    @property
    def unusual(self) -> dict[str, Any]:
        """The options that differ from the defaults, as plain values."""
        usual = type(self)()
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        listed = {name: value for name, value in found.items() if value != getattr(usual, name)}
        return {name: [*value] if isinstance(value, tuple) else value for name, value in listed.items()}


@dataclass(frozen=True)
class DataSpec:
    """Whole sets of inputs: a file, a folder, `arrays` by the names of the inputs, or the result of a function.

    `path` is a `.npz`, a folder with `input_0.pb` and so on, a folder of such files and folders, or a folder of images,
    which are read as `images` says. With `function`, it is a Python file, and that function returns an iterable of
    dicts of arrays; the caller has to ask first whether the file may be run. With `arrays`, it is the name of the set
    in messages. `found` marks a test set that was found next to the model: problems with it are remarks, not errors.
    """

    path: Path
    arrays: Mapping[str, Any] | None = field(default=None, compare=False)
    found: bool = False
    place: Place | None = field(default=None, compare=False)
    images: ImageSpec | None = None
    function: str = ""

    @classmethod
    def of(cls, text: str, images: ImageSpec | None = None) -> DataSpec:
        """Read the path of a file or folder, or `FILE.py:FUNCTION`."""
        file, _, function = text.rpartition(":")
        if file.endswith(".py") and function.isidentifier():
            return cls(Path(file), function=function)
        return cls(Path(text), images=images)

    @classmethod
    def each(cls, given: Any) -> tuple[DataSpec, ...]:
        """Return sets given in Python: paths, mappings of arrays, specifications, or a list of these.

        Raises UsageError for anything else.
        """
        items: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        return tuple(cls._one(item, number) for number, item in enumerate(items, start=1))

    @classmethod
    def _one(cls, item: Any, number: int) -> DataSpec:
        if isinstance(item, DataSpec):
            return item
        if isinstance(item, Mapping):
            return cls(Path(f"inputs {number}"), item)
        if isinstance(item, str | os.PathLike):
            return cls.of(os.fspath(item))
        todo = "pass a path, or a mapping from the names of inputs to arrays, or a list of these"
        raise UsageError(f"an object of type {type(item).__name__} is no set of inputs", todo=todo)

    def written(self, path: Callable[[Path], Any] = Path) -> Any:
        """Return the set as a recipe has it: a path, a function, or a mapping with a folder; `path` converts paths."""
        if self.images is not None:
            return {"images": path(self.path), **self.images.unusual}
        return f"{path(self.path)}:{self.function}" if self.function else path(self.path)

    @property
    def title(self) -> str:
        """The name used in messages."""
        return f"{self.path}:{self.function}" if self.function else str(self.path)


@dataclass(frozen=True)
class GeneratorSpec:
    """A function of a local Python file: `function(dims: dict[str, int], seed: int) -> dict[str, array]`.

    The caller has to ask first whether the file may be run; the loader of recipes does. Arrays for inputs that are
    `gone` from the model are ignored.
    """

    file: Path
    function: str
    place: Place | None = field(default=None, compare=False)
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SampleSpec:
    """Inputs like those in the model's actual use, for calibration or for measuring accuracy.

    `data` are whole sets. Without any, those given for verification are used; if there are none either, `sets` sets are
    drawn, or made by the generator. With None, the number is larger the cheaper a run is.
    """

    data: tuple[DataSpec, ...] = ()
    sets: int | None = None


@dataclass(frozen=True)
class InputsSpec:
    """The settings for the model's inputs.

    `dims`: the extents to try for each named dim. `tensors`: how to fill single inputs. `data`: whole sets of inputs.
    `generator`: the function that makes inputs for given dims. `only_given`: add no sets with generated data.
    `calibration`: the inputs that passes calibrate with.
    """

    dims: Mapping[str, tuple[int, ...]] = field(default_factory=FrozenDict)
    tensors: Mapping[str, TensorSpec] = field(default_factory=FrozenDict)
    data: tuple[DataSpec, ...] = ()
    generator: GeneratorSpec | None = None
    only_given: bool = False
    calibration: SampleSpec = field(default_factory=SampleSpec)


@dataclass(frozen=True)
class MetricLimit:
    """A limit on one metric of an output, or of every output if `output` is None, such as 30 for `snr` in dB."""

    metric: str
    value: float
    output: str | None = None


@dataclass(frozen=True)
class MetricSpec:
    """A user's metric, and how much worse it may become: `function(outputs, sets) -> float` of a Python file.

    Both arguments are lists with a dict of arrays for each set of evaluation data: the outputs of a model by name, and
    all arrays of the set (inputs, and others such as labels). `drop` is a share of the original's metric if `relative`.
    With `lower`, lower is better. The caller has to ask first whether the file may be run; the loader of recipes does.
    """

    file: Path
    function: str
    drop: float
    relative: bool = False
    lower: bool = False
    place: Place | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """The name used in messages."""
        return f"{self.file.name}:{self.function}"

    @property
    def allowed(self) -> str:
        """The allowed drop, as a recipe writes it."""
        return f"{self.drop * 100:g} %" if self.relative else f"{self.drop:g}"


@dataclass(frozen=True)
class AccuracySpec:
    """How much accuracy lossy steps may lose, and on which inputs it is measured.

    Without limits and a metric, the default budget applies.
    """

    limits: tuple[MetricLimit, ...] = ()
    samples: SampleSpec = field(default_factory=SampleSpec)
    metric: MetricSpec | None = None


@dataclass(frozen=True)
class VerifySpec:
    """How strictly to verify. A tolerance of None is derived from the dtype and the promise of the pass.

    `mode`: after each pass, once at the end, or never. `compare`: whether the region of a change decides where it can,
    and the whole model at the end, or the whole model each time, or `both`: the region only where agreeing outputs of
    the whole model prove nothing. `deployment`: whether the result, or the model after each step, or neither, also runs
    as deployed, with the default options of ONNX Runtime. `unverified`: whether a step that could not be verified
    counts as failed. `timeout` is in seconds for one run of the model, `memory` in bytes for the process that runs it.
    `custom_op_library`: shared libraries with custom operators for ONNX Runtime, native code that the caller has to ask
    about first. `providers`: execution providers of ONNX Runtime in order of preference; none means the CPU.
    """

    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    mode: Mode = "each"
    unverified: Unverified = "refuse"
    timeout: float = 300.0
    memory: int | None = None
    custom_op_library: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()
    compare: Compare = "region"
    deployment: Deployment = "end"
    accuracy: AccuracySpec = field(default_factory=AccuracySpec)

    @property
    def setup(self) -> SessionSetup:
        """The configuration of ONNX Runtime sessions."""
        return SessionSetup(self.custom_op_library, self.providers)
