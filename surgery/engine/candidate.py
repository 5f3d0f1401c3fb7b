"""What a pass made of the committed model, before anybody decides what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery.graph.signature_mappings import SignatureMapping
from surgery.graph.state import Refused, Site
from surgery.promises import Parity
from surgery.proto.summary import operators
from surgery.recipe.schema import PassStep
from surgery.verification.comparing.details import Verdict

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class State:
    """A committed model without weights: as a message, serialized, and its operators counted."""

    proto: onnx.ModelProto
    data: bytes
    ops: Mapping[str, int]

    @classmethod
    def of(cls, proto: onnx.ModelProto, data: bytes) -> State:
        """Count the operators of a model, given as a message and serialized."""
        return cls(proto, data, operators(proto))

    @property
    def nodes(self) -> int:
        """The number of its nodes."""
        return sum(self.ops.values())


@dataclass(frozen=True)
class Candidate:
    """What a pass made of the committed model, not committed yet.

    `complaint` says what is wrong with it, or is empty; `exit_code` is then 1 for a negative verdict and 3 for a pass
    that broke. One that is `final` was refused already, and in parts too. `proto` and `data` are the model without
    weights, as a message and serialized; without a result, `proto` is None. `live` tells whether the graph that passes
    work on holds it. `renamed` says what inputs and outputs are called now, `accounts` how they follow from those
    before.
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

    @property
    def promise(self) -> Parity:
        """What its pass promises, with the options of the step."""
        return self.step.find().promise(self.step.options)

    @property
    def ok(self) -> bool:
        """Whether it may be committed."""
        return not self.complaint

    @property
    def keeps(self) -> bool:
        """Whether it is committed, right or not."""
        return self.ok or self.step.on_failure == "keep"

    @property
    def applied(self) -> tuple[Site, ...]:
        """The sites that were not skipped."""
        return tuple(site for site in self.sites if not site.skipped)

    @property
    def is_wrong(self) -> bool:
        """Whether there is a changed model and it is wrong, rather than none or one that nothing is known of."""
        return bool(self.complaint) and self.changed and (self.verdict is None or self.verdict.is_different)

    @property
    def is_unverified(self) -> bool:
        """Whether there is a changed model of which nothing could be shown."""
        return self.changed and self.verdict is not None and self.verdict.is_unverified
