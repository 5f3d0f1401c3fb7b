"""The specification of a verification, as immutable values: what to feed, and how strictly to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from surgery.model.runtime.setup import SessionSetup

K = TypeVar("K")


V = TypeVar("V")


Mode = Literal["each", "end", "off"]


Compare = Literal["region", "whole", "both"]


Deployment = Literal["end", "each", "off"]


Unverified = Literal["refuse", "accept"]


Better = Literal["higher", "lower"]


class FrozenDict(dict[K, V]):
    """An immutable dict. Unlike `MappingProxyType`, it can be pickled and copied."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a loaded recipe cannot be changed")

    __setitem__: Any = _refuse
    __delitem__: Any = _refuse
    __ior__: Any = _refuse
    clear: Any = _refuse
    pop: Any = _refuse
    popitem: Any = _refuse
    setdefault: Any = _refuse
    update: Any = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return type(self), (dict(self),)


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
class DataSpec:
    """Whole sets of inputs: a file, a folder, or `arrays` by the names of the inputs.

    `path` is a `.npz`, a folder with `input_0.pb` and so on, or a folder of such files and folders; with `arrays`, it
    is the name of the set in messages. `found` marks a test set that was found next to the model: problems with it are
    remarks, not errors.
    """

    path: Path
    arrays: Mapping[str, Any] | None = field(default=None, compare=False)
    found: bool = False
    place: Place | None = field(default=None, compare=False)


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
