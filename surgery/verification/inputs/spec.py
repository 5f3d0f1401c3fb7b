"""The specification of a verification, as immutable values: what to feed, and how strictly to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from surgery.runtime.setup import SessionSetup

K = TypeVar("K")


V = TypeVar("V")


Mode = Literal["each", "end", "off"]


Compare = Literal["region", "whole", "both"]


Unverified = Literal["refuse", "accept"]


Better = Literal["higher", "lower"]


class FrozenDict(dict[K, V]):
    """A dict that refuses to change. It pickles and copies, which `MappingProxyType` does not."""

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
    """Where something is in a recipe; line and column count from 1."""

    path: str
    line: int
    column: int


@dataclass(frozen=True)
class TensorSpec:
    """How to fill one input: exactly one of `values`, `range` and `file` is given.

    `values` lists what to choose among, `range` the least and the greatest value (both included for integers), `file`
    a `.npy`, `.npz` or `.pb` (a protobuf as in ONNX test sets), resolved against the recipe's folder.
    """

    values: tuple[int | float | bool | str, ...] | None = None
    range: tuple[float, float] | None = None
    file: Path | None = None
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class DataSpec:
    """Whole sets of inputs: a file, a folder, or `arrays` by the names of the inputs.

    `path` is a `.npz`, a folder with `input_0.pb` and so on, or a folder of such files and folders. `found` marks
    a test set that was found next to the model: what is wrong with it is a remark, not an error.
    """

    path: Path
    arrays: Mapping[str, Any] | None = field(default=None, compare=False)
    found: bool = False
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class GeneratorSpec:
    """A function of a local Python file: `function(dims: dict[str, int], seed: int) -> dict[str, array]`.

    Whoever makes one has asked whether the file may be run; the loader of recipes does. What it makes for inputs that
    are `gone` from the model by now is left out.
    """

    file: Path
    function: str
    place: Place | None = field(default=None, compare=False)
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SampleSpec:
    """Inputs that are like those of the model's use, to calibrate with or to measure accuracy on.

    `data` are whole sets. Without any, those given for verification are taken; where there are none of these either,
    `sets` are drawn, or made by the generator; None draws more of them the cheaper a run is.
    """

    data: tuple[DataSpec, ...] = ()
    sets: int | None = None


@dataclass(frozen=True)
class InputsSpec:
    """What is known of the model's inputs.

    `dims`: the extents to try for each named dim. `tensors`: how to fill single inputs. `data`: whole sets of inputs.
    `generator`: who makes inputs for given dims. `only_given`: add no set with data of our own making. `calibration`:
    what passes calibrate with.
    """

    dims: Mapping[str, tuple[int, ...]] = field(default_factory=FrozenDict)
    tensors: Mapping[str, TensorSpec] = field(default_factory=FrozenDict)
    data: tuple[DataSpec, ...] = ()
    generator: GeneratorSpec | None = None
    only_given: bool = False
    calibration: SampleSpec = field(default_factory=SampleSpec)


@dataclass(frozen=True)
class Limit:
    """A limit to one metric of an output, or of every output where that is None; see `accuracy.budget`."""

    metric: str
    value: float
    output: str | None = None


@dataclass(frozen=True)
class MetricSpec:
    """A metric of the user's, and how much worse it may become: `function(outputs, sets) -> float` of a Python file.

    Both arguments are lists with a dict of arrays for each set of evaluation data: the outputs of a model by name, and
    all arrays of the set (inputs, and others such as labels). `drop` is a share of the metric of the original if
    `relative`. With `lower`, less is better. Whoever makes one has asked whether the file may be run; the loader of
    recipes does.
    """

    file: Path
    function: str
    drop: float
    relative: bool = False
    lower: bool = False
    place: Place | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """What to call it in a message."""
        return f"{self.file.name}:{self.function}"


@dataclass(frozen=True)
class AccuracySpec:
    """What lossy steps may lose, and on which inputs that is measured.

    Without limits and a metric, the default budget holds.
    """

    limits: tuple[Limit, ...] = ()
    samples: SampleSpec = field(default_factory=SampleSpec)
    metric: MetricSpec | None = None


@dataclass(frozen=True)
class VerifySpec:
    """How strictly to verify. A tolerance of None leaves it to the dtype and the promise of the pass.

    `mode`: after each pass, once at the end, or never. `compare`: whether the region of a change decides where it
    can, and the whole model at the end, or the whole model each time, or `both`: the region where outputs of the whole
    model that agree prove nothing. `unverified`: whether a step that could not be verified counts as failed. `timeout`
    is in seconds for one run of the model, `memory` in bytes for the process that runs it.
    `custom_op_library`: shared libraries with custom operators for ONNX Runtime, native code that whoever makes this
    has asked about. `providers`: execution providers of ONNX Runtime, in the order of preference; none means the CPU.
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
    accuracy: AccuracySpec = field(default_factory=AccuracySpec)

    @property
    def setup(self) -> SessionSetup:
        """What sessions of ONNX Runtime are made with."""
        return SessionSetup(self.custom_op_library, self.providers)
