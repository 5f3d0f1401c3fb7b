"""The result of a pass that is neither committed nor rolled back yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery.base.promises import Parity
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph.signature_mappings import SignatureMapping
from surgery.model.graph.state import Defect, Refused, Site
from surgery.model.storage.summary import operators
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.output_judge import VACUOUS

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


@dataclass(frozen=True)
class State:
    """A committed model without weights: the message, its bytes, and the count of each operator."""

    proto: onnx.ModelProto
    data: bytes
    ops: Mapping[str, int]

    @classmethod
    def of(cls, proto: onnx.ModelProto, data: bytes) -> State:
        """Build a state from a message and its bytes."""
        return cls(proto, data, operators(proto))

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return sum(self.ops.values())


@dataclass(frozen=True)
class Candidate:
    """The result of a pass on the committed model.

    `proto` and `data` are the model without weights, as a message and as bytes; `proto` is None if there is no result.
    `live` says whether the graph that passes work on holds it. `complaint` says what is wrong, or is empty; `exit_code`
    is then 1 for a negative verdict and 3 for a pass that broke. A `final` candidate was refused before, in parts as
    well. `defects` are the sites that a standard pass lost to an exception. `renamed` maps inputs and outputs to their
    new names, and `accounts` describe how they follow from the previous ones. `remarks` are what the pass says about
    its result. `shapes` are the inferred shapes that the pass could rely on, `doubts` the values of which it could
    not, because a run contradicts them; if it `is_outdated`, there are more of them now, and the pass has to run again.
    """

    step: PassStep
    proto: onnx.ModelProto | None = None
    data: bytes = b""
    changed: bool = False
    live: bool = False
    sites: tuple[Site, ...] = ()
    refusals: tuple[Refused, ...] = field(default=(), repr=False)
    verdict: Verdict | None = None
    complaint: str = ""
    exit_code: int = 0
    final: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    accounts: tuple[SignatureMapping, ...] = ()
    defects: tuple[Defect, ...] = ()
    remarks: tuple[str, ...] = ()
    doubts: Collection[str] = ()
    shapes: Mapping[str, ir.Shape] = field(default_factory=dict, repr=False, compare=False)
    is_outdated: bool = False

    @property
    def promise(self) -> Parity:
        """The promise of its pass with the options of the step."""
        return self.step.find().promise(self.step.options)

    @property
    def ok(self) -> bool:
        """Whether it may be committed."""
        return not self.complaint

    @property
    def keeps(self) -> bool:
        """Whether it is committed, verified or not."""
        return self.ok or (self.step.on_failure == "keep" and not self.is_outdated)

    @property
    def applied(self) -> tuple[Site, ...]:
        """The sites that were not skipped."""
        return tuple(site for site in self.sites if not site.skipped)

    @property
    def is_wrong(self) -> bool:
        """Whether there is a changed model that is wrong, rather than none or an unverified one."""
        return bool(self.complaint) and self.changed and (self.verdict is None or self.verdict.is_different)

    @property
    def is_over_budget(self) -> bool:
        """Whether there is a changed model of several sites that was compared and is wrong."""
        return self.is_wrong and self.verdict is not None and len(self.applied) > 1 and not self.final

    @property
    def is_certain(self) -> bool:
        """Whether another run would give the same outcome: no lack of time, memory or a library affected it."""
        verdict = self.verdict
        if self.ok:
            return verdict is None or verdict.status.accepted
        if verdict is None:
            return False
        return verdict.reason == VACUOUS or (verdict.is_different and verdict.details is not None)

    @property
    def is_unverified(self) -> bool:
        """Whether there is a changed model that could not be verified."""
        return self.changed and self.verdict is not None and self.verdict.is_unverified


@dataclass(frozen=True)
class Later:
    """The candidate after `steps` more steps; with no more steps, the candidate itself."""

    candidate: Candidate
    steps: int

    @property
    def made(self) -> tuple[int, tuple[onnx.ModelProto, bytes]] | None:
        """The model that is compared in place of the one that the steps started from, or None."""
        proto = self.candidate.proto
        return (self.steps, (proto, self.candidate.data)) if proto is not None else None

    @property
    def remark(self) -> str:
        """The remark on it in a message."""
        number = f"next {self.steps} steps" if self.steps > 1 else "next step"
        return f"compared as one with the {number}, up to {self.candidate.step.name}"
