"""The verdict and its evidence, as plain values for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from surgery.base.json_record import Record


class Status(StrEnum):
    """The result of a verification."""

    EQUAL = "equal"
    """Bit-identical."""
    CLOSE = "close"
    """Within the tolerance, or beyond it but as close to float64 as the original."""
    DIFFERENT = "different"
    """Beyond the tolerance or the promise, or the changed model fails."""
    UNVERIFIED = "unverified"
    """Nothing could be shown; the verdict has the reason."""
    LOSSY = "lossy"
    """Less accurate on purpose, within the budget."""
    INTENDED = "intended"
    """The pass intends to compute something else, and the changed model is checked and runs."""

    @property
    def passed(self) -> bool:
        """Whether the models are shown to agree."""
        return _MEANINGS[self].passed

    @property
    def accepted(self) -> bool:
        """Whether a step may be committed with it under any recipe: shown to agree, or not meant to."""
        return _MEANINGS[self].accepted

    @property
    def style(self) -> str:
        """The color in which reports show it."""
        return _MEANINGS[self].style


class _Meaning(NamedTuple):
    passed: bool
    accepted: bool
    style: str


_MEANINGS = {
    Status.EQUAL: _Meaning(True, True, "green"),
    Status.CLOSE: _Meaning(True, True, "green"),
    Status.DIFFERENT: _Meaning(False, False, "red"),
    Status.UNVERIFIED: _Meaning(False, False, "yellow"),
    Status.LOSSY: _Meaning(False, True, "cyan"),
    Status.INTENDED: _Meaning(False, True, "cyan"),
}

REPRODUCED = "reproduced"
"""The outcome if the original reproduced the outputs that came with a set of inputs."""

NOTHING_HELPS = {"rtol": None, "atol": None, "factor": None}
"""The needed tolerance in reports if no tolerance would have helped, or nothing was compared."""

Plain = float | int | bool | str | complex
"""One element of an output."""


@dataclass(frozen=True)
class Element(Record):
    """One element of an output on both sides. `ulp` is their distance in units in the last place, for floats.

    `item` is the position of the tensor in an output that is a sequence. The index of a complex number has one more
    entry, 0 for its real part and 1 for its imaginary part. `binding` is the set of inputs.
    """

    output: str
    item: tuple[int, ...]
    index: tuple[int, ...]
    original: Plain
    changed: Plain
    ulp: float | None = None
    binding: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NonFinitePlaces(Record):
    """Elements that are NaN, or infinite, on one side only: how many, and the first."""

    count: int
    first: Element


@dataclass(frozen=True)
class Arbitration(Record, keys="original changed narrow unavailable?"):
    """The result of the float64 run. `original` and `changed` are the largest distances from it, in tolerances.

    `narrow` names the operators that had to run in float32. `unavailable` says why there is no float64 result.
    """

    original: float | None = None
    changed: float | None = None
    narrow: tuple[str, ...] = ()
    unavailable: str = ""


ErrorUnit = Literal["tolerance", "rms"]
"""The unit of the errors of an output: the tolerance, or the root mean square of the original's output."""


@dataclass(frozen=True)
class OutputErrors(Record, keys="output=name elements equal unit endless largest worst"):
    """The error distribution of one output, in shares of the tolerance; a share of 1 uses all that is allowed.

    For a lossy step, errors are shares of the root mean square of the output. `equal` elements are equal, and no share
    would cover the errors of `endless` ones. `counts[i]` of the others have errors between `2**(first + i)` and
    `2**(first + i + 1)` units. `worst` is the element with the largest error, `largest` its share.
    """

    name: str
    elements: int
    equal: int
    endless: int
    largest: float
    worst: Element | None
    first: int
    counts: tuple[int, ...]
    unit: ErrorUnit = "tolerance"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**super().to_json(), "shares": {"first": self.first, "counts": list(self.counts)}}


@dataclass(frozen=True)
class Details(Record, keys="elements differing beyond ulp worst nan infinite float64 metrics accuracy outputs tied"):
    """The findings of a comparison over all outputs and sets of inputs.

    `elements` were compared, `differing` of them have different bits, `beyond` of them exceed the tolerance. `ulp` is
    the largest distance in units in the last place, `worst` the element that needs the largest tolerance, `metrics` how
    near the outputs of a LOSSY step are as a whole, and `accuracy` how much of the budget they use and on which inputs.
    `outputs` has the error distribution of each output, if the whole model was compared. `tied` says whether the models
    were compared with the choices of the original, because they choose otherwise between nearly equal values.
    """

    elements: int = 0
    differing: int = 0
    beyond: int = 0
    ulp: float = 0.0
    worst: Element | None = None
    nan: NonFinitePlaces | None = None
    infinite: NonFinitePlaces | None = None
    metrics: Mapping[str, float] | None = None
    accuracy: Mapping[str, Any] | None = None
    float64: Arbitration | None = None
    outputs: tuple[OutputErrors, ...] = ()
    tied: bool = False


@dataclass(frozen=True)
class Verdict(Record, keys="verdict=status reason needed message details region together"):
    """The result of a verification.

    `needed` is the smallest rtol and atol, together, that would have passed, and as `factor` their multiple of the
    tolerance; None if no tolerance would have helped. `reason` says why something is unverified: "not-run", "vacuous",
    "nondeterministic" or "region". `details` is None if no outputs were compared. `region` is the number of nodes that
    were compared in place of the whole model, None if the whole model was compared. `together` is the number of steps
    after this one that were compared jointly with it, None if each step is compared by itself. `cached` says whether
    the verdict comes from an earlier run.
    """

    status: Status
    reason: str | None = None
    needed: Mapping[str, float] | None = None
    message: str = ""
    details: Details | None = None
    region: int | None = None
    together: int | None = None
    cached: bool = field(default=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the models are shown to agree."""
        return self.status.passed

    @property
    def leaves_open(self) -> bool:
        """Whether the model after this step was not compared as a whole."""
        return self.region is not None or self.together is not None

    @property
    def is_different(self) -> bool:
        """Whether the models are shown to differ."""
        return self.status is Status.DIFFERENT

    @property
    def is_tied(self) -> bool:
        """Whether the models agree but for choices between nearly equal values."""
        return self.passed and self.details is not None and self.details.tied

    @property
    def is_unverified(self) -> bool:
        """Whether nothing could be shown."""
        return self.status is Status.UNVERIFIED

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**super().to_json(), "needed": dict(self.needed if self.needed is not None else NOTHING_HELPS)}
