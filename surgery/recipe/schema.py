"""What a recipe says, as immutable values. Light to import: no YAML, no validation, no pydantic.

`surgery.recipe.load` builds these from YAML and guarantees what the fields say here; code that builds them itself
(`surgery run`, tests) gives the same guarantees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from surgery.recipe.comparison import Comparison

if TYPE_CHECKING:
    from surgery.registry.declare import Pass

K = TypeVar("K")
V = TypeVar("V")

OnFailure = Literal["abort", "rollback", "bisect", "keep"]
ON_FAILURE = get_args(OnFailure)
Mode = Literal["each", "end", "off"]
Compare = Literal["region", "whole"]
Unverified = Literal["refuse", "accept"]

OUTPUT_FIELDS = ("stem",)
"""The names that may stand in braces in `output`: the model's file name without its suffix."""


class FrozenDict(dict[K, V]):
    """A dict that refuses to change. It pickles and copies, which `MappingProxyType` does not."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a recipe does not change once it is loaded")

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
    """Where something stands in a recipe; line and column count from 1."""

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

    `path` is a `.npz`, a folder with `input_0.pb` and so on, or a folder of such files and folders. `found` marks what
    nobody asked for, a test set beside the model: what is wrong with it is a remark and no error.
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
class InputsSpec:
    """What is known of the model's inputs.

    `dims`: the extents to try for each named dim. `tensors`: how to fill single inputs. `data`: whole sets of inputs.
    `generator`: who makes inputs for given dims. `only_given`: add no set with data of our own making.
    """

    dims: Mapping[str, tuple[int, ...]] = field(default_factory=FrozenDict)
    tensors: Mapping[str, TensorSpec] = field(default_factory=FrozenDict)
    data: tuple[DataSpec, ...] = ()
    generator: GeneratorSpec | None = None
    only_given: bool = False


@dataclass(frozen=True)
class VerifySpec:
    """How strictly to verify. A tolerance of None leaves it to the dtype and the promise of the pass.

    `mode`: after each pass, once at the end, or never. `compare`: whether the region of a change decides where it
    can, and the whole model at the end, or the whole model each time. `unverified`: whether a step that could not
    be verified counts as failed. `timeout` is in seconds for one run of the model, `memory` in bytes for the process
    that runs it.
    `custom_op_library`: shared libraries with custom operators for ONNX Runtime, native code that whoever makes this
    has asked about. `cosine` and `snr` (in dB) are the least that the outputs of a LOSSY step may have, each output by
    itself; they take the place of the default tolerance.
    """

    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    mode: Mode = "each"
    unverified: Unverified = "refuse"
    timeout: float = 300.0
    memory: int | None = None
    custom_op_library: tuple[Path, ...] = ()
    cosine: float | None = None
    snr: float | None = None
    compare: Compare = "region"


@dataclass(frozen=True)
class When:
    """Conditions on the model as it is before a step; the step runs if all of them hold."""

    ops: Mapping[str, Comparison] = field(default_factory=FrozenDict)
    nodes: Comparison | None = None
    opset: Comparison | None = None


@dataclass(frozen=True)
class Expect:
    """What has to hold of the model after a step, or after the recipe. `sites` is for a step only."""

    ops: Mapping[str, Comparison] = field(default_factory=FrozenDict)
    nodes: Comparison | None = None
    opset: Comparison | None = None
    sites: Comparison | None = None
    signature: Literal["unchanged"] | None = None


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """Where a step stands, for messages; two equal steps may stand in different places."""

    when: When | None = None
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)
    path: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """The place as `path:line:column`, both from 1."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class PassStep(_Placed):
    """Run one pass. `options` stand as they were given; `Pass.bind` converts them.

    `declared` is the pass itself where it belongs to the recipe, made from one of its rules; the name of any other is
    looked up in the registry. An `on_failure` of None leaves it to the recipe, see `surgery.recipe.failing`.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=FrozenDict)
    on_failure: OnFailure | None = None
    expect: Expect | None = None
    declared: Pass | None = None

    def find(self) -> Pass:
        """Return the pass to run; UsageError if there is none of that name."""
        from surgery.registry import declare

        return self.declared if self.declared is not None else declare.find(self.name)

    def bind(self) -> dict[str, Any]:
        """Convert the options; files are named from the folder of the recipe."""
        return self.find().bind(self.options, Path(self.path).parent if self.path else Path())


@dataclass(frozen=True)
class RepeatStep(_Placed):
    """Run steps several times: `times` rounds, or with None until a round changes nothing.

    `on_failure` is what the recipe says, for rounds that do not end; a recipe has no such key here.
    """

    times: int | None
    steps: tuple[Step, ...]
    on_failure: OnFailure | None = None


@dataclass(frozen=True)
class UseStep(_Placed):
    """Run the steps of another recipe.

    Of that recipe `steps` and `expect` count, and `on_failure` where no recipe around it has one. Its `model`,
    `inputs`, `verify` and `output` were checked and are ignored: the outer recipe says what is rewritten and how it is
    verified.
    """

    recipe: Recipe


Step = PassStep | RepeatStep | UseStep


@dataclass(frozen=True)
class Recipe:
    """One recipe. Relative paths in it were resolved against its folder; `path` is None when it has no file.

    `on_failure` holds for the steps that say nothing of it; None leaves it to the recipe that uses this one.
    """

    name: str
    steps: tuple[Step, ...] = ()
    about: str = ""
    path: Path | None = None
    model: Path | None = None
    output: str | None = None
    plugins: tuple[str, ...] = ()
    rules: Mapping[str, Pass] = field(default_factory=FrozenDict)
    inputs: InputsSpec = field(default_factory=InputsSpec)
    verify: VerifySpec = field(default_factory=VerifySpec)
    on_failure: OnFailure | None = None
    expect: Expect = field(default_factory=Expect)
